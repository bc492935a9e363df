"""PostgreSQL as an engine: a reader who can do nothing else, a server that learns no secret."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import psycopg
import pytest

from sfumato.dp.refusal import Refused
from sfumato.engines.postgres import row_ranges
from sfumato.engines.postgres.engine import (
    PostgresEngine,
    PostgresLimits,
    PostgresServer,
)
from sfumato.engines.postgres.worker import WorkerState
from sfumato.engines.shared.cell_assembly import Layout, read_cells
from sfumato.engines.shared.remote_tables import measure_request, read_marker
from sfumato.engines.spark.engine import SparkLimits
from sfumato.query.expression import Arithmetic, Compare, Constant, LiteralValue, Ref
from sfumato.query.measure import Key, Measure, Tally
from sfumato.release.unseal import unseal
from sfumato.release.wait_limit import BASE_LIMIT_S
from sfumato.vault.engine_port import SIGNAL, EngineLost, EngineStopped
from support import postgres_server
from support.engine_rows import SALT, answers, card_of, prepare, write_source

CANARY = "canary-4711"
HEADER = ["who", "word", "cost"]
CARD = card_of(
    "who",
    {
        "word": {"type": "text", "keys": ["a", "b", "c"]},
        "cost": {"type": "integer", "lower": 0, "upper": 9},
        "note": {"type": "text"},
    },
)
MEASURE = Measure(None, (Key(Ref("k0"), 3),), (Tally("rows"), Tally("people")), True, 1, 2)
COLD = replace(MEASURE, where=Compare(Ref("v1"), ">=", Constant.of(0)))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [[f"p{i % 40}", "abc"[i % 3], i % 10, f"{CANARY}-{i}"] for i in range(400)]
    folder = tmp_path_factory.mktemp("postgres")
    return write_source(folder / "s.csv", ["who", "word", "cost", "note"], rows)


@pytest.fixture(scope="module")
def engine(postgres_place: PostgresServer) -> Iterator[PostgresEngine]:
    made = PostgresEngine(SALT, postgres_place, PostgresLimits(deadline_s=20), memory_mb=512)
    yield made
    made.close()


@pytest.fixture(scope="module")
def table(engine: PostgresEngine, source: Path) -> str:
    return prepare(engine, source, CARD)[0]


# --- the reader ----------------------------------------------------------------------------------

FORBIDDEN = [
    "CREATE TABLE sfumato.t (x int)", "CREATE TABLE public.t (x int)",
    "CREATE TEMP TABLE t (x int)",
    "CREATE SCHEMA mine", "CREATE ROLE other", "CREATE DATABASE other", "CREATE EXTENSION dblink",
    "CREATE FUNCTION public.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "DO $$ BEGIN PERFORM 1; END $$", "INSERT INTO {} SELECT * FROM {}", "UPDATE {} SET v1 = 0",
    "DELETE FROM {}", "TRUNCATE {}", "DROP TABLE {}", "ALTER TABLE {} ADD COLUMN x int",
    "LOCK TABLE {} IN EXCLUSIVE MODE",
    "CREATE INDEX ON {} (v1)", "CREATE STATISTICS s ON v1, v2 FROM {}",
    "COPY {} TO PROGRAM 'cat'", "COPY {} TO '/tmp/out'", "COPY {} FROM '/etc/passwd'",
    "SELECT pg_read_file('/etc/passwd')", "SELECT pg_ls_dir('/')", "SELECT lo_create(0)",
    "SELECT lo_import('/etc/passwd')", "SELECT lo_from_bytea(0, 'x')", "SELECT pg_sleep(0)",
    "SELECT pg_notify('a', 'b')", "SELECT pg_advisory_lock(1)", "SELECT pg_reload_conf()",
    "SELECT query_to_xml('SELECT 1', true, true, '')", "SELECT pg_cancel_backend(1)",
    "SELECT pg_terminate_backend(1)", "SELECT pg_export_snapshot()", "SET ROLE {role}",
    "SET SESSION AUTHORIZATION {role}", "SET log_statement = 'all'",
    "SET log_min_duration_statement = 0", "ALTER SYSTEM SET log_statement = 'all'",
    "SET session_replication_role = replica", "SELECT * FROM pg_authid", "SELECT * FROM pg_shadow",
    "SELECT * FROM pg_hba_file_rules", "SELECT * FROM pg_largeobject", "SELECT * FROM {other}",
    "REFRESH MATERIALIZED VIEW {}", "CREATE PUBLICATION p FOR ALL TABLES", "CHECKPOINT",
    "LOAD 'auto_explain'", "ALTER ROLE sfumato_reader SUPERUSER",
    "SECURITY LABEL ON TABLE {} IS 'x'", "COMMENT ON TABLE {} IS 'x'",
]  # fmt: skip


def test_the_reader_can_read_the_tables_and_do_nothing_else(
    server: postgres_server.Server, postgres_place: PostgresServer, table: str
) -> None:
    with psycopg.connect(postgres_place.owner, autocommit=True) as owner:
        owner.execute("CREATE TABLE public.elsewhere AS SELECT 1 AS x")
        row = owner.execute(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables"
            " WHERE schemaname = 'sfumato' LIMIT 1"
        ).fetchone()
    assert row is not None
    done = []
    with psycopg.connect(postgres_place.reader, autocommit=True) as link:
        link.execute("SET default_transaction_read_only = off")  # whoever has the address may
        count = link.execute(f"SELECT count(*) FROM {row[0]}").fetchone()
        assert count is not None
        assert count[0] > 0
        for probe in FORBIDDEN:
            text = probe.replace("{role}", server.user).replace("{other}", "public.elsewhere")
            try:
                link.execute(text.replace("{}", row[0]).encode())
            except psycopg.Error:
                continue
            done.append(text)
    assert done == []


# --- secrets and complaints ----------------------------------------------------------------------


def test_the_servers_log_learns_neither_the_secret_nor_a_row(
    server: postgres_server.Server,
    postgres_place: PostgresServer,
    engine: PostgresEngine,
    table: str,
) -> None:
    with psycopg.connect(postgres_place.owner, autocommit=True) as owner:
        for setting in ("log_statement = 'all'", "log_min_duration_statement = 0"):
            owner.execute(f"ALTER SYSTEM SET {setting}")
        owner.execute("SELECT pg_reload_conf()")
        try:
            time.sleep(0.3)
            other = PostgresEngine(SALT, postgres_place, memory_mb=512)
            assert sum(answers(other, table, COLD)[1]) == 40
            other.close()
            engine.close()  # a new connection, which begins with the role's settings
            assert sum(answers(engine, table, COLD)[1]) == 40
        finally:
            owner.execute("ALTER SYSTEM RESET ALL")
            owner.execute("SELECT pg_reload_conf()")
    log = (server.folder / "log").read_bytes()
    assert SALT.hex().encode() not in log
    assert CANARY.encode() not in log


def test_whatever_goes_wrong_is_one_constant_with_nothing_hanging_on_it(
    postgres_place: PostgresServer, table: str, tmp_path: Path
) -> None:
    nowhere = replace(postgres_place, reader="host=/nowhere user=nobody dbname=none")
    broken = PostgresEngine(SALT, nowhere, PostgresLimits(deadline_s=5), memory_mb=512)
    for asked, error in ((table, EngineLost), (str(tmp_path / "none"), EngineStopped)):
        with pytest.raises(EngineStopped) as stopped:
            broken.measure(asked, MEASURE)
        assert type(stopped.value) is error
        assert stopped.value.__context__ is None
        assert stopped.value.__cause__ is None
        assert str(stopped.value) == "the engine stopped"
    broken.close()


def test_a_preparation_that_cannot_be_copied_leaves_nothing(
    postgres_place: PostgresServer, source: Path, tmp_path: Path
) -> None:
    nowhere = replace(postgres_place, owner="host=/nowhere user=nobody dbname=none")
    broken = PostgresEngine(SALT, nowhere, memory_mb=512)
    copy = tmp_path / "s.csv"
    copy.write_bytes(source.read_bytes())
    with pytest.raises(Refused) as refusal:
        prepare(broken, copy, CARD)
    broken.close()
    assert refusal.value.__context__ is None
    assert [path.name for path in tmp_path.iterdir()] == ["s.csv"]


# --- kills and deadlines -------------------------------------------------------------------------


def test_a_killed_driver_or_backend_stops_one_question_only(
    server: postgres_server.Server,
    postgres_place: PostgresServer,
    engine: PostgresEngine,
    table: str,
) -> None:
    before = answers(engine, table, COLD)
    pid = engine.worker_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.3)
    assert answers(engine, table, COLD) == before  # a dead driver is noticed and replaced
    with psycopg.connect(postgres_place.owner, autocommit=True) as owner:
        owner.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s",
            (postgres_place.role,),
        )
    assert answers(engine, table, COLD) == before  # a line that was cut is laid again


def test_a_question_that_the_servers_operator_ends_is_lost_and_not_stopped(
    postgres_place: PostgresServer, engine: PostgresEngine, table: str
) -> None:
    before = answers(engine, table, COLD)
    waits = "SELECT pid FROM pg_stat_activity WHERE usename = %s AND wait_event_type = 'Lock'"
    with (
        psycopg.connect(postgres_place.owner) as owner,
        psycopg.connect(postgres_place.owner, autocommit=True) as operator,
    ):
        owner.execute(f"LOCK TABLE sfumato.{_table_of(table)} IN ACCESS EXCLUSIVE MODE".encode())
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(engine.measure, table, COLD)
            while not (found := operator.execute(waits, (postgres_place.role,)).fetchall()):
                assert not asked.done()
            for (pid,) in found:
                operator.execute("SELECT pg_terminate_backend(%s)", (pid,))
            error = asked.exception(60)
    assert isinstance(error, EngineLost)
    assert (error.cause, error.__context__) == (SIGNAL, None)
    assert answers(engine, table, COLD) == before


def test_a_question_that_takes_too_long_is_stopped_and_the_next_one_works(
    postgres_place: PostgresServer, engine: PostgresEngine, table: str
) -> None:
    hasty = PostgresEngine(SALT, postgres_place, memory_mb=512)
    before, patient = answers(hasty, table, COLD), hasty._limits
    hasty._limits = PostgresLimits(deadline_s=1)  # for the one question that is to be stopped
    with psycopg.connect(postgres_place.owner) as owner:  # the question waits for this lock
        name = str(_table_of(table))
        owner.execute(f"LOCK TABLE sfumato.{name} IN ACCESS EXCLUSIVE MODE".encode())
        with pytest.raises(EngineStopped):  # the lock is still held: only the deadline ends it
            hasty.measure(table, COLD)
    hasty._limits = patient
    assert answers(hasty, table, COLD) == before
    hasty.close()


def _table_of(table: str) -> object:
    import json

    return json.loads(Path(table).read_text())["tables"][0]["table"]


def test_a_deadline_follows_the_card_and_stays_below_the_doors_patience() -> None:
    for limits, least in ((PostgresLimits(), 60), (SparkLimits(), 300)):
        assert limits.deadline_of(10**5) == least
        assert limits.deadline_of(10**8) == 5000
        assert limits.deadline_of(10**10) == 5400 < BASE_LIMIT_S
    assert PostgresLimits(deadline_s=3).deadline_of(10**10) == 3


def test_many_ranges_of_persons_hold_everybody_once(
    postgres_place: PostgresServer,
    engine: PostgresEngine,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = read_marker(table, "postgres")
    assert known is not None
    names = tuple(f'sfumato."{made["table"]}"' for made in known["tables"])
    start = {
        "salt": SALT.hex(), "reader": postgres_place.reader, "role": postgres_place.role,
        "schema": "sfumato", "work_mem_mb": 16,
    }  # fmt: skip
    unbounded = replace(COLD, max_groups=3, max_rows=10)
    clamped = replace(MEASURE, tallies=(Tally("sum", Ref("v1"), clamp=(0, 9)), Tally("people")))
    texts = replace(COLD, keys=(Key(Ref("v2"), None),), tallies=(Tally("rows"), Tally("people")))
    nothing = LiteralValue(Constant.of(0))
    computed = replace(COLD, keys=(Key(Arithmetic("+", Ref("k0"), nothing), 3),))
    counted = replace(texts, tallies=(Tally("rows"),))
    for rows in (1, 37, 100):
        monkeypatch.setattr(row_ranges, "RANGE_ROWS", rows)
        driver = WorkerState(start)
        for measure in (COLD, unbounded, clamped, texts, counted, computed):
            request = measure_request(measure, "postgres", names, known, known["order"])
            assert request["cold"]
            found = read_cells(
                Layout.of(measure), driver.measure({**request, "timeout_ms": 10_000})
            )
            assert found is not None
            wanted = unseal(engine.measure(table, measure))
            assert found.keys == wanted.keys
            for ours, theirs in zip(found.parts, wanted.parts, strict=True):
                assert np.array_equal(ours, theirs)
            if measure == unbounded:
                assert sum(found.parts[0].tolist()) == 400
        for link in driver.links:
            link.close()


def test_a_server_that_gives_one_connection_is_asked_over_that(
    postgres_place: PostgresServer, engine: PostgresEngine, table: str
) -> None:
    before = answers(engine, table, COLD)
    engine.close()
    other = PostgresEngine(SALT, postgres_place, memory_mb=512)
    role, mine = postgres_place.role, (postgres_place.role,)
    with psycopg.connect(postgres_place.owner, autocommit=True) as owner:
        count = "SELECT count(*) FROM pg_stat_activity WHERE usename = %s"
        while (owner.execute(count, mine).fetchone() or (0,))[0]:
            owner.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", mine
            )
        owner.execute(f"ALTER ROLE {role} CONNECTION LIMIT 1".encode())
        try:
            assert answers(other, table, COLD) == before
            assert answers(other, table, COLD) == before
            assert owner.execute(count, mine).fetchone() == (1,)
        finally:
            owner.execute(f"ALTER ROLE {role} CONNECTION LIMIT 20".encode())
        assert answers(other, table, COLD) == before
        assert owner.execute(count, mine).fetchone() == (2,)
    other.close()


def test_threads_take_turns(engine: PostgresEngine, table: str) -> None:
    before = answers(engine, table, COLD)
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.append(answers(engine, table, COLD)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [before] * 4


def test_ranks_are_used_only_under_the_secret_that_made_them(
    postgres_place: PostgresServer, engine: PostgresEngine, table: str
) -> None:
    """The quick way and the slow way count the same; another secret takes the slow way."""
    ranked = answers(engine, table, MEASURE)
    assert ranked == answers(engine, table, COLD)
    other = PostgresEngine(bytes(32), postgres_place, memory_mb=512)
    assert answers(other, table, MEASURE) == answers(other, table, COLD) != ranked
    other.close()
