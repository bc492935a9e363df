"""What holds for the ledger in a SQLite file alone: settings, forgery, roll-back, full disks."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from sfumato.dp.accounting.privacy_filter import Cap
from sfumato.dp.refusal import Bug, Refused
from sfumato.release.ledger_guard import Ledger
from sfumato.storage import sqlite_ledger
from sfumato.storage.anchor import FileAnchor
from sfumato.storage.database import Fault
from sfumato.storage.key_files import ReceiptKey
from sfumato.storage.ledger_comparison import compare
from sfumato.storage.sql_ledger import SqlLedger
from sfumato.storage.sqlite_ledger import SqliteLink
from sfumato.vault.hash_chain import disagreement, entry_hash, verify
from sfumato.vault.ledger_entries import Charged, Entry, LedgerHead
from support.ledger_stores import CAP, Place, asked

FORGERIES = 1200
BIG = Cap(10**6, 10**6, 10**6, 10**6)
TABLES = (
    "ledger_entries",
    "ledger_accounts",
    "ledger_operations",
    "ledger_answers",
    "ledger_payers",
    "ledger_frozen_shapes",
    "ledger_head",
)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return a fresh file."""
    return Place("sqlite", str(tmp_path / "vault" / "ledger.db"))


def _fill(store: SqlLedger, questions: int = 40) -> None:
    """Make every kind of entry and every kind of row."""
    store.open_account("people", BIG)
    for number in range(questions):
        name = f"q{number}"
        store.charge(asked(f"a{number}", name))
        if number % 5 == 4:
            store.fail("ann", f"a{number}", "question-failed", f"shape {name}")
        elif number % 5 != 3:
            store.settle("ann", f"a{number}", f"answer {number}")
            store.charge(asked(f"b{number}", name, user="bob"))
    store.thaw_shape("shape q4")
    store.set_cap("user bob", CAP)
    store.note("card-signed", {"card": "trips"})
    store.freeze("a test")
    store.acknowledge({"people": (1, 2, 3, 4)}, "a test")
    store.freeze("another test")


def test_the_file_keeps_what_it_acknowledges(place: Place) -> None:
    store = place.create()
    with store._transaction() as work:
        found = [work.link.rows(f"PRAGMA {name}")[0][0] for name in ("synchronous", "journal_mode")]
    store.close()
    assert found == [2, "wal"]


@pytest.mark.parametrize("setting", ["synchronous = NORMAL", "synchronous = OFF"])
def test_a_file_that_would_not_sync_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setattr(sqlite_ledger, "_SETTINGS", (*sqlite_ledger._SETTINGS, setting))
    with pytest.raises(Bug, match="does not keep"):
        place.create()


def test_an_old_sqlite_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_ledger, "OLDEST", (99, 0, 0))
    with pytest.raises(Bug, match="too old"):
        place.create()


def test_the_sqlite_we_have_is_new_enough() -> None:
    assert sqlite_ledger.OLDEST >= (3, 51, 3)


def test_only_the_owner_may_read_the_files(place: Place) -> None:
    store = place.create()
    files = list(Path(place.where).parent.iterdir())
    assert len(files) == 3
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert Path(place.where).parent.stat().st_mode & 0o777 == 0o700
    store.close()


def test_an_empty_file_left_by_a_kill_can_be_made_a_ledger(place: Place) -> None:
    Path(place.where).parent.mkdir()
    Path(place.where).touch()
    with pytest.raises(Refused):
        place.open()
    place.create().close()


def test_a_full_disk_is_refused_with_a_code_and_no_lost_charge(place: Place) -> None:
    store = place.create()
    store.charge(asked("1"))
    with store._transaction() as work:
        work.link.rows("PRAGMA max_page_count = 1")
    with pytest.raises(Refused, match="no space") as full:
        store.note("big", {"text": "x" * 10**6})
    assert full.value.code == "ledger-unavailable"
    assert isinstance(store.charge(asked("2", "r")), Charged)  # space came back
    assert store.verify().fault is None
    store.close()


