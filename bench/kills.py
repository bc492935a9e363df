"""Count answers while the process that reads rows is killed: `python -m bench.kills`.

Four clients ask new counts of 200,000 rows as fast as they are answered. The bench runs once
without kills, and once while every process that reads rows is killed every few seconds. A third
of the questions group by a column, so that a kill often happens during a read. At the end the
bench compares the ledger with what the clients were told.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Final

from bench.load import ASKED, _sql_by_ward, _vault
from bench.soak import _below, _door, _new_sql, _spent

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.served_vault import Service, served

ROWS: Final = 200_000
CLIENTS: Final = 4
EVERY_S: Final = 6.0
EPSILON: Final = Decimal("0.0001")
_AT: Final = "/v1/data-sets/people"


@dataclass
class Told:
    """What the clients were told, and how often readers were killed."""

    codes: Counter[str] = field(default_factory=Counter)
    kills: int = 0


def run(seconds: float = 60, every_s: float = EVERY_S) -> list[dict[str, object]]:
    """Return a line without kills and one with them; raise where the ledger says otherwise."""
    lines = []
    for pause_s in (None, every_s):
        with tempfile.TemporaryDirectory(dir=os.environ.get("SFUMATO_BENCH_DIR")) as folder:
            vault, tokens = _vault(Path(folder), ROWS)
            with served(vault) as service:
                service.owner()
                before = _spent(service, tokens[0])
                told = _asked(service, tokens[:CLIENTS], seconds, pause_s)
                spent = _spent(service, tokens[0]) - before
            command = [sys.executable, "-m", "sfumato", "--vault", str(vault), "ledger", "verify"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        answered, failed = told.codes["200"], told.codes["question-failed"]
        lines.append(
            {
                "kills": told.kills,
                "asked": told.codes.total(),
                "answered": answered,
                "share": answered / told.codes.total(),
                "others": dict(told.codes - Counter({"200": answered})),
                "answered or failed, and not charged": answered + failed - int(spent / EPSILON),
            }
        )
    return lines


def _asked(service: Service, tokens: Sequence[str], seconds: float, pause_s: float | None) -> Told:
    told, numbers, is_over = Told(), count(ASKED), threading.Event()

    def ask(token: str) -> None:
        while not is_over.is_set():
            number = next(numbers)
            sql = _sql_by_ward(number) if number % 3 == 0 else _new_sql(number)
            body = {"sql": sql, "epsilon": float(EPSILON), "op": f"kills-{number}"}
            status, said = service.call("POST", f"{_AT}/ask", body, token=token)
            told.codes["200" if status == 200 else str(said["refused"]["code"])] += 1

    def kill() -> None:
        while not is_over.wait(pause_s):
            for worker in _below(_door(service)):
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
                    told.kills += 1

    with ThreadPoolExecutor(CLIENTS + 1) as threads:
        running = [threads.submit(ask, token) for token in tokens]
        if pause_s is not None:
            running.append(threads.submit(kill))
        is_over.wait(seconds)
        is_over.set()
        for one in running:
            one.result()
    return told


def main() -> None:
    """Print the two lines."""
    parser = argparse.ArgumentParser(prog="python -m bench.kills", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=EVERY_S, help="seconds between two kills")
    asked = parser.parse_args()
    for line in run(asked.seconds, asked.every):
        print(line)


if __name__ == "__main__":
    main()
