"""Read the files of a respondent's device; refuse a damaged file, never treat it as empty."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sfumato.dp.refusal import Refused

ANOTHER: Final = (
    "Another file (in a shell: --device) counts as another device, with new random noise, so the "
    "privacy loss of both adds up."
)


def kept_text(path: Path, what: str) -> str | None:
    """Return the text of a device's file, or None without a file; refuse an unreadable file."""
    try:
        return path.read_text("ascii")
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        pass
    raise unreadable(path, what)


def unreadable(path: Path, what: str) -> Refused:
    """Return the refusal of a damaged device file."""
    return Refused(
        "not-allowed",
        f"The device file {path} is damaged: it does not say {what}.",
        f"Restore this file from a backup. {ANOTHER}",
    )