def test_a_file_replaced_under_a_running_process_is_noticed(place: Place, tmp_path: Path) -> None:
    store = place.create()
    store.charge(asked("1"))
    store.close()
    shutil.copy(place.where, tmp_path / "old")
    store.charge(asked("2", "r"))
    (tmp_path / "old").replace(place.where)
    for suffix in ("-wal", "-shm"):
        Path(place.where + suffix).unlink()
    with pytest.raises(Refused, match="lost entries") as refusal:
        store.charge(asked("3", "s"))
    assert refusal.value.code == "ledger-frozen"
    store.close()


def test_a_file_replaced_before_the_first_charge_is_held_against_the_anchor(
    place: Place, tmp_path: Path
) -> None:
    store, anchor = place.create(), FileAnchor(tmp_path / "anchor")
    anchor.advance(store.head())
    store.close()
    shutil.copy(place.where, tmp_path / "old")
    _note(store, anchor, 3)
    store.close()
    running = place.open()
    assert _against(running, anchor) is None  # it has looked, and written nothing
    (tmp_path / "old").replace(place.where)
    for suffix in ("-wal", "-shm"):
        Path(place.where + suffix).unlink(missing_ok=True)
    ledger = Ledger(running, anchor, ReceiptKey(bytes(32)))
    with pytest.raises(Refused, match="ends before the anchor's mark") as refusal:
        ledger.charge(asked("1"))
    assert refusal.value.code == "ledger-frozen"
    running.close()


@pytest.mark.parametrize("lost", [1, 10, 100])
def test_a_file_rolled_back_disagrees_with_its_anchor(
    place: Place, tmp_path: Path, lost: int
) -> None:
    store, anchor = place.create(), FileAnchor(tmp_path / "anchor")
    _note(store, anchor, 5)
    store.close()
    shutil.copy(place.where, tmp_path / "backup")
    _note(store, anchor, lost)
    assert _against(store, anchor) is None
    store.close()
    shutil.copy(tmp_path / "backup", place.where)
    restored = place.open()
    assert restored.verify().fault is None
    assert _against(restored, anchor) == "the ledger ends before the anchor's mark"
    for _ in range(lost + 3):
        restored.note("another", {})  # grown past the mark, with another history
    assert _against(restored, anchor) == "the ledger's history is not the anchor's"
    anchor.advance(restored.acknowledge({}, "restored a backup"))
    assert _against(restored, anchor) is None
    restored.close()


def _note(store: SqlLedger, anchor: FileAnchor, count: int) -> None:
    for number in range(count):
        anchor.advance(store.note("note", {"number": number}))


def _against(store: SqlLedger, anchor: FileAnchor) -> str | None:
    mark = anchor.read()
    assert mark is not None
    return disagreement(mark, store.head(), store.entry(mark.seq))


def test_a_chain_sealed_anew_after_a_cut_disagrees_with_its_anchor(
    place: Place, tmp_path: Path
) -> None:
    store, anchor = place.create(), FileAnchor(tmp_path / "anchor")
    _note(store, anchor, 10)
    entries = list(store.entries())
    forged: list[Entry] = []
    prev = entries[0].prev
    for entry in [*entries[:4], *entries[5:]]:
        seq = len(forged) + 1
        made = entry_hash(prev, seq, entry.epoch, entry.at, entry.kind, entry.body)
        forged.append(Entry(seq, 1, entry.at, entry.kind, entry.body, prev, made))
        prev = made
    verdict = verify(forged)
    assert verdict.fault is None  # the chain alone cannot tell
    mark = anchor.read()
    assert mark is not None
    assert disagreement(mark, verdict.head, None) is not None
    store.close()


@contextmanager
def _forger(path: Path) -> Iterator[SqliteLink]:
    """Return a connection that may do anything to the file, without triggers and checks."""
    raw = apsw.Connection(str(path))
    triggers = raw.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for (name,) in triggers:
        raw.execute(f"DROP TRIGGER {name}")
    raw.close()
    link = SqliteLink(path, 1)
    link.rows("PRAGMA foreign_keys = OFF")
    link.rows("PRAGMA ignore_check_constraints = ON")
    yield link
    link.close()


