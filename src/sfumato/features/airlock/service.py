"""The airlock service: submit a program, run it once, review its files, vote, release, fetch.

This module checks permissions, saves each state, and notes it in the ledger unless a run failed.
`features/airlock/model.py` defines the state transitions, `features/airlock/release.py` runs
programs and releases files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.features.airlock import model as airlock_model
from sfumato.features.airlock.declared_tables import Earlier
from sfumato.features.airlock.file_types import bad_airlock
from sfumato.features.airlock.model import RELEASED, RUNNING, AirlockStore, Request, Vote, unknown
from sfumato.features.airlock.program_plan import (
    AirlockProgram,
    kept_files,
    read_airlock_program,
    read_submitted,
)
from sfumato.features.airlock.release import (
    AirlockPorts,
    Draft,
    check_airlock,
    check_releasable,
    earlier_of,
    edited,
    fetched,
    has_left,
    read_draft,
    release_files,
    reviewers_view,
    run_for_review,
)
from sfumato.features.airlock.request_json import (
    bytes_of,
    check_themselves,
    closed,
    shown_to,
    too_few,
    why_of,
)
from sfumato.query.expression import canonical_json
from sfumato.release.independent_approver import SecondPerson
from sfumato.release.permissions import (
    check_not_frozen,
    groups_that_ask,
    listing_to_query,
    no_data_set,
)
from sfumato.sandbox.program_environment import own_of, read_own
from sfumato.vault.ports import Catalogue, Clock, Listing
from sfumato.vault.users import Caller

MAX_OPEN: Final = 10  # open requests of one author per people domain


@dataclass(frozen=True)
class Airlock:
    """The airlock service (output checking) of one vault: checks who may do what in which state."""

    door: AirlockPorts
    store: AirlockStore
    catalogue: Catalogue
    clock: Clock
    dice: RandomSource
    about: Callable[[str], Sequence[str]]  # lines about a program environment of this machine

    # --- author -------------------------------------------------------------------------------

    def submit(self, caller: Caller, data_set: str, shape: Mapping[str, object]) -> Json:
        """Submit a program and its declared files; the request waits for the data set's owner."""
        listing, _ = listing_to_query(self.catalogue, caller, data_set)
        terms = listing.card.airlock
        if terms is None:
            raise closed()
        own = read_own(shape.get("environment"))
        program = read_submitted(listing.card, shape, self._environment(own))
        why = why_of(shape.get("why", ""))
        now = self.clock.now()
        mine = (one for one in self.store.of(listing.card.people) if one.author == caller.user)
        if sum(airlock_model.expired(one, now).is_open for one in mine) >= MAX_OPEN:
            raise Refused(
                "too-many",
                f"You have {MAX_OPEN} open airlock requests, which is the maximum.",
                "Withdraw one of your open airlock requests, or wait until one ends.",
            )
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
            program=canonical_json(program.as_json()),
            why=why,
            at=now,
            expires=ends.isoformat(),
        )
        if sum(made.is_reviewer(user) for user in {listing.owner, *terms.reviewers}) < terms.needed:
            raise too_few()
        said: Json = {"digest": program.digest, "files": [one.path for one in program.asked]}
        self._note("airlock-submitted", made, said)
        self.store.add(made)
        return shown_to(made, caller)

    def withdraw(self, caller: Caller, request: str) -> Json:
        """Withdraw the caller's own request."""
        _, found = self._found(caller, request)
        made = airlock_model.withdrawn(found, caller.user, self.clock.now())
        return self._ended(caller, "airlock-withdrawn", made)

    def fetch(self, caller: Caller, request: str) -> Json:
        """Return the files of a released request, after checking them against the ledger."""
        _, found = self._found(caller, request)
        return {**shown_to(found, caller), **fetched(self.door, found, caller.user)}

    # --- owner --------------------------------------------------------------------------------

    def run(self, caller: Caller, request: str) -> Json:
        """Run a request's program once on the real rows; its files then wait for reviewers."""
        check_themselves(caller)
        listing, found = self._found(caller, request)
        airlock_model.begun(found, caller.user)  # refuses other callers, and a second run
        program = self._program(listing, found)
        is_same = program.environment == self._environment(program.own)
        if not is_same or listing.card.version != found.version:
            raise Refused(
                "airlock-waits",
                "The program's environment or libraries, or the data set's rows, have changed "
                "since the airlock request was submitted.",
                "Ask the author of the request to submit it again.",
            )
        check_not_frozen(self.catalogue, listing, caller.user)
        self._check_author(listing, found)
        check_airlock(self.door, program)
        with self.door.files.holding(found.lock), self.door.files.writing():
            begun = airlock_model.begun(self._found(caller, request)[1], caller.user)
            self._note("airlock-run", begun, {"by": caller.user, "digest": program.digest})
            self._change(begun)
            return shown_to(self._ran(listing, begun, program), caller)

    def _ran(self, listing: Listing, begun: Request, program: AirlockProgram) -> Request:
        """Run the program; return the request in review, or as failed if it could not be run."""
        place = run_for_review(self.door, listing.card, listing.table, program)
        if place is None:
            return self._failed(begun)
        made = airlock_model.to_review(begun, place)
        self._change(made, place)
        return made

    def decline(self, caller: Caller, request: str) -> Json:
        """Decline a request; only the data set's owner may."""
        check_themselves(caller)
        _, found = self._found(caller, request)
        made = airlock_model.declined(found, caller.user, self.clock.now())
        return self._ended(caller, "airlock-declined", made)

    # --- reviewers ----------------------------------------------------------------------------

    def show(self, caller: Caller, request: str) -> Json:
        """Return a request; its reviewers also get the real files and the findings."""
        listing, found = self._found(caller, request)
        own = own_of(json.loads(found.program)["environment"])
        shown = {**shown_to(found, caller), "environment_lines": list(self.about(own))}
        if found.state != airlock_model.REVIEW or not found.is_reviewer(caller.user):
            return shown
        check_themselves(caller)
        return {**shown, **reviewers_view(found, caller.user, self._draft(listing, found))}

    def vote(
        self, caller: Caller, request: str, says: str, seen: tuple[str, int], why: str
    ) -> Json:
        """Record a vote on the draft (the files under review) with this seal and number."""
        check_themselves(caller)
        listing, found = self._found(caller, request)
        seal, draft = seen
        vote = Vote(caller.user, says, seal, draft, self.clock.now(), why_of(why))
        if not found.is_reviewer(caller.user) or found.state != airlock_model.REVIEW:
            airlock_model.voted(found, vote, "")  # refuses before any file is read
        if says == airlock_model.YES:
            second = SecondPerson(self.door.programs.ledger.store)
            submitted = ("airlock-submitted", found.id)
            is_served = bool(caller.token)
            second.check(caller.user, found.author, submitted, is_served=is_served)
        made = airlock_model.voted(found, vote, self._draft(listing, found).seal)
        self._note("airlock-vote", made, {"by": caller.user, "says": says, "seal": seal})
        if made.state == airlock_model.REJECTED:
            return self._ended(caller, "airlock-rejected", made)
        self._change(made)
        return shown_to(made, caller)

    def trim(self, caller: Caller, request: str, path: str) -> Json:
        """Remove a file from the draft (the files under review); approvals become void."""
        check_themselves(caller)
        listing, found = self._found(caller, request)
        airlock_model.trimmed(found, caller.user, "")  # refuses before any file is read
        draft = self._draft(listing, found)
        if path not in draft.held.files:
            raise bad_airlock("the draft has no file of that name")
        with self.door.files.writing():
            place = edited(self.door, draft, path, None)
            return self._edit(caller, airlock_model.trimmed(found, caller.user, place), found, path)

    def replace(self, caller: Caller, request: str, path: str, text: str) -> Json:
        """Replace a file of the draft by the reviewer's own; approvals become void.

        The reviewer then has no vote on the draft.
        """
        check_themselves(caller)
        listing, found = self._found(caller, request)
        airlock_model.replaced(found, caller.user, "")  # refuses before any file is read
        draft = self._draft(listing, found)
        if path not in draft.held.files:
            raise bad_airlock("the draft has no file of that name")
        file = bytes_of(text)
        with self.door.files.writing():
            place = edited(self.door, draft, path, file)
            return self._edit(
                caller, airlock_model.replaced(found, caller.user, place), found, path
            )

    def release(self, caller: Caller, request: str) -> Json:
        """Release a request's files, if enough reviewers approve exactly this draft."""
        check_themselves(caller)
        _, found = self._found(caller, request)
        if found.state != RELEASED or not found.is_reviewer(caller.user):
            airlock_model.check_reviewed(
                found, caller.user
            )  # refused before the lock, so that nobody else waits for it
        with self.door.files.holding(found.lock):
            return self._let_out(caller, request)

    def _let_out(self, caller: Caller, request: str) -> Json:
        """Save the released state, check the draft again, then write the release into the ledger.

        `fetch` needs both the state and the ledger entry.
        """
        listing, found = self._found(caller, request)
        if found.state == RELEASED and not has_left(self.door, found):
            found = self._as_the_card_says(listing, airlock_model.undo_release(found))
        airlock_model.check_reviewed(found, caller.user)
        check_not_frozen(self.catalogue, listing, caller.user)
        self._check_author(listing, found)
        draft = self._draft(listing, found)
        made = airlock_model.release(found, caller.user, self.clock.now(), draft.seal)
        check_releasable(self.door, draft)
        self._change(made)
        # the second check also compares the files with those that were released meanwhile
        again = self._draft(listing, made)
        return {**shown_to(made, caller), "receipt": release_files(self.door, made, again)}

    def all(self, caller: Caller, data_set: str) -> Json:
        """Return the requests about a data set that the caller may see."""
        listing = self.catalogue.find(data_set) if caller.reaches(data_set) else None
        if listing is None:
            raise no_data_set(data_set, caller.user)
        mine = [
            self._now(listing, one)
            for one in self.store.of(listing.card.people)
            if one.data_set == listing.card.name and self._is_theirs(caller.user, listing, one)
        ]
        seen = [shown_to(one, caller) for one in mine]
        terms = listing.card.airlock
        if not seen and (terms is None or caller.user not in terms.reviewers):
            listing_to_query(self.catalogue, caller, data_set)  # refuses callers without access
        return {"requests": seen}

    # --- helpers ------------------------------------------------------------------------------

    def _edit(self, caller: Caller, made: Request, before: Request, path: str) -> Json:
        self._note("airlock-edited", made, {"by": caller.user, "path": path})
        self._change(made, made.place)
        self.door.files.drop(before.place)
        return shown_to(made, caller)

    def _ended(self, caller: Caller, kind: str, made: Request) -> Json:
        """Finish a request that was not released: note it in the ledger, and delete its files."""
        self._note(kind, made, {"by": made.ended_by})
        self._change(made)
        self.door.files.drop(made.place)
        return shown_to(made, caller)

    def _failed(self, begun: Request) -> Request:
        """Save that a program could not be run, without a ledger entry.

        A receipt shows the ledger's length and a hash over all entries. With few possible entries,
        the author could test a guess against the hash and so learn of the failure.
        """
        made = airlock_model.failed(begun)
        self._change(made)
        return made

    def sweep(self) -> None:
        """Delete drafts that no open or released request names; killed processes leave them."""
        now = self.clock.now()

        def named() -> frozenset[str]:
            here = (airlock_model.expired(one, now) for one in self.store.all())
            return frozenset(one.place for one in here if one.is_open or one.state == RELEASED)

        self.door.files.sweep(named)

    def _change(self, made: Request, place: str = "") -> None:
        if not self.store.change(made):
            self.door.files.drop(place)
            raise airlock_model.changed()

    def _note(self, kind: str, request: Request, more: Json) -> None:
        said = {"request": request.id, "data_set": request.data_set, "draft": request.draft}
        self.door.programs.ledger.note(kind, {**said, "author": request.author, **more})

    def _draft(self, listing: Listing, request: Request) -> Draft:
        return read_draft(
            self.door, listing.card, request, self._program(listing, request), self._past(request)
        )

    def _past(self, request: Request) -> tuple[Earlier, ...]:
        """Return the files that other requests about the same people released, newest first."""
        found: list[Earlier] = []
        for one in self.store.of(request.people):
            if one.state == RELEASED and one.id != request.id:
                found += earlier_of(self.door, one, kept_files(json.loads(one.program)))
        return tuple(found)

    def _program(self, listing: Listing, request: Request) -> AirlockProgram:
        said = json.loads(request.program)
        return read_airlock_program(listing.card, said, said["environment"])

    def _environment(self, own: str) -> str:
        return self.door.programs.sandbox.environment(own)

    def _found(self, caller: Caller, request: str) -> tuple[Listing, Request]:
        """Return the data set's listing and the current request, if the caller may see it."""
        found = self.store.find(request) if request.isalnum() else None
        listing = None if found is None else self.catalogue.find(found.data_set)
        if found is None or listing is None or not caller.reaches(found.data_set):
            raise unknown()
        if not self._is_theirs(caller.user, listing, found):
            raise unknown()
        return listing, self._now(listing, found)

    def _is_theirs(self, user: str, listing: Listing, request: Request) -> bool:
        """Return True if the user may see the request under the current card and groups."""
        if listing.owner != request.owner:
            return False
        if user == request.author:
            return self._may_ask(listing, user)
        return self._as_the_card_says(listing, request).may_see(user)

    def _now(self, listing: Listing, request: Request) -> Request:
        """Return the current state of a request, by the current card and time.

        If its process was killed during the run, the request has failed. If its process was killed
        during the release, before the ledger entry, the request is in review again.
        """
        is_held = request.state in (RUNNING, RELEASED) and self.door.files.is_held(request.lock)
        if request.state == RUNNING and not is_held:
            return self._ended_alone(listing, request)
        if request.state == RELEASED and not is_held and not has_left(self.door, request):
            request = airlock_model.undo_release(request)
        if not request.is_open:
            return request
        made = airlock_model.expired(request, self.clock.now())
        if made is not request:
            self._note("airlock-expired", made, {})
            if self.store.change(made):
                self.door.files.drop(made.place)
            return made
        return self._as_the_card_says(listing, request)

    def _ended_alone(self, listing: Listing, request: Request) -> Request:
        """Mark a running request as failed, because its process was killed before it ended the run.

        If another process has just saved a newer state, return that state instead.
        """
        found = self.store.find(request.id) or request
        return self._failed(request) if found == request else self._now(listing, found)

    def _as_the_card_says(self, listing: Listing, request: Request) -> Request:
        """Return the request under the current card: with only the reviewers that it still names.

        The number of approvals needed can rise, but not fall. If the card has no airlock any more,
        it becomes a number that no votes can reach.
        """
        terms = listing.card.airlock
        if terms is None:
            return replace(request, reviewers=(), needed=len(request.reviewers) + 2)
        still = tuple(user for user in request.reviewers if user in terms.reviewers)
        return replace(request, reviewers=still, needed=max(request.needed, terms.needed))

    def _may_ask(self, listing: Listing, user: str) -> bool:
        groups = self.catalogue.groups_of(user, listing.card.name)
        return groups_that_ask(listing, user, groups) is not None

    def _check_author(self, listing: Listing, request: Request) -> None:
        """Refuse if the request's author may no longer query the data set."""
        if not self._may_ask(listing, request.author):
            raise Refused(
                "not-allowed", "The request's author may no longer query this data set.",
                "Decline the request, or grant its author access again.",
            )  # fmt: skip
