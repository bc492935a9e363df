"""The benches of engines run: they put plain queries in a place whose name may move."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import engine
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.vault.engine_port import EngineStopped


def test_each_line_of_the_engines_bench_has_a_ratio() -> None:
    lines = engine.run(rows=2_000, turns=1)
    assert [line["target"] for line in lines if "ratio" in line] == [
        line.target for line in engine.LINES
    ]


def test_the_plain_query_is_what_is_timed_beside_ours(tmp_path: Path) -> None:
    source = engine.source_of(tmp_path, 500)
    worker = DuckDBEngine(engine.SALT)
    table, _ = engine.prepared(worker, tmp_path, "row", source)
    broken = engine.Line("none", "row", (), (), plain_sql="SELECT 1 AS cell FROM nothing_of_ours")
    with pytest.raises(EngineStopped):
        engine.plainly(worker, table, broken)
    worker.close()
