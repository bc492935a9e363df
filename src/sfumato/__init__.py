"""Learn from sensitive data without seeing a person in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.core.refusal import Refused

if TYPE_CHECKING:
    from sfumato.app import (
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

__all__ = [
    "Refused",
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


def __getattr__(name: str) -> object:
    """Bring in the app only when it is used, so that a part can be imported alone."""
    if name in __all__:  # Refused is here already
        from sfumato import app

        return getattr(app, name)
    raise AttributeError(f"module 'sfumato' has no attribute {name!r}")
