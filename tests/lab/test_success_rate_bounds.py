"""Chances and their bounds are exact; a report says the same in words, table and picture."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from scipy import stats

from sfumato.dp.refusal import Refused
from sfumato.lab.attack_report import Report, SuccessRate
from sfumato.lab.attacks import attack, attacks
from sfumato.lab.success_rate_bounds import guessing_bound, hit_rate_bound, interval


@pytest.mark.parametrize(("hits", "tries"), [(0, 10), (3, 10), (10, 10), (500, 1000)])
def test_the_interval_is_the_exact_one(hits: int, tries: int) -> None:
    low, high = interval(hits, tries, 0.95)
    found = stats.binomtest(hits, tries).proportion_ci(0.95, method="exact")
    assert (low, high) == pytest.approx((found.low, found.high))


def test_the_interval_covers_as_often_as_it_says() -> None:
    """Over all outcomes of 40 tries, by exact arithmetic: never less often than 95 %."""
    for chance in (0.02, 0.1, 0.5, 0.87):
        covered = sum(
            stats.binom.pmf(hits, 40, chance)
            for hits in range(41)
            if interval(hits, 40, 0.95)[0] <= chance <= interval(hits, 40, 0.95)[1]
        )
        assert covered >= 0.95


def test_guessing_between_neighbours_is_bounded_by_the_odds() -> None:
    assert guessing_bound(0) == 0.5
    assert guessing_bound(1) == pytest.approx(math.e / (1 + math.e))
    assert guessing_bound(1, prior=0.9) == pytest.approx(9 * math.e / (1 + 9 * math.e))
    assert guessing_bound(1, delta=1) == 1
    assert guessing_bound(5000) == 1


def test_members_are_named_no_more_often_than_strangers_times_the_odds() -> None:
    assert hit_rate_bound(0, 0.01) == pytest.approx(0.01)
    assert hit_rate_bound(1, 0.01) == pytest.approx(0.01 * math.e)
    assert hit_rate_bound(1, 0.9) == pytest.approx(1 - 0.1 / math.e)
    assert hit_rate_bound(4, 0.01, 1e-5) == pytest.approx(0.01 * math.exp(4) + 1e-5)
    assert hit_rate_bound(10, 0.01) == pytest.approx(1 - math.exp(-10) * 0.99)


def report() -> Report:
    return Report(
        attack="none",
        title="Nobody is found",
        knows="The attacker knows nothing.",
        measure="people found",
        successes=(
            SuccessRate("exact", 9, 10),
            SuccessRate("ours", 1, 10, epsilon=0.1, bound=0.525),
        ),
        finding="Nothing was found.",
        guessing=0.5,
    )


def test_a_report_says_the_same_everywhere(tmp_path: Path) -> None:
    made = report()
    assert "90.0 %" in made.table
    assert "52.5 %" in made.table
    assert made.as_json()["finding"] == "Nothing was found."
    assert "Nobody is found" in made.save(tmp_path / "a.svg").read_text("utf-8")
    drawn = json.dumps(made.plot.spec)
    assert '"bound": 0.525' in drawn
    assert '"datum": 0.5' in drawn
    assert "<table>" in made._repr_html_()


def test_only_what_is_surely_above_the_bound_is_said_to_be() -> None:
    assert not SuccessRate("ours", 600, 1000, bound=0.58).is_above_bound(0.999)
    assert SuccessRate("ours", 700, 1000, bound=0.58).is_above_bound(0.999)
    assert not SuccessRate("exact", 1000, 1000).is_above_bound(0.999)


def test_every_attack_is_known_by_its_own_name() -> None:
    for one in attacks():
        assert attack(one.name) == one
        assert one.shows == one.shows.strip().rstrip(".")
    with pytest.raises(Refused):
        attack("nothing")
    with pytest.raises(Refused):
        attack("linkage").report(colour="blue")
