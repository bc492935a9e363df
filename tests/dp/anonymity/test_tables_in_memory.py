"""Tables in memory are read as what they are, whichever library made them."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from sfumato.dp.anonymity.tables_in_memory import coded_table, columns_of, plain, rows_of
from sfumato.dp.refusal import Refused

COLUMNS: dict[str, list[Any]] = {
    "age": [31, None, 44],
    "town": ["Berne", "Basle", None],
    "height": [1.65, 180.0, math.nan],
    "sick": [True, False, True],
    "born": [datetime.date(1990, 1, 2), None, datetime.date(1980, 3, 4)],
}
READ = {
    "age": [31, None, 44],
    "town": ["Berne", "Basle", None],
    "height": [1.65, 180.0, None],
    "sick": [True, False, True],
    "born": ["1990-01-02", None, "1980-03-04"],
}
ROWS = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]


@pytest.mark.parametrize(
    "table",
    [
        COLUMNS,
        ROWS,
        pd.DataFrame(COLUMNS),
        pd.DataFrame(COLUMNS).set_index("age")[["town", "height", "sick", "born"]],
        pd.DataFrame(COLUMNS).astype({"town": "category", "age": "Int64", "height": "float32"}),
        pd.DataFrame(COLUMNS).assign(born=pd.to_datetime(pd.Series(COLUMNS["born"]))),
        pl.DataFrame(COLUMNS),
        pa.table(COLUMNS),
    ],
)
def test_every_library_says_the_same(table: Any) -> None:
    found = columns_of(table)
    assert {**found, "height": READ["height"]} == READ
    assert [round(one, 2) for one in found["height"][:2] if isinstance(one, float)] == [1.65, 180.0]
    assert [row["town"] for row in rows_of(table)] == READ["town"]


def test_columns_of_an_array_are_named_by_their_place() -> None:
    assert columns_of(np.array([[1, 2], [3, 4]])) == {"0": [1, 3], "1": [2, 4]}
    assert columns_of(np.array([True, False])) == {"0": [True, False]}
    records = np.array([(1, "x")], dtype=[("a", "i4"), ("b", "U1")])
    assert columns_of(records) == {"a": [1], "b": ["x"]}
    assert columns_of(pd.Series([1, 2], name="age")) == {"age": [1, 2]}


@pytest.mark.parametrize(
    "wrong",
    [
        "people.csv",
        5,
        None,
        np.zeros((2, 2, 2)),
        np.float64(1.5),
        [{"a": 1}, {"b": 1}],
        [{"a": 1}, {"a": 1, "b": 2}],
        [1, 2],
        {"a": [1], "b": [1, 2]},
        {"a": "text"},
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
        pd.DataFrame({1: [1], "1": [2]}),
        np.ma.masked_array([1, 2], [True, False]),
    ],
)
def test_what_is_no_table_is_refused(wrong: Any) -> None:
    with pytest.raises(Refused):
        columns_of(wrong)


def test_a_named_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(Refused):
        coded_table(COLUMNS, ["age", "wage"])
    assert list(coded_table(COLUMNS, ["sick", "sick"]).columns) == ["sick"]


def test_cells_become_plain_values() -> None:
    found = [
        plain(one)
        for one in (np.int64(3), np.float32(0.5), np.bool_(True), Decimal(7), Decimal("0.5"))
    ]
    assert found == [3, 0.5, True, 7, 0.5]
    assert [type(one) for one in found] == [int, float, bool, int, float]
    at = datetime.datetime(2020, 1, 2, 3, 4)
    assert (plain(at), plain(datetime.datetime(2020, 1, 2))) == (
        "2020-01-02T03:04:00",
        "2020-01-02",
    )
