"""Who is alone by which columns, one person found, and what private counts tell instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfumato.dp.refusal import Refused
from sfumato.lab.attack_report import Report
from sfumato.lab.attacks import attack

PARTICIPANTS = Path(__file__).parents[4] / "shared" / "data" / "participants.tsv"


def shares(report: Report) -> dict[str, float]:
    return {one.against: round(one.rate, 3) for one in report.successes}


def test_the_town_and_its_neighbour_are_found_by_name() -> None:
    report = attack("linkage").report(seed=1, runs=100)
    assert shares(report) == {"age": 0.006, "zip + age": 0.197, "zip + age + salary": 0.528}
    assert "exactly one row fits. Learnt: salary = 148,500, has_rare_disease = yes" in repr(report)


def test_exact_counts_tell_the_disease_and_private_ones_hardly() -> None:
    (counts,) = attack("linkage").report(seed=1, runs=2000).beside
    exact, small, *_ = counts.successes
    assert exact.rate == 1.0
    assert small.rate < 0.57
    assert counts.guessing == 0.5


def test_any_table_and_anybody_in_it_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "staff.csv"
    path.write_text("room,pay,union\n1,900,yes\n1,1900,no\n2,900,yes\n2,900,yes\n")
    typed = {"data": str(path), "columns": "room,pay", "secret": "union"}
    report = attack("linkage").report(seed=1, runs=10, knows="room=1,pay=800..1000", **typed)
    assert shares(report) == {"pay": 0.25, "room + pay": 0.5}
    assert "Found: exactly one row fits. Learnt: pay = 900.0, union = yes." in report.finding


@pytest.mark.parametrize(
    ("typed", "words"),
    [({"columns": "age,shoe"}, "no column 'shoe'"), ({"knows": "age=a..b"}, "is not a range")],
)
def test_what_cannot_be_looked_for_is_refused(typed: dict[str, str], words: str) -> None:
    with pytest.raises(Refused, match=words):
        attack("linkage").report(runs=10, seed=None, **typed)


def test_of_a_hundred_columns_the_finding_names_a_few(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    names = [f"c{number}" for number in range(100)]
    path.write_text(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
    report = attack("linkage").report(runs=10, data=str(path), knows="c0=1")
    assert report.finding.endswith("c8 = 1, and 91 more columns.")
    assert [one.tries for one in report.successes] == [1] * 8


@pytest.mark.skipif(not PARTICIPANTS.exists(), reason="../shared/data/participants.tsv is absent")
def test_the_real_participants_are_as_unique_as_was_measured() -> None:
    typed = {"data": str(PARTICIPANTS), "columns": "age,sex,Height,Weight"}
    found = shares(attack("linkage").report(runs=10, seed=None, **typed))
    assert found["age + sex + Height + Weight"] == 1.0
    assert found["Weight"] == 0.35
