"""Measure how soon a vault with a long history serves again after `kill -9`.

The bench asks one question. Then it fills the ledger up to a million entries, with half a million
copies of that question's charge and release. Each copy has its own operation, answer and payers,
and the hash chain verifies. The bench starts the service, asks one more question, kills all its
processes and starts it again. Last, it times `sfumato ledger verify` of the same ledger.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, Final

import duckdb

import sfumato
from bench.ledger import Clock, insert
from bench.load import CARD, token_of
from sfumato.storage import sqlite_ledger
from sfumato.storage.ledger_tables import SUMS
from sfumato.storage.sql_ledger import SqlLedger
from sfumato.vault import hash_chain
from sfumato.vault.ledger_entries import Entry, LedgerHead

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.served_vault import start

ENTRIES: Final = 1_000_000
AT_ONCE: Final = 25_000
_SQL: Final = "SELECT COUNT(*) AS n FROM people WHERE age > {}"
_READY_S: Final = 5.0
_VERIFIED_S: Final = 60.0


def run(entries: int = ENTRIES) -> list[dict[str, object]]:
    """Return the seconds of a first start, of a start after a kill, and of the verification."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("SFUMATO_BENCH_DIR")) as folder:
        vault, token = made(Path(folder), entries)
        taken = [_started(vault, token, number) for number in range(4)]
        begun = time.monotonic()
        command = [sys.executable, "-m", "sfumato", "ledger", "verify", "--vault", str(vault)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        verified_s = time.monotonic() - begun
    what = f"ready, {entries:,} entries"
    return [
        {"what": what, "s": round(taken[0], 2), "target": _READY_S},
        {"what": f"{what}, after kill -9", "s": round(max(taken[1:]), 2), "target": _READY_S},
        {"what": "verified, the whole command", "s": round(verified_s, 1), "target": _VERIFIED_S},
    ]


def made(folder: Path, entries: int) -> tuple[Path, str]:
    vault, source = folder / "vault", folder / "rows.parquet"
    duckdb.sql(
        "COPY (SELECT i % 90 AS age, i % 80 AS paid, printf('w%02d', i % 97) AS ward"
        f" FROM range(1000) r(i)) TO '{source}'"
    )
    sfumato.create(vault, anchor=folder / "anchor")
    with sfumato.open(vault) as opened:
        opened.add("people", source, CARD)
        opened.enrol("ann", "staff")
        token = token_of(opened.house.desk.access, "ann")
        opened["people"].ask(_SQL.format(3), epsilon=Decimal("0.000001"))
    ledger = sqlite_ledger.open_ledger(vault / "ledger.sqlite", Clock())
    _fill(ledger, entries)
    ledger.close()
    return vault, token


def _started(vault: Path, token: str, number: int) -> float:
    """Start the service, ask it something new, and kill it with all that it started."""
    begun = time.monotonic()
    service = start(vault)
    taken = time.monotonic() - begun
    body = {"sql": _SQL.format(4 + number), "epsilon": 0.001}
    status, answer = service.call("POST", "/v1/data-sets/people/ask", body, token=token)
    service.kill()
    if service.process.stderr is not None:
        service.process.stderr.close()
    if status != 200:
        raise RuntimeError(answer)
    return taken


def _fill(ledger: SqlLedger, entries: int) -> None:
    """Bring the ledger to that many entries: charges and releases like its last two."""
    charged, released = (json.loads(one.body) for one in list(ledger.entries())[-2:])
    while (left := entries - ledger.head().seq) > 1:
        with ledger._transaction() as work:
            answer = work.link.rows("SELECT answer FROM ledger_answers LIMIT 1")[0][0]
            made = list(islice(_pairs(work.head, charged, released), min(left, AT_ONCE) // 2))
            both = [entry for pair in made for entry in pair]
            insert(work.link, "ledger_entries", [tuple(vars(entry).values()) for entry in both])
            insert(work.link, "ledger_operations", [_operation(*pair) for pair in made])
            insert(work.link, "ledger_answers", [_answer(two, answer) for _, two in made])
            payers = [one for _, two in made for one in _payers(two)]
            insert(work.link, "ledger_payers", payers)
            for account, spent in charged["debits"].items():
                sums = ", ".join(f"spent_{name} = spent_{name} + ?" for name in SUMS)
                values = (*(part * len(made) for part in spent), account)
                work.link.change(f"UPDATE ledger_accounts SET {sums} WHERE name = ?", values)
            work.head = LedgerHead(work.head.ledger, 1, both[-1].seq, both[-1].hash)
            work.is_dirty = True


def _pairs(head: LedgerHead, charged: Any, released: Any) -> Iterator[tuple[Entry, Entry]]:
    while True:
        names = {"op": f"{head.seq:032x}", "answer_key": f"{head.seq:064x}"}
        one = _next(head, "charged", {**charged, **names})
        head = replace(head, seq=one.seq, hash=one.hash)
        two = _next(head, "released", {**released, **names, "charge": one.seq})
        head = replace(head, seq=two.seq, hash=two.hash)
        yield one, two


def _next(head: LedgerHead, kind: str, body: Any) -> Entry:
    at = "2026-11-21T10:00:00.000+00:00"
    return hash_chain.next_entry(head, epoch=1, at=at, kind=kind, body=hash_chain.canonical(body))


def _operation(one: Entry, two: Entry) -> tuple[object, ...]:
    body = json.loads(one.body)
    request = body.get("request", "")
    return (body["user"], body["op"], request, body["answer_key"], "answered", one.seq, two.seq)


def _answer(two: Entry, answer: object) -> tuple[object, ...]:
    return (json.loads(two.body)["answer_key"], two.seq, answer)


def _payers(two: Entry) -> Iterator[tuple[object, ...]]:
    body = json.loads(two.body)
    yield from ((body["answer_key"], account, two.seq) for account in body["payers"])


if __name__ == "__main__":
    for found in run():
        print(found, flush=True)
