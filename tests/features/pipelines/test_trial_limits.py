"""One person's trials do not keep a service's sandbox busy; the clock is the test's own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import sfumato
from sfumato.client.ask_terms import Json
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.schema import PlanPipeline
from sfumato.features.pipelines.trial_limits import MOST_S, TrialLimits
from sfumato.vault.users import Caller
from support.pipeline_cards import town_card
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
    assert f"{MOST_S:,} processor seconds" in cause(lambda: tried(limits, "ria", 1))
    tried(limits, "eve", MOST_S)
    clock.wait(30.5)
    tried(limits, "ria", 600)  # refusals cost nothing
    cause(lambda: tried(limits, "ria", 1))


def test_a_service_counts_the_trials_of_each_user(tmp_path: Path) -> None:
    with sfumato.open(make_vault(tmp_path)) as vault:
        rows = [("ann", 170), ("bob", 180)]
        vault.add(
            "town", write_csv(tmp_path / "t.csv", ("who", "height"), rows), card(town_card(9))
        )
        outputs = [{"name": "m", "lower": 100, "upper": 220, "step": 1}]
        source = "def mean(rows):\n    return 170\n"
        body: Json = {"data_set": "town", "source": source, "name": "mean", "outputs": outputs}
        made = str(vault.call("submit-pipeline", body)["digest"])
        asked = PlanPipeline(data_set="town", pipeline=made, epsilon=1, blocks=5, cpu_s=60)
        pipelines = vault.house.desk.pipelines
        served = Caller("owner", frozenset({"ask"}), token="a token")  # noqa: S106  # an id
        spent = MOST_S - 6 * 60 + 1  # its runs are everybody together and five blocks
        with pipelines.trials.taken("owner", spent):
            assert "is running" in cause(lambda: pipelines.plan(served, asked))
        assert "needs 360" in cause(lambda: pipelines.plan(served, asked))
