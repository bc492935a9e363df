"""Tidy an answer by free post-processing: groups adjusted to margins (totals), whole counts.

It has two steps, both on released numbers only. The first is generalised least squares with the
known noise. y are the cells with variance D, m the margins with variance M, and A y are the sums
that the margins measure:

  x = y + D A' S^-1 (m - A y), Cov(x) = D - D A' S^-1 A D, S = M + A D A'

so its standard deviations are exact. The second, for counts alone, is a projection. No standard
deviation of it can be computed from released numbers. The answer shows that of the first step,
its ranges cut at zero, and a note on the bias (soundness rule 22; Hay et al. 2010,
arXiv 0904.0942).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from sfumato.client.answer_table import AnswerValues, SomeAnswer
from sfumato.client.ask_terms import Json
from sfumato.client.derived_totals import TIDIED, has_private_keys
from sfumato.client.nonnegative_counts import nonnegative_counts
from sfumato.dp.refusal import Refused

# --- Post-processing of running counts: whole, non-negative, never falling
#
# Isotonic regression: the nearest rising sequence, weighted by each number's noise (pool adjacent
# violators; Barlow, Bartholomew, Bremner, Brunk 1972). It is a projection, so its standard
# deviation is unknown (soundness rule 22). It uses released numbers only, so it is free.


Floats = NDArray[np.float64]

RISEN: Final = (
    "Running counts were made monotonic. Standard deviations and ranges are those before this "
    "step, with ranges cut at zero."
)


def nearest_monotone(answer: AnswerValues, name: str, values: Floats, std: Floats) -> list[int]:
    """Return a column of running counts as whole numbers that never fall from period to period.

    The nearest non-falling sequence is rounded, and raised to zero where it is below.
    """
    made = values.copy()
    for places in _series(answer, name):
        made[places] = nearest_rising(values[places], std[places])
    return [int(v) for v in np.maximum(np.rint(made), 0).tolist()]


def nearest_rising(values: Floats, std: Floats) -> Floats:
    """Return the nearest non-falling sequence, weighted by 1 / std² (isotonic regression)."""
    weights = 1 / np.maximum(std, 1e-5) ** 2
    pools: list[tuple[float, float, int]] = []  # mean, weight and number of values
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        pools.append((value, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            pools.append(_pooled(pools.pop(-2), pools.pop()))
    return np.repeat([mean for mean, _, _ in pools], [count for _, _, count in pools])


def _pooled(
    one: tuple[float, float, int], other: tuple[float, float, int]
) -> tuple[float, float, int]:
    weight = one[1] + other[1]
    return (one[0] * one[1] + other[0] * other[1]) / weight, weight, one[2] + other[2]


def _series(answer: AnswerValues, name: str) -> list[list[int]]:
    """Return, for each running count, the indexes of its rows in period order.

    Return an empty list if the answer does not show every GROUP BY key.
    """
    asked = [answer.output_of_column(column) for column in answer.columns]
    keys = [place for place, output in enumerate(asked) if "key" in output]
    along = cast("Sequence[object]", answer.output_of_column(name)["of"])[0]
    periods = [place for place in keys if asked[place]["key"] == along]
    question = cast("Mapping[str, Any]", answer.receipt["question"])  # Any: JSON of the wire
    if not periods or len(keys) != len(question["group_by"]):
        return []
    order = sorted(range(len(answer.rows)), key=lambda row: str(answer.rows[row][periods[0]]))
    series: dict[tuple[object, ...], list[int]] = {}
    for row in order:
        others = tuple(answer.rows[row][place] for place in keys if place != periods[0])
        series.setdefault(others, []).append(row)
    return list(series.values())


Integers = NDArray[np.int64]
Key = tuple[object, ...]

COUNTS: Final = ("count", "count_values", "count_people")
ADDITIVE: Final = (*COUNTS, "sum")
ONE_GROUP: Final = r"each row counts as one person|at most \d+ rows? of a person count, .*"
# the keys of a question for which margins add up; a question with another key is refused
BEFORE: Final = "Formulas keep the numbers from before."
PLAIN: Final = {"data_set", "outputs", "where", "group_by", "max_groups", "max_rows"}
SAME: Final = {  # must be equal in both receipts, and what to do if not
    "data_set": "Give answers about one data set.",
    "version": "Ask both questions about the same version of the data set.",
    "people": "Give answers about the same people.",
    "guarantee": "Give answers with the same guarantee.",
    "bounding": "Ask both questions with max_groups=1 and the same max_rows.",
}
FAR: Final = 8.0  # the noise exceeds so many standard deviations in fewer than one of 80,000 cells
NORMAL: Final = 1.96  # half-width of a normal 95 % interval, in standard deviations

CLIPPED: Final = (
    "Negative cells were set to zero, so small cells are too high on average. Standard "
    "deviations and ranges are those before this step and before rounding, with ranges cut at "
    "zero."
)


@dataclass(frozen=True)
class Estimates:
    """A column of noisy numbers, with their standard deviations and 95 % half-widths."""

    values: Floats
    std: Floats
    half: Floats


@dataclass(frozen=True)
class Margin:
    """A margin: noisy totals over sets of cells (groups' numbers).

    `groups` holds, for each cell, the index of its total.
    """

    groups: Integers
    sums: Estimates


@dataclass(frozen=True)
class Table:
    """An answer to be tidied, with the names of its key columns and the key of each row."""

    answer: AnswerValues
    keys: tuple[str, ...]
    rows: tuple[Key, ...]


def tidied(answer: SomeAnswer, margins: Sequence[AnswerValues]) -> SomeAnswer:
    """Adjust an answer's numbers to margins (released totals) by least squares; round counts."""
    table = _table(answer)
    coarser = sorted(map(_table, margins), key=lambda margin: len(margin.keys))
    for place, margin in enumerate(coarser):
        _check_fits(table, margin, [table, *coarser[:place]])
    notes: dict[str, None] = dict.fromkeys((*answer.notes, TIDIED))
    made = answer
    for place, name in enumerate(answer.columns):
        if answer.output_of_column(name).get("verb") in ADDITIVE:
            made, said = _tidy_column(made, place, table, coarser)
            notes.update(dict.fromkeys(said))
        if answer.output_of_column(name).get("verb") == "running_count":
            column = _estimates(made, place)
            whole = nearest_monotone(answer, name, column.values, column.std)
            made = _with_column(made, place, whole, column, 0.0)
            notes[RISEN] = None
    if any("formula" in answer.output_of_column(name) for name in answer.columns):
        notes[BEFORE] = None
    return replace(made, notes=tuple(notes))


def _tidy_column(
    answer: SomeAnswer, place: int, table: Table, coarser: Sequence[Table]
) -> tuple[SomeAnswer, list[str]]:
    """Adjust one column of an answer to its margins and round counts; return notes on it too."""
    name, notes = answer.columns[place], []
    like = ((t, _column_like(t, table, name)) for t in coarser)
    found = [(t.keys, _margin(table, t, index)) for t, index in like if index is not None]
    column = _estimates(answer, place)
    levels: list[Integers] = []
    if found:
        margins = [margin for _, margin in found]
        notes.append(_gap_note(name, column, margins))
        column = least_squares(column, margins)
        levels, is_held = _nested(found)
        notes += _margin_notes(name, column, [keys for keys, _ in found], is_held)
    if answer.output_of_column(name)["verb"] not in COUNTS:
        if not found:
            return answer, notes
        return _with_column(answer, place, column.values.tolist(), column, -math.inf), notes
    whole = (
        nonnegative_counts(column.values, levels)
        if found
        else np.maximum(np.rint(column.values), 0)
    )
    notes.append(CLIPPED)
    return _with_column(answer, place, [int(v) for v in whole.tolist()], column, 0.0), notes


# --- the linear step --------------------------------------------------------------------------


def least_squares(cells: Estimates, margins: Sequence[Margin]) -> Estimates:
    """Return the least-squares estimate of the cells (groups' numbers) under the margins."""
    parts = [cells, *(margin.sums for margin in margins)]
    unit = max(float(part.std.max(initial=0)) for part in parts) or 1.0
    own = _variance(cells, unit)
    weights, residual, starts = _system(cells, own, margins, unit)
    inverse = np.linalg.inv(weights)
    step = inverse @ residual
    values, gain = cells.values.copy(), np.zeros_like(own)
    for left, start in zip(margins, starts, strict=True):
        values += own * step[start + left.groups]
        for right, other in zip(margins, starts, strict=True):
            gain += inverse[start + left.groups, other + right.groups]
    std = np.sqrt(np.maximum(own - own**2 * gain, 0)) * unit
    return Estimates(values, std, std * _widest(parts))


def _variance(part: Estimates, unit: float) -> Floats:
    """Return the noise variances in multiples of unit².

    Zero noise becomes a tiny variance, so that the matrix S (see the module) is invertible.
    """
    return np.asarray(np.maximum(part.std / unit, 1e-5) ** 2, dtype=np.float64)


def _system(
    cells: Estimates, own: Floats, margins: Sequence[Margin], unit: float
) -> tuple[Floats, Floats, list[int]]:
    """Return the matrix S and the residuals for least squares, and each margin's offset in both.

    S is the covariance of the residuals (see the module). The offset is where a margin begins.
    """
    sizes = [len(margin.sums.values) for margin in margins]
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    weights = np.diag(np.concatenate([_variance(margin.sums, unit) for margin in margins]))
    for left, start in zip(margins, starts, strict=True):
        for right, other in zip(margins, starts, strict=True):
            np.add.at(weights, (start + left.groups, other + right.groups), own)
    residual = np.concatenate([m.sums.values - _summed(cells.values, m) for m in margins])
    return weights, residual, starts


def _summed(values: Floats, margin: Margin) -> Floats:
    size = len(margin.sums.values)
    return np.bincount(margin.groups, weights=values, minlength=size).astype(np.float64)


def _widest(parts: Sequence[Estimates]) -> float:
    """Return the largest ratio of a 95 % half-width to its standard deviation.

    No sum of these noises has a larger ratio, so it gives safe intervals after tidying.
    """
    found = [NORMAL]
    for part in parts:
        real = part.std > 0
        found += (part.half[real] / part.std[real]).tolist()
    return max(found)


def _gap_note(name: str, cells: Estimates, margins: Sequence[Margin]) -> str:
    """Return a note on the gap between margins (totals) and cells; refuse too large a gap."""
    far = max(_farthest(cells, margin) for margin in margins)
    if far > FAR:
        raise Refused(
            "not-in-language",
            f"The separately released totals of {name!r} differ from the sums of its cells by "
            f"{far:.0f} standard deviations. Noise does not explain that, so they count "
            "different rows.",
            "Use the same WHERE and the same declared keys for both answers, or leave the totals "
            "out.",
        )
    return (
        f"{name}: totals and sums of cells differed by at most {far:.1f} standard deviations of "
        "the noise."
    )


def _farthest(cells: Estimates, margin: Margin) -> float:
    gap = margin.sums.values - _summed(cells.values, margin)
    std = np.hypot(margin.sums.std, np.sqrt(_summed(cells.std**2, margin)))
    least = 1e-9 * (1 + float(np.abs(cells.values).sum()))  # floating-point error
    return float(np.max(np.abs(gap) / np.maximum(std, least), initial=0))


# --- which margins fit ------------------------------------------------------------------------


def _nested(found: Sequence[tuple[tuple[str, ...], Margin]]) -> tuple[list[Integers], list[bool]]:
    """Return the margins' groups whose sums rounding keeps, and for each margin whether it is kept.

    Each kept margin has all keys of the kept margin before it.
    """
    levels: list[Integers] = []
    last: set[str] = set()
    is_held = []
    for keys, margin in found:
        is_held.append(last <= set(keys))
        if is_held[-1]:
            levels.append(margin.groups)
            last = set(keys)
    return levels, is_held


def _table(answer: AnswerValues) -> Table:
    if TIDIED in answer.notes:
        raise _misfit(
            "One of the answers is already tidied.", "Give the answers as they were asked."
        )
    asked = [answer.output_of_column(name) for name in answer.columns]
    places = [place for place, output in enumerate(asked) if "key" in output]
    return Table(
        answer,
        tuple(_spelled(asked[place]["key"]) for place in places),
        tuple(tuple(row[place] for place in places) for row in answer.rows),
    )


def _check_fits(table: Table, margin: Table, others: Sequence[Table]) -> None:
    """Refuse a margin (an answer with totals) to which the table's numbers do not add up."""
    for one in (table, margin):
        _check_plain(one)
    mine, its = table.answer.receipt, margin.answer.receipt
    for name, next_step in SAME.items():
        is_same = _bounds(mine) == _bounds(its) if name == "bounding" else mine[name] == its[name]
        if not is_same:
            said = name.replace("_", " ")
            raise _misfit(
                f"A margin (answer with totals) and the table differ in: {said}.", next_step
            )
    if _question(mine).get("where") != _question(its).get("where"):
        raise _misfit(
            "A margin (answer with totals) and the table have different WHERE conditions.",
            "Ask both questions with the same WHERE.",
        )
    if any(_shares_a_draw(margin, other) for other in others):
        raise _misfit(
            "A margin (answer with totals) is given twice, or two margins are equal.",
            "Give each margin once.",
        )
    if not set(margin.keys) <= set(table.keys):
        raise _misfit(
            "A margin (answer with totals) is grouped by a column that does not group the table.",
            "Give answers grouped by fewer of the table's own columns.",
        )
    if set(margin.rows) != {_projected(row, table, margin) for row in table.rows}:
        raise _misfit(
            "A margin (answer with totals) and the table have different keys.",
            "Ask both questions without partition selection.",
        )


def _shares_a_draw(one: Table, other: Table) -> bool:
    """Return True if two tables may share a noise draw, such as a top-up and its original answer.

    Their noise is then not independent, so they can't be combined.
    """
    is_raised = "top_up" in {**one.answer.receipt, **other.answer.receipt}
    return (is_raised and set(one.keys) == set(other.keys)) or bool(_draws(one) & _draws(other))


def _draws(table: Table) -> set[object]:
    """Return the noise draws of a table: each aggregate with its released numbers by key.

    Equal numbers mean the same noise draw. A stored answer that is given again has a new receipt,
    so receipts cannot show it. Two draws that are equal by chance are refused rather than counted
    twice.
    """
    made: set[object] = set()
    for place, name in enumerate(table.answer.columns):
        if "verb" in table.answer.output_of_column(name):
            cells = zip(table.rows, table.answer.rows, strict=True)
            numbers = {(frozenset(zip(table.keys, k, strict=True)), r[place]) for k, r in cells}
            made.add((repr(sorted(_aggregate(table.answer, name).items())), frozenset(numbers)))
    return made


def _check_plain(table: Table) -> None:
    """Refuse a table unless all its groups are shown and a person counts in one group only."""
    receipt = table.answer.receipt
    question = _question(receipt)
    sizes = [len({row[place] for row in table.rows}) for place in range(len(table.keys))]
    all_keys_show = len(table.keys) == len(cast("list[object]", question["group_by"]))
    if not all_keys_show or len(set(table.rows)) != len(table.rows):
        raise _misfit(
            "A column of GROUP BY is not in the answer.", "Show every column of GROUP BY."
        )
    if any(question[name] for name in question.keys() - PLAIN) or math.prod(sizes) != len(
        table.rows
    ):
        raise _misfit(
            "Not every group is in the answer, or it comes from joined tables.",
            "Ask one table, without HAVING, ORDER and LIMIT.",
        )
    if has_private_keys(table.answer):
        raise _misfit(
            "Groups with few people are missing from the answer, so its cells do not add up to "
            "totals.",
            "Group by columns with declared keys, or by public bins.",
        )
    if not _counts_in_one_group(receipt):
        raise _misfit(
            "One person may count in several groups, so the cells do not add up to totals.",
            "Ask both questions with max_groups=1.",
        )


def _counts_in_one_group(receipt: Json) -> bool:
    bounds = receipt.get("bounds")
    if isinstance(bounds, dict):
        return bool(bounds["max_groups"] == 1)
    return re.fullmatch(ONE_GROUP, str(receipt["bounding"])) is not None


def _bounds(receipt: Json) -> object:
    """Return a receipt's contribution bounds in a form that can be compared.

    Receipts of older versions have them only as text.
    """
    bounds = receipt.get("bounds")
    if isinstance(bounds, dict):
        return bounds["max_groups"], bounds["max_rows"]
    return receipt["bounding"]


def _column_like(margin: Table, table: Table, name: str) -> int | None:
    """Return the index of the margin's column with the same aggregate as column `name`, or None."""
    wanted = _aggregate(table.answer, name)
    for place, other in enumerate(margin.answer.columns):
        if _aggregate(margin.answer, other) == wanted:
            return place
    return None


def _aggregate(answer: AnswerValues, name: str) -> Json:
    return {k: v for k, v in answer.output_of_column(name).items() if k not in ("name", "shown")}


def _margin(table: Table, margin: Table, column: int) -> Margin:
    row_of = {row: number for number, row in enumerate(margin.rows)}
    groups = [row_of[_projected(row, table, margin)] for row in table.rows]
    return Margin(np.array(groups, dtype=np.int64), _estimates(margin.answer, column))


def _projected(row: Key, table: Table, margin: Table) -> Key:
    return tuple(row[table.keys.index(key)] for key in margin.keys)


def _estimates(answer: AnswerValues, place: int) -> Estimates:
    values, std = ([row[place] for row in rows] for rows in (answer.rows, answer.std))
    pairs = [row[place] or (math.nan, math.nan) for row in answer.interval]
    halves = [(high - low) / 2 for low, high in pairs]
    made = [np.array(numbers, dtype=np.float64) for numbers in (values, std, halves)]
    return Estimates(*made)


def _with_column(
    answer: SomeAnswer, place: int, values: Sequence[object], column: Estimates, floor: float
) -> SomeAnswer:
    lows = np.maximum(column.values - column.half, floor).tolist()
    highs = np.maximum(column.values + column.half, floor).tolist()
    return replace(
        answer,
        rows=_set(answer.rows, place, values),
        std=_set(answer.std, place, column.std.tolist()),
        interval=_set(answer.interval, place, list(zip(lows, highs, strict=True))),
    )


def _set(rows: Sequence[tuple[Any, ...]], place: int, column: Sequence[Any]) -> Any:  # any cell
    pairs = zip(rows, column, strict=True)
    return tuple((*row[:place], value, *row[place + 1 :]) for row, value in pairs)


def _margin_notes(
    name: str, column: Estimates, keys: Sequence[tuple[str, ...]], is_held: Sequence[bool]
) -> list[str]:
    total = float(column.values.sum())
    notes = [
        (
            f"{name}: adjusted by least squares to {len(keys)} margins (answers with totals), "
            f"total {total:,.1f}. This assumes that every person is in one declared group."
        )
    ]
    if not all(is_held):
        notes.append(
            f"{name}: the cells add up to crossing margins only before negative cells are "
            "set to zero and rounded."
        )
    return notes


def _question(receipt: Mapping[str, object]) -> Json:
    return cast("Json", receipt["question"])


def _spelled(key: object) -> str:
    return key if isinstance(key, str) else repr(key)


def _misfit(cause: str, next_step: str) -> Refused:
    return Refused("not-in-language", cause, next_step)
