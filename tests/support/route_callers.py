"""The people of a service and their tokens, for tests that call in any order; and a plain model."""

from __future__ import annotations

import itertools
import time
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
)

from sfumato.vault.users import OF_ROLE
from sfumato.wire.verb_table import BY_NAME
from support.described_data_sets import OPERATIONS, check_described, quick_session
from support.served_vault import Service

CARD: Final = """
unit = "who"
people = "PEOPLE"
version = "1"
budget = { epsilon = 1000, delta = 0.01 }
[caps]
user = { epsilon = 900 }
[ask]
who = ["researchers"]
[columns.day]
type = "date"
[columns.age]
type = "integer"
lower = 0
upper = 100
"""
SECOND: Final = "otto"  # who confirms that a data set's people are in no other
ROLES: Final = {
    "owner": ("owner", "operator"), "olga": ("owner",), "otto": ("operator",),
    "ada": ("researcher",), "eve": ("researcher",), "vera": ("auditor",),
}  # fmt: skip
NAMES: Final = itertools.count(1)  # nothing of one run has a name of another's
FIRST_DAY: Final = "2026-01-01"


@dataclass
class Bearer:
    """A token that somebody was given, and what the model knows of it."""

    user: str
    text: str
    actions: frozenset[str]  # what their roles let them do when it was made
    id: str = ""
    set: str | None = None  # the one data set that it is for; None is every one
    is_session: bool = True
    is_over: bool = False


@dataclass
class DataSet:
    """A data set, as its owner has left it."""

    owner: str
    granted: set[str] = field(default_factory=set)
    streams: dict[str, float] = field(default_factory=dict)
    is_frozen: bool = False


@dataclass
class Thing:
    """What somebody has made: of which data set, if of one, and whether it is ended."""

    user: str
    set: str = ""
    is_over: bool = False


