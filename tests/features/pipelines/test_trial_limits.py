"""One person's trials do not keep a service's sandbox busy; the clock is the test's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.client.ask_terms import Json
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.schema import PlanPipeline
from sfumato.features.pipelines.trial_limits import MOST_S, TrialLimits
from sfumato.sandbox.block_timing import turn_s
from sfumato.sandbox.ports import SandboxLimits, TrialJob, TrialResult
from sfumato.vault.users import Caller
from support.pipeline_cards import town_card
from support.sandbox_blocks import needs_bubbles
from support.small_vaults import card, make_vault, write_csv


class Moment:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.at = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> str:
        """Return the moment that the test has set."""
        return self.at.isoformat()

    def wait(self, minutes: float) -> None:
        self.at += timedelta(minutes=minutes)


def cause(act: Callable[[], object]) -> str:
    with pytest.raises(Refused) as refused:
        act()
    assert refused.value.code == "too-many"
    return str(refused.value)


def tried(limits: TrialLimits, user: str, seconds: float) -> None:
    with limits.taken(user, seconds):
        pass


def test_a_person_has_one_trial_at_a_time() -> None:
    limits = TrialLimits(Moment())
    with limits.taken("ria", 1):
        assert "is running" in cause(lambda: tried(limits, "ria", 1))
        tried(limits, "eve", 1)
    tried(limits, "ria", 1)
    with pytest.raises(ValueError, match="broken"), limits.taken("ria", 1):
        raise ValueError("broken")
    tried(limits, "ria", 1)


def test_the_trials_of_an_hour_share_a_budget_and_the_refusal_says_when_the_next_may_be() -> None:
    clock = Moment()
    limits = TrialLimits(clock)
    tried(limits, "ria", 600)
    clock.wait(20)
    tried(limits, "ria", MOST_S - 700)
    tried(limits, "ria", 100)  # exactly all of it
    clock.wait(9.5)
    assert "in 31 minutes" in cause(lambda: tried(limits, "ria", 600))
    assert "in 51 minutes" in cause(lambda: tried(limits, "ria", 601))
    assert f"{MOST_S:,} seconds of a processor" in cause(lambda: tried(limits, "ria", 1))
    tried(limits, "eve", MOST_S)
    clock.wait(30.5)
    tried(limits, "ria", 600)  # refusals cost nothing
    cause(lambda: tried(limits, "ria", 1))


def test_a_trial_counts_what_it_took_and_at_least_what_it_had_to_count() -> None:
    limits = TrialLimits(Moment())
    with limits.taken("ria", 100) as counted:
        counted.took(600)
    with limits.taken("ria", 100) as counted:
        counted.took(1)
    assert "took 700" in cause(lambda: tried(limits, "ria", MOST_S - 699))
    tried(limits, "ria", MOST_S - 700)


def test_a_trial_that_needs_more_than_an_hour_has_needs_all_of_it() -> None:
    clock = Moment()
    limits = TrialLimits(clock)
    tried(limits, "ria", 1)
    cause(lambda: tried(limits, "ria", 2 * MOST_S))
    clock.wait(60)
    tried(limits, "ria", 2 * MOST_S)
    cause(lambda: tried(limits, "ria", 1))


SERVED = Caller("owner", frozenset({"ask"}), token="a token")  # noqa: S106  # an id


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    with sfumato.open(make_vault(tmp_path)) as made:
        rows = [("ann", 170), ("bob", 180)]
        source = write_csv(tmp_path / "t.csv", ("who", "height"), rows)
        made.add("town", source, card(town_card(9)))
        yield made


def asked_of(vault: OpenVault, cpu_s: float) -> PlanPipeline:
    """Return a trial of six runs: everybody together, and five blocks."""
    outputs = [{"name": "m", "lower": 100, "upper": 220, "step": 1}]
    source = "def mean(rows):\n    return 170\n"
    body: Json = {"data_set": "town", "source": source, "name": "mean", "outputs": outputs}
    made = str(vault.call("submit-pipeline", body)["digest"])
    return PlanPipeline(data_set="town", pipeline=made, epsilon=1, blocks=5, cpu_s=cpu_s)


def test_a_service_counts_the_trials_of_each_user(vault: OpenVault) -> None:
    asked, pipelines = asked_of(vault, 60), vault.house.desk.pipelines
    needed = 6 * turn_s(SandboxLimits(cpu_s=60))
    assert needed > 6 * 90  # by the clock, a run may take longer than its processor time
    with pipelines.trials.taken("owner", MOST_S - needed + 0.1):
        assert "is running" in cause(lambda: pipelines.plan(SERVED, asked))
    assert f"needs {math.ceil(needed)}" in cause(lambda: pipelines.plan(SERVED, asked))


@needs_bubbles
def test_a_trial_whose_runs_end_late_counts_by_the_clock(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, pipelines = asked_of(vault, 0.5), vault.house.desk.pipelines
    sandbox = pipelines.door.sandbox
    try_out = sandbox.try_out

    def late(job: TrialJob) -> tuple[TrialResult, ...]:
        return tuple(replace(one, use=replace(one.use, wall_s=200.0)) for one in try_out(job))

    monkeypatch.setattr(sandbox, "try_out", late)
    pipelines.plan(SERVED, asked)
    assert "took 1,200" in cause(lambda: tried(pipelines.trials, "owner", MOST_S - 1199))
    tried(pipelines.trials, "owner", MOST_S - 1200)