def _flip(link: SqliteLink, table: str, dice: random.Random) -> bool:
    column, rowid = _column(link, table, dice), _row(link, table, dice)
    old = link.rows(f"SELECT {column} FROM {table} WHERE rowid = ?", (rowid,))[0][0]
    new = old + dice.choice([1, -1, 1000]) if isinstance(old, int) else _altered(old, dice)
    sql = f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid = ?"
    return link.change(sql, (new, rowid)) > 0


def _altered(text: str | None, dice: random.Random) -> str:
    text = text or ""
    place = dice.randrange(len(text) + 1)
    kept = text[place + 1 :] if dice.random() < 0.5 else text[place:]
    return text[:place] + "#" + kept


def _delete(link: SqliteLink, table: str, dice: random.Random) -> bool:
    return link.change(f"DELETE FROM {table} WHERE rowid = ?", (_row(link, table, dice),)) > 0


def _insert(link: SqliteLink, table: str, dice: random.Random) -> bool:
    columns = [name for (_, name, *_) in link.rows(f"PRAGMA table_info({table})")]
    rowid = _row(link, table, dice)
    row = list(link.rows(f"SELECT * FROM {table} WHERE rowid = ?", (rowid,))[0])
    row[0] = dice.choice([-5, 0, 10**6]) if isinstance(row[0], int) else row[0] + "#"
    marks = ", ".join("?" * len(columns))
    return link.change(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row) > 0


def _swap(link: SqliteLink, table: str, dice: random.Random) -> bool:
    column = _column(link, table, dice)
    one, other = _row(link, table, dice), _row(link, table, dice)
    read = f"SELECT {column} FROM {table} WHERE rowid = ?"
    here, there = link.rows(read, (one,))[0][0], link.rows(read, (other,))[0][0]
    if here == there:
        return False
    write = f"UPDATE OR REPLACE {table} SET {column} = ? WHERE rowid = ?"
    link.change(write, (there, one))
    link.change(f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid = ?", (here, other))
    return True


def _row(link: SqliteLink, table: str, dice: random.Random) -> int:
    rows: list[tuple[int]] = link.rows(f"SELECT rowid FROM {table}")
    return dice.choice(rows)[0]


def _column(link: SqliteLink, table: str, dice: random.Random) -> str:
    columns: list[str] = [name for (_, name, *_) in link.rows(f"PRAGMA table_info({table})")]
    derived = {"id", "lowered"}  # says nothing by itself: one row; follows from caps and sums
    return dice.choice([name for name in columns if name not in derived])


Forgery = Callable[[SqliteLink, str, random.Random], bool]


def test_every_forged_row_is_found(place: Place, tmp_path: Path) -> None:
    store = place.create()
    _fill(store)
    assert store.verify().fault is None
    store.close()
    shutil.copy(place.where, tmp_path / "copy.db")
    dice, forged, missed = random.Random(7), 0, []
    acts: tuple[Forgery, ...] = (_flip, _flip, _delete, _insert, _swap)
    with _forger(tmp_path / "copy.db") as link:
        while forged < FORGERIES:
            act = dice.choice(acts)
            table = dice.choice(TABLES + TABLES[:1] * 8)
            link.begin()
            if _is_done(act, link, table, dice):
                forged += 1
                missed += [] if _is_found(link) else [(act.__name__, table)]
            link.rollback()
        assert compare(link).fault is None  # every forgery was undone again
    assert missed == []


def _is_done(act: Forgery, link: SqliteLink, table: str, dice: random.Random) -> bool:
    try:
        return act(link, table, dice)
    except Fault:  # SQLite will not hold a text where a number belongs
        return False


def _is_found(link: SqliteLink) -> bool:
    try:
        return compare(link).fault is not None
    except Fault:  # no head at all
        return True


def test_a_head_says_where_the_chain_ends(place: Place) -> None:
    store = place.create()
    _fill(store, 3)
    verdict = store.verify()
    last = list(store.entries())[-1]
    assert verdict.head == store.head() == LedgerHead(verdict.head.ledger, 2, last.seq, last.hash)
    store.close()
