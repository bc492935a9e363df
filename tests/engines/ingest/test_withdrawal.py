"""A table without a person is the table that would have been, had the person never been there."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pytest

from sfumato.dp.refusal import Refused
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.ingest import append as append_module
from sfumato.engines.shared.prepared_table import segments_of
from sfumato.query.expression import Compare, Constant, Ref
from sfumato.query.measure import Key, Measure, Tally
from sfumato.vault.engine_port import WithdrawOrder
from support.appended_tables import add, append
from support.engine_rows import SALT, card_of, numbers, write_source

CARD = card_of(
    "who",
    {
        "k": {"type": "text", "keys": ["c", "a", "b"]},
        "v": {"type": "integer", "lower": 0, "upper": 9},
        "t": {"type": "text"},
    },
    max_groups=2,
    max_rows=2,
    tables={"more": {"unit": "who", "columns": {"w": {"type": "text"}}}},
)
TALLIES = (Tally("rows"), Tally("people"), Tally("sum", Ref("v1"), clamp=(0, 11)))
K, T = Key(Ref("k0"), 3), Key(Ref("v2"), None)
LOW = Compare(Ref("v1"), "<", Constant.of(6))
MEASURES = [
    Measure(where, keys, TALLIES, True, 2, rows)
    for where in (None, LOW)
    for keys in ((), (K,), (T,), (T, K))
    for rows in (1, 2)
] + [Measure(None, (Key(Ref("v0"), None),), (Tally("people"),), True, 2, 2, table=1)]


def in_parts(folder: Path, without: str) -> Path:
    """Return a table of three parts, of whose rows one person's are left out."""
    folder.mkdir()
    rng = random.Random(1)
    table: Path | None = None
    for _ in range(3):
        rows = [[f"p{rng.randrange(8)}", rng.choice("abcx"), rng.randrange(10)] for _ in range(30)]
        words = [[*row, rng.choice(["", "m", "Öl", f"only {row[0]}"])] for row in rows]
        more = [[row[0], f"{row[0]} {row[1]}"] for row in rows[:9]]
        kept = [[row for row in every if row[0] != without] for every in (words, more)]
        sources = {
            0: write_source(folder / "s.csv", ["who", "k", "v", "t"], kept[0]),
            1: write_source(folder / "m.csv", ["who", "w"], kept[1]),
        }
        table = add(folder, sources, CARD) if table is None else append(table, sources, CARD)
    assert table is not None
    return table


def order(before: Path, person: str) -> WithdrawOrder:
    (before.parent / "sketch.json").write_text("{}")
    sketches = (str(before.parent / "sketch.json"), str(before.parent / "new.json"))
    return WithdrawOrder(
        str(before), CARD, SALT, person, str(before.with_name("9.duckdb")), sketches
    )


def test_all_answers_are_those_of_a_table_that_the_person_was_never_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_module, "_MERGED_ROWS", 4)
    engine = DuckDBEngine(SALT, memory_mb=1024, threads=2)
    try:
        whole = in_parts(tmp_path / "whole", "")
        assert len(segments_of(whole)) == 3
        made = order(whole, " p3 ")
        engine.withdraw(made)
        never = in_parts(tmp_path / "never", "p3")
        for measure in MEASURES:
            left = numbers(engine, made.target, measure)
            assert left == numbers(engine, str(never), measure), measure
        assert numbers(engine, str(whole), MEASURES[0]) != numbers(engine, made.target, MEASURES[0])
        with pytest.raises(Refused, match="no rows of this person"):
            engine.withdraw(order(Path(made.target), "p3"))
    finally:
        engine.close()
    assert segments_of(Path(made.target)) == (Path(made.target),)
    assert b"only p3" not in Path(made.target).read_bytes()
    assert b"p3 a" not in Path(made.target).read_bytes()
    with duckdb.connect(made.target, read_only=True) as connection:
        found = connection.execute("SELECT person FROM people ORDER BY person").fetchall()
    assert found == [(n,) for n in range(7)]
