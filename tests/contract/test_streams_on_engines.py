"""Streams through the door on every engine: paid once, over versions, kills and closed vaults."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest

import sfumato
from sfumato import Refused
from sfumato.app.vault import OpenVault
from support import postgres_server
from support.process_tree import is_there, waited
from support.small_vaults import card, write_csv
from support.spark_cluster import QUICK, need_java
from support.stream_oracle import taken_by_hand

CARD = """
unit = "who"
people = "town"
version = "%s"
budget = { epsilon = 1000 }
[columns.day]
type = "date"
[columns.sick]
type = "boolean"
"""
SQL = (
    "SELECT date_trunc('day', day) AS day, RUNNING_COUNT(*) AS so_far FROM %s "
    "WHERE sick GROUP BY day"
)
Row = tuple[str, int, str]
FIRST: list[Row] = [
    *[("ann", day, "yes") for day in (1, 1, 2, 3, 4)],
    *[("bob", day, "yes") for day in (2, 4, 5)],
    *[("cid", 1, "no"), ("cid", 3, "yes")],
]
SECOND: list[Row] = [  # bob left, ann has more, dot came, and much of it is late
    *[("ann", day, "yes") for day in (1, 2, 3, 4, 5, 6)],
    *[("dot", day, "yes") for day in (1, 2, 3, 4, 4, 5)],
]
EPSILON = 150  # at which a draw is other than zero once in 10**30 times
LOCAL = f"local[2]?{urlencode(QUICK)}&spark.driver.memory=1024m&spark.sql.shuffle.partitions=1"


def made(folder: Path, address: str | None) -> Path:
    """Return a new vault on the engine with that address."""
    sfumato.create(folder / "vault", anchor=folder / "anchor", engine=address)
    return folder / "vault"


@pytest.fixture(scope="module")
def folder(
    kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return a new vault on that engine."""
    address = None
    if kind == "postgres":
        server: postgres_server.Server = request.getfixturevalue("server")
        address = server.database_url(server.own_database())
    elif kind == "spark":
        need_java()
        address = LOCAL
    return made(tmp_path_factory.mktemp(kind), address)


@pytest.fixture(scope="module")
def vault(folder: Path) -> Iterator[OpenVault]:
    with sfumato.open(folder) as opened:
        yield opened


def add(vault: OpenVault, name: str, rows: list[Row], version: str = "1") -> None:
    cells = [(who, f"2026-01-{day:02d}", sick) for who, day, sick in rows]
    source = vault.house.folder.with_name(f"{name}-{version}.csv")
    vault.add(name, write_csv(source, ("who", "day", "sick"), cells), card(CARD % version))


def opened(vault: OpenVault, name: str, **terms: Any) -> dict[str, object]:  # of any kind
    said = {"start": "2026-01-01", "periods": 8, "rows": 2, "epsilon": EPSILON, **terms}
    return vault.open_stream(name, "daily", SQL % name, **said)


def close(vault: OpenVault, name: str, day: int) -> dict[str, object]:
    return vault.close_days(name, "daily", until=f"2026-01-{day:02d}")


def counts(vault: OpenVault, name: str) -> list[object]:
    return [row[1] for row in vault[name].stream("daily").rows]


def by_hand(days: list[tuple[int, list[Row]]]) -> list[int]:
    """Return the running count, each day by the rows that it was closed on."""
    of_days = [
        dict(Counter(who for who, on, sick in rows if (on, sick) == (day, "yes")))
        for day, rows in days
    ]
    totals = [sum(day.values()) for day in taken_by_hand(of_days, 2)]
    return [sum(totals[: n + 1]) for n in range(len(totals))]


def kept(vault: OpenVault, name: str) -> Path:
    return vault.house.folder / "streams" / f"{name}.daily"


def worker(vault: OpenVault) -> int:
    pid: int | None = vault.house.engine.worker_pid()  # type: ignore[attr-defined]  # all have one
    assert pid is not None
    return pid


def test_it_is_paid_once_and_each_person_has_their_rows_over_all_versions(
    vault: OpenVault,
) -> None:
    add(vault, "visits", FIRST)
    opened(vault, "visits")
    paid = vault["visits"].budget["spent"]["epsilon"]
    assert paid == EPSILON
    close(vault, "visits", 1)
    with sfumato.open(vault.house.folder) as again:  # what is kept outlives who has closed it
        close(again, "visits", 3)
    add(vault, "visits", SECOND, "2")
    close(vault, "visits", 6)
    days = [*((day, FIRST) for day in (1, 2, 3)), *((day, SECOND) for day in (4, 5, 6))]
    assert counts(vault, "visits") == by_hand(days) == [2, 3, 4, 6, 6, 6]
    assert vault["visits"].budget["spent"]["epsilon"] == paid
    assert vault.house.ledger.verified()["ok"] is True


