"""Things are made, used, taken back and ended in any order, by everybody: a plain model knows how.

The matrix asks each route once (`test_route_permissions.py`); here what one call changes is what
the next is answered by. Every reply is held against the OpenAPI document too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from support.route_callers import FIRST_DAY, NAMES, ROLES, SECOND, Bearer, Everybody, Thing, World
from support.served_vault import served
from support.service_with_users import strays
from support.small_vaults import make_vault
from support.survey_fixtures import design

EPSILONS: Final = (0.001, 0.002)
RUNNING: Final = "SELECT date_trunc('day', day) AS day, RUNNING_COUNT(*) AS n FROM {} GROUP BY day"
SEEN_BY: Final = {"data-sets": "name", "jobs": "job", "tokens": "id"}
SEEN: Final = tuple(SEEN_BY)
FEW: Final = 3  # runs of the short form
MOST_SETS: Final = 2  # of a run: each is prepared by a process of its own
MOST_JOBS: Final = 5  # after which one more may be too many, of those that wait


class AnyOrder(Everybody):
    """What is made of data sets and surveys, and how each call about it is answered."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[str, tuple[Thing, Any]] = {}
        self.surveys: dict[str, Thing] = {}
        self.programs: dict[str, Thing] = {}
        self.rules_of_sets: dict[str, Thing] = {}
        self.looked = 0

    # --- an owner's acts ------------------------------------------------------------------------

    @rule(data=st.data())
    def bring_another(self, data: Any) -> None:
        if len(self.sets) < MOST_SETS:
            self.bring(self.one_of(data, ("owner", "olga")))

    @rule(data=st.data())
    def grant(self, data: Any) -> None:
        by, name, user = self.some_bearer(data), self.one_of(data, self.sets), self.user(data)
        status = 200 if self.owns(by, name) else 404
        if self.does(by, "grant", status, {}, data_set=name, user=user):
            self.sets[name].granted.add(user)

    @rule(data=st.data())
    def take_a_grant_back(self, data: Any) -> None:
        by, name, user = self.some_bearer(data), self.one_of(data, self.sets), self.user(data)
        status = 200 if self.owns(by, name) and user in self.sets[name].granted else 404
        if self.does(by, "revoke-grant", status, data_set=name, user=user):
            self.sets[name].granted.discard(user)

    def user(self, data: Any) -> str:
        return self.one_of(data, ("ada", "eve", "olga", self.nomad))

    @rule(data=st.data(), verb=st.sampled_from(["freeze", "thaw"]))
    def freeze_or_thaw(self, data: Any, verb: str) -> None:
        by, name = self.some_bearer(data), self.one_of(data, self.sets)
        if self.does(by, verb, 200 if self.owns(by, name) else 404, {}, data_set=name):
            self.sets[name].is_frozen = verb == "freeze"

    @rule(data=st.data(), verb=st.sampled_from(["grants", "spending", "frozen-questions"]))
    def look_as_an_owner(self, data: Any, verb: str) -> None:
        by, name = self.some_bearer(data), self.one_of(data, self.sets)
        found = self.does(by, verb, 200 if self.owns(by, name) else 404, data_set=name)
        if found is not None and verb == "grants":
            assert {one["user"] for one in found["grants"]} == self.sets[name].granted

    @rule(data=st.data())
    def upload(self, data: Any) -> None:
        by = self.some_bearer(data)
        sent = self.does(by, "upload", 200, b"who,n\na,1\nb,2\n", name="rows.csv")
        if sent is not None:
            self.uploads[sent["upload"]] = Thing(by.user)

    @rule(data=st.data())
    def look_at_an_upload(self, data: Any) -> None:
        by, upload = self.some_bearer(data), self.one_of(data, self.uploads)
        found = self.uploads[upload]
        status = 200 if found.user == by.user and not found.is_over else 404
        self.does(by, "proposed", status, upload=upload)

    # --- questions, jobs, streams ---------------------------------------------------------------

    @rule(data=st.data(), epsilon=st.sampled_from(EPSILONS), verb=st.sampled_from(["ask", "price"]))
    def ask(self, data: Any, epsilon: float, verb: str) -> None:
        by, name = self.some_bearer(data), self.one_of(data, self.sets)
        op = f"op{next(NAMES)}"
        body: dict[str, Any] = {"sql": f"SELECT COUNT(*) AS n FROM {name}", "epsilon": epsilon}
        body |= {"op": op} if verb == "ask" else {}
        frozen = 409 if verb == "ask" and self.sets[name].is_frozen else 200
        found = self.does(by, verb, frozen if self.may_ask(by, name) else 404, body, data_set=name)
        if found is None or verb == "price":
            return
        before = [a for thing, a in self.answers.values() if (thing.set, a[0]) == (name, epsilon)]
        assert all(rows == found["rows"] for _, rows in before), "the same question, otherwise"
        self.answers[op] = Thing(by.user, name), (epsilon, found["rows"])

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def look_at_an_answer(self, data: Any) -> None:
        by, op = self.some_bearer(data), self.one_of(data, self.answers)
        thing, (_, rows) = self.answers[op]
        status = 200 if thing.user == by.user and self.may_ask(by, thing.set) else 404
        found = self.does(by, "answer", status, op=op)
        assert found is None or found["rows"] == rows

    @rule(data=st.data())
    def begin_a_job(self, data: Any) -> None:
        by, name = self.some_bearer(data), self.one_of(data, self.sets)
        sql = f"SELECT COUNT(*) AS n FROM {name} WHERE age < {next(NAMES) % 90}"
        body = {"data_set": name, "sql": sql, "epsilon": 0.001}
        wanted = self.said(by, "begin", 200 if self.may_ask(by, name) else 404)
        seen, found = self.world.call("begin", by.user, by.text, body)
        is_full = seen == 429 and wanted == 200 and len(self.jobs) > MOST_JOBS
        assert seen == wanted or is_full, (by, name, found)
        if seen == 200:
            self.jobs[found["job"]] = Thing(by.user, name)

    @rule(data=st.data(), verb=st.sampled_from(["job", "cancel-job"]))
    def look_at_a_job_or_cancel_it(self, data: Any, verb: str) -> None:
        by, job = self.some_bearer(data), self.one_of(data, self.jobs)
        thing = self.jobs[job]
        is_there = thing.user == by.user and by.set in (None, thing.set)
        wanted = self.said(by, verb, 200 if is_there else 404)
        seen, found = self.world.call(verb, by.user, by.text, None, job=job)
        is_begun = verb == "cancel-job" and seen == 409 and wanted == 200 and not thing.is_over
        assert seen == wanted or is_begun, (by, thing, found)
        if seen == 200:
            assert (found["state"] == "cancelled") == (thing.is_over or verb == "cancel-job"), found
            thing.is_over = found["state"] == "cancelled"

    @rule(
        data=st.data(), stream=st.sampled_from(["daily", "slow"]), epsilon=st.sampled_from([1, 2])
    )
    def open_a_stream(self, data: Any, stream: str, epsilon: float) -> None:
        by, name = self.some_bearer(data), self.one_of(data, self.sets)
        found = self.sets[name]
        sql = (
            f"SELECT date_trunc('day', day) AS day, RUNNING_COUNT(*) AS n FROM {name} GROUP BY day"
        )
        body = {"stream": stream, "start": FIRST_DAY, "periods": 4, "rows": 2, "epsilon": epsilon}
        status = 409 if found.is_frozen else 200
        if found.streams.get(stream, epsilon) != epsilon:
            status = 409 if found.is_frozen else 422  # a name has its terms for good
        self._owners(by, "open-stream", name, status, {**body, "sql": sql})
        if status == 200 and self.owns(by, name) and not self.is_out(by) and self.may(by, "grants"):
            found.streams[stream] = epsilon

    @rule(data=st.data(), stream=st.sampled_from(["daily", "slow"]))
    def close_a_day(self, data: Any, stream: str) -> None:
        by, name = self.some_bearer(data), self.one_of(data, self.sets)
        found = self.sets[name]
        status = 422 if stream not in found.streams else 409 if found.is_frozen else 200
        self._owners(by, "close-stream", name, status, {"until": FIRST_DAY}, stream=stream)

    def _owners(
        self, by: Bearer, verb: str, name: str, status: int, body: Any, **places: str
    ) -> None:
        """Do what an owner does, which other askers of the data set are told that they may not."""
        if not self.owns(by, name):
            status = 403 if self.may_ask(by, name) else 404
        self.does(by, verb, status, body, data_set=name, **places)

    @rule(data=st.data(), stream=st.sampled_from(["daily", "slow"]))
    def look_at_a_stream(self, data: Any, stream: str) -> None:
        by, name = self.some_bearer(data), self.one_of(data, self.sets)
        status = 200 if stream in self.sets[name].streams else 422
        status = status if self.may_ask(by, name) else 404
        self.does(by, "stream", status, data_set=name, stream=stream)

    # --- programs and surveys -------------------------------------------------------------------

    @rule(data=st.data())
    def hand_in_a_program(self, data: Any) -> None:
        by, name = self.some_bearer(data), self.one_of(data, self.sets)
        body = {
            "source": f"def f(rows): return {next(NAMES)}",
            "name": "f",
            "outputs": [{"name": "n", "lower": 0, "upper": 9}],
        }
        status = 200 if self.may_ask(by, name) else 404
        found = self.does(by, "submit-pipeline", status, body, data_set=name)
        if found is not None:
            self.programs[found["digest"]] = Thing(by.user, name, by.user != self.sets[name].owner)

    @precondition(lambda self: self.programs)
    @rule(data=st.data(), state=st.sampled_from(["approved", "declined"]))
    def decide_about_a_program(self, data: Any, state: str) -> None:
        by, digest = self.some_bearer(data), self.one_of(data, self.programs)
        thing, body = self.programs[digest], {"state": state, "most_epsilon": 1}
        self._owners(by, "decide-pipeline", thing.set, 200, body, pipeline=digest)
        if self.owns(by, thing.set) and not self.is_out(by) and self.may(by, "decide-pipeline"):
            thing.is_over = state == "declined"

    @precondition(lambda self: self.programs)
    @rule(data=st.data())
    def price_a_program(self, data: Any) -> None:
        by, digest = self.some_bearer(data), self.one_of(data, self.programs)
        thing = self.programs[digest]
        is_seen = by.user in (thing.user, self.sets[thing.set].owner) or not thing.is_over
        status = 200 if is_seen and self.may_ask(by, thing.set) else 404
        places = {"data_set": thing.set, "pipeline": digest}
        self.does(by, "price-pipeline", status, {"epsilon": 0.1}, **places)

    @rule(data=st.data())
    def make_a_rule(self, data: Any) -> None:
        by, name = self.some_bearer(data), self.one_of(data, self.sets)
        outputs = [{"name": "m", "lower": 0, "upper": 9}]
        body = {"users": ["nobody"], "columns": ["age"], "outputs": outputs,
                "most_epsilon": 0.1, "most_total": 1}  # fmt: skip
        status = 200 if self.owns(by, name) else 403 if self.may_ask(by, name) else 404
        found = self.does(by, "set-pipeline-rule", status, body, data_set=name)
        if found is not None:
            self.rules_of_sets[found["rule"]] = Thing(by.user, name)

    @precondition(lambda self: self.rules_of_sets)
    @rule(data=st.data())
    def end_a_rule(self, data: Any) -> None:
        by, made = self.some_bearer(data), self.one_of(data, self.rules_of_sets)
        thing = self.rules_of_sets[made]
        status = 404 if thing.is_over else 200
        self._owners(by, "end-pipeline-rule", thing.set, status, None, rule=made)
        if self.owns(by, thing.set) and not self.is_out(by) and self.may(by, "end-pipeline-rule"):
            thing.is_over = True

    @rule(data=st.data())
    def publish_a_survey(self, data: Any) -> None:
        by = self.some_bearer(data)
        found = self.does(by, "publish-survey", 403 if by.set else 200, {"survey": design()})
        if found is not None:
            self.surveys[found["survey"]] = Thing(by.user)

    @precondition(lambda self: self.surveys)
    @rule(data=st.data(), verb=st.sampled_from(["invite-to-survey", "close-survey"]))
    def invite_to_a_survey_or_close_it(self, data: Any, verb: str) -> None:
        by, survey = self.some_bearer(data), self.one_of(data, self.surveys)
        thing = self.surveys[survey]
        status = 409 if verb == "invite-to-survey" and thing.is_over else 200
        status = 403 if by.set else status if by.user == thing.user else 404
        if self.does(by, verb, status, {}, survey=survey) and verb == "close-survey":
            thing.is_over = True

    @precondition(lambda self: self.surveys)
    @rule(data=st.data(), verb=st.sampled_from(["survey", "survey-estimates", "survey-reports"]))
    def look_at_a_survey(self, data: Any, verb: str) -> None:
        survey = self.one_of(data, self.surveys)
        seen, found = self.world.call(verb, "nobody", "", None, survey=survey)
        assert seen == 200, found
        wanted = "closed" if self.surveys[survey].is_over else "open"
        assert found.get("state", wanted) == wanted

    # --- what everybody sees --------------------------------------------------------------------

    @invariant()
    def whoever_looks_sees_their_own_and_no_more(self) -> None:
        """One after another looks around; so what is listed is what the model knows of."""
        if not self.bearers:
            return
        by = self.bearers[self.looked // len(SEEN) % len(self.bearers)]
        verb = SEEN[self.looked % len(SEEN)]
        self.looked += 1
        found = self.does(by, verb, 200)
        if found is None:
            return
        seen = {one[SEEN_BY[verb]] for one in found[verb.replace("-", "_")]}
        known, mine = self._known(by, verb)
        assert seen & known == mine, (verb, by)

    def _known(self, by: Bearer, verb: str) -> tuple[set[str], set[str]]:
        """Return what the model knows of a kind of thing, and what of it they are to see."""
        if verb == "data-sets":
            return set(self.sets), {name for name in self.sets if self.may_ask(by, name)}
        if verb == "jobs":
            jobs = self.jobs.items()
            return set(self.jobs), {
                job for job, of in jobs if of.user == by.user and by.set in (None, of.set)
            }
        held = [one for one in self.bearers if one.id]
        opens = {one.id for one in held if one.user == by.user and not one.is_over}
        return {one.id for one in held}, opens

    def teardown(self) -> None:
        """Nobody keeps a token: the next run may make a hundred."""
        for one in self.bearers:
            if one.id and not one.is_over and one.user != self.nomad:
                self.does(self.by(one.user), "revoke-token", 200, token=one.id)
                one.is_over = True
                self.does(one, "me", 200)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Return a service with somebody of every role, and no data."""
    with served(make_vault(tmp_path_factory.mktemp("served"))) as service:
        service.owner()
        for name, roles in ROLES.items():
            if name == SECOND:
                service.user_from_folder(name, *roles)
            elif name != "owner":
                service.user(name, *roles)
        world = World(service)
        yield world
        world.session.close()
        assert strays(service) == []


def _run(world: World, runs: int, steps: int) -> None:
    machine = type("AnyOrderHere", (AnyOrder,), {"world": world})
    how = settings(
        max_examples=runs, stateful_step_count=steps, deadline=None, database=None,
        derandomize=runs == FEW, phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    run_state_machine_as_test(machine, settings=how)


def test_every_order_is_answered_as_the_model_says(world: World) -> None:
    _run(world, FEW, 40)


@pytest.mark.slow
def test_every_order_is_answered_as_the_model_says_at_length(world: World) -> None:
    _run(world, 30, 80)
