"""Count randomised reports: integer tallies that can be added.

Format 1 counts reports by question, slot and category. Format 2 also stores the randomisers of the
reports, and for each slot the counts that the dp/local randomiser defines.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from sfumato.dp.refusal import Bug
from sfumato.features.surveys.model import Survey
from sfumato.features.surveys.randomisation import (
    QuestionRandomiser,
    choose_randomisers,
    coin_of,
    counted,
)
from sfumato.vault.hash_chain import canonical

Slot = tuple[int, ...]


@dataclass(frozen=True)
class Tally:
    """The counts of a survey's reports, by question, sub-question (slot) and answer.

    It also stores the randomisers with which the reports were made, except in format 1.
    """

    reports: int
    counts: tuple[tuple[Slot, ...], ...]
    coins: tuple[QuestionRandomiser, ...] = ()  # empty in format 1: each count is of one category

    def __add__(self, other: Tally) -> Tally:
        """Add two tallies of reports that have the same randomisers."""
        if self.coins != other.coins:
            raise Bug("tallies of different coins cannot be added")
        pairs = zip(self.counts, other.counts, strict=True)
        counts = tuple(_added(*pair) for pair in pairs)
        return Tally(self.reports + other.reports, counts, self.coins)

    def with_reports(self, texts: Sequence[str]) -> Tally:
        """Return the tally with these reports added; they must have been validated before."""
        counts = [[list(slot) for slot in question] for question in self.counts]
        for part, times in Counter(part for text in texts for part in text.split(" ")).items():
            question, slot, said = map(int, part.split("."))
            self._count(counts[question][slot], question, said, times)
        made = tuple(tuple(map(tuple, question)) for question in counts)
        return Tally(self.reports + len(texts), made, self.coins)

    def text(self) -> str:
        """Return the tally of reports as JSON text for the store."""
        kept: dict[str, object] = {"reports": self.reports, "counts": self.counts}
        if self.coins:
            kept["coins"] = canonical([dict(coin.parameters) for coin in self.coins])
        return canonical(kept)

    def _count(self, slot: list[int], question: int, said: int, times: int) -> None:
        if not self.coins:
            slot[said] += times
            return
        for place, count in enumerate(counted(self.coins[question], said)):
            slot[place] += times * count


def nothing(survey: Survey) -> Tally:
    """Return the empty tally of a newly published survey, with all counts at zero."""
    if survey.format == 1:
        return Tally(0, tuple(((0,) * q.categories,) * q.slots for q in survey.questions))
    coins = choose_randomisers(survey)
    pairs = zip(survey.questions, coins, strict=True)
    counts = tuple(((0,) * len(counted(coin, 0)),) * q.slots for q, coin in pairs)
    return Tally(0, counts, coins)


def read_tally(text: str) -> Tally:
    """Parse a tally of reports from the store's JSON text."""
    kept = json.loads(text)
    counts = tuple(tuple(tuple(slot) for slot in question) for question in kept["counts"])
    return Tally(int(kept["reports"]), counts, _coins(kept["coins"]) if "coins" in kept else ())


@lru_cache(maxsize=256)
def _coins(text: str) -> tuple[QuestionRandomiser, ...]:
    return tuple(map(coin_of, json.loads(text)))


def _added(first: tuple[Slot, ...], second: tuple[Slot, ...]) -> tuple[Slot, ...]:
    return tuple(
        tuple(a + b for a, b in zip(one, two, strict=True))
        for one, two in zip(first, second, strict=True)
    )
