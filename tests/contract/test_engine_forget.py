"""What every engine must do when a prepared table is not wanted: remove it, wherever it lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from sfumato.engines.postgres.engine import PostgresServer
from sfumato.query.expression import Ref
from sfumato.query.measure import Key, Measure, Tally
from sfumato.vault.engine_port import Engine, EngineStopped
from support.engine_rows import SALT, answers, card_of, prepare, write_source

Maker = Callable[[bytes], Engine]
CARD = card_of("who", {"word": {"type": "text", "keys": ["a", "b"]}})
MEASURE = Measure(None, (Key(Ref("k0"), 2),), (Tally("rows"),), True, 1, 1)
ROWS = [[f"p{i}", "ab"[i % 2]] for i in range(20)]


@pytest.fixture(scope="module")
def engine(make_engine: Maker) -> Iterator[Engine]:
    made = make_engine(SALT)
    yield made
    made.close()


@pytest.fixture
def stored(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], set[str]]:
    """Return how to list whatever there is of prepared tables."""

    def files() -> set[str]:
        return {str(path) for path in tmp_path.rglob("*.duckdb*")}

    if kind != "postgres":
        return files
    place: PostgresServer = request.getfixturevalue("postgres_place")

    def tables() -> set[str]:
        with psycopg.connect(place.owner) as link:
            found = link.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'sfumato'")
            return files() | {str(name) for (name,) in found}

    return tables


def test_a_forgotten_table_is_gone_and_only_that(
    engine: Engine, tmp_path: Path, stored: Callable[[], set[str]]
) -> None:
    other, _ = prepare(engine, write_source(tmp_path / "other.csv", ["who", "word"], ROWS), CARD)
    before = stored()
    source = write_source(tmp_path / "some.csv", ["who", "word"], ROWS)
    table, _ = prepare(engine, source, CARD)
    assert stored() > before
    engine.forget(table)
    assert stored() == before
    with pytest.raises(EngineStopped):
        engine.measure(table, MEASURE)
    assert answers(engine, other, MEASURE) == [[10, 10]]
    engine.forget(table)  # what is not there is no fault
    engine.forget(other)
    assert stored() < before


def test_a_table_that_is_replaced_leaves_nothing_of_the_old_one(
    engine: Engine, tmp_path: Path, stored: Callable[[], set[str]]
) -> None:
    source = write_source(tmp_path / "some.csv", ["who", "word"], ROWS)
    table, _ = prepare(engine, source, CARD)
    before = len(stored())
    again, _ = prepare(engine, source, CARD)
    assert again == table
    assert len(stored()) == before
    assert answers(engine, table, MEASURE) == [[10, 10]]
    engine.forget(table)
