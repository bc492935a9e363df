"""What each extra of the package brings, and whether it is here."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Final

from sfumato.core.refusal import Refused

# extra -> the modules that it brings, as they are imported
EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "serve": (
        "argon2", "httptools", "jinja2", "segno", "starlette", "uvicorn", "uvloop", "vl_convert",
    ),
    "frames": ("pandas", "polars", "pyarrow"),
    "plot": ("vl_convert",),
    "lab": ("scipy", "vl_convert"),
    "postgres": ("psycopg",),
    "spark": ("pyspark", "pyarrow"),
    "federated": ("torch",),
}  # fmt: skip


def absent(extra: str) -> tuple[str, ...]:
    """Return the modules of an extra that are not installed; none of them is imported."""
    return tuple(name for name in EXTRAS[extra] if importlib.util.find_spec(name) is None)


def need(*extras: str) -> None:
    """Refuse if a module of these extras is not installed."""
    missing = [name for extra in extras for name in absent(extra)]
    if missing:
        raise Refused(
            "not-installed",
            f"{missing[0]} is not installed.",
            f'Install it with pip install "sfumato[{",".join(extras)}]".',
        )
