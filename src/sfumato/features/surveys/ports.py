"""Protocols for the store of surveys and the store of their signing keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from sfumato.features.surveys.blind_signatures import PublicKey
from sfumato.features.surveys.tally import Tally

TakeResult = Literal["counted", "already", "spent", "closed"]
State = Literal["open", "closed"]
# gets the texts of all stored surveys, and says if a new one fits them
Fits = Callable[[Iterable[str]], bool]


@dataclass(frozen=True)
class StoredSurvey:
    """A published survey as it is stored: its id, owner, published text and state."""

    id: str
    owner: str
    text: str  # the canonical JSON text whose digest is the id
    state: State


@dataclass(frozen=True)
class Invited:
    """One invitation to a survey, without the code or the person's name.

    Of the code only a hash is stored.
    """

    digest: str
    survey: str
    account: str  # the ledger account of this person's epsilon


@dataclass(frozen=True)
class Ballot:
    """A randomised report, with the digest of the one-time ballot token that it uses up."""

    survey: str
    token: str  # SHA-256 (hex) of the ballot token
    said: str  # the report as text; randomised_report.py defines the format


@dataclass(frozen=True)
class ReportTotals:
    """A survey's number of reports, published or not, and the tally of the published ones."""

    reports: int  # counts all reports, shown or not
    shown: Tally


class SurveyStore(Protocol):
    """A store of surveys, invitations and reports; a change is durable when its call returns.

    It stores a report and its token alone: no time, no order, nothing about the sender.
    """

    def add(
        self, kept: StoredSurvey, minimum: int, empty: Tally, *, fits: Fits | None = None
    ) -> bool:
        """Store a survey if `fits` accepts the texts of all stored surveys. Return True if it did.

        The check and the insertion are one atomic step, across all nodes.
        """
        ...

    def find(self, survey: str) -> StoredSurvey | None:
        """Return the stored survey of this id, or None."""
        ...

    def of(self, owner: str) -> tuple[StoredSurvey, ...]:
        """Return all surveys of an owner."""
        ...

    def every(self) -> tuple[StoredSurvey, ...]:
        """Return all surveys of all owners, to compare a new wave of a series with earlier ones."""
        ...

    def close(self, survey: str) -> bool:
        """Close a survey and show all its reports; return whether this call closed it."""
        ...

    def invite(self, invited: tuple[Invited, ...]) -> None:
        """Store invitations to a survey."""
        ...

    def invited(self, digest: str) -> Invited | None:
        """Return the invitation whose code has this hash, or None."""
        ...

    def invitations(self, survey: str) -> int:
        """Return the number of invitations to a survey."""
        ...

    def take(self, ballot: Ballot) -> TakeResult:
        """Count a report durably, once per ballot token, and return the outcome.

        It is "counted", "already" (sent before), "spent" (the token has another report) or
        "closed".
        """
        ...

    def take_all(self, ballots: Sequence[Ballot]) -> list[TakeResult]:
        """Count several reports in one commit; return the outcome of each (as `take`)."""
        ...

    def standing(self, survey: str) -> ReportTotals:
        """Return a survey's number of all reports, and the tally of its published reports."""
        ...

    def shown(self, survey: str, after: str | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return the published reports that follow the partition named `after`, in token order.

        The reports are a page of several partitions. Each has a name and lines "token said" (token
        digest and report). An empty page is the end.
        """
        ...

    def shut(self) -> None:
        """Close the store's files and connections."""
        ...


class BallotKeys(Protocol):
    """The interface to the keys that sign ballot tokens, one per survey.

    It never returns a private key.
    """

    def make(self) -> tuple[PublicKey, str]:
        """Create a key pair; return its public key and the private key's temporary name."""
        ...

    def keep(self, waiting: str, survey: str) -> None:
        """Name a new private key after its survey, durably; until then it has a temporary name."""
        ...

    def sign(self, survey: str, blinded: bytes) -> bytes:
        """Sign a blinded ballot token with the survey's private key."""
        ...

    def proof(self, survey: str) -> tuple[bytes, ...]:
        """Return the proof that the survey's key can't make signatures that identify respondents.

        The proof is empty once the key is deleted.
        """
        ...

    def is_signed(self, key: PublicKey, token: bytes, signature: bytes) -> bool:
        """Return True if the signature of a ballot token was made with the survey's key."""
        ...

    def forget(self, survey: str) -> None:
        """Delete the private key for good, so that the service signs nothing more with it."""
        ...
