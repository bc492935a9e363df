"""One PostgreSQL for all tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.postgres.engine import PostgresEngine, PostgresServer
from sfumato.engines.postgres.reader_role import make_reader
from sfumato.engines.spark.engine import SparkEngine
from sfumato.vault.engine_port import Engine
from support import postgres_server
from support.spark_cluster import SMALL, local_place

READER = "sfumato_reader"
Maker = Callable[[bytes], Engine]


@pytest.fixture(scope="session")
def server() -> Iterator[postgres_server.Server]:
    """Run a throw-away PostgreSQL."""
    with postgres_server.running() as found:
        yield found


@pytest.fixture(scope="session")
def postgres_place(server: postgres_server.Server) -> PostgresServer:
    """Return a schema of its own, with a reader who can do nothing else."""
    database = server.own_database()
    owner = server.database_url(database)
    make_reader(owner, "sfumato", READER)
    return PostgresServer(owner, server.database_url(database, READER), READER)


class LastingSpark(SparkEngine):
    """A Spark that every file of this folder asks: its JVM starts once."""

    def close(self) -> None:
        """Stay; a file is done with it."""

    def end(self) -> None:
        """Let the driver and its JVM go."""
        super().close()


@pytest.fixture(scope="session")
def sparks() -> Iterator[Maker]:
    """Return what gives each secret its Spark."""
    made: dict[bytes, LastingSpark] = {}

    def of(salt: bytes) -> Engine:
        if salt not in made:
            made[salt] = LastingSpark(salt, local_place(), SMALL, memory_mb=1024)
        return made[salt]

    yield of
    for one in made.values():
        one.end()


@pytest.fixture(scope="module", params=["duckdb", "postgres", "spark"])
def kind(request: pytest.FixtureRequest) -> str:
    """Return the name of an engine; every test that takes it runs on all of them."""
    return str(request.param)


@pytest.fixture(scope="module")
def make_engine(kind: str, request: pytest.FixtureRequest) -> Maker:
    """Return how an engine of that kind is made, for a people's secret."""
    if kind == "postgres":
        place: PostgresServer = request.getfixturevalue("postgres_place")
        return lambda salt: PostgresEngine(salt, place, memory_mb=1024)
    if kind == "spark":
        of: Maker = request.getfixturevalue("sparks")
        return of
    return lambda salt: DuckDBEngine(salt, memory_mb=1024, threads=2, deadline_s=60)
