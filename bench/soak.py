"""Soak-test a service for minutes, while its workers are killed and it gets invalid requests.

`python -m bench.soak --minutes 10 [--page]`. Four clients ask new counts all the time, which is
half of the service's load. Every half minute the bench kills the engine's worker during a query,
and the rows are read again. It also sends texts that are too long or too deep, and makes a backup
of the ledger. At the end it compares the ledger with what the clients were told. An answered
question was charged once, a stopped one was charged, and nothing else was. A repeated operation
gets the same answer.
"""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.load import ASKED, KINDS, _sql, _vault
from bench.page import show

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.served_vault import Service, served

ROWS: Final = 200_000
CLIENTS: Final = 4
PAUSE_S: Final = 0.02  # of a client after each answer: about half of what the service bears
HARM_S: Final = 30.0  # between two kills
LOOK_S: Final = 5.0
EPSILON: Final = Decimal("0.0001")
TRIED_AGAIN: Final = 200
_AT: Final = "/v1/data-sets/people"
_NONSENSE: Final[tuple[object, ...]] = (
    {"sql": "SELECT " + "1 + " * 20_000 + "1 FROM people", "epsilon": 1},
    {"sql": "SELECT COUNT(*) FROM people WHERE " + "(" * 5_000, "epsilon": 1},
    {"sql": "SELECT COUNT(*) FROM people", "epsilon": "NaN"},
    b"{" * 900_000,
)


@dataclass
class Seen:
    """What the clients were told, and what the processes weighed meanwhile."""

    answers: dict[str, object] = field(default_factory=dict)  # by operation
    stopped: list[str] = field(default_factory=list)
    times: list[tuple[float, float]] = field(default_factory=list)  # when, and how long
    statuses: Counter[str] = field(default_factory=Counter)
    weights: list[tuple[float, float, int, int]] = field(default_factory=list)
    backups: int = 0


