"""Workers that the host kills cost nobody a question, and freeze none."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import sfumato
from support.process_tree import children
from support.served_vault import Service, served
from support.small_vaults import card, make_vault, write_csv

CLIENTS, LOSSES, MOST = 4, 12, 4000
EPSILON = Decimal("0.001")
CARD = """
unit = "who"
people = "people"
budget = { epsilon = 1000 }
[ask]
who = ["staff"]
[columns.age]
type = "integer"
lower = 0
upper = 1000
[columns.paid]
type = "integer"
lower = 0
upper = 1000
"""


def test_who_asks_while_workers_are_killed_is_answered_and_pays_once(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    rows = ((f"p{n % 5000}", n * 7919 % 1000, n * 104729 % 1000) for n in range(40_000))
    with sfumato.open(vault) as opened:
        opened.add(
            "people", write_csv(tmp_path / "s.csv", ("who", "age", "paid"), rows), card(CARD)
        )
        for name in names():
            opened.enrol(name, "staff")
    with served(vault) as service:
        told, answers = asked_under_fire(service, vault)
        spent = service.call("GET", "/v1/data-sets/people/budget", token=service.tokens["user0"])
    assert set(told) == {"200"}
    assert Decimal(str(spent[1]["spent"]["epsilon"])).quantize(EPSILON) == answers * EPSILON
    assert losses(vault) >= LOSSES


def names() -> list[str]:
    return [f"user{number}" for number in range(CLIENTS)]


def asked_under_fire(service: Service, vault: Path) -> tuple[Counter[str], int]:
    """Ask until the worker was killed so often over a question; return what was told."""
    tokens = [service.user(name, "researcher") for name in names()]
    told, numbers, is_over = Counter[str](), count(), threading.Event()
    answered = threading.Semaphore(0)

    def ask(token: str) -> None:
        for number in numbers:
            if is_over.is_set() or number >= MOST:
                return
            above = f"age > {number % 900} AND paid >= {number // 900}"  # another one each time
            sql = f"SELECT SUM(paid) AS s FROM people WHERE {above}"
            body = {"sql": sql, "epsilon": float(EPSILON), "op": f"n{number}"}
            status, said = service.call("POST", "/v1/data-sets/people/ask", body, token=token)
            told[str(status) if status == 200 else str(said["refused"]["code"])] += 1
            answered.release()

    with ThreadPoolExecutor(CLIENTS) as threads:
        asking = [threads.submit(ask, token) for token in tokens]
        while losses(vault) < LOSSES and not all(one.done() for one in asking):
            for _ in range(CLIENTS):  # whoever was read for the last time is answered by then
                answered.acquire(timeout=300)
            for worker in workers(service):
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
        is_over.set()
        for one in asking:
            one.result()
    return told, sum(told.values())


def workers(service: Service) -> list[int]:
    """Return the processes that read rows."""
    found = []
    for process in children(int(service.process.pid)):
        with suppress(OSError):
            if b"engines.duckdb.worker" in Path(f"/proc/{process}/cmdline").read_bytes():
                found.append(process)
    return found


def losses(vault: Path) -> int:
    """Return how often a worker was lost over a question, as the owner can see it."""
    with closing(sqlite3.connect(f"file:{vault / 'ledger.sqlite'}?mode=ro", uri=True)) as ledger:
        found: Any = ledger.execute(
            "SELECT count(*) FROM ledger_entries WHERE kind = 'engine-lost'"
        ).fetchone()
    return int(found[0])
