"""Mask single columns: top and bottom coding, rounding, microaggregation, pseudonyms."""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np

from sfumato.dp.anonymity.coded_table import Codes, Floats, Value, bound_text, is_number
from sfumato.dp.refusal import Refused

KEY_BYTES: Final = 32
MAX_ROWS: Final = 50_000  # rows; the time is quadratic
SHOWN_LETTERS: Final = 16  # hex digits, 64 bits: a collision among 1e9 people has probability 3 %


def top_and_bottom_code(values: Sequence[Value], low: float, high: float) -> list[Value]:
    """Replace numbers outside `low` to `high` by a text, to hide extreme values (top-coding).

    A number below `low` becomes the text `<low`, and a number above `high` becomes `>high`.
    """
    if not (low <= high and low < math.inf and high > -math.inf):
        raise Refused(
            "bad-request",
            "The lower end of the range is above its upper end.",
            "Give the smaller number first.",
        )
    return [_cut(value, low, high) for value in values]


def rounded(values: Sequence[Value], step: float) -> list[Value]:
    """Round numbers to the nearest multiple of `step`; halves round up."""
    if not 1e-30 <= step <= 1e30:
        raise Refused(
            "bad-request",
            "The step to round to must be a number above 0.",
            "Write it like 10 or 0.5.",
        )
    exact = Fraction(str(step))
    return [_nearest(value, exact) if is_number(value) else value for value in values]


def microaggregate(values: Sequence[Value], k: int) -> list[Value]:
    """Microaggregate a column: replace each number by the mean of a group of k similar numbers.

    The numbers are sorted and cut into groups of k; the last group has up to 2k - 1. Missing values
    stay. Fewer than k numbers form one group.
    """
    if k < 1:
        raise Refused(
            "bad-request",
            "k, the least number of values or rows in a group, is below 1.",
            "Give a k of 1 or more.",
        )
    made = list(values)
    places = [place for place, value in enumerate(values) if is_number(value)]
    numbers = np.array([float(values[place]) for place in places])  # type: ignore[arg-type]  # numbers
    for group in _groups(np.argsort(numbers, kind="stable"), k):
        mean = math.fsum(numbers[group].tolist()) / len(group)
        for one in group.tolist():
            made[places[one]] = mean
    return made


def microaggregate_rows(columns: Sequence[Sequence[Value]], k: int) -> list[list[Value]]:
    """Microaggregate several columns together: replace numbers by the means of similar rows.

    Each group has k or more rows that are close in all columns.
    """
    if not all(is_number(value) for column in columns for value in column):
        raise Refused(
            "bad-request",
            "Columns can be averaged together only if every row has a number in each.",
            "Average each column by itself, or leave out columns with missing values.",
        )
    if len(columns[0]) > MAX_ROWS:
        raise Refused(
            "bad-request",
            f"At most {MAX_ROWS:,} rows can be averaged together, because each is compared "
            "with every other.",
            "Average each column by itself, or recode with --method mondrian.",
        )
    numbers = np.array([[float(value) for value in column] for column in columns])  # type: ignore[arg-type]  # numbers
    group = mdav_groups(numbers.T, k)
    return [_group_means(column, group) for column in numbers]


def _group_means(column: Floats, group: Codes) -> list[Value]:
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order])) + 1
    parts = np.split(column[order], starts)
    means = [math.fsum(part.tolist()) / max(1, len(part)) for part in parts]
    return [means[one] for one in group.tolist()]


def mdav_groups(rows: Floats, k: int) -> Codes:
    """Group rows that are close in all columns, k or more in a group, by the MDAV algorithm.

    MDAV (Domingo-Ferrer 2005) repeats two steps until fewer than 2k rows are left. First, the row
    farthest from the mean forms a group with its k - 1 nearest rows. Then the row farthest from
    that row does the same. The result is the group number of each row.
    """
    if k < 1:
        raise Refused(
            "bad-request",
            "k, the least number of values or rows in a group, is below 1.",
            "Give a k of 1 or more.",
        )
    rows = np.ascontiguousarray(rows)  # memory layout affects float rounding, and so the groups
    spread = rows.std(axis=0) if len(rows) else np.ones(0)
    rows = rows / np.where(spread > 0, spread, 1.0)
    group, left, number = np.zeros(len(rows), np.int64), np.arange(len(rows)), 0
    while len(left) >= 2 * k:
        around = rows[left].mean(axis=0)
        for _ in range(2):
            if len(left) < 2 * k:
                break
            far = rows[left[_distance(rows[left], around).argmax()]]
            near = np.argpartition(_distance(rows[left], far), k - 1)[:k]
            group[left[near]] = number
            left, number, around = np.delete(left, near), number + 1, far
    group[left] = number
    return group


def pseudonyms(texts: Sequence[str], key: bytes, column: str) -> list[str]:
    """Replace texts by pseudonyms with a keyed hash (HMAC-SHA-256); equal texts stay equal.

    Without the key, nobody can recover a text by trying all values. Pseudonyms do not make people
    anonymous: rows with equal texts stay linked.
    """
    if len(key) != KEY_BYTES:
        raise Refused(
            "bad-request",
            f"The secret key for pseudonyms must have {KEY_BYTES} bytes.",
            f"Make one with secrets.token_bytes({KEY_BYTES}), and store it safely.",
        )
    return [_name(text, key, column) if text else "" for text in texts]


def _cut(value: Value, low: float, high: float) -> Value:
    if not is_number(value):
        return value
    if value < low:  # type: ignore[operator]  # a number
        return f"<{bound_text(Fraction(str(low)))}"
    return f">{bound_text(Fraction(str(high)))}" if value > high else value  # type: ignore[operator]  # a number


def _nearest(value: Value, step: Fraction) -> Value:
    made = math.floor(Fraction(str(value)) / step + Fraction(1, 2)) * step
    return int(made) if made.denominator == 1 else float(made)


def _groups(order: Codes, k: int) -> list[Codes]:
    count = max(1, len(order) // k)
    cuts = [k * i for i in range(1, count)]
    return [group for group in np.split(order, cuts) if len(group)]


def _distance(rows: Floats, to: Floats) -> Floats:
    return np.asarray(((rows - to) ** 2).sum(axis=1))


def _name(text: str, key: bytes, column: str) -> str:
    said = f"{len(column)}:{column}{text}"
    return hmac.new(key, said.encode(), hashlib.sha256).hexdigest()[:SHOWN_LETTERS]
