"""Tables of hundreds of columns: read one column after the other, to the same stored values."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from sfumato.engines.ingest import prepare
from sfumato.engines.ingest.cell_report import STAGING, Cell
from sfumato.engines.ingest.cell_report import staged as staged_table
from sfumato.engines.ingest.prepare_order import TableOrder
from sfumato.vault.card.columns import read_columns
from sfumato.vault.card.data_card import Limits

TYPES: dict[str, Any] = {
    "whole": {"type": "integer", "lower": 0, "upper": 255},
    "fine": {"type": "number", "lower": -10, "upper": 10, "step": 0.25},
    "free": {"type": "integer"},
    "word": {"type": "text"},
    "yes": {"type": "boolean"},
    "day": {"type": "date", "lower": "2000-01-01", "upper": "2030-12-31"},
    "when": {"type": "timestamp"},
    "site": {"type": "text", "keys": ["a", "b"]},
    "grade": {"type": "integer", "lower": 1, "upper": 3, "keys": [1, 2, 3]},
}
CELLS = (
    ("7", "0.3", "-12", "long enough", "YES", "2020-02-29", "2020-01-01 12:00:30", "a", "1"),
    ("300", "-11", "1e3", "", "no", "1999-01-01", "2021-06-01", "b", "3"),
    ("x", "0.125", "", "n/a", "2", "2020-02-30", "none", "c", "9"),
    ("-0.5", "+1.5e0", "99999999999999999999", "ü", "t", "", "", "", "2"),
)


class Told:
    """A connection that keeps what it is told to do."""

    def __init__(self) -> None:
        self.real = duckdb.connect()
        self.real.execute(f"ATTACH ':memory:' AS {STAGING}")
        self.said: list[str] = []

    def execute(self, sql: str, *values: Any) -> Any:
        self.said.append(sql)
        return self.real.execute(sql, *values)


# of a typed source: cells that are numbers and days already
KINDS = {"fine": "DOUBLE", "day": "DATE"}


def staged(times: int, kinds: dict[str, str]) -> tuple[list[Any], Told]:
    """What is staged of a table that has every type so many times; nobody has an empty id."""
    shape = {f"{name}{n}": of for n in range(times) for name, of in TYPES.items()}
    columns, _ = read_columns(shape)
    connection = Told()
    rows = [f"('p{i}', {', '.join(repr(cell) for cell in cells * times)})"
            for i, cells in enumerate(CELLS)]  # fmt: skip
    nobody = "('', " + ", ".join(["'1'"] * len(columns)) + ")"
    names = ", ".join(f"c{i}" for i in range(len(columns) + 1))
    cells = f"(VALUES {', '.join([*rows, nobody])}) AS t({names})"
    named = [(place, kinds.get(name, "VARCHAR")) for place, name in enumerate([*TYPES] * times, 1)]
    of = [Cell(column, *pair) for column, pair in zip(columns, named, strict=True)]
    typed = ", ".join(f"TRY_CAST(c{place} AS {kind}) AS r{place}" for place, kind in named)
    connection.real.execute(f"CREATE TEMP VIEW texts AS SELECT *, {typed} FROM {cells}")
    order = TableOrder(
        0, "rows.csv", None, "id", None, columns, ("n/a", ""), Limits(text_length=8), (1, 1)
    )
    extra = prepare._Extra(0, (("c1 || ?", "row_key"),), ("!",))
    prepare._stage(connection, order, of, extra)  # type: ignore[arg-type]  # it only executes
    names = ", ".join(["id", *prepare.stored_columns(order), "row_key"])
    found = connection.real.execute(f"SELECT {names} FROM {staged_table(order)} ORDER BY id")
    return [[str(one) for one in found.description], *found.fetchall()], connection


@pytest.mark.parametrize("kinds", [{}, KINDS], ids=["texts", "typed"])
def test_a_wide_table_is_stored_like_a_narrow_one(
    monkeypatch: pytest.MonkeyPatch, kinds: dict[str, str]
) -> None:
    at_once, told = staged(2, kinds)
    assert any("r2 AS x1" in sql for sql in told.said) == bool(kinds)
    monkeypatch.setattr(prepare, "_WIDE", 1)
    one_by_one, _ = staged(2, kinds)
    assert one_by_one == at_once  # names, types and every value
    assert len(at_once) == 1 + len(CELLS) + 1
    assert at_once[1][1:4] == (7, 1, -12)
    assert at_once[-1][0] is None  # the row of nobody is counted, and then dropped


def test_no_statement_reads_the_texts_of_two_columns_of_a_wide_table() -> None:
    """Each takes megabytes in every thread, whatever the rows: all at once ended the worker."""
    times = prepare._WIDE // len(TYPES) + 1
    _, connection = staged(times, {})
    widest = max(sql.count("[eE][+-]") for sql in connection.said)
    _, narrow = staged(1, {})
    assert widest < max(sql.count("[eE][+-]") for sql in narrow.said)
    leftovers = connection.real.execute("SELECT table_name FROM duckdb_tables()").fetchall()
    assert ("unread",) not in leftovers
