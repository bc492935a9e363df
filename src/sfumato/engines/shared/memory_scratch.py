"""Where the rows of a vault that is sealed at rest may lie open: in memory; the parent's side."""

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
    """The key of what lies on the disk, and private folders of a file system in memory."""

    key: bytes = field(repr=False)
    draw: Callable[[int], bytes] = field(repr=False)
    drafts: Drafts

    def said(self) -> Header:
        """Return what a worker is told, over its pipe; the seed is that worker's alone."""
        return {"key": self.key.hex(), "seed": self.draw(_SEED).hex()}


@contextmanager
def work_for(shelter: MemoryScratch | None, out: Path) -> Iterator[Path]:
    """Give the folder where rows may lie open: the one that is given, or one in memory."""
    if shelter is None:
        yield out
        return
    with shelter.drafts.draft() as made:
        yield Path(made)


def check_sealable(shelter: MemoryScratch | None, card: Card) -> None:
    """Refuse what a sealed vault cannot keep: people's folders, which programs read as they lie."""
    if shelter is not None and card.folders is not None:
        raise Refused(
            "at-rest-not-possible",
            "A vault that is sealed at rest does not keep people's folders ([bids] people).",
            "Add them to a vault that is not, on a disk that is encrypted as a whole.",
        )
