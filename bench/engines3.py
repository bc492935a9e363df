"""Compare person-level questions in PostgreSQL and Spark with the plain query of each engine.

The table has a million rows of a hundred thousand people. The bench times each private measure and
the plain GROUP BY of the same fixed-point integers in the same engine, and they take turns. The
ratio is that of the best times.

"stored" is a question without a filter, which uses stored ranks. "cold" is a question with a
filter, so the engine chooses anew which groups and rows of each person count. A question that
groups by an expression cannot use stored ranks either: the kernel orders groups by its own keyed
hashes. SFUMATO_BENCH_ENGINES may name the engines to measure, by their first letters.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Final

from sfumato.engines.postgres.engine import PostgresEngine, PostgresLimits, PostgresServer
from sfumato.engines.postgres.reader_role import make_reader
from sfumato.engines.shared.engine_address import SparkAddress
from sfumato.engines.spark.engine import SparkEngine, SparkLimits
from sfumato.query.expression import Arithmetic, Compare, Constant, LiteralValue, Ref
from sfumato.query.measure import Key, Measure, Tally
from sfumato.vault.card.data_card import read_card
from sfumato.vault.engine_port import Engine, PrepareOrder, SourceFile

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support import postgres_server, spark_cluster

ROWS: Final = 1_000_000
TURNS: Final = 5
SALT: Final = bytes(range(32))
TOP: Final = 1_000_000  # cents
_SHAPE: Final = {
    "unit": "who",
    "budget": {"epsilon": 1},
    "limits": {"rows": 10**8},
    "columns": {
        "clinic": {"type": "integer", "keys": list(range(10))},
        "cost": {"type": "number", "lower": 0, "upper": TOP // 100, "step": Fraction(1, 100)},
        "icd": {"type": "text"},
    },
}
_SOURCE: Final = """
COPY (SELECT 'p' || CAST(hash(i, 1) % {people} AS VARCHAR) AS who,
  CAST(hash(i, 2) % 10 AS INTEGER) AS clinic,
  CASE WHEN hash(i, 3) % 50 > 0 THEN CAST(hash(i, 4) % 1100000 AS DOUBLE) / 100 END AS cost,
  'icd ' || CAST(hash(i, 5) % 100000 AS VARCHAR) AS icd
FROM range({rows}) r(i)) TO '{path}' (FORMAT parquet)
"""
_TALLIES: Final = (Tally("rows"), Tally("people"), Tally("sum", Ref("v1")))
_CLINIC: Final = Measure(None, (Key(Ref("k0"), 10),), _TALLIES, True, 3, 20)
_CLAMPED: Final = (*_TALLIES[:2], Tally("sum", Ref("v1"), clamp=(0, 5 * TOP)))
_COMPUTED: Final = (Key(Arithmetic("+", Ref("k0"), LiteralValue(Constant.of(0))), 10),)
_ICD: Final = replace(_CLINIC, keys=(Key(Ref("v2"), None),))
_PAID: Final = Compare(Ref("v1"), ">=", Constant.of(0))
MEASURES: Final = {
    "10 keys, stored": _CLINIC,
    "10 keys, cold": replace(_CLINIC, where=_PAID),
    "10 keys, each person's sum clamped": replace(_CLINIC, tallies=_CLAMPED),
    "10 keys by an expression, cold": replace(_CLINIC, keys=_COMPUTED, where=_PAID),
    "100,000 texts, stored": _ICD,
    "100,000 texts, cold": replace(_ICD, where=_PAID),
}


def run(rows: int = ROWS) -> list[dict[str, object]]:
    """Return a line for each engine and measure: milliseconds, and the ratio to the plain query."""
    lines: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(dir=os.environ.get("SFUMATO_BENCH_DIR")) as folder:
        source = source_of(Path(folder), rows)
        wanted = os.environ.get("SFUMATO_BENCH_ENGINES", "")
        for name, make in _ENGINES.items():
            if not name.startswith(wanted):
                continue
            with make() as engine:
                table = prepared(engine, source, name)
                for what in MEASURES:
                    lines.append(_line(engine, table, name, what))
                    print(lines[-1], file=sys.stderr, flush=True)
    return lines


def source_of(folder: Path, rows: int) -> Path:
    """Write so many rows of a tenth as many people."""
    import duckdb

    source = folder / f"{rows}.parquet"
    duckdb.sql(_SOURCE.format(people=max(1, rows // 10), rows=rows, path=source))
    return source


@contextmanager
def _postgres() -> Iterator[Engine]:
    with postgres_server.running() as server:
        database = server.own_database()
        owner = server.database_url(database)
        make_reader(owner, "sfumato", "reader")
        place = PostgresServer(owner, server.database_url(database, "reader"), "reader")
        engine = PostgresEngine(SALT, place, PostgresLimits(deadline_s=600))
        yield engine
        engine.close()


@contextmanager
def _spark(place: SparkAddress) -> Iterator[Engine]:
    engine = SparkEngine(SALT, place, SparkLimits(memory_mb=3072, partitions=4, deadline_s=600))
    yield engine
    engine.close()


@contextmanager
def standalone() -> Iterator[Engine]:
    with ExitStack() as stack:
        place = stack.enter_context(spark_cluster.cluster())
        yield stack.enter_context(_spark(place))


_ENGINES: Final[dict[str, Callable[[], AbstractContextManager[Engine]]]] = {
    "PostgreSQL": _postgres,
    "Spark, local": lambda: _spark(SparkAddress()),
    "Spark, standalone": standalone,
}


def prepared(engine: Engine, source: Path, name: str) -> str:
    table = str(source.with_name(f"{name.replace(' ', '-')}.table"))
    card = read_card("bench", _SHAPE)
    sketch = str(source.with_name(f"{name}.json"))
    engine.prepare(PrepareOrder((SourceFile(str(source)),), table, card, SALT, (), sketch))
    return table


def _line(engine: Engine, table: str, name: str, what: str) -> dict[str, object]:
    measure = MEASURES[what]
    # the unit of a row has no bounds to keep: the same engine adds up plainly
    plain = replace(measure, by_person=False)
    private_s, plain_s = [], []
    for _ in range(TURNS):
        private_s.append(timed(lambda: engine.measure(table, measure)))
        plain_s.append(timed(lambda: engine.measure(table, plain)))
    best, base = min(private_s), min(plain_s)
    return {
        "engine": name,
        "question": what,
        "ms": round(best * 1000),
        "plain ms": round(base * 1000),
        "ratio": round(best / base, 1),
    }


def timed(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun
