"""Protocols only: what surveys need from the world."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from sfumato.features.surveys.blind_signatures import PublicKey
from sfumato.features.surveys.tally import Tally

Taken = Literal["counted", "already", "spent", "closed"]
State = Literal["open", "closed"]
Fits = Callable[[Iterable[str]], bool]  # texts of the surveys that are there


@dataclass(frozen=True)
class Kept:
    """A published survey as it is kept."""

    id: str
    owner: str
    text: str  # the one JSON text that the id is the digest of
    state: State


@dataclass(frozen=True)
class Invited:
    """One invitation, of whose code only a hash is kept; whom it was given to is not."""

    digest: str
    survey: str
    account: str  # of the ledger: what this person gives away in all


@dataclass(frozen=True)
class Ballot:
    """A randomised report, under the token that it spends."""

    survey: str
    token: str  # SHA-256 (hex) of the ballot token
    said: str  # the report, as features/surveys/ballot.py spells it


@dataclass(frozen=True)
class Standing:
    """How many reports are there, and what of them is shown."""

    reports: int  # that there are
    shown: Tally  # the counts of those that are shown


class SurveyStore(Protocol):
    """Surveys, invitations and randomised reports; every change is durable when it returns.

    Of a report nothing is kept but itself and its token: no time, no order, nothing of whoever
    sent it.
    """

    def add(self, kept: Kept, minimum: int, empty: Tally, *, fits: Fits | None = None) -> bool:
        """Remember a survey, if it fits the texts of all that are there; say whether it did.

        No other is added between the look and the end, by no other node either.
        """
        ...

    def find(self, survey: str) -> Kept | None:
        """Return one, or None."""
        ...

    def of(self, owner: str) -> tuple[Kept, ...]:
        """Return the owner's surveys."""
        ...

    def every(self) -> tuple[Kept, ...]:
        """Return all surveys, whoever owns them."""
        ...

    def close(self, survey: str) -> bool:
        """Take no more reports, and show all that came; say whether this call did."""
        ...

    def invite(self, invited: tuple[Invited, ...]) -> None:
        """Remember invitations."""
        ...

    def invited(self, digest: str) -> Invited | None:
        """Return the invitation whose code has this hash, or None."""
        ...

    def invitations(self, survey: str) -> int:
        """Return how many invitations there are."""
        ...

    def take(self, ballot: Ballot) -> Taken:
        """Count the report once for its token, durably; or say why not."""
        ...

    def take_all(self, ballots: Sequence[Ballot]) -> list[Taken]:
        """Count several at once, with one commit for all; say of each how it ended."""
        ...

    def standing(self, survey: str) -> Standing:
        """Return how many reports there are, and the tally of those that are shown."""
        ...

    def shown(self, survey: str, after: str | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return parts of the shown reports that follow that part, in the order of their tokens.

        A part is its name and its lines, "token said". None is left when nothing is returned.
        """
        ...

    def shut(self) -> None:
        """Let go of files and connections."""
        ...


class BallotKeys(Protocol):
    """The keys that sign ballot tokens, one of each survey; their secret halves never leave."""

    def make(self) -> tuple[PublicKey, str]:
        """Return a new public key, and the name under which its secret half waits."""
        ...

    def keep(self, waiting: str, survey: str) -> None:
        """Let the key that waits be the survey's."""
        ...

    def sign(self, survey: str, blinded: bytes) -> bytes:
        """Return the signature of a blinded token."""
        ...

    def proof(self, survey: str) -> tuple[bytes, ...]:
        """Return what shows that the survey's key marks nobody; nothing once it is forgotten."""
        ...

    def is_signed(self, key: PublicKey, token: bytes, signature: bytes) -> bool:
        """Say whether the key has signed the token."""
        ...

    def forget(self, survey: str) -> None:
        """Remove the secret half for good: nothing is signed any more."""
        ...
