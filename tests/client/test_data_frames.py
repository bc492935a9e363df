"""Rows that come as a frame or as a list, in a folder and at a service."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Refused
from support.small_vaults import make_vault

COLUMNS: Final = {
    "x": {"type": "number", "lower": 0, "upper": 10, "step": 0.01},
    "n": {"type": "integer"},
    "flag": {"type": "boolean"},
    "day": {"type": "date"},
    "at": {"type": "timestamp"},
    "note": {"type": "text", "keys": ["", 'q"u', "a\rb", "c,\nd;e"]},
}
DAY, AT = dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 3, 4, 5, 678000)
VALUES: Final = sorted(
    [
        (29, 2**45 + 1, True, DAY, AT, 'q"u'),
        (None, None, None, None, None, None),
        (10, 3, False, dt.date(1980, 1, 1), dt.datetime(1980, 1, 1), "a\rb"),
        (1000, -4, True, DAY, AT, "c,\nd;e"),
        (0, 0, False, DAY, AT, ""),
    ],
    key=str,
)


def in_pandas() -> pd.DataFrame:
    first = dt.date(1980, 1, 1)
    return pd.DataFrame(
        {
            "who": ["p1", "p2", "p3", "p4", "p5"],
            "x": [0.285, np.nan, 0.1, 1e300, 1e-9],
            "n": pd.array([2**45 + 1, None, 3, -4, 0], dtype="Int64"),
            "flag": [True, None, False, True, False],
            "day": pd.to_datetime([DAY, None, first, DAY, DAY]),
            "at": pd.to_datetime([AT, None, first, AT, AT]),
            "note": ['q"u', None, "a\rb", "c,\nd;e", ""],
        }
    )


FRAMES: Final[dict[str, Callable[[], Any]]] = {
    "pandas": in_pandas,
    "pandas by index": lambda: in_pandas().set_index("who"),
    "pandas, some rows": lambda: pd.concat([in_pandas(), in_pandas()]).iloc[5:],
    "polars": lambda: pl.from_pandas(in_pandas()),
    "polars, lazy": lambda: pl.from_pandas(in_pandas()).lazy(),
    "pyarrow": lambda: pa.Table.from_pandas(in_pandas()),
    "pyarrow, read once": lambda: pa.Table.from_pandas(in_pandas()).to_reader(max_chunksize=2),
    "pyarrow, a data set": lambda: pyarrow.dataset.dataset(pa.Table.from_pandas(in_pandas())),
    "duckdb": lambda: in_duckdb("SELECT * FROM found"),
    "a list": lambda: in_a_list(),
    "any Arrow stream": lambda: Stream(pa.Table.from_pandas(in_pandas())),
}


def in_duckdb(sql: str) -> duckdb.DuckDBPyRelation:
    connection = duckdb.connect()
    connection.register("found", pa.Table.from_pandas(in_pandas()))
    return connection.sql(sql)


def in_a_list() -> list[dict[str, object]]:
    """Return rows as dicts: Python's values, and a missing name for a missing value."""
    rows = pa.Table.from_pandas(in_pandas()).to_pylist()
    for row in rows:
        row["day"] = None if row["day"] is None else row["day"].date()
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


class Stream:
    """A frame of a library that nobody here knows: it has Arrow's stream, and nothing else."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    with sfumato.open(make_vault(tmp_path_factory.mktemp("frames"))) as opened:
        yield opened


def card(people: str, **more: object) -> dict[str, object]:
    return {
        "unit": "who", "people": people, "budget": {"epsilon": 1}, "columns": COLUMNS,
        "nulls": ["-"], **more,
    }  # fmt: skip


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_is_read_as_what_it_holds(vault: OpenVault, name: str) -> None:
    title = "of-" + name.replace(" ", "-").replace(",", "")
    vault.add(title, FRAMES[name](), card(title), different_people="the board")
    listing = vault.house.catalogue.find(title)
    assert listing is not None
    with duckdb.connect(listing.table, read_only=True) as connection:
        found = connection.execute('SELECT v0, v1, v2, v3, v4, v5 FROM "rows"').fetchall()
    assert sorted(found, key=str) == VALUES
    assert list((vault.house.folder / "incoming").glob("*")) == []


def test_a_frame_that_was_read_without_names_is_refused(vault: OpenVault) -> None:
    for wrong in (pd.DataFrame([[1, 2]]), pd.DataFrame({"34": [51, 7], "1.75": [1.8, 1.9]})):
        with pytest.raises(Refused, match="no-header"):
            vault.add("bare", wrong, card("bare"))
    several = pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")]))
    with pytest.raises(Refused, match="several levels"):
        vault.add("bare", several, card("bare"))


@pytest.mark.parametrize("wrong", [None, 7, [], [["p1", 2]], {"who": ["p1"]}, np.zeros((2, 2)), pd])
def test_what_is_no_frame_is_refused(vault: OpenVault, wrong: object) -> None:
    with pytest.raises(Refused, match="a file or a frame"):
        vault.add("none", wrong, card("none"))


def test_formats_of_a_text_are_not_for_frames(vault: OpenVault) -> None:
    """With `thousands = "."` a weight of 1.500 would be 1500."""
    for more in ({"decimal": ",", "thousands": "."}, {"encoding": "cp1252"}, {"header": True}):
        with pytest.raises(Refused, match="for text files"):
            vault.add("formats", in_pandas(), card("formats", **more))


def test_numbers_that_are_texts_in_a_frame_are_judged_as_such(vault: OpenVault) -> None:
    frame = pd.DataFrame({"x": ["70,5", "80,1"] * 20})
    with pytest.raises(Refused, match="cells-unreadable"):
        vault.add(
            "texts",
            frame,
            {"unit": "row", "budget": {"epsilon": 1}, "columns": {"x": COLUMNS["x"]}},
        )


def test_a_frame_is_another_table_of_a_card(vault: OpenVault, tmp_path: Path) -> None:
    towns = pl.DataFrame({"town": ["Ulm", "Bonn"], "people": [127_000, 331_000]})
    shape = card("with-towns")
    shape["tables"] = {
        "towns": {
            "public": True,
            "key": "town",
            "columns": {
                "town": {"type": "text", "keys": ["Ulm", "Bonn"]},
                "people": {"type": "integer"},
            },
        }
    }
    vault.add(
        "with-towns", in_pandas(), shape, tables={"towns": towns}, different_people="the board"
    )
    assert [t["table"] for t in vault.add_report("with-towns")["tables"]] == ["with-towns", "towns"]
