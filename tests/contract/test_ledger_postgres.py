"""What holds for the ledger in PostgreSQL alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from sfumato.dp.accounting.privacy_filter import Cap
from sfumato.dp.refusal import Refused
from sfumato.storage.database import Fault
from sfumato.storage.ledger_transaction import CannotPay, LedgerTransaction
from sfumato.storage.postgres_ledger import PostgresLink
from sfumato.storage.sql_ledger import SqlLedger
from sfumato.vault.ledger_entries import Charged
from support import postgres_server
from support.ledger_stores import DEBT, Place, asked


@pytest.fixture
def place(server: postgres_server.Server) -> Place:
    """Return a fresh schema."""
    return Place("postgres", server.fresh_url())


@contextmanager
def _altered(server: postgres_server.Server, setting: str, value: str) -> Iterator[None]:
    server.run(f"ALTER SYSTEM SET {setting} = {value}")
    server.run("SELECT pg_reload_conf()")
    try:
        yield
    finally:
        server.run(f"ALTER SYSTEM RESET {setting}")
        server.run("SELECT pg_reload_conf()")


def _refused_within(url: str, seconds: float) -> str | None:
    """Return why a connection is refused; a server takes a moment to read its settings."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            PostgresLink(url, 2).close()
        except Fault as fault:
            return fault.code
    return None


@pytest.mark.parametrize("setting", ["full_page_writes", "fsync"])
def test_a_server_that_does_not_sync_is_refused(
    server: postgres_server.Server, place: Place, setting: str
) -> None:
    with _altered(server, setting, "off"):
        assert _refused_within(place.where, 5) == "unsound"


def test_commits_are_synced_whatever_the_server_prefers(
    server: postgres_server.Server, place: Place
) -> None:
    with _altered(server, "synchronous_commit", "off"):
        store = place.create()
        with store._transaction() as work:
            assert work.link.rows("SHOW synchronous_commit") == [("on",)]
        store.close()


def test_the_debit_itself_holds_the_cap_even_without_the_lock_on_the_head(
    server: postgres_server.Server, place: Place
) -> None:
    store = place.create()
    store.open_account("people", Cap(10, 10, 0, 0))
    first, second = _unlocked(store), _unlocked(store)
    first.debit(["people"], DEBT)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(second.debit, ["people"], DEBT)
        _wait_for_a_waiter(server)
        first.link.commit()
        with pytest.raises(CannotPay):
            late.result(10)
    for work in (first, second):
        work.link.close()
    assert store.accounts()[0].spent == DEBT
    store.close()


def _unlocked(store: SqlLedger) -> LedgerTransaction:
    link = store._database.connect()
    link.begin()
    return LedgerTransaction(link, store._database.dialect, lambda: "now", store.head(), None, "")


def _wait_for_a_waiter(server: postgres_server.Server) -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if server.run("SELECT 1 FROM pg_locks WHERE NOT granted"):
            return
        time.sleep(0.01)
    raise TimeoutError


def test_the_ledger_needs_no_superuser(server: postgres_server.Server) -> None:
    server.run("CREATE ROLE keeper LOGIN")
    server.run("CREATE SCHEMA kept AUTHORIZATION keeper")
    url = server.url("kept").replace(f"user={server.user}", "user=keeper")
    store = Place("postgres", url).create()
    assert isinstance(store.charge(asked("1")), Charged)
    store.close()


def test_a_connection_that_was_cut_is_made_anew(
    server: postgres_server.Server, place: Place
) -> None:
    store = place.create()
    store.charge(asked("1"))
    with store._transaction() as work:
        pid = work.link.rows("SELECT pg_backend_pid()")[0][0]
    server.run(f"SELECT pg_terminate_backend({pid})")
    assert isinstance(store.charge(asked("2", "r")), Charged)
    with store._transaction() as work:
        pid = work.link.rows("SELECT pg_backend_pid()")[0][0]
    server.run(f"SELECT pg_terminate_backend({pid})")
    assert store.head().seq == 5
    store.close()


def test_a_server_that_is_away_is_a_code_without_its_address(place: Place) -> None:
    gone = Place("postgres", place.where.replace("host=", "host=/nowhere"))
    with pytest.raises(Refused) as fault:
        gone.open()
    assert fault.value.code == "ledger-unavailable"
    assert "nowhere" not in str(fault.value)
    assert not isinstance(fault.value.__context__, psycopg.Error)
