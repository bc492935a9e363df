"""The state machine of airlock requests (output checking): several reviews precede a release.

The files have no noise. A `Request` is immutable: each act returns the next state or refuses. It
contains nothing computed from rows. The files, their hashes and the findings of the checks are
stored separately (see the protocols at the end). A vote names the reviewed draft by its seal. A
seal is a hash with a nonce, so it reveals nothing to somebody who has not seen the draft.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Protocol, Self  # Any: JSON

from sfumato.dp.refusal import Refused
from sfumato.vault.hash_chain import canonical

WAITING, RUNNING, REVIEW = "waiting", "running", "in review"
RELEASED, REJECTED, DECLINED = "released", "rejected", "declined"
WITHDRAWN, EXPIRED, FAILED = "withdrawn", "expired", "failed"
OPEN: Final = (WAITING, RUNNING, REVIEW)
YES, NO = "release", "reject"
WORDS: Final = (YES, NO)


@dataclass(frozen=True)
class Vote:
    """One reviewer's vote on one draft: exactly the files under review that they saw."""

    user: str
    says: str
    seal: str
    draft: int
    at: str
    why: str = ""


@dataclass(frozen=True)
class Request:
    """A request to release a program's files without noise, with its state and votes."""

    id: str
    data_set: str
    people: str
    version: str
    author: str
    owner: str
    reviewers: tuple[str, ...]  # named by the card when the request was submitted
    needed: int
    program: str  # JSON: the source, the columns it reads, the files it must write
    why: str
    at: str
    expires: str
    state: str = WAITING
    draft: int = 0  # increases with every change of the files
    place: str = ""  # the folder of the draft's files, in the private folder
    editors: tuple[str, ...] = ()  # reviewers who replaced a file of the draft by their own
    # one per reviewer: a vote on this draft, or a "reject" of an earlier one
    votes: tuple[Vote, ...] = ()
    ended_by: str = ""
    ended_at: str = ""
    revision: int = 0

    def as_text(self) -> str:
        """Return the request as canonical JSON for the store."""
        return canonical(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Parse a request from the store's JSON."""
        said: dict[str, Any] = json.loads(text)
        votes = tuple(Vote(**vote) for vote in said.pop("votes"))
        listed = {key: tuple(said.pop(key)) for key in ("reviewers", "editors")}
        return cls(**{**said, **listed, "votes": votes})

    @property
    def is_open(self) -> bool:
        """Return True if the request can still change.

        A failed request waits for its owner to decline it.
        """
        return self.state in OPEN or (self.state == FAILED and not self.ended_at)

    def is_reviewer(self, user: str) -> bool:
        """Return True if the user may review the files. The author never may, even as the owner."""
        return user != self.author and (user == self.owner or user in self.reviewers)

    def state_for(self, user: str) -> str:
        """Return the state as the user may see it.

        The author learns nothing of the program's behaviour: neither when a run ends nor that it
        failed, because the program can cause both. They see `in review` until people have decided.
        """
        if user == self.author and self.is_open and self.state != WAITING:
            return REVIEW
        return self.state

    @property
    def lock(self) -> str:
        """Return the name of the file lock that is held while the request runs or is released."""
        return f"request-{self.id}"

    def may_see(self, user: str) -> bool:
        """Return True if the user may know that the request exists."""
        return user in (self.author, self.owner) or self.is_reviewer(user)

    def approvals(self, seal: str) -> tuple[str, ...]:
        """Return the reviewers who approve exactly the draft with this seal.

        A reviewer who put a file of their own into the draft does not count.
        """
        found = {
            vote.user
            for vote in self.votes
            if (vote.says, vote.seal, vote.draft) == (YES, seal, self.draft)
            and self.is_reviewer(vote.user)
            and vote.user not in self.editors
        }
        return tuple(sorted(found))

    def objections(self) -> tuple[str, ...]:
        """Return the users who voted "reject", on this or an earlier draft."""
        return tuple(sorted({vote.user for vote in self.votes if vote.says == NO}))

    def is_cleared(self, seal: str) -> bool:
        """Return True if enough reviewers approve exactly this seal's draft and nobody objects."""
        return not self.objections() and len(self.approvals(seal)) >= self.needed


# --- acts -----------------------------------------------------------------------------------------


def begun(request: Request, user: str) -> Request:
    """Return the request as started, in the state `running`.

    Only the data set's owner may start the program, and only once.
    """
    _check_owner(request, user)
    _check_state(request, WAITING, user)
    return _next(request, state=RUNNING)


def to_review(request: Request, place: str) -> Request:
    """Return the request in review after its run; `place` names the folder of the draft.

    A draft is the set of files under review. The program may have left any files, or none.
    """
    _check_state(request, RUNNING, "")
    return _next(request, state=REVIEW, draft=request.draft + 1, place=place)


def failed(request: Request) -> Request:
    """Return the request as failed: its program could not be run. Its owner then declines it."""
    _check_state(request, RUNNING, "")
    return _next(request, state=FAILED)


def declined(request: Request, user: str, at: str) -> Request:
    """Return the request as declined; only the data set's owner may decline it."""
    _check_owner(request, user)
    _check_open(request, user)
    return _next(request, state=DECLINED, ended_by=user, ended_at=at)


def withdrawn(request: Request, user: str, at: str) -> Request:
    """Return the request as withdrawn; only its author may withdraw it."""
    if user != request.author:
        raise _not_yours("withdrawn by its author")
    _check_open(request, user)
    return _next(request, state=WITHDRAWN, ended_by=user, ended_at=at)


def expired(request: Request, at: str) -> Request:
    """Return the request as expired if it is open and past its expiry time, else unchanged."""
    if request.is_open and at > request.expires:
        return _next(request, state=EXPIRED, ended_at=at)
    return request


def voted(request: Request, vote: Vote, seal: str) -> Request:
    """Record a vote; refuse it unless it names the current draft, whose seal is `seal`.

    A reviewer's last vote counts. Nobody votes on a draft with a file of their own. The request is
    rejected once `needed` reviewers object.
    """
    _check_reviewer(request, vote.user)
    _check_state(request, REVIEW, vote.user)
    if vote.user in request.editors:
        raise Refused(
            "not-allowed",
            "You have put a file into this draft, so you cannot vote on it.",
            "Ask the other reviewers of the request to vote.",
        )
    if vote.says not in WORDS:
        raise Refused(
            "bad-airlock",
            f"A vote on an airlock request must be one of {', '.join(WORDS)}.",
            "Vote again with one of these words.",
        )
    if (vote.seal, vote.draft) != (seal, request.draft):
        raise changed()
    others = tuple(one for one in request.votes if one.user != vote.user)
    made = replace(request, votes=(*others, vote))
    if len(made.objections()) >= request.needed:
        return _next(made, state=REJECTED, ended_by=vote.user, ended_at=vote.at)
    return _next(made)


def replaced(request: Request, user: str, place: str) -> Request:
    """Record a new draft with a file replaced by a reviewer's own; approvals become void."""
    _check_reviewer(request, user)
    _check_state(request, REVIEW, user)
    editors = tuple(sorted({*request.editors, user}))
    return _edited(request, place, editors)


def trimmed(request: Request, user: str, place: str) -> Request:
    """Record a new draft from which a reviewer removed a file; approvals become void.

    The author may never do this: the reply, or its duration, would tell them about the files.
    """
    _check_reviewer(request, user)
    _check_state(request, REVIEW, user)
    return _edited(request, place, request.editors)


def release(request: Request, user: str, at: str, seal: str) -> Request:
    """Return the request as released; refuse unless enough reviewers approve this seal's draft."""
    check_reviewed(request, user)
    if not request.is_cleared(seal):
        count = len(request.approvals(seal))
        raise Refused(
            "airlock-waits",
            f"{count} of the {request.needed} reviewers needed approve these files, or one "
            "objects.",
            "Ask the reviewers to vote: `sfumato airlock vote`.",
        )
    return _next(request, state=RELEASED, ended_by=user, ended_at=at)


def undo_release(request: Request) -> Request:
    """Return a request to review if its release was interrupted before its ledger entry."""
    return replace(request, state=REVIEW, ended_by="", ended_at="")


def _edited(request: Request, place: str, editors: tuple[str, ...]) -> Request:
    """Return the request with the draft in the folder `place`; approvals become void.

    Objections to earlier drafts stay.
    """
    against = tuple(vote for vote in request.votes if vote.says == NO)
    return _next(request, draft=request.draft + 1, place=place, editors=editors, votes=against)


def _next(request: Request, **changes: Any) -> Request:  # Any: fields of a request
    return replace(request, revision=request.revision + 1, **changes)


# --- who and when ---------------------------------------------------------------------------------


def _check_owner(request: Request, user: str) -> None:
    if not request.may_see(user):
        raise unknown()
    if user != request.owner:
        raise _not_yours("decided by the data set's owner")


def _check_reviewer(request: Request, user: str) -> None:
    if not request.may_see(user):
        raise unknown()
    if not request.is_reviewer(user):
        raise _not_yours("reviewed by others than its author")


def _check_open(request: Request, user: str) -> None:
    if not request.is_open:
        raise _over(request, user)


def check_reviewed(request: Request, user: str) -> None:
    """Refuse a user who is no reviewer, and a request that is not in review."""
    _check_reviewer(request, user)
    _check_state(request, REVIEW, user)


def _check_state(request: Request, state: str, user: str) -> None:
    if request.state != state:
        raise _over(request, user)


def _over(request: Request, user: str) -> Refused:
    return Refused(
        "airlock-waits",
        "The airlock request does not allow this step now. Its state is: "
        f"{request.state_for(user)}.",
        "See `sfumato airlock list`.",
    )


def _not_yours(what: str) -> Refused:
    return Refused(
        "not-allowed",
        f"An airlock request can only be {what}.",
        "The data card names the reviewers under [airlock].",
    )


def unknown() -> Refused:
    """Return the refusal of a request that does not exist or that the caller may not see."""
    return Refused(
        "airlock-unknown",
        "There is no airlock request with this id that you may see.",
        "See `sfumato airlock list DATA_SET`.",
    )


def changed() -> Refused:
    """Return the refusal of a vote or release of a draft that has changed since it was reviewed."""
    return Refused(
        "airlock-changed",
        "The files, or the findings of the checks, have changed since you looked at them.",
        "Look again with `sfumato airlock show`, then vote on the current files.",
    )


# --- drafts ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DraftFiles:
    """A private draft: the files under review, and our own measurements of the real rows.

    The checks compare the files with the measurements.
    """

    nonce: str  # makes the seal safe to show to people who may not see the files
    files: Mapping[str, bytes]
    measured: str  # JSON from our own counting program, or empty


def sum_of(file: bytes) -> str:
    """Return the SHA-256 of a file, in hex."""
    return hashlib.sha256(file).hexdigest()


def seal_of(held: DraftFiles, findings: str) -> str:
    """Return the seal by which votes name a draft: a hash of its nonce, files and findings."""
    sums = {path: sum_of(file) for path, file in held.files.items()}
    said = {"nonce": held.nonce, "files": sums, "findings": findings}
    return hashlib.sha256(canonical(said).encode()).hexdigest()


class AirlockStore(Protocol):
    """A store of airlock requests; a change is durable when its call returns."""

    def add(self, request: Request) -> None:
        """Store a new request."""
        ...

    def find(self, request: str) -> Request | None:
        """Return the request of this id, or None."""
        ...

    def of(self, people: str) -> tuple[Request, ...]:
        """Return all requests about a people domain, the newest first.

        A people domain is all data sets about the same people.
        """
        ...

    def all(self) -> tuple[Request, ...]:
        """Return every request of the vault."""
        ...

    def change(self, request: Request) -> bool:
        """Replace the stored request by compare-and-swap; return False if its revision differs."""
        ...


class AirlockFiles(Protocol):
    """A store of drafts (files under review) in a private folder of the vault.

    Only the airlock's release (guarantees/reviewed.py) opens a draft.
    """

    def put(self, held: DraftFiles) -> str:
        """Store a draft durably; return its place, the name of its folder."""
        ...

    def read(self, place: str) -> DraftFiles | None:
        """Return the draft in the folder of this name, or None."""
        ...

    def drop(self, place: str) -> None:
        """Delete the draft in the folder of this name."""
        ...

    def writing(self) -> AbstractContextManager[None]:
        """Hold a lock during the `with` block, so that no sweep deletes the draft being written.

        No request names that draft yet, so a sweep would take it for unused.
        """
        ...

    def holding(self, what: str) -> AbstractContextManager[None]:
        """Hold the exclusive lock of this name during the `with` block, across processes.

        Wait for the lock if necessary.
        """
        ...

    def is_held(self, what: str) -> bool:
        """Return True if a living process holds the lock of this name."""
        ...

    def sweep(self, named: Callable[[], Collection[str]]) -> None:
        """Delete locks of dead processes, and all drafts whose names `named` does not return."""
        ...
