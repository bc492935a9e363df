"""A ledger that PostgreSQL has moved goes on where nothing is missing, and is frozen elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.refusal import Bug, Refused
from sfumato.release.ledger_guard import Ledger
from sfumato.storage.anchor import FileAnchor
from sfumato.storage.key_files import ReceiptKey
from sfumato.storage.sql_ledger import SqlLedger
from sfumato.vault.ledger_entries import Charged
from support import postgres_server
from support.ledger_stores import Place, asked

ONE = PrivacyCost(10, 10, 10, 0)


def beside(store: SqlLedger, folder: Path) -> Ledger:
    """Return the ledger with its anchor, opened as a vault opens it."""
    anchor = FileAnchor(folder / "anchor")
    store.mark_with(anchor.advance)
    ledger = Ledger(store, anchor, ReceiptKey(b"k" * 32))
    if anchor.read() is not None and ledger.history_fault() is None:
        ledger.keep_sums()
    return ledger


def there(url: str, here: postgres_server.Server, other: postgres_server.Server) -> Place:
    """Return the same schema on another server."""
    place = url.replace(f"port={here.port}", f"port={other.port}")
    return Place("postgres", place.replace(str(here.folder), str(other.folder)))


@pytest.fixture
def primary() -> Iterator[postgres_server.Server]:
    with postgres_server.running() as server:
        yield server


def charged(ledger: Ledger, op: str) -> None:
    assert isinstance(ledger.charge(asked(op, op)), Charged)


def spent(ledger: Ledger) -> int:
    account = ledger.store.account("people")
    assert account is not None
    return account.spent.epsilon


@pytest.mark.slow
def test_a_standby_that_lacks_nothing_goes_on_when_it_is_promoted(
    primary: postgres_server.Server, tmp_path: Path
) -> None:
    url = primary.fresh_url()
    old = beside(Place("postgres", url).create(), tmp_path)
    old.begin("vault-created", {})
    with primary.replica() as standby:
        for op in ("1", "2", "3"):
            charged(old, op)
        old.settle("ann", "3", "an answer")
        standby.caught_up(primary)
        with pytest.raises(Bug):
            there(url, primary, standby).open()  # a standby is not written, nor known to be whole
        standby.promote()
        new = beside(there(url, primary, standby).open(), tmp_path)
        assert new.history_fault() is None
        assert [entry.kind for entry in new.store.entries()][-1] == "moved"
        charged(new, "4")
        assert spent(new) == 40
        assert new.verified()["ok"] is True
        with pytest.raises(Refused, match="frozen"):  # whoever still writes to the old one
            old.charge(asked("5", "5"))
        new.store.close()
    old.store.close()


@pytest.mark.slow
def test_a_standby_that_is_behind_is_frozen_and_charged_what_it_lacks(
    primary: postgres_server.Server, tmp_path: Path
) -> None:
    url = primary.fresh_url()
    old = beside(Place("postgres", url).create(), tmp_path)
    old.begin("vault-created", {})
    with primary.replica() as standby:
        charged(old, "1")
        standby.caught_up(primary)
        standby.pause()
        for op in ("2", "3"):
            charged(old, op)
        standby.promote()
        new = beside(there(url, primary, standby).open(), tmp_path)
        with pytest.raises(Refused, match="frozen"):
            new.charge(asked("4", "4"))
        assert spent(new) == 10
        new.acknowledge("the standby was behind")
        assert spent(new) == spent(old) == 30
        charged(new, "4")
        assert "measured" in json.loads(new.store.notes("acknowledged")[-1].body)
        new.store.close()
    old.store.close()


@pytest.mark.slow
def test_a_dump_that_is_restored_goes_on_or_is_charged_what_it_lacks(
    primary: postgres_server.Server, tmp_path: Path
) -> None:
    url = primary.fresh_url()
    old = beside(Place("postgres", url).create(), tmp_path)
    old.begin("vault-created", {})
    charged(old, "1")
    schema = url.split("search_path=")[1].rstrip("'")
    with primary.restored(primary.dump(schema)) as other:
        new = beside(there(url, primary, other).open(), tmp_path)
        assert new.history_fault() is None
        charged(new, "2")
        assert spent(new) == 20
        with primary.restored(primary.dump(schema)) as third:  # the old one, dumped once more
            late = beside(there(url, primary, third).open(), tmp_path)
            assert late.history_fault() is not None
            late.acknowledge("an old dump")
            assert spent(late) == 20
            assert late.verified()["ok"] is True
            late.store.close()
        new.store.close()
    old.store.close()


@pytest.mark.slow
def test_a_server_that_was_upgraded_goes_on(tmp_path: Path) -> None:
    with postgres_server.made() as server:
        with server.serving():
            url = server.fresh_url()
            old = beside(Place("postgres", url).create(), tmp_path)
            old.begin("vault-created", {})
            charged(old, "1")
            before = server.run("SELECT system_identifier FROM pg_control_system()")
            old.store.close()
            server.run("CHECKPOINT")
            server.stop_smoothly()
        with server.upgraded() as other:
            assert other.run("SELECT system_identifier FROM pg_control_system()") != before
            new = beside(there(url, server, other).open(), tmp_path)
            assert new.history_fault() is None
            charged(new, "2")
            assert spent(new) == 20
            new.store.close()
