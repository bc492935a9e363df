"""The files of a respondent's device, read: what is damaged is refused, never taken for nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sfumato.dp.refusal import Refused

ANOTHER: Final = (
    "Another file (in a shell: --device) is another device: what it draws is new, and adds up."
)


def kept_text(path: Path, what: str) -> str | None:
    """Return what a file says, or None where there is none; refuse one that cannot be read."""
    try:
        return path.read_text("ascii")
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        pass
    raise unreadable(path, what)


def unreadable(path: Path, what: str) -> Refused:
    """Return the refusal of a file that was damaged: it no longer says what it is kept for."""
    return Refused(
        "not-allowed",
        f"{path} does not say {what}.",
        f"Put it back as it was. {ANOTHER}",
    )
