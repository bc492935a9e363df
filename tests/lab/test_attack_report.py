"""A report tells numbers, bounds and intervals, and knows what is more than theory allows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sfumato.dp.refusal import Refused
from sfumato.lab.attack_report import Report, SuccessRate
from sfumato.lab.attacks import attack, attacks
from sfumato.lab.success_rate_bounds import least


def report(*successes: SuccessRate, beside: tuple[Report, ...] = ()) -> Report:
    return Report("none", "Title", "Knows.", "right", successes, "Found.", beside=beside)


def test_more_than_theory_allows_is_told() -> None:
    within = SuccessRate("ours", 520, 1000, epsilon=0.1, bound=0.525)
    above = SuccessRate("ours", 700, 1000, epsilon=0.1, bound=0.525)
    assert report(within, above).above_bounds() == (above,)


def test_reports_beside_are_judged_too() -> None:
    above = SuccessRate("ours", 700, 1000, bound=0.525)
    assert report(beside=(report(above),)).above_bounds() == (above,)


def test_the_more_is_judged_the_more_has_to_be_seen() -> None:
    one = SuccessRate("ours", 554, 1000, bound=0.5)  # above 0.5 at 99.9 % alone
    assert report(one).above_bounds() == (one,)
    assert report(one, *[SuccessRate("ours", 1, 2, bound=0.5)] * 20).above_bounds() == ()


def test_one_alone_is_judged_by_a_one_sided_interval() -> None:
    hits = next(hits for hits in range(1000) if least(hits, 1000, 0.001) > 0.5)
    few, enough = (SuccessRate("ours", n, 1000, bound=0.5) for n in (hits - 1, hits))
    assert (report(few).above_bounds(), report(enough).above_bounds()) == ((), (enough,))


def test_what_promises_nothing_breaks_nothing() -> None:
    assert report(SuccessRate("exact", 1000, 1000)).above_bounds() == ()


def test_under_the_bound_false_alarms_are_as_rare_as_stated() -> None:
    dice = np.random.default_rng(5)
    draws = dice.binomial(1000, 0.731, size=(600, 3))
    alarms = sum(
        report(*(SuccessRate("ours", int(hits), 1000, bound=0.731) for hits in row)).above_bounds(
            0.95
        )
        != ()
        for row in draws
    )
    assert alarms <= 0.05 * 600


def test_all_is_saved_side_by_side(tmp_path: Path) -> None:
    one = SuccessRate("ours", 1, 2, bound=0.5, note="twice")
    kept = report(one, beside=(report(one),)).save(tmp_path / "found.svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["found-2.svg", "found.svg"]
    assert "twice" in kept.read_text()


def test_bars_of_one_name_stand_beside_each_other() -> None:
    shown = report(SuccessRate("ours", 1, 2, note="a"), SuccessRate("ours", 2, 2, note="b")).plot
    rows = shown.spec["data"]["values"]  # type: ignore[index]  # a spec is JSON
    assert [row["label"] for row in rows] == ["ours\na", "ours\nb"]


def test_a_report_is_told_with_all_that_is_beside_it() -> None:
    text = repr(report(SuccessRate("ours", 1, 2), beside=(report(SuccessRate("theirs", 1, 2)),)))
    assert "ours" in text
    assert "theirs" in text


@pytest.mark.parametrize("name", ["averaging", "differencing", "linkage", "loo"])
def test_an_attack_by_its_name_finds_the_same_from_the_same_seed(name: str) -> None:
    first, again = (attack(name).report(runs=20, seed=7).as_json() for _ in range(2))
    assert json.dumps(first) == json.dumps(again)


def test_every_attack_says_what_it_shows() -> None:
    assert all(one.shows for one in attacks())
    with pytest.raises(Refused, match="The lab has no attack"):
        attack("magic")
