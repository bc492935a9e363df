"""A program that was handed in, and what its owner said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Protocol

WAITING, APPROVED, DECLINED = "waiting", "approved", "declined"
STATES: Final = (WAITING, APPROVED, DECLINED)


@dataclass(frozen=True)
class Submitted:
    """A program of somebody's on a data set; approved, it may be run up to a price at a time."""

    digest: str
    data_set: str
    program: str  # JSON, the source in it
    by: str
    at: str
    state: str = WAITING
    most_epsilon: Fraction = Fraction(0)
    decided_by: str = ""
    decided_at: str = ""


class PipelineStore(Protocol):
    """The programs of a vault; every change is durable when it returns."""

    def add(self, one: Submitted) -> bool:
        """Remember a program; one that is known stays as it is; say whether it was not."""
        ...

    def find(self, data_set: str, digest: str) -> Submitted | None:
        """Return one by its digest, or None."""
        ...

    def of(self, data_set: str) -> tuple[Submitted, ...]:
        """Return every program of a data set, the newest first."""
        ...

    def decide(self, one: Submitted) -> None:
        """Put down what the owner said of it."""
        ...

    def add_trial(self, data_set: str, digest: str, gave: Sequence[str]) -> None:
        """Add the outputs that a trial on made-up people gave numbers for to earlier ones."""
        ...

    def tried(self, data_set: str, digest: str) -> tuple[str, ...] | None:
        """Return the outputs that any trial gave numbers for; None if there was no trial."""
        ...
