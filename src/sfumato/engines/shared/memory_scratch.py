"""Scratch folders in memory for a vault that is encrypted at rest; the parent process's side.

Rows of such a vault may be in plain text only on a memory file system.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.engines.shared.message_frames import Header
from sfumato.sandbox.ports import Drafts
from sfumato.vault.card.data_card import Card

_SEED: Final = 32


@dataclass(frozen=True)
class MemoryScratch:
    """What the engine needs of a vault that is encrypted at rest: its key, and folders in memory.

    Its rows may be in plain text in these folders only.
    """

    key: bytes = field(repr=False)
    draw: Callable[[int], bytes] = field(repr=False)
    drafts: Drafts

    def said(self) -> Header:
        """Return what the start message tells a worker of the encrypted vault: key and random seed.

        Each worker gets a seed of its own.
        """
        return {"key": self.key.hex(), "seed": self.draw(_SEED).hex()}


@contextmanager
def work_for(shelter: MemoryScratch | None, out: Path) -> Iterator[Path]:
    """Yield a folder for plain-text rows: `out`, or one in memory if the vault is encrypted."""
    if shelter is None:
        yield out
        return
    with shelter.drafts.draft() as made:
        yield Path(made)


def check_sealable(shelter: MemoryScratch | None, card: Card) -> None:
    """Refuse a card with people's BIDS folders if the vault is encrypted at rest.

    Programs read these folders directly, so they cannot be encrypted.
    """
    if shelter is not None and card.folders is not None:
        raise Refused(
            "at-rest-not-possible",
            "A vault that is encrypted at rest cannot keep folders of people's files ([bids] "
            "people).",
            "Add them to a vault without a key, on a disk that is encrypted as a whole.",
        )
