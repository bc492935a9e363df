"""Submitted programs with the data set owner's decision, and the protocol to store them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol

from sfumato.dp.refusal import Refused
from sfumato.sandbox.ports import BATCH, ISOLATED

WAITING, APPROVED, DECLINED = "waiting", "approved", "declined"


@dataclass(frozen=True)
class Submitted:
    """A program submitted for approval, with the data set owner's decision.

    Several users may have handed it in. The decision belongs to the digest, so it holds for all of
    them. An approved program may spend up to `most_epsilon` per run. It may run in batches only if
    the owner has said so, because then its blocks are less isolated (soundness rule 27).
    """

    digest: str
    data_set: str
    program: str  # JSON with the source
    by: str  # the first author
    at: str
    state: str = WAITING
    most_epsilon: Fraction = Fraction(0)
    decided_by: str = ""
    decided_at: str = ""
    timing: str = ISOLATED  # the timing that the owner allows: ISOLATED, or also BATCH
    later: tuple[tuple[str, str], ...] = ()  # the other authors, and when they handed it in

    @property
    def authors(self) -> tuple[str, ...]:
        """Return all who handed in the program, the first one first."""
        return (self.by, *(user for user, _ in self.later))

    def seen_by(self, author: str) -> Submitted:
        """Return the program as one of its authors sees it: as handed in by them alone."""
        return replace(self, by=author, at=dict(self.later).get(author, self.at), later=())

    def trials_of(self, user: str) -> str:
        """Return the key of a user's trials in stores: with their name if not the first author's.

        Earlier versions stored the trials of a program under its digest alone.
        """
        return self.digest if user == self.by else f"{self.digest} {user}"

    @property
    def may_batch(self) -> bool:
        """Return True if the owner has reviewed the program and lets it run in batches."""
        return self.state == APPROVED and self.timing == BATCH


@dataclass(frozen=True)
class TrialChoice:
    """How a trial on synthetic people proposed to combine this many blocks of a program."""

    blocks: int
    take: str
    trim: int
    rank: int  # 0 for the number of blocks with the least expected error
    trial: str  # which trial it was, in words


def bad_run(cause: str, next_step: str = "") -> Refused:
    """Return the refusal of a run or a trial whose terms cannot be used, as its asker gave them."""
    return Refused(
        "bad-pipeline",
        f"The run cannot begin with these terms: {cause}.",
        next_step or "Change this term of the run. The submitted program stays as it is.",
    )


def title_of(kind: str, name: str, file: str, own: str) -> str:
    """Return what lists call a program: its function, its file, or what it brings along."""
    if kind == "function":
        return f"{name} in {file}" if file else name
    brought, _, digest = own.partition("-")
    return file or (f"{brought} {digest[:12]}" if own else "program")


def timing_of(*, is_batch: bool) -> str:
    """Return the timing that an approval allows."""
    return BATCH if is_batch else ISOLATED


class PipelineStore(Protocol):
    """A store of submitted programs; a change is durable when its call returns."""

    def add(self, one: Submitted) -> bool:
        """Store a program, or another author of a stored one; return whether it is new."""
        ...

    def find(self, data_set: str, digest: str) -> Submitted | None:
        """Return the data set's submitted program of this digest, or None."""
        ...

    def of(self, data_set: str) -> tuple[Submitted, ...]:
        """Return all programs submitted for a data set, the newest first."""
        ...

    def decide(self, one: Submitted, *, only_waiting: bool = False) -> None:
        """Store a decision on a submitted program; of a rule, only if the program still waits."""
        ...

    # of trials, `digest` is the key of a program's trials by one user (`Submitted.trials_of`)

    def add_trial(self, data_set: str, digest: str, gave: Sequence[str]) -> None:
        """Record which outputs of a program gave a number in a trial on synthetic people."""
        ...

    def set_choices(self, data_set: str, digest: str, choices: Sequence[TrialChoice]) -> None:
        """Record how the last trial of a program proposed to combine blocks."""
        ...

    def choices(self, data_set: str, digest: str) -> tuple[TrialChoice, ...]:
        """Return what the last trial of a program proposed, the least expected error first."""
        ...

    def tried(self, data_set: str, digest: str) -> tuple[str, ...] | None:
        """Return the outputs that gave a number in any trial of a program; None without a trial."""
        ...
