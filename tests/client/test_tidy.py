"""Tidy answers: cells that agree with margins, whole counts, and deviations that are honest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sfumato.app.vault import OpenVault
from sfumato.client import Answer
from sfumato.client.derived_totals import TIDIED
from sfumato.client.nonnegative_counts import nonnegative_counts, onto_simplex, rounded
from sfumato.client.tidy import (
    CLIPPED,
    Estimates,
    Margin,
    least_squares,
)
from sfumato.dp.refusal import Refused
from support.small_vaults import open_with, write_csv

Floats = NDArray[np.float64]
COLUMNS = {"place": ("north", "south"), "sex": ("f", "m", None)}
ONE_ROW = "at most 1 row of a person count, chosen at random"


def answer(
    keys: Sequence[str],
    values: Sequence[float],
    std: float = 10.0,
    verb: str = "count",
    **said: object,
) -> Answer:
    """Return an answer over the full cross of the keys, as the door would have made it."""
    rows = list(product(*(COLUMNS[key] for key in keys)))
    none = (None,) * len(keys)
    outputs = [{"name": key, "key": key} for key in keys]
    question = {
        "data_set": "clinic",
        "outputs": [*outputs, {"name": "n", "verb": verb, "column": ""}],
        "where": None,
        "group_by": list(keys),
        "max_groups": None,
        "max_rows": None,
    }
    receipt = {
        "data_set": "clinic",
        "version": "1",
        "people": "all",
        "guarantee": "central-dp",
        "bounding": ONE_ROW,
        "question": question | {k: v for k, v in said.items() if k in ("where", "having")},
    }
    return Answer(
        columns=(*keys, "n"),
        rows=tuple((*row, value) for row, value in zip(rows, values, strict=True)),
        std=tuple((*none, std) for _ in rows),
        interval=tuple((*none, (value - 2 * std, value + 2 * std)) for value in values),
        guarantee="central-dp",
        receipt=receipt | {k: v for k, v in said.items() if k not in ("where", "having")},
    )


def numbers(made: Answer) -> list[float]:
    return [float(str(row[-1])) for row in made.rows]


def parts(made: Answer, place: int, key: object) -> float:
    return sum(float(str(row[-1])) for row in made.rows if row[place] == key)


def estimates(values: Sequence[float] | Floats, std: Sequence[float] | Floats) -> Estimates:
    made = np.array(std, dtype=np.float64)
    return Estimates(np.array(values, dtype=np.float64), made, 2 * made)


def brute_force(cells: Estimates, margins: Sequence[Margin]) -> tuple[Floats, Floats]:
    """Return the least-squares solution and its deviations, all matrices written out."""
    size = len(cells.values)
    design, observed, variances = [np.eye(size)], [cells.values], [cells.std**2]
    for margin in margins:
        rows = np.arange(len(margin.sums.values))[:, None] == margin.groups[None, :]
        design.append(rows.astype(np.float64))
        observed.append(margin.sums.values)
        variances.append(margin.sums.std**2)
    x, y = np.vstack(design), np.concatenate(observed)
    weight = np.diag(1 / np.concatenate(variances))
    covariance = np.linalg.inv(x.T @ weight @ x)
    return covariance @ x.T @ weight @ y, np.sqrt(np.diag(covariance))


@st.composite
def tables(draw: st.DrawFn) -> tuple[Estimates, list[Margin]]:
    """Draw cells and up to three margins, each of any grouping of them."""
    size = draw(st.integers(1, 8))
    number = st.floats(-1000, 1000)
    std = st.floats(0.5, 50)

    def lists(of: st.SearchStrategy[float]) -> list[float]:
        return draw(st.lists(of, min_size=size, max_size=size))

    cells = estimates(lists(number), lists(std))
    margins = []
    for _ in range(draw(st.integers(1, 3))):
        drawn = lists(st.integers(0, 3))
        _, groups = np.unique(drawn, return_inverse=True)
        sums = [draw(number) for _ in range(groups.max() + 1)]
        sure = [draw(std) for _ in sums]
        margins.append(Margin(groups.astype(np.int64), estimates(sums, sure)))
    return cells, margins


@given(tables())
def test_the_linear_step_is_least_squares_with_every_matrix_written_out(
    table: tuple[Estimates, list[Margin]],
) -> None:
    made = least_squares(*table)
    values, std = brute_force(*table)
    np.testing.assert_allclose(made.values, values, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(made.std, std, rtol=1e-6)


def test_the_deviations_of_the_linear_step_are_those_of_a_simulation() -> None:
    dice, runs = np.random.default_rng(7), 20_000
    place, sex = np.repeat([0, 1], 3), np.tile([0, 1, 2], 2)
    stds = np.array([7.0] * 6), np.array([3.0, 3.0]), np.array([5.0] * 3), np.array([2.0])
    groups = [place, sex, np.zeros(6, dtype=np.int64)]
    truth = np.array([30.0, 4, 0, 250, 11, 90])
    found = np.empty((runs, 6))
    for run in range(runs):
        noise = [dice.laplace(0, std / np.sqrt(2)) for std in stds]
        sums = [np.bincount(g, weights=truth) for g in groups]
        margins = [
            Margin(g, estimates(total + drawn, std))
            for g, total, drawn, std in zip(groups, sums, noise[1:], stds[1:], strict=True)
        ]
        made = least_squares(estimates(truth + noise[0], stds[0]), margins)
        found[run] = made.values
    real = found.std(axis=0)
    np.testing.assert_allclose(made.std, real, rtol=0.03)
    assert all(made.std < 0.9 * stds[0])
    np.testing.assert_allclose(found.mean(axis=0), truth, atol=0.25)


def test_the_intervals_of_the_linear_step_hold_at_95_percent() -> None:
    dice, runs, covered = np.random.default_rng(8), 4000, 0
    scale, margin_scale = 5.0, 20.0
    truth, groups = np.array([5.0, 60, 7, 0]), np.zeros(4, dtype=np.int64)
    for _ in range(runs):
        noisy = truth + dice.laplace(0, scale, 4)
        total = truth.sum() + dice.laplace(0, margin_scale, 1)
        deep = np.log(20) / np.sqrt(2)
        std, far = np.full(4, scale * np.sqrt(2)), np.full(1, margin_scale * np.sqrt(2))
        made = least_squares(
            Estimates(noisy, std, std * deep), [Margin(groups, Estimates(total, far, far * deep))]
        )
        covered += int((np.abs(made.values - truth) <= made.half).sum())
    assert 0.945 <= covered / (4 * runs) <= 0.965


def test_no_noise_at_all_leaves_the_cells_as_they_are() -> None:
    cells = estimates([3.0, 4.0], [0.0, 0.0])
    made = least_squares(cells, [Margin(np.zeros(2, dtype=np.int64), estimates([7.0], [0.0]))])
    np.testing.assert_allclose(made.values, [3, 4])


cell_values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


@given(cell_values, st.integers(0, 10**7))
def test_the_projection_is_not_negative_sums_to_the_total_and_is_the_nearest(
    values: list[float], total: int
) -> None:
    made = onto_simplex(np.array(values), total)
    assert made.min() >= 0
    assert made.sum() == pytest.approx(total, abs=1e-6 * (1 + total))
    kept = made > 0  # the nearest point moves all that stay above zero by one shift, others less
    shifts = np.array(values) - made
    if kept.any():
        tolerance = 1e-6 * (1 + total + float(np.abs(values).max()))
        assert np.ptp(shifts[kept]) <= tolerance
        assert all(shifts[~kept] <= shifts[kept].max() + tolerance)


@given(cell_values, st.integers(0, 10**6))
def test_rounding_moves_no_cell_by_one_and_keeps_the_total(values: list[float], total: int) -> None:
    exact = onto_simplex(np.array(values), total)
    made = rounded(exact, total)
    assert int(made.sum()) == total
    assert made.min() >= 0
    assert np.abs(made - exact).max() < 1 + 1e-6


@given(st.lists(st.floats(-300, 300), min_size=12, max_size=12))
def test_cells_of_nested_margins_add_up_exactly_at_every_level(values: list[float]) -> None:
    coarse, fine = np.repeat([0, 1], 6), np.repeat([0, 1, 2, 3], 3)
    made = nonnegative_counts(np.array(values), [coarse, fine])
    sums = np.bincount(fine, weights=values).astype(np.float64)
    above = nonnegative_counts(sums, [np.array([0, 0, 1, 1])])
    assert made.min() >= 0
    assert made.dtype == np.int64
    assert int(made.sum()) == max(0, round(sum(values)))
    assert np.bincount(fine, weights=made).tolist() == above.tolist()


noisy_counts = st.lists(st.integers(-40, 400), min_size=6, max_size=6)


@given(noisy_counts)
def test_without_margins_only_negative_counts_change(values: list[int]) -> None:
    made = answer(["place", "sex"], values).tidy()
    assert numbers(made) == [max(v, 0) for v in values]
    assert all(isinstance(row[-1], int) for row in made.rows)
    assert [row[-1] for row in made.std] == [10.0] * 6


@given(noisy_counts, st.tuples(*[st.integers(-30, 30)] * 3))
def test_a_tidy_table_adds_up_to_whole_margins(
    values: list[int], off: tuple[int, int, int]
) -> None:
    cells = answer(["place", "sex"], values)
    north, south = sum(values[:3]) + off[0], sum(values[3:]) + off[1]
    by_place = answer(["place"], [north, south], std=4.0)
    total = answer([], [north + south + off[2]], std=2.0)
    made = cells.tidy([total, by_place])
    assert all(isinstance(row[-1], int) and row[-1] >= 0 for row in made.rows)
    best, _ = brute_force(
        estimates(values, [10.0] * 6),
        [
            Margin(np.zeros(6, dtype=np.int64), estimates(numbers(total), [2.0])),
            Margin(np.repeat([0, 1], 3), estimates(numbers(by_place), [4.0, 4.0])),
        ],
    )
    sums = best[:3].sum(), best[3:].sum()
    assert sum(numbers(made)) == max(0, round(sum(sums)))
    if min(sums) >= 0:  # each margin as the linear step has it, whole
        assert abs(parts(made, 0, "north") - sums[0]) <= 1
        assert abs(parts(made, 0, "south") - sums[1]) <= 1


def test_a_tidy_answer_says_what_was_done_and_that_small_cells_are_too_high() -> None:
    made = answer(["sex"], [-5, 20, 3]).tidy(answer([], [16]))
    assert made.notes[0] == TIDIED
    assert CLIPPED in made.notes
    assert "too high" in CLIPPED
    assert any("least squares" in note for note in made.notes)


def test_after_clipping_deviations_and_ranges_are_those_of_the_linear_step_cut_at_zero() -> None:
    made = answer(["sex"], [-50, 20, 300]).tidy()
    assert [row[-1] for row in made.interval] == [(0, 0), (0, 40), (280, 320)]
    adjusted = answer(["sex"], [-50, 20, 300]).tidy(answer([], [270], std=10.0))
    assert [row[-1] for row in adjusted.std] == pytest.approx([10 * (3 / 4) ** 0.5] * 3)


def test_a_sum_is_adjusted_and_never_clipped_or_rounded() -> None:
    cells = answer(["sex"], [-5.5, 20.25, 3.0], verb="sum")
    assert numbers(cells.tidy()) == [-5.5, 20.25, 3.0]
    assert numbers(cells.tidy(answer([], [21.75], verb="sum"))) == [-4.5, 21.25, 4.0]


def test_a_mean_is_left_as_it_is() -> None:
    made = answer(["sex"], [-5.5, 20.25, 3.0], verb="mean").tidy(answer([], [900.0], verb="mean"))
    assert numbers(made) == [-5.5, 20.25, 3.0]


def test_crossing_margins_keep_the_total_and_the_first_and_the_answer_says_so() -> None:
    cells = answer(["place", "sex"], [30, 40, -9, 50, 60, 2])
    by_place, by_sex = answer(["place"], [60, 113]), answer(["sex"], [81, 97, -4])
    made = cells.tidy([by_place, by_sex])
    assert any("cross" in note for note in made.notes)
    assert min(numbers(made)) >= 0


CELLS = answer(["place", "sex"], [30, 40, 9, 50, 60, 2])
MISFITS = [
    (answer([], [191], data_set="other"), "data set"),
    (answer([], [191], version="2"), "version"),
    (answer([], [191], where={"is": "null", "column": "age"}), "conditions"),
    (answer([], [191], bounding="at most 2 rows of a person count, chosen at random"), "bounding"),
    (answer([], [191], having={"is": "compare"}), "Not every group"),
    (answer(["sex"], [80, 100, 11]).tidy(), "already tidied"),
    (answer([], [900]), "differ from the sums"),
    (CELLS, "twice"),
]


@pytest.mark.parametrize(("margin", "words"), MISFITS, ids=[words for _, words in MISFITS])
def test_a_margin_that_counts_something_else_is_refused(margin: Answer, words: str) -> None:
    with pytest.raises(Refused, match=words) as refused:
        CELLS.tidy(margin)
    assert refused.value.next_step


def test_one_margin_given_twice_is_refused_because_its_noise_is_the_same() -> None:
    total = answer([], [191])
    with pytest.raises(Refused, match="twice"):
        CELLS.tidy([total, total])


def test_a_finer_margin_and_one_with_other_keys_are_refused() -> None:
    with pytest.raises(Refused, match="grouped by a column"):
        answer(["sex"], [80, 100, 11]).tidy(CELLS)
    cut = answer(["sex"], [80, 100, 11])
    cut = replace(cut, rows=cut.rows[:2], std=cut.std[:2], interval=cut.interval[:2])
    with pytest.raises(Refused, match="different keys"):
        CELLS.tidy(cut)


def test_people_who_count_in_several_groups_have_no_margins() -> None:
    several = "at most 1 row of a person in each of at most 2 groups count, chosen at random"
    cells = answer(["sex"], [80, 100, 11], bounding=several)
    with pytest.raises(Refused, match="several groups") as refused:
        cells.tidy(answer([], [191], bounding=several))
    assert "max_groups=1" in refused.value.next_step


CARD = """
unit = "row"
people = "city"
version = "1"
budget = { epsilon = 100, delta = 0 }
[ask]
who = ["researchers"]
[columns.place]
type = "text"
keys = ["north", "south"]
[columns.sex]
type = "text"
keys = ["f", "m"]
[columns.cost]
type = "number"
lower = 0
upper = 10
step = 0.5
"""


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    folder = tmp_path_factory.mktemp("tidy")
    rows = [(("north", "south")[n % 2], ("f", "m")[n % 3 == 0], n % 7) for n in range(300)]
    source = write_csv(folder / "rows.csv", ("place", "sex", "cost"), rows)
    with open_with(folder, "visits", source, CARD) as opened:
        yield opened


def test_answers_of_a_real_vault_are_tidied_together_and_nothing_is_paid(vault: OpenVault) -> None:
    visits = vault["visits"]
    cells = visits.ask(
        "SELECT place, sex, COUNT(*) AS n, SUM(cost) AS c, AVG(cost) AS a FROM visits "
        "GROUP BY place, sex", epsilon=1,
    )  # fmt: skip
    by_place = visits.ask(
        "SELECT place, SUM(cost) AS s, COUNT(*) AS k FROM visits GROUP BY place", epsilon=1
    )
    total = visits.ask("SELECT COUNT(*) AS all_rows FROM visits", epsilon=1)
    spent = visits.budget["spent"]["epsilon"]
    made = cells.tidy([by_place, total])
    assert visits.budget["spent"]["epsilon"] == spent
    assert made.columns == cells.columns
    assert [row[4] for row in made.rows] == [row[4] for row in cells.rows]
    assert all(
        new[2] < old[2] for new, old in zip(made.std, cells.std, strict=True) if old[2] and new[2]
    )
    assert TIDIED in repr(made)
    assert TIDIED in made._repr_html_()
    assert prod(len(made.to_pandas()[key].unique()) for key in ("place", "sex")) == len(made)


def test_an_answer_given_again_for_free_is_the_same_noise_and_no_second_margin(
    vault: OpenVault,
) -> None:
    visits = vault["visits"]
    cells = visits.group_by("place", "sex").sum("cost").ask(epsilon=1)
    question = visits.group_by("place").sum("cost")
    margin, again = question.ask(epsilon=0.05), question.ask(epsilon=0.05)
    with pytest.raises(Refused, match="twice"):
        cells.tidy([margin, again])
    fresh = question.ask(epsilon=0.05, fresh=True)  # equal by chance once in two million runs
    assert cells.tidy([margin, fresh]).notes
