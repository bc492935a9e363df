"""The package's extras (optional dependencies): what each installs, and whether it is present."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sfumato.dp.refusal import Refused

CHECKOUT: Final = Path(__file__).parents[3]
# extra -> the modules that it installs, by their import names
EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "serve": (
        "argon2", "httptools", "jinja2", "segno", "starlette", "uvicorn", "uvloop", "vl_convert",
    ),
    "databases": ("pymysql", "sqlalchemy"),
    "files": ("pyarrow", "pyreadstat", "python_calamine"),
    "frames": ("pandas", "polars", "pyarrow"),
    "plot": ("vl_convert",),
    "lab": ("scipy", "vl_convert"),
    "postgres": ("psycopg",),
    "spark": ("pyspark", "pyarrow"),
    "federated": ("torch",),
}  # fmt: skip


def absent_packages(extra: str) -> tuple[str, ...]:
    """Return the modules of an extra (optional dependency) that aren't installed; import none."""
    return tuple(name for name in EXTRAS[extra] if importlib.util.find_spec(name) is None)


def need(*extras: str) -> None:
    """Refuse if a module of these extras (optional dependencies) isn't installed."""
    for extra in extras:
        for name in absent_packages(extra):
            raise missing(name, *extras)


def need_package(name: str, extra: str) -> None:
    """Refuse if a package of an extra isn't installed, without importing the package."""
    if importlib.util.find_spec(name) is None:
        raise missing(name, extra)


def extra_module(name: str, extra: str) -> Any:  # a module that may be absent
    """Import an optional module; if it isn't installed, refuse and name the extra to install."""
    try:
        return importlib.import_module(name)
    except ImportError:
        pass
    raise missing(name, extra)


def missing(name: str, *extras: str) -> Refused:
    """Return the refusal for a missing package; it names the command that installs the package."""
    here = f" In this checkout: {make_of(*extras)}." if is_checkout() else ""
    return Refused(
        "not-installed",
        f"{name.partition('.')[0]} is not installed.",
        f"Install it with {pip_of(*extras)}.{here}",
    )


def is_checkout() -> bool:
    """Say whether sfumato runs from a clone of the repository, where `make` installs packages."""
    return (CHECKOUT / "Makefile").is_file()


def make_of(*extras: str) -> str:
    """Return the `make` command that installs these extras in a clone of the repository."""
    return f"{make()} .venv/{'torch' if 'federated' in extras else 'dev'}.done"


def make() -> str:
    """Return the command `make`; outside the clone's folder, with -C and the clone's path."""
    with contextlib.suppress(OSError):  # the current folder may be gone
        if Path.cwd().samefile(CHECKOUT):
            return "make"
    return f"make -C {shlex.quote(str(CHECKOUT))}"


def pip_of(*extras: str) -> str:
    """Return the `pip install` command that installs these extras of sfumato."""
    return f'pip install "sfumato[{",".join(extras)}]"'
