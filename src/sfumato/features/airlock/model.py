"""The airlock is output checking: files that can't have noise leave only by several reviewers.

A request is a value; each act gives the next one, or refuses. It holds nothing that rows have
touched: the files, their hashes and what the checks found are kept apart (`ports` below), and a
vote names what was looked at by a seal, which says nothing to whoever has not seen it.
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
STATES: Final = (*OPEN, RELEASED, REJECTED, DECLINED, WITHDRAWN, EXPIRED, FAILED)
YES, NO = "release", "reject"
WORDS: Final = (YES, NO)


@dataclass(frozen=True)
class Vote:
    """One reviewer's word on exactly what they saw."""

    user: str
    says: str
    seal: str
    draft: int
    at: str
    why: str = ""


@dataclass(frozen=True)
class Request:
    """A program whose files somebody wants to have, and how far that has come."""

    id: str
    data_set: str
    people: str
    version: str
    author: str
    owner: str
    reviewers: tuple[str, ...]  # whom the card named when it was handed in
    needed: int
    program: str  # JSON: the text, its columns, the files it is to write
    why: str
    at: str
    expires: str
    state: str = WAITING
    draft: int = 0  # grows with every change of the files
    place: str = ""  # of the draft's files, in the private folder
    editors: tuple[str, ...] = ()  # whose own bytes are among the files
    votes: tuple[Vote, ...] = ()  # on the draft as it is
    ended_by: str = ""
    ended_at: str = ""
    revision: int = 0

    def as_text(self) -> str:
        """Return it as it is kept."""
        return canonical(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Return the request that was kept."""
        said: dict[str, Any] = json.loads(text)
        votes = tuple(Vote(**vote) for vote in said.pop("votes"))
        listed = {key: tuple(said.pop(key)) for key in ("reviewers", "editors")}
        return cls(**{**said, **listed, "votes": votes})

    @property
    def is_open(self) -> bool:
        """Say whether anything can still become of it: of a failed one, that its owner says so."""
        return self.state in OPEN or (self.state == FAILED and not self.ended_at)

    def is_reviewer(self, user: str) -> bool:
        """Say whether the user may look at its files: never its author, whoever that is."""
        return user != self.author and (user == self.owner or user in self.reviewers)

    def state_for(self, user: str) -> str:
        """Return its state as the user may know it.

        To its author nothing that the program did is a word: neither when its run ends, nor that it
        has failed, which a program can bring about. Both are `in review` until people have ruled.
        """
        if user == self.author and self.is_open and self.state != WAITING:
            return REVIEW
        return self.state

    @property
    def lock(self) -> str:
        """Return what whoever runs it, or lets it out, holds meanwhile."""
        return f"request-{self.id}"

    def may_see(self, user: str) -> bool:
        """Say whether the request is there for the user at all."""
        return user in (self.author, self.owner) or self.is_reviewer(user)

    def approvals(self, seal: str) -> tuple[str, ...]:
        """Return who wants exactly this released; each once, and nobody whose own work it is."""
        found = {
            vote.user
            for vote in self.votes
            if (vote.says, vote.seal, vote.draft) == (YES, seal, self.draft)
            and self.is_reviewer(vote.user)
            and vote.user not in self.editors
        }
        return tuple(sorted(found))

    def objections(self) -> tuple[str, ...]:
        """Return who is against it, whatever draft they have said so of."""
        return tuple(sorted({vote.user for vote in self.votes if vote.says == NO}))

    def is_cleared(self, seal: str) -> bool:
        """Say whether enough reviewers want exactly this released, and none is against it."""
        return not self.objections() and len(self.approvals(seal)) >= self.needed


# --- acts -----------------------------------------------------------------------------------------


def begun(request: Request, user: str) -> Request:
    """Return the request whose program runs now, once, by the owner's word."""
    _check_owner(request, user)
    _check_state(request, WAITING, user)
    return _next(request, state=RUNNING)


def came(request: Request, place: str) -> Request:
    """Return the request whose files are there to be looked at, whatever they are."""
    _check_state(request, RUNNING, "")
    return _next(request, state=REVIEW, draft=request.draft + 1, place=place)


def failed(request: Request) -> Request:
    """Return the request whose program could not be run, once: its owner is to decline it."""
    _check_state(request, RUNNING, "")
    return _next(request, state=FAILED)


def declined(request: Request, user: str, at: str) -> Request:
    """Return the request that its data set's owner lets go no further."""
    _check_owner(request, user)
    _check_open(request, user)
    return _next(request, state=DECLINED, ended_by=user, ended_at=at)


def withdrawn(request: Request, user: str, at: str) -> Request:
    """Return the request that its author has taken back."""
    if user != request.author:
        raise _not_yours("taken back by its author")
    _check_open(request, user)
    return _next(request, state=WITHDRAWN, ended_by=user, ended_at=at)


def expired(request: Request, at: str) -> Request:
    """Return the request as it is at that moment: over, if its time is."""
    if request.is_open and at > request.expires:
        return _next(request, state=EXPIRED, ended_at=at)
    return request


def voted(request: Request, vote: Vote, seal: str) -> Request:
    """Return the request with that vote; `seal` is what there is to be seen now.

    A reviewer has one vote: the last. Nobody votes on their own work.
    """
    _check_reviewer(request, vote.user)
    _check_state(request, REVIEW, vote.user)
    if vote.user in request.editors:
        raise Refused(
            "not-allowed", "You have put a file into this draft.", "Others have to review it."
        )
    if vote.says not in WORDS:
        raise Refused("bad-airlock", f"A vote is one of {', '.join(WORDS)}.", "Correct it.")
    if (vote.seal, vote.draft) != (seal, request.draft):
        raise changed()
    others = tuple(one for one in request.votes if one.user != vote.user)
    made = replace(request, votes=(*others, vote))
    if len(made.objections()) >= request.needed:
        return _next(made, state=REJECTED, ended_by=vote.user, ended_at=vote.at)
    return _next(made)


def replaced(request: Request, user: str, place: str) -> Request:
    """Return the request with a file of the reviewer's own in it: whoever said yes votes anew."""
    _check_reviewer(request, user)
    _check_state(request, REVIEW, user)
    editors = tuple(sorted({*request.editors, user}))
    return _edited(request, place, editors)


def trimmed(request: Request, user: str, place: str) -> Request:
    """Return the request with a file less: whoever said yes votes anew, and nothing new came in.

    Never by its author: what they were told, or how long it took, would be of the files.
    """
    _check_reviewer(request, user)
    _check_state(request, REVIEW, user)
    return _edited(request, place, request.editors)


def let_out(request: Request, user: str, at: str, seal: str) -> Request:
    """Return the request whose files its author may have, if enough want exactly these released."""
    check_reviewed(request, user)
    if not request.is_cleared(seal):
        count = len(request.approvals(seal))
        raise Refused(
            "airlock-waits",
            f"{count} of {request.needed} reviewers want this draft released as it is now, or one "
            "is against it.",
            "It waits for their votes: `sfumato airlock vote`.",
        )
    return _next(request, state=RELEASED, ended_by=user, ended_at=at)


def not_out(request: Request) -> Request:
    """Return a request that was killed on its way out: in review, for nothing of it has left."""
    return replace(request, state=REVIEW, ended_by="", ended_at="")


def _edited(request: Request, place: str, editors: tuple[str, ...]) -> Request:
    """Return the request with other files; who was against it still is, until they say else."""
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
    """Refuse whoever may not release the request, and a request that is not reviewed yet."""
    _check_reviewer(request, user)
    _check_state(request, REVIEW, user)


def _check_state(request: Request, state: str, user: str) -> None:
    if request.state != state:
        raise _over(request, user)


def _over(request: Request, user: str) -> Refused:
    return Refused(
        "airlock-waits",
        f"The request's state is: {request.state_for(user)}.",
        "See `sfumato airlock list`.",
    )


def _not_yours(what: str) -> Refused:
    return Refused("not-allowed", f"A request is {what}.", "See who reviews it on the card.")


def unknown() -> Refused:
    """Return the refusal of a request that is not there for whoever asks."""
    return Refused(
        "airlock-unknown", "There is no such request.", "See `sfumato airlock list DATA_SET`."
    )


def changed() -> Refused:
    """Return the refusal of what is not what was looked at."""
    return Refused(
        "airlock-changed",
        "The files, or what the checks say of them, are not what was looked at.",
        "Look again with `sfumato airlock show`, then vote on what is there now.",
    )


# --- what is looked at ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Held:
    """A draft's files, by path, and what was measured beside them; rows have touched all of it."""

    nonce: str  # so that a seal can be shown to whoever may not see the files
    files: Mapping[str, bytes]
    measured: str  # JSON of our own program's, or nothing


def sum_of(file: bytes) -> str:
    """Return the SHA-256 by which a file is pinned."""
    return hashlib.sha256(file).hexdigest()


def seal_of(held: Held, findings: str) -> str:
    """Return what a vote is on: these very bytes under these names, and what the checks said."""
    sums = {path: sum_of(file) for path, file in held.files.items()}
    said = {"nonce": held.nonce, "files": sums, "findings": findings}
    return hashlib.sha256(canonical(said).encode()).hexdigest()


class AirlockStore(Protocol):
    """The requests of a vault; every change is durable when it returns."""

    def add(self, request: Request) -> None:
        """Remember a request."""
        ...

    def find(self, request: str) -> Request | None:
        """Return one by its id, or None."""
        ...

    def of(self, people: str) -> tuple[Request, ...]:
        """Return every request about these people, the newest first."""
        ...

    def all(self) -> tuple[Request, ...]:
        """Return every request of the vault."""
        ...

    def change(self, request: Request) -> bool:
        """Put the next revision in the place of the one before; False if that is not there."""
        ...


class AirlockFiles(Protocol):
    """Where drafts lie: a private folder of the vault that only its door opens."""

    def put(self, held: Held) -> str:
        """Keep a draft, durably; return its place."""
        ...

    def read(self, place: str) -> Held | None:
        """Return the draft that lies there, or None."""
        ...

    def drop(self, place: str) -> None:
        """Let nothing of it be left."""
        ...

    def writing(self) -> AbstractContextManager[None]:
        """Let no sweep take what is put there meanwhile, and named by no request yet."""
        ...

    def holding(self, what: str) -> AbstractContextManager[None]:
        """Be the only one at it, in this process or any other; wait for whoever is."""
        ...

    def is_held(self, what: str) -> bool:
        """Say whether somebody who is still alive is at it."""
        ...

    def sweep(self, named: Callable[[], Collection[str]]) -> None:
        """Remove what the killed have left: no draft but those that `named` returns."""
        ...
