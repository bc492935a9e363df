"""Hand in a program, let it run once, look at what it left, vote, release, fetch.

What a request may become, `core/airlock.py` decides; what it says, the door. Here is who calls.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from sfumato.core import airlock
from sfumato.core.access import Caller
from sfumato.core.airlock import OPEN, RELEASED, AirlockStore, Request, Vote, unknown
from sfumato.core.airlock_checks import Earlier
from sfumato.core.airlock_files import MOST_BYTES, bad_airlock
from sfumato.core.expression import Json, spelled
from sfumato.core.ports import Catalogue, Clock, Dice, Listing
from sfumato.core.refusal import Refused
from sfumato.door import (
    AirlockDoor,
    Draft,
    check_airlock,
    check_releasable,
    draft_of,
    earlier_of,
    edited,
    fetched,
    has_left,
    release_files,
    reviewers_view,
    run_for_review,
)
from sfumato.plan.airlock import AirlockProgram, kept_files, read_airlock_program

GUARANTEE: Final = "reviewed (not DP)"
MOST_OPEN: Final = 100  # requests of a people domain


@dataclass(frozen=True)
class Airlock:
    """The airlock of one vault."""

    door: AirlockDoor
    store: AirlockStore
    catalogue: Catalogue
    clock: Clock
    dice: Dice

    # --- author -------------------------------------------------------------------------------

    def submit(self, caller: Caller, data_set: str, shape: Mapping[str, object]) -> Json:
        """Hand in a program and the files it is to leave; it waits for the data set's owner."""
        listing = self._asked_listing(caller, data_set)
        terms = listing.card.airlock
        if terms is None:
            raise _closed()
        program = read_airlock_program(listing.card, shape, self._environment())
        why = _why_of(shape.get("why", ""))
        if sum(one.is_open for one in self.store.of(listing.card.people)) >= MOST_OPEN:
            raise Refused("too-many", "Too many requests are open.", "Wait until some are over.")
        now = self.clock.now()
        ends = datetime.fromisoformat(now) + timedelta(days=terms.days)
        made = Request(
            id=self.dice.draw(8).hex(),
            data_set=listing.card.name,
            people=listing.card.people,
            version=listing.card.version,
            author=caller.user,
            owner=listing.owner,
            reviewers=terms.reviewers,
            needed=terms.needed,
            program=spelled(program.as_json()),
            why=why,
            at=now,
            expires=ends.isoformat(),
        )
        if sum(made.is_reviewer(user) for user in {listing.owner, *terms.reviewers}) < terms.needed:
            raise _too_few()
        said: Json = {"digest": program.digest, "files": [one.path for one in program.asked]}
        self._note("airlock-submitted", made, said)
        self.store.add(made)
        return _shown(made, caller)

    def withdraw(self, caller: Caller, request: str) -> Json:
        """Take a request of one's own back."""
        _, found = self._found(caller, request)
        made = airlock.withdrawn(found, caller.user, self.clock.now())
        return self._ended(caller, "airlock-withdrawn", made)

    def fetch(self, caller: Caller, request: str) -> Json:
        """Return the files of a released request, if they are those that the ledger names."""
        _, found = self._found(caller, request)
        return {**_shown(found, caller), **fetched(self.door, found, caller.user)}

    # --- owner --------------------------------------------------------------------------------

    def run(self, caller: Caller, request: str) -> Json:
        """Let the program run, once, on the real rows; what it leaves waits for reviewers."""
        _check_themselves(caller)
        listing, found = self._found(caller, request)
        begun = airlock.begun(found, caller.user)
        program = self._program(listing, found)
        if program.environment != self._environment() or listing.card.version != found.version:
            raise Refused(
                "airlock-waits", "The libraries or the rows are others than when it was handed in.",
                "Its author hands it in again.",
            )  # fmt: skip
        if self.catalogue.is_frozen(listing.card.name):
            raise Refused(
                "data-set-frozen", "You have frozen the data set.", "Thaw it first."
            )  # fmt: skip
        check_airlock(self.door, program)
        self._note("airlock-run", begun, {"by": caller.user, "digest": program.digest})
        self._change(begun)
        place = run_for_review(self.door, listing.card, listing.table, program)
        if place is None:
            return self._ended(caller, "airlock-failed", airlock.failed(begun, self.clock.now()))
        made = airlock.came(begun, place)
        self._change(made, place)
        return _shown(made, caller)

    def decline(self, caller: Caller, request: str) -> Json:
        """Let a request go no further."""
        _check_themselves(caller)
        _, found = self._found(caller, request)
        made = airlock.declined(found, caller.user, self.clock.now())
        return self._ended(caller, "airlock-declined", made)

    # --- reviewers ----------------------------------------------------------------------------

    def show(self, caller: Caller, request: str) -> Json:
        """Return a request; to its reviewers with the files, which are real, and the findings."""
        listing, found = self._found(caller, request)
        shown = _shown(found, caller)
        if found.state != airlock.REVIEW or not found.is_reviewer(caller.user):
            return shown
        _check_themselves(caller)
        return {**shown, **reviewers_view(found, caller.user, self._draft(listing, found))}

    def vote(
        self, caller: Caller, request: str, says: str, seen: tuple[str, int], why: str
    ) -> Json:
        """Put down a reviewer's word on what they saw: its seal, and which draft it was."""
        _check_themselves(caller)
        listing, found = self._found(caller, request)
        seal, draft = seen
        vote = Vote(caller.user, says, seal, draft, self.clock.now(), _why_of(why))
        if not found.is_reviewer(caller.user) or found.state != airlock.REVIEW:
            airlock.voted(found, vote, "")  # which refuses, without a look at any file
        made = airlock.voted(found, vote, self._draft(listing, found).seal)
        self._note("airlock-vote", made, {"by": caller.user, "says": says, "seal": seal})
        if made.state == airlock.REJECTED:
            return self._ended(caller, "airlock-rejected", made)
        self._change(made)
        return _shown(made, caller)

    def trim(self, caller: Caller, request: str, path: str) -> Json:
        """Take a file out; whoever wanted it released votes anew."""
        _check_themselves(caller)
        listing, found = self._found(caller, request)
        airlock.trimmed(found, caller.user, "")  # refuses before any file is read
        draft = self._draft(listing, found)
        if path not in draft.held.files:
            raise bad_airlock("no file of that name is in the draft")
        place = edited(self.door, draft, path, None)
        return self._edit(caller, airlock.trimmed(found, caller.user, place), found, path)

    def replace(self, caller: Caller, request: str, path: str, text: str) -> Json:
        """Put a reviewer's own file in the place of one; others vote anew, and they do not."""
        _check_themselves(caller)
        listing, found = self._found(caller, request)
        airlock.replaced(found, caller.user, "")  # refuses before any file is read
        draft = self._draft(listing, found)
        if path not in draft.held.files:
            raise bad_airlock("no file of that name is in the draft")
        place = edited(self.door, draft, path, _bytes_of(text))
        return self._edit(caller, airlock.replaced(found, caller.user, place), found, path)

    def release(self, caller: Caller, request: str) -> Json:
        """Let the files out, if enough reviewers have said so of exactly these."""
        _check_themselves(caller)
        listing, found = self._found(caller, request)
        airlock.check_reviewed(found, caller.user)
        if self.catalogue.is_frozen(listing.card.name):
            raise Refused("data-set-frozen", "The data set is frozen.", "Its owner can thaw it.")
        draft = self._draft(listing, found)
        made = airlock.let_out(found, caller.user, self.clock.now(), draft.seal)
        check_releasable(self.door, draft)
        if made is not found:
            self._change(made)
        return {**_shown(made, caller), "receipt": release_files(self.door, made, draft)}

    def all(self, caller: Caller, data_set: str) -> Json:
        """Return the requests about a data set that are the caller's to see."""
        listing = self.catalogue.find(data_set) if caller.reaches(data_set) else None
        if listing is None:
            raise _no_data_set()
        mine = [
            self._now(listing, one)
            for one in self.store.of(listing.card.people)
            if one.data_set == listing.card.name
        ]
        seen = [_shown(one, caller) for one in mine if one.may_see(caller.user)]
        if not seen:
            self._asked_listing(caller, data_set)  # refuses strangers
        return {"requests": seen}

    # --- helpers ------------------------------------------------------------------------------

    def _edit(self, caller: Caller, made: Request, before: Request, path: str) -> Json:
        self._note("airlock-edited", made, {"by": caller.user, "path": path})
        self._change(made, made.place)
        self.door.files.drop(before.place)
        return _shown(made, caller)

    def _ended(self, caller: Caller, kind: str, made: Request) -> Json:
        """Put down that a request is over without a release, and let nothing of it be left."""
        self._note(kind, made, {"by": made.ended_by})
        self._change(made)
        self.door.files.drop(made.place)
        return _shown(made, caller)

    def _change(self, made: Request, place: str = "") -> None:
        if not self.store.change(made):
            self.door.files.drop(place)
            raise airlock.changed()

    def _note(self, kind: str, request: Request, more: Json) -> None:
        said = {"request": request.id, "data_set": request.data_set, "draft": request.draft}
        self.door.programs.ledger.note(kind, {**said, "author": request.author, **more})

    def _draft(self, listing: Listing, request: Request) -> Draft:
        return draft_of(
            self.door, listing.card, request, self._program(listing, request), self._past(request)
        )

    def _past(self, request: Request) -> tuple[Earlier, ...]:
        """Return every file that was released about these people before, the newest first."""
        found: list[Earlier] = []
        for one in self.store.of(request.people):
            if one.state == RELEASED and one.id != request.id:
                found += earlier_of(self.door, one, kept_files(json.loads(one.program)))
        return tuple(found)

    def _program(self, listing: Listing, request: Request) -> AirlockProgram:
        said = json.loads(request.program)
        return read_airlock_program(listing.card, said, said["environment"])

    def _environment(self) -> str:
        return self.door.programs.sandbox.environment()

    def _found(self, caller: Caller, request: str) -> tuple[Listing, Request]:
        """Return a request as it is now, if it is there for the caller; or refuse."""
        found = self.store.find(request) if request.isalnum() else None
        listing = None if found is None else self.catalogue.find(found.data_set)
        if found is None or listing is None or not caller.reaches(found.data_set):
            raise unknown()
        if not found.may_see(caller.user):
            raise unknown()
        now = self._now(listing, found)
        if not now.may_see(caller.user):
            raise unknown()
        return listing, now

    def _now(self, listing: Listing, request: Request) -> Request:
        """Return a request with what the card says today, and over if its time is."""
        terms = listing.card.airlock
        is_half = request.state == RELEASED and not has_left(self.door, request)
        if request.state not in OPEN and not is_half:
            return request
        made = airlock.expired(request, self.clock.now())
        if made is not request:
            self._note("airlock-expired", made, {})
            if self.store.change(made):
                self.door.files.drop(made.place)
            return made
        if terms is None:
            return replace(request, reviewers=(), needed=len(request.reviewers) + 2)
        still = tuple(user for user in request.reviewers if user in terms.reviewers)
        return replace(request, reviewers=still, needed=max(request.needed, terms.needed))

    def _asked_listing(self, caller: Caller, data_set: str) -> Listing:
        found = self.catalogue.find(data_set) if caller.reaches(data_set) else None
        if found is not None and caller.user.isprintable():
            groups = self.catalogue.groups_of(caller.user, found.card.name)
            if caller.user == found.owner or found.card.lets_ask(tuple(groups)):
                return found
        raise _no_data_set()