class World:
    """The service, with everybody signed in for all runs."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.session = quick_session()

    def call(
        self, verb: str, by: str, token: str, body: object, /, **places: str
    ) -> tuple[int, Any]:
        """Return what one call is answered, once it is as the document says."""
        sent: dict[str, Any] = {"path_parameters": places}
        if isinstance(body, bytes):
            sent |= {"body": body, "media_type": "application/octet-stream"}
            sent |= {"path_parameters": {}, "query": places}
        elif BY_NAME[verb].has_body:
            sent |= {"body": body or {}, "media_type": "application/json"}
        case = OPERATIONS[verb].Case(**sent)
        headers = {"Authorization": f"Bearer {token}"}
        reply = case.call(base_url=self.service.url, session=self.session, headers=headers)
        check_described(verb, case, reply, by)
        return reply.status_code, reply.json()


class Everybody(RuleBasedStateMachine):
    """The model: a dictionary of each kind of thing, and one plain rule for each answer."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.roles = dict(ROLES)
        self.blocked: set[str] = set()
        self.sets: dict[str, DataSet] = {}
        self.bearers: list[Bearer] = []
        self.jobs: dict[str, Thing] = {}
        self.uploads: dict[str, Thing] = {}

    # --- what the model says --------------------------------------------------------------------

    def is_out(self, by: Bearer) -> bool:
        return by.is_over or by.user in self.blocked

    def may(self, by: Bearer, verb: str) -> bool:
        action = str(BY_NAME[verb].action)
        return action == "any" or action in by.actions & self.actions_of(by.user)

    def actions_of(self, user: str) -> frozenset[str]:
        """Return what the user's roles let them do now."""
        return frozenset().union(*(OF_ROLE[role] for role in self.roles[user]))

    def may_ask(self, by: Bearer, name: str) -> bool:
        found = self.sets[name]
        return by.set in (None, name) and by.user in {found.owner, *found.granted}

    def owns(self, by: Bearer, name: str) -> bool:
        return by.set in (None, name) and by.user == self.sets[name].owner

    def said(self, by: Bearer, verb: str, otherwise: int) -> int:
        """Return the status of a call: of who is out, of who may not, or otherwise."""
        return 401 if self.is_out(by) else otherwise if self.may(by, verb) else 403

    def does(self, by: Bearer, verb: str, status: int, body: Any = None, **places: str) -> Any:
        """Do it, hold the status against the model's, and return what is answered if it is done."""
        wanted = self.said(by, verb, status)
        name = places.get("data_set")
        if wanted == status and name is not None and by.set not in (None, name):
            wanted = 404
        seen, found = self.world.call(verb, by.user, by.text, body, **places)
        assert seen == wanted, (verb, by, places, wanted, seen, found)
        return found if seen == 200 else None

    def one_of(self, data: Any, several: Iterable[str]) -> str:
        """Return one by its place: by its name, which another run has not, none is drawn again."""
        names = list(several)
        place: int = data.draw(st.integers(0, len(names) - 1))
        return names[place]

    def some_bearer(self, data: Any) -> Bearer:
        place: int = data.draw(st.integers(0, len(self.bearers) - 1))
        return self.bearers[place]

    # --- how it begins --------------------------------------------------------------------------

    @initialize()
    def everybody_comes(self) -> None:
        service = self.world.service
        self.nomad = f"nomad{next(NAMES)}"
        self.roles[self.nomad] = ("researcher",)
        service.user(self.nomad, "researcher")
        self.bearers = [
            Bearer(user, service.tokens[user], self.actions_of(user)) for user in self.roles
        ]
        for one in self.bearers:
            self.let_end(one)
        self.bring("owner")

    def let_end(self, by: Bearer) -> None:
        """Wait until nothing of theirs is going on: of jobs that are not over one has so many."""
        until = time.monotonic() + 120
        while self.open_jobs(by):
            assert time.monotonic() < until, self.open_jobs(by)
            time.sleep(0.02)

    def open_jobs(self, by: Bearer) -> list[Any]:
        jobs = self.does(by, "jobs", 200)
        every = [] if jobs is None else jobs["jobs"]  # an auditor has none
        return [one for one in every if one["state"] in ("waiting", "running")]

    def by(self, user: str) -> Bearer:
        """Return the session that somebody began with."""
        return next(one for one in self.bearers if one.user == user and one.is_session)

    def bring(self, owner: str) -> None:
        """Upload people whom no other data set has, and add them; wait until they are there."""
        by, name = self.by(owner), f"set{next(NAMES)}"
        self.let_end(by)
        rows = "".join(f"{name}-{n},2026-01-0{1 + n % 5},{n % 90}\n" for n in range(60))
        sent = self.does(by, "upload", 200, f"who,day,age\n{rows}".encode(), name="rows.csv")
        for other in self.bearers:
            if other.user != owner:
                self.does(other, "proposed", 404, upload=sent["upload"])
        text = CARD.replace("PEOPLE", f"people of {name}")
        body = {"name": name, "upload": sent["upload"], "card": tomllib.loads(text)}
        job = self.does(by, "add", 200, {**body, "different_people": SECOND})["job"]
        self.agree(owner, name)
        until = time.monotonic() + 120
        while (found := self.does(by, "job", 200, job=job))["state"] in ("waiting", "running"):
            assert time.monotonic() < until, found
            time.sleep(0.02)
        assert found["state"] == "done", found["failed"]
        self.sets[name] = DataSet(owner)
        self.jobs[job] = Thing(owner, name)
        self.uploads[sent["upload"]] = Thing(owner, is_over=True)

    def agree(self, owner: str, name: str) -> None:
        """Let the one who was asked confirm that these are others; nobody else can, and once."""
        asked = self.by(SECOND)
        (waits,) = [
            one["approval"]
            for one in self.does(asked, "approvals", 200)["approvals"]
            if (one["data_set"], one["state"]) == (name, "waiting")
        ]
        for by in [*(one for one in self.bearers if one.user != SECOND), asked]:
            is_judge = bool(by.actions & self.actions_of(by.user) & {"own", "operate"})
            is_author = by.user == owner and by.set is None
            status = 200 if by is asked else 403 if is_author or not is_judge else 404
            self.does(by, "decide", status, {"approve": True}, approval=waits)
            if by is asked:
                self.does(asked, "decide", 404, {"approve": False}, approval=waits)
                return

    # --- tokens and users -----------------------------------------------------------------------

    @rule(data=st.data(), is_narrow=st.booleans())
    def make_token(self, data: Any, is_narrow: bool) -> None:
        by = self.some_bearer(data)
        name = self.one_of(data, self.sets) if is_narrow else None
        body = {"label": "of a test", **({"data_sets": [name]} if name else {})}
        made = self.does(by, "make-token", 200 if by.is_session else 403, body)
        if made is not None:
            assert set(made["actions"]) == by.actions & self.actions_of(by.user)
            actions = frozenset(made["actions"])
            one = Bearer(by.user, made["token"], actions, made["id"], name, is_session=False)
            self.bearers.append(one)

    @precondition(lambda self: any(one.id for one in self.bearers))
    @rule(data=st.data())
    def revoke_token(self, data: Any) -> None:
        by, held = self.some_bearer(data), [one for one in self.bearers if one.id]
        one = held[data.draw(st.integers(0, len(held) - 1))]
        if self.does(by, "revoke-token", 200 if by.user == one.user else 404, token=one.id):
            one.is_over = True

    @rule(data=st.data())
    def sign_out(self, data: Any) -> None:
        by = self.some_bearer(data)
        if (by.id or by.user == self.nomad) and self.does(by, "sign-out", 200):
            by.is_over = True

    @rule(data=st.data(), role=st.sampled_from(["researcher", "auditor", "owner"]))
    def change_the_nomad(self, data: Any, role: str) -> None:
        by, blocked = self.some_bearer(data), data.draw(st.booleans())
        allowed = by.is_session and by.user != self.nomad
        body = {"roles": [role], "blocked": blocked}
        if self.does(by, "change-user", 200 if allowed else 403, body, user=self.nomad):
            self.roles[self.nomad] = (role,)
            (self.blocked.add if blocked else self.blocked.discard)(self.nomad)

    @rule(data=st.data())
    def end_all_of_the_nomads(self, data: Any) -> None:
        by = self.some_bearer(data)
        is_let = by.user == self.nomad or "operate" in by.actions
        status = 200 if by.is_session and is_let else 403
        if self.does(by, "revoke-tokens", status, user=self.nomad):
            for one in self.bearers:
                one.is_over = one.is_over or one.user == self.nomad