def run(minutes: float = 10) -> list[dict[str, object]]:
    """Return one line of what was seen; raise where the ledger and the clients differ."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("SFUMATO_BENCH_DIR")) as folder:
        vault, tokens = _vault(Path(folder), ROWS)
        with served(vault) as service:
            owner, before = service.owner(), _spent(service, tokens[0])
            seen = _soaked(service, vault, tokens, 60 * minutes)
            _held(service, tokens, seen, _spent(service, tokens[0]) - before)
            assert service.call("GET", _AT, token=owner)[0] == 200
        command = [sys.executable, "-m", "sfumato", "--vault", str(vault), "ledger", "verify"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return [_line(seen, minutes)]


def _soaked(service: Service, vault: Path, tokens: Sequence[str], seconds: float) -> Seen:
    seen, numbers, begun = Seen(), count(ASKED), time.monotonic()
    is_over = threading.Event()

    def over_and_over(pause_s: float, act: Callable[[], None]) -> None:
        while not is_over.wait(pause_s):
            act()

    def ask(token: str) -> None:
        _ask(service, token, next(numbers), seen, begun)

    with ThreadPoolExecutor(CLIENTS + 2) as threads:
        acts: list[tuple[float, Callable[[], None]]] = [
            *((PAUSE_S, partial(ask, token)) for token in tokens[:CLIENTS]),
            (HARM_S, partial(_harm, service, vault, tokens[CLIENTS], seen)),
            (LOOK_S, partial(_weigh, service, vault, seen, begun)),
        ]
        running = [threads.submit(over_and_over, *act) for act in acts]
        is_over.wait(seconds)
        is_over.set()
        for one in running:
            one.result()
    return seen


def _ask(service: Service, token: str, number: int, seen: Seen, begun: float) -> None:
    """Ask once; whoever is told to wait sends the same operation again."""
    op = f"soak-{number}"
    body = {"sql": _new_sql(number), "epsilon": float(EPSILON), "op": op}
    while True:
        at = time.monotonic()
        status, said = service.call("POST", f"{_AT}/ask", body, token=token)
        code = "" if status == 200 else str(said["refused"]["code"])
        seen.statuses[f"{status} {code}".strip()] += 1
        if status == 200:
            seen.times.append((at - begun, time.monotonic() - at))
            seen.answers[op] = said["rows"]
            return
        if code == "question-failed":
            seen.stopped.append(op)
            return
        time.sleep(0.1)  # told to wait


def _new_sql(number: int) -> str:
    """Return a question that no other number has, for hours: what is asked twice is free."""
    return f"{_sql(number)} AND paid >= {number // KINDS}"


def _harm(service: Service, vault: Path, token: str, seen: Seen) -> None:
    """Kill the worker that reads rows; send nonsense; copy the ledger."""
    for worker in _below(_door(service)):
        os.kill(worker, signal.SIGKILL)
    for body in _NONSENSE:
        status, _ = service.call("POST", f"{_AT}/ask", body, token=token)
        assert 400 <= status < 500, status
    with (
        closing(sqlite3.connect(f"file:{vault / 'ledger.sqlite'}?mode=ro", uri=True)) as ledger,
        closing(sqlite3.connect(":memory:")) as copy,
    ):
        ledger.backup(copy)
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    seen.backups += 1


def _weigh(service: Service, vault: Path, seen: Seen, begun: float) -> None:
    keeper = int(service.process.pid)
    parts = [keeper, *_below(keeper)]
    weight = sum(_memory_mb(part) for part in parts)
    files = sum(len(list(Path(f"/proc/{part}/fd").iterdir())) for part in parts)
    log = vault / "ledger.sqlite-wal"
    wal = log.stat().st_size if log.exists() else 0
    seen.weights.append((time.monotonic() - begun, weight, files, wal))


def _held(service: Service, tokens: Sequence[str], seen: Seen, spent: Decimal) -> None:
    paid = len(seen.answers) + len(seen.stopped)
    if spent != paid * EPSILON:
        raise AssertionError(f"{spent} was charged for {paid} questions at {EPSILON}")
    for op in list(seen.answers)[:: max(1, len(seen.answers) // TRIED_AGAIN)]:
        said = [
            service.call("GET", f"/v1/questions/{op}", token=token)[1].get("rows")
            for token in tokens[:CLIENTS]
        ]
        if seen.answers[op] not in said:
            raise AssertionError(f"{op} was told another answer")


def _line(seen: Seen, minutes: float) -> dict[str, object]:
    third = 20 * minutes
    late = [weight for weight in seen.weights if weight[0] > third]
    slope, _ = np.polyfit([weight[0] for weight in late], [weight[1] for weight in late], 1)
    files = [weight[2] for weight in late]
    first = [took for at, took in seen.times if at < third]
    last = [took for at, took in seen.times if at > 2 * third]
    return {
        "minutes": minutes,
        "answered": len(seen.answers),
        "stopped, and paid": len(seen.stopped),
        "kills and backups": seen.backups,
        "MB": max(weight[1] for weight in late),
        "MB more in 10 min": 600 * float(slope),
        "open files": f"{min(files)} to {max(files)}",
        "log of the ledger, MB": max(weight[3] for weight in seen.weights) / 1e6,
        "p99 ms, first third": 1000 * float(np.quantile(first, 0.99)),
        "p99 ms, last third": 1000 * float(np.quantile(last, 0.99)),
        "refused": dict(seen.statuses - Counter({"200": seen.statuses["200"]})),
    }


def _spent(service: Service, token: str) -> Decimal:
    _, said = service.call("GET", f"{_AT}/budget", token=token)
    found: Any = said["spent"]["epsilon"]
    return Decimal(str(found)).quantize(Decimal("1e-9"))


def _door(service: Service) -> int:
    """Return the process that holds the ledger: of the keeper's two, the one that has a worker."""
    parts = _below(int(service.process.pid))
    return max(parts, key=lambda part: len(_below(part)))


def _below(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def _memory_mb(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument(
        "--page", action="store_true", help="also write the table into docs/reference/figures.md"
    )
    asked = parser.parse_args()
    show("soak", "python -m bench.soak", lambda: run(asked.minutes), asked.page)


if __name__ == "__main__":
    main()
