"""Intervals without an end, on every face: half lines, any number, and a null with a range."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfumato.cli.researcher import answer_shape
from sfumato.client import Answer
from sfumato.client.answer_table import cell_text
from sfumato.features.queries.answer_pages import cells_of, csv_of
from sfumato.release.receipts import intervals_json
from support.small_vaults import open_with, run, write_csv

CARD = """
unit = "row"
budget = { epsilon = 100 }
[columns.g]
type = "integer"
keys = [0, 1, 2]
[columns.a]
type = "integer"
lower = 0
upper = 100
[columns.b]
type = "integer"
lower = -9
upper = 9
"""
SQL = (
    "SELECT g, 1000.0 / COUNT(*) AS each, SUM(a) / SUM(b) AS any, SUM(a) / COUNT(*) AS mean, "
    "SQRT(COUNT(*) - COUNT(a)) AS root FROM t GROUP BY g"
)


@pytest.fixture
def drawn(tmp_path: Path) -> Answer:
    rows = [(0, 50, 1), *((2, n % 100, n % 9) for n in range(3000))]
    source = write_csv(tmp_path / "t.csv", ("g", "a", "b"), rows)
    with open_with(tmp_path, "t", source, CARD) as vault:
        return vault["t"].ask(SQL, epsilon=2)


@pytest.fixture
def answer(drawn: Answer) -> Answer:
    """Return the answer with numbers that no chance moves."""
    half, any_ = (83.0, math.inf), (-math.inf, math.inf)
    return replace(
        drawn,
        rows=(
            (0, 250.0, 12.0, -68.0, None),
            (1, None, -18.0, None, 1.0),
            (2, 0.3, 12.3, 49.0, 2.0),
        ),
        std=((None,) * 5,) * 2 + ((None, 0.1, 0.1, 0.2, None),),
        interval=(
            (None, half, any_, (-68.0, 100.0), (0.0, 2.5)),
            (None, half, any_, (0.0, 100.0), (0.0, 3.0)),
            (None, (0.2, 0.4), (12.1, 12.5), (48.0, 50.0), (0.0, 4.0)),
        ),
    )


@pytest.mark.parametrize(
    ("value", "bar", "text"),
    [
        (5.25, (2.0, math.inf), "5.2 [2.0 or more]"),
        (5.25, (-math.inf, 20.0), "5 [20 or less]"),
        (5.25, (-math.inf, math.inf), "5.2 [any number]"),
        (None, (0.0, 4.5), "null [0.0 to 4.5]"),
        (None, (0.0, math.inf), "null [0 or more]"),
        (None, None, "null"),
        (5.0, (4.0, 6.0), "5.0 ± 1.0"),
    ],
)
def test_an_interval_without_an_end_is_said_in_words(
    value: object, bar: tuple[float, float] | None, text: str
) -> None:
    assert cell_text(value, bar) == text


def test_clients_of_before_read_two_ends_or_nothing() -> None:
    shape: dict[str, Any] = intervals_json([[None, [0.0, math.inf]], [[1.0, 2.0], None]])
    assert shape["interval"] == [[None, None], [[1.0, 2.0], None]]
    assert shape["open_intervals"] == [{"row": 0, "column": 1, "low": 0.0, "high": None}]
    json.dumps(shape, allow_nan=False)
    assert "open_intervals" not in intervals_json([[[1.0, 2.0]]])


def test_every_number_of_every_group_has_an_interval_around_it(drawn: Answer) -> None:
    for row, bars in zip(drawn.rows, drawn.interval, strict=True):
        for value, bar in zip(row[1:], bars[1:], strict=True):
            assert bar is not None
            assert value is None or bar[0] - 1e-9 <= float(str(value)) <= bar[1] + 1e-9


def test_every_face_shows_an_open_end(answer: Answer) -> None:
    assert "or more]" in repr(answer)
    assert "[any number]" in answer._repr_html_()
    frame = answer.frame()
    assert frame["any_low"][1] == -math.inf
    assert frame["root_high"][1] is not None
    assert np.isinf(answer.to_pandas()["each_high"][1])
    assert answer.to_polars()["each_high"].to_list()[1] == math.inf
    assert answer.to_arrow()["each_high"].to_pylist()[1] == math.inf
    assert "inf" in csv_of(answer)
    assert "or more]" in cells_of(answer)[1][1].bar


def test_json_has_a_null_where_there_is_no_end(answer: Answer) -> None:
    text = json.dumps(answer_shape(answer), allow_nan=False)
    assert json.loads(text)["interval"][1][2] == [None, None]


def test_a_picture_draws_an_open_end_past_all_others_and_says_so(answer: Answer) -> None:
    for place, name in enumerate(answer.columns[1:], 1):
        plot = answer.plot(y=name)
        spec: Any = json.loads(json.dumps(plot.spec, allow_nan=False))
        shown = [bar[place] for row, bar in zip(answer.rows, answer.interval, strict=True)
                 if row[place] is not None]  # fmt: skip
        assert len([row for row in spec["data"]["values"] if "low" in row]) == len(shown)
        is_open = any(bar is not None and math.inf in map(abs, bar) for bar in shown)
        assert ("runs past" in str(spec["title"])) == is_open


def test_the_command_line_prints_and_spells_them(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "t.csv", ("g", "a", "b"), [(0, 50, 1)])
    open_with(tmp_path, "t", source, CARD).close()
    asked = ("ask", "t", SQL, "--epsilon", "2")
    text = run(tmp_path / "vault", *asked)
    assert "[any number]" in text.stdout, text.stderr
    shape = json.loads(run(tmp_path / "vault", *asked, "--json").stdout)
    assert [None, None] in [row[2] for row in shape["interval"]]  # but for one in thousands
