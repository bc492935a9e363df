"""Learn from sensitive data without seeing a person in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.dp.refusal import Refused
from sfumato.system.old_import_paths import keep_old_paths

if TYPE_CHECKING:
    from sfumato.app.vault import (
        anonymity,
        case,
        col,
        connect,
        connect_async,
        create,
        federation,
        local_survey,
        open,  # noqa: A004  # `sfumato.open` reads well
    )

__version__ = "0.2.0"
__all__ = [
    "Refused",
    "__version__",
    "anonymity",
    "case",
    "col",
    "connect",
    "connect_async",
    "create",
    "federation",
    "local_survey",
    "open",
]

keep_old_paths()


def __getattr__(name: str) -> object:
    """Import the attribute from the app on first use, so that `import sfumato` stays fast."""
    if name in __all__:  # Refused and the version are here already
        from sfumato.app import vault

        return getattr(vault, name)
    raise AttributeError(f"module 'sfumato' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names of the package, for `dir(sfumato)`."""
    return sorted(__all__)