def _why_of(text: object) -> str:
    if not isinstance(text, str) or len(text) > 2000 or not text.replace("\n", " ").isprintable():
        raise bad_airlock("why is a text of up to 2,000 letters")
    return text


def _bytes_of(text: str) -> bytes:
    try:
        file = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        file = b""
    if not 1 <= len(file) <= MOST_BYTES:
        raise bad_airlock(f"a file is base64 of 1 to {MOST_BYTES:,} bytes")
    return file


def _check_themselves(caller: Caller) -> None:
    if not caller.is_themselves:
        raise Refused(
            "not-allowed", "A token for programs decides nothing here.", "Sign in yourself."
        )


def _shown(one: Request, caller: Caller) -> Json:
    program = json.loads(one.program)
    return {
        "request": one.id,
        "data_set": one.data_set,
        "version": one.version,
        "state": one.state,
        "guarantee": GUARANTEE,
        "author": one.author,
        "owner": one.owner,
        "why": one.why,
        "at": one.at,
        "expires": one.expires,
        "needed": one.needed,
        "reviewers": sorted(u for u in {one.owner, *one.reviewers} if one.is_reviewer(u)),
        "program": program,
        **({} if caller.user == one.author else _votes(one)),
        "ended_by": one.ended_by,
        "ended_at": one.ended_at,
    }


def _votes(one: Request) -> Json:
    """Return who has said what; its author is told when it is over, or by its reviewers."""
    return {
        "draft": one.draft,
        "editors": list(one.editors),
        "votes": [
            {"user": vote.user, "says": vote.says, "at": vote.at, "why": vote.why}
            for vote in one.votes
        ],
    }


def _closed() -> Refused:
    return Refused(
        "airlock-closed",
        "The data set's card lets nothing out without noise.",
        "Ask for numbers with noise, or ask the owner.",
    )


def _too_few() -> Refused:
    return Refused(
        "airlock-closed",
        "Besides you there are fewer reviewers than the card needs.",
        "Ask the owner to name another.",
    )


def _no_data_set() -> Refused:
    return Refused(
        "unknown-data-set",
        "There is no data set of that name that you may ask.",
        "See what there is with `sfumato datasets`, or ask the owner to enrol you.",
    )
