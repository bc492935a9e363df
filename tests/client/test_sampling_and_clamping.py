"""Error bars with sampling, and what the bounds cut off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import hypot, sqrt
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sfumato import Refused
from sfumato.client import DataSet
from support.small_vaults import open_with, write_csv

CARD = """
unit = "who"
budget = { epsilon = 1000 }
max_rows = 3
limits = { rows = 100000, rows_per_person = 50 }
[columns.sex]
type = "text"
keys = ["f", "m"]
[columns.cost]
type = "integer"
lower = 10
upper = 90
"""
PEOPLE = 400


def rows(seed: int = 1) -> list[tuple[str, str, int]]:
    dice = Random(seed)
    made = []
    for i in range(PEOPLE):
        for _ in range(6 if i % 5 == 0 else 1):
            made.append((f"p{i}", dice.choice("fm"), dice.randrange(0, 101)))
    return made


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataSet]:
    folder = tmp_path_factory.mktemp("checks")
    source = write_csv(folder / "v.csv", ("who", "sex", "cost"), rows())
    with open_with(folder, "visits", source, CARD) as vault:
        yield vault["visits"]


@pytest.fixture(scope="module")
def by_row(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataSet]:
    folder = tmp_path_factory.mktemp("checks")
    text = CARD.replace('unit = "who"', 'unit = "row"').replace("max_rows = 3\n", "")
    source = write_csv(folder / "v.csv", ("who", "sex", "cost"), rows())
    with open_with(folder, "visits", source, text) as vault:
        yield vault["visits"]


# --- what is cut off ---------------------------------------------------------------------------


def test_what_lies_at_the_bounds_and_who_is_cut_is_told(data: DataSet) -> None:
    found = data.check_clipping("cost", epsilon=300)
    lower, upper, people = found.cuts
    kept = rows()
    assert lower.share == pytest.approx(sum(c <= 10 for *_, c in kept) / len(kept), abs=0.05)
    assert upper.share == pytest.approx(sum(c >= 90 for *_, c in kept) / len(kept), abs=0.05)
    assert people.share == pytest.approx(1 / 5, abs=0.01)
    assert people.says == "people with more than 3 rows"
    assert all(cut.interval[0] <= cut.share <= cut.interval[1] for cut in found.cuts)
    assert "people with more than 3 rows" in repr(found)
    assert "epsilon 300 in all" in repr(found)


def test_a_check_pays_just_what_was_typed_and_again_is_free(data: DataSet) -> None:
    before = data.budget["spent"]["epsilon"]
    first = data.check_clipping("cost", epsilon=1.5)
    assert data.budget["spent"]["epsilon"] == pytest.approx(before + 1.5, abs=1e-9)
    again = data.check_clipping("cost", epsilon=1.5)
    assert [cut.share for cut in again.cuts] == [cut.share for cut in first.cuts]
    assert data.budget["spent"]["epsilon"] == pytest.approx(before + 1.5, abs=1e-9)


def test_the_bound_of_rows_that_is_meant_is_asked(data: DataSet) -> None:
    found = data.at_most(rows=6).check_clipping("cost", epsilon=300)
    assert found.cuts[2].says == "people with more than 6 rows"
    assert found.cuts[2].share == pytest.approx(0, abs=0.01)


def test_a_row_unit_has_nobody_to_cut(by_row: DataSet) -> None:
    found = by_row.check_clipping("cost", epsilon=10)
    assert [cut.says for cut in found.cuts] == [
        "cost at the lower bound or below",
        "cost at the upper bound or above",
    ]
    assert len(found.answers) == 1


@pytest.mark.parametrize("of", ["sex", "nothing"])
def test_only_numbers_with_bounds_are_clipped(data: DataSet, of: str) -> None:
    with pytest.raises(Refused, match="no-bounds"):
        data.check_clipping(of, epsilon=1)


def test_a_check_asks_questions_of_its_own(data: DataSet) -> None:
    with pytest.raises(Refused, match="not-in-language"):
        data.group_by("sex").check_clipping("cost", epsilon=1)


def test_a_check_that_does_not_fit_is_refused_before_anything_is_paid(data: DataSet) -> None:
    before = data.budget["spent"]["epsilon"]
    with pytest.raises(Refused, match="budget-exceeded"):
        data.check_clipping("cost", epsilon=999)
    assert data.budget["spent"]["epsilon"] == before


def test_a_check_that_was_answered_is_free_whatever_is_left(tmp_path: Path) -> None:
    text = CARD.replace("epsilon = 1000", "epsilon = 1.5")
    source = write_csv(tmp_path / "v.csv", ("who", "sex", "cost"), rows())
    with open_with(tmp_path, "visits", source, text) as vault:
        data = vault["visits"]
        first = data.check_clipping("cost", epsilon=1)
        with pytest.raises(Refused, match="resume=True"):
            data.check_clipping("cost", epsilon=1)
        again = data.check_clipping("cost", epsilon=1, resume=True)
        assert again.cuts == first.cuts
        assert data.budget["spent"]["epsilon"] == pytest.approx(1)


# --- sampling -----------------------------------------------------------------------------------


def test_sampling_widens_a_mean_by_the_released_spread(by_row: DataSet) -> None:
    built = by_row.group_by("sex").mean("cost", name="m").deviation("cost", name="s")
    answer = built.count("cost", name="n").ask(epsilon=5)
    wide = answer.with_sampling()
    for place, (_, mean, spread, count) in enumerate(answer.rows):
        assert wide.rows[place][1] == mean
        error = float(str(spread)) / sqrt(float(str(count)))
        assert wide.std[place][1] == pytest.approx(hypot(answer.std[place][1] or 0, error))
        (low, high), (before, after) = wide.interval[place][1] or (0, 0), _bar(answer, place, 1)
        (_, widest), (least, _) = _bar(answer, place, 2), _bar(answer, place, 3)
        more = 1.96 * widest / sqrt(max(least, 1))
        assert [low, high] == pytest.approx([before - more, after + more])
        assert wide.interval[place][2:] == answer.interval[place][2:]
    assert "The ± of m includes sampling" in repr(wide)
    assert "for the noise alone unless said below" in repr(wide)
    assert wide.with_sampling() == wide


def _bar(answer: Any, row: int, place: int) -> tuple[float, float]:
    found: tuple[float, float] = answer.interval[row][place]
    return found


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT AVG(cost) FROM visits",
        "SELECT AVG(cost), STDDEV(cost) FROM visits",
        "SELECT AVG(cost), STDDEV(cost), COUNT(*) FROM visits",
        "SELECT AVG(cost), STDDEV(cost + 1), COUNT(cost) FROM visits",
        "SELECT COUNT(cost) FROM visits",
    ],
)
def test_without_the_spread_there_is_no_sampling_error(by_row: DataSet, sql: str) -> None:
    answer = by_row.ask(sql, epsilon=1)
    with pytest.raises(Refused, match="not-in-language"):
        answer.with_sampling()


def test_bars_with_sampling_hold_the_mean_that_samples_are_drawn_from(tmp_path: Path) -> None:
    """Two hundred samples of one crowd, a key each, in one question; the crowd's mean is 50."""
    dice = Random(9)
    keys = [f"k{i}" for i in range(200)]
    text = CARD.replace('unit = "who"', 'unit = "row"').replace("max_rows = 3\n", "")
    text = text.replace('keys = ["f", "m"]', f"keys = {keys}".replace("'", '"'))
    made = [(0, key, dice.randrange(20, 81)) for key in keys for _ in range(60)]
    source = write_csv(tmp_path / "v.csv", ("who", "sex", "cost"), made)
    with open_with(tmp_path, "visits", source, text) as vault:
        built = vault["visits"].group_by("sex").mean("cost").deviation("cost").count("cost")
        answer = built.ask(epsilon=60)
    wide = answer.with_sampling()
    inside = [low <= 50 <= high for low, high in (_bar(wide, i, 1) for i in range(200))]
    assert sum(inside) >= 170  # of 200 at 95 %: fewer once in 10^7
    alone = [low <= 50 <= high for low, high in (_bar(answer, i, 1) for i in range(200))]
    assert sum(alone) < 150  # the noise alone is a small part of it
    assert replace(wide, notes=()).rows == answer.rows


# --- the split of a price -----------------------------------------------------------------------


def test_a_split_is_asked_for_in_sql_and_python_and_makes_another_answer(by_row: DataSet) -> None:
    sql = "SELECT COUNT(*) AS n, SUM(cost) AS s FROM visits"
    even = by_row.ask(sql, epsilon=1)
    split = by_row.ask(sql, epsilon=1, split={"n": 9, "s": 1})
    built = by_row.count(name="n").sum("cost", name="s").ask(epsilon=1, split={"n": 9})
    assert built.rows == split.rows != even.rows
    ratios = [(split.std[0][i] or 0) / (even.std[0][i] or 1) for i in (0, 1)]
    assert ratios == pytest.approx([0.5 / 0.9, 0.5 / 0.1], rel=0.1)
    assert split.receipt["epsilon"] == 1
    with pytest.raises(Refused, match="unknown-column"):
        by_row.ask(sql, epsilon=1, split={"cost": 2})
