"""The nearest line that never falls."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.client import Answer
from sfumato.client.tidy import nearest_monotone, nearest_rising

MONTH = {"kind": "since", "unit": "month", "of": "day"}
ROWS = [
    ("f", "2026-02-01", 4),
    ("m", "2026-01-01", 9),
    ("f", "2026-01-01", 8),
    ("m", "2026-02-01", 1),
]


def answer(group_by: list[object], shown: tuple[str, ...]) -> Answer:
    """Return two series of two months, their rows in no order."""
    keys = {"sex": "sex", "month": MONTH}
    outputs: list[dict[str, object]] = [{"name": key, "key": keys[key]} for key in shown]
    outputs.append({"name": "n", "verb": "running_count", "of": [MONTH]})
    places = [("sex", "month", "n").index(name) for name in (*shown, "n")]
    return Answer(
        columns=(*shown, "n"),
        rows=tuple(tuple(row[place] for place in places) for row in ROWS),
        std=(),
        interval=(),
        guarantee="central-dp",
        receipt={"question": {"outputs": outputs, "group_by": group_by}},
    )


def values_of(made: Answer) -> list[int]:
    values = np.array([row[-1] for row in made.rows], dtype=np.float64)
    return nearest_monotone(made, "n", values, np.ones(len(values)))


def test_each_series_rises_by_itself_whatever_the_order_of_the_rows() -> None:
    assert values_of(answer(["sex", MONTH], ("sex", "month"))) == [6, 5, 6, 5]


@pytest.mark.parametrize("shown", [("sex",), ("month",)])
def test_series_that_cannot_be_told_apart_are_left_alone(shown: tuple[str, ...]) -> None:
    assert values_of(answer(["sex", MONTH], shown)) == [4, 9, 8, 1]


def test_a_number_with_less_noise_counts_for_more() -> None:
    found = nearest_rising(np.array([10.0, 0.0]), np.array([1.0, 3.0]))
    assert found.tolist() == pytest.approx([9.0, 9.0])


lines = st.lists(st.tuples(st.floats(-99, 99), st.floats(0.1, 9)), min_size=1, max_size=12)


@given(lines, st.lists(st.floats(-99, 99), min_size=12, max_size=12))
def test_no_other_rising_line_is_nearer(
    line: list[tuple[float, float]], other: list[float]
) -> None:
    values, std = (np.array(column) for column in zip(*line, strict=True))
    found = nearest_rising(values, std)
    assert np.all(np.diff(found) >= -1e-9)
    rival = np.sort(np.array(other[: len(values)]))
    for step in (1.0, 0.01):  # far and near
        moved = found + step * (rival - found)
        far = (((moved - values) / std) ** 2).sum()
        assert far >= (((found - values) / std) ** 2).sum() - 1e-6
