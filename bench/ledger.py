"""Measure debits a second, at the first entry of a ledger and after a million entries.

The million entries are written at once, as a hash chain that verifies. Then the bench times debits
again. Each figure has beside it the time of one fdatasync on this disk: a debit cannot be faster.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.accounting.privacy_filter import Cap
from sfumato.storage import sqlite_ledger
from sfumato.storage.database import DatabaseLink
from sfumato.storage.sql_ledger import SqlLedger
from sfumato.system.randomness import SystemRandomSource
from sfumato.vault import hash_chain
from sfumato.vault.ledger_entries import Charge, Charged, Debtor, Entry, LedgerHead

ENTRIES: Final = 1_000_000
DEBITS: Final = 2_000
_HUGE: Final = Cap(10**15, 10**15, 10**15, 10**15)
_DEBT: Final = PrivacyCost(10, 10, 10, 0)
_AT: Final = "2026-11-21T10:00:00Z"


class Clock:
    """A time that stands still."""

    def now(self) -> str:
        return _AT


def run(entries: int = ENTRIES) -> list[dict[str, object]]:
    """Return a line for each store and size: debits a second, and the ratio to an empty one."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("SFUMATO_BENCH_DIR")) as folder:
        ledger = sqlite_ledger.create_ledger(
            Path(folder) / "ledger.db", Clock(), SystemRandomSource()
        )
        lines = _measure("sqlite", ledger, entries)
        for line in lines:
            line["fdatasync ms"] = round(sync_ms(Path(folder)), 3)
    return lines + _postgres(entries)


def _postgres(entries: int) -> list[dict[str, object]]:
    """Measure PostgreSQL if its programs are on this machine."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from sfumato.storage import postgres_ledger
    from support import postgres_server

    if not postgres_server.binary("initdb").exists():
        return []
    with postgres_server.running() as server:
        return _measure(
            "postgres",
            postgres_ledger.create_ledger(server.fresh_url(), Clock(), SystemRandomSource()),
            entries,
        )


def _measure(name: str, ledger: SqlLedger, entries: int) -> list[dict[str, object]]:
    for account in ("people", "user ann"):
        ledger.open_account(account, _HUGE)
    _debits(ledger, 200, "warm")
    first = _best(ledger, "first")
    started = time.perf_counter()
    _fill(ledger, entries)
    filled_s = time.perf_counter() - started
    last = _best(ledger, "last")
    started = time.perf_counter()
    verdict = ledger.verify()
    verified_s = time.perf_counter() - started
    ledger.close()
    if verdict.fault is not None:
        raise RuntimeError(verdict.fault)
    return [
        _line(name, 1, first, ratio=1.0),
        _line(name, entries, last, ratio=round(last / first, 2))
        | {"fill s": round(filled_s, 1), "verify s": round(verified_s, 1)},
    ]


def _line(name: str, entries: int, rate: float, *, ratio: float) -> dict[str, object]:
    return {"store": name, "entries": entries, "debits/s": round(rate), "ratio": ratio}


def _best(ledger: SqlLedger, name: str) -> float:
    """Return the best of ten rounds: other work on the machine only makes a round slower."""
    return max(_debits(ledger, DEBITS // 10, f"{name}.{round_}") for round_ in range(10))


def _debits(ledger: SqlLedger, count: int, name: str) -> float:
    """Return how many charges a second are durable, one after the other."""
    started = time.perf_counter()
    for number in range(count):
        if not isinstance(ledger.charge(_charge(f"{name}.{number}")), Charged):
            raise RuntimeError("a debit was not accepted")
    return count / (time.perf_counter() - started)


def _charge(name: str) -> Charge:
    return Charge(
        user="ann",
        op=name,
        request=f"request {name}",
        answer_key=f"key {name}",
        shape="shape",
        debtors=(Debtor("people", _HUGE), Debtor("user ann", _HUGE)),
        debt=_DEBT,
        body={"question": name},
    )


def _fill(ledger: SqlLedger, entries: int) -> None:
    """Bring the ledger to that many entries, each a charge with its operation and its debit."""
    while (left := entries - ledger.head().seq) > 0:
        with ledger._transaction() as work:
            made = list(islice(_charged(work.head), min(left, 50_000)))
            insert(work.link, "ledger_entries", [tuple(vars(entry).values()) for entry in made])
            insert(work.link, "ledger_operations", [_operation(entry) for entry in made])
            _add_debits(work.link, len(made))
            work.head = LedgerHead(work.head.ledger, 1, made[-1].seq, made[-1].hash)
            work.is_dirty = True


def _charged(head: LedgerHead) -> Iterator[Entry]:
    while True:
        asked = _charge(f"fill.{head.seq}")
        debits = {debtor.account: hash_chain.debt_list(_DEBT) for debtor in asked.debtors}
        names = {"user": asked.user, "op": asked.op, "request": asked.request}
        more = {"answer_key": asked.answer_key, "shape": asked.shape, "body": asked.body}
        body = hash_chain.canonical({**names, **more, "debits": debits})
        entry = hash_chain.next_entry(head, epoch=1, at=_AT, kind="charged", body=body)
        head = replace(head, seq=entry.seq, hash=entry.hash)
        yield entry


def _operation(entry: Entry) -> tuple[object, ...]:
    asked = _charge(f"fill.{entry.seq - 1}")
    return (asked.user, asked.op, asked.request, asked.answer_key, "charged", entry.seq, None)


def insert(link: DatabaseLink, table: str, rows: list[tuple[object, ...]]) -> None:
    for start in range(0, len(rows), 500):
        some = rows[start : start + 500]
        row = f"({', '.join('?' * len(some[0]))})"
        values = tuple(value for one in some for value in one)
        link.change(f"INSERT INTO {table} VALUES {', '.join([row] * len(some))}", values)


def _add_debits(link: DatabaseLink, count: int) -> None:
    columns = ("epsilon", "delta", "rho")
    sums = ", ".join(f"spent_{name} = spent_{name} + {10 * count}" for name in columns)
    link.change(f"UPDATE ledger_accounts SET {sums}")


def sync_ms(folder: Path) -> float:
    """Return the median cost of making one page durable."""
    times = []
    file = os.open(folder / "sync", os.O_RDWR | os.O_CREAT, 0o600)
    for number in range(200):
        os.pwrite(file, bytes(4096), number * 4096)
        started = time.perf_counter()
        os.fdatasync(file)
        times.append(time.perf_counter() - started)
    os.close(file)
    return sorted(times)[100] * 1000


def main() -> None:
    """Print the table."""
    for line in run():
        print("  ".join(f"{name}: {value}" for name, value in line.items()))


if __name__ == "__main__":
    main()
