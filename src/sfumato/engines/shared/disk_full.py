"""A disk or a memory that is full, told from a source that is damaged; in constant words."""

from __future__ import annotations

import errno
import os
from typing import Final

import duckdb

from sfumato.engines.shared.message_frames import Header

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_OF_DISK: Final = (duckdb.IOException, duckdb.TransactionException, duckdb.FatalException)
NO_SPACE: Final[Header] = {
    "refused": [
        "source-too-large",
        "There is no space left for the rows where they are prepared.",
        "Make room on the vault's disk; of a sealed vault also in memory, where SFUMATO_SCRATCH "
        "says. Then try it again.",
    ]
}


def is_full(error: Exception) -> bool:
    """Say whether something could not be written because no space was left for it."""
    if isinstance(error, OSError):
        return error.errno in _FULL
    said = str(error)  # which stays here: another complaint could quote a cell
    return isinstance(error, _OF_DISK) and any(os.strerror(code) in said for code in _FULL)