def test_what_is_kept_is_for_the_vaults_owner_alone(vault: OpenVault) -> None:
    add(vault, "modes", FIRST)
    opened(vault, "modes")
    close(vault, "modes", 3)
    place = kept(vault, "modes")
    found = {p.name: p.stat().st_mode & 0o777 for p in place.rglob("*")}
    assert found == {"lock": 0o600, "3": 0o700, "used.duckdb": 0o600, "taken.json": 0o600}
    assert place.parent.stat().st_mode & 0o777 == 0o700
    for path in (vault.house.folder / "tables").iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_killed_worker_is_replaced_and_takes_no_day_twice(vault: OpenVault) -> None:
    add(vault, "kills", FIRST)
    opened(vault, "kills")
    close(vault, "kills", 2)
    pid = worker(vault)
    os.kill(pid, signal.SIGKILL)
    assert waited(lambda: not is_there(pid))
    close(vault, "kills", 5)
    assert worker(vault) != pid
    assert counts(vault, "kills") == by_hand([(day, FIRST) for day in range(1, 6)])


def test_without_its_state_nothing_more_is_closed(vault: OpenVault) -> None:
    add(vault, "lost", FIRST)
    opened(vault, "lost")
    close(vault, "lost", 2)
    (kept(vault, "lost") / "2" / "used.duckdb").unlink()
    before = counts(vault, "lost")
    with pytest.raises(Refused) as refused:
        close(vault, "lost", 3)
    assert refused.value.code == "stream-lost"
    assert counts(vault, "lost") == before


def test_a_day_that_fails_says_one_constant_word_and_can_be_closed_later(
    vault: OpenVault,
) -> None:
    """The table of DuckDB, or where it says which table it is, is of no use for a while."""
    add(vault, "failed", FIRST)
    opened(vault, "failed")
    close(vault, "failed", 1)
    table = Path(vault.house.catalogue.find("failed").table)  # type: ignore[union-attr]  # it is there
    whole = table.read_bytes()
    table.write_bytes(b"canary" * 10_000)
    with pytest.raises(Refused) as refused:
        close(vault, "failed", 3)
    assert refused.value.code == "stream-failed"
    assert "canary" not in str(refused.value)
    assert refused.value.__context__ is None
    assert [path.name for path in kept(vault, "failed").iterdir() if path.name != "lock"] == ["1"]
    table.write_bytes(whole)
    close(vault, "failed", 3)
    assert counts(vault, "failed") == by_hand([(day, FIRST) for day in (1, 2, 3)])


# --- a server: what it is told, and a driver that is killed while it counts -----------------------


Line = psycopg.Connection[Any]  # rows of any kind


@pytest.fixture(scope="module")
def owner(server: postgres_server.Server) -> Iterator[Line]:
    """Return a line of whoever may do anything in a database of its own."""
    with psycopg.connect(server.database_url(server.own_database()), autocommit=True) as link:
        yield link


@pytest.fixture(scope="module")
def served(
    server: postgres_server.Server, owner: Line, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OpenVault]:
    """Return a vault on that database."""
    address = server.database_url(owner.info.dbname)
    with sfumato.open(made(tmp_path_factory.mktemp("served"), address)) as opened:
        yield opened


TABLES = (
    "SELECT relname, attname, typname FROM pg_class c JOIN pg_attribute a ON attrelid = c.oid"
    " JOIN pg_type t ON t.oid = atttypid JOIN pg_namespace n ON n.oid = relnamespace"
    " WHERE nspname ~ '^sfumato_' AND relkind = 'r' ORDER BY 1, 2"
)


def test_the_server_learns_neither_names_nor_what_is_used(served: OpenVault, owner: Line) -> None:
    add(served, "told", FIRST)
    before = owner.execute(TABLES).fetchall()
    opened(served, "told")
    close(served, "told", 3)
    assert owner.execute(TABLES).fetchall() == before
    assert "who" not in {name for _, name, _ in before}
    assert "bytea" not in {kind for *_, kind in before}


def test_a_driver_that_is_killed_while_it_counts_leaves_nothing(
    served: OpenVault, owner: Line
) -> None:
    add(served, "midway", FIRST)
    opened(served, "midway")
    close(served, "midway", 2)
    table = Path(served.house.catalogue.find("midway").table)  # type: ignore[union-attr]  # it is there
    name = json.loads(table.read_text())["tables"][0]["table"]
    schema = json.loads((served.house.folder / "keys" / "engine.json").read_text())["schema"]
    said, pid = list[str](), worker(served)
    with owner.transaction():  # the count waits for this lock
        owner.execute(f"LOCK TABLE {schema}.{name} IN ACCESS EXCLUSIVE MODE".encode())
        closing = threading.Thread(target=lambda: said.append(_code_of_closing(served)))
        closing.start()
        _wait_for_a_lock(owner)
        os.kill(pid, signal.SIGKILL)
        closing.join(60)
    assert said == ["stream-failed"]
    left = sorted(path.name for path in kept(served, "midway").iterdir())
    assert left == ["2", "lock"]
    close(served, "midway", 5)
    assert counts(served, "midway") == by_hand([(day, FIRST) for day in range(1, 6)])


def _code_of_closing(served: OpenVault) -> str:
    try:
        close(served, "midway", 3)
    except Refused as refused:
        return refused.code
    return "closed"


def _wait_for_a_lock(owner: Line) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if owner.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone():
            return
        time.sleep(0.02)
    raise AssertionError("nobody waits for the table")
