"""Measure how long one user waits while two others flood the queue: `python -m bench.floods`.

Each question sums up 200,000 rows by 97 keys. The third user asks one after another, alone first;
then while two others hold fifty waiting and two at work each. The times are the third user's.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Final

from bench.load import ASKED, Told, _sql_by_ward, _vault

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.served_vault import served

ROWS: Final = 200_000
FLOOD: Final = 52  # two at work and fifty that wait
ASKS: Final = 100  # of the third user
_AT: Final = "/v1/data-sets/people/ask"


def run(asks: int = ASKS) -> list[dict[str, object]]:
    """Return the third user's times alone, and during two floods."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("SFUMATO_BENCH_DIR")) as folder:
        vault, tokens = _vault(Path(folder), ROWS)
        with served(vault) as service:
            numbers = count(ASKED)

            def ask(token: str) -> str:
                body = {"sql": _sql_by_ward(next(numbers)), "epsilon": 0.0001}
                status, said = service.call("POST", _AT, body, token=token)
                return "200" if status == 200 else str(said["refused"]["code"])

            for _ in range(10):
                ask(tokens[2])
            alone = _timed(lambda: ask(tokens[2]), asks)
            beside, others = _beside_floods(tokens, ask, asks)
    lines = [_line("alone", alone), _line("beside two floods", beside)]
    ratio = beside[0].at(0.99) / alone[0].at(0.99)
    lines[1] |= {"floods": dict(others), "p99 over p99 alone": round(ratio, 2)}
    return lines


def _beside_floods(
    tokens: list[str], ask: Callable[[str], str], asks: int
) -> tuple[tuple[Told, Counter[str]], Counter[str]]:
    is_over, others = threading.Event(), Counter[str]()

    def flood(token: str) -> None:
        while not is_over.is_set():
            others[ask(token)] += 1

    with ThreadPoolExecutor(2 * FLOOD) as threads:
        for token in tokens[:2]:
            for _ in range(FLOOD):
                threads.submit(flood, token)
        while others.total() < FLOOD:
            time.sleep(0.1)
        beside = _timed(lambda: ask(tokens[2]), asks)
        is_over.set()
    return beside, others


def _timed(ask: Callable[[], str], asks: int) -> tuple[Told, Counter[str]]:
    told, codes = Told(), Counter[str]()
    for _ in range(asks):
        begun = time.monotonic()
        codes[ask()] += 1
        told.times_ms.append(1000 * (time.monotonic() - begun))
    return told, codes


def _line(what: str, timed: tuple[Told, Counter[str]]) -> dict[str, object]:
    told, codes = timed
    return {
        "third user": what,
        "p50 ms": round(told.at(0.5), 1),
        "p99 ms": round(told.at(0.99), 1),
        "told": dict(codes),
    }


def main() -> None:
    """Print the two lines."""
    parser = argparse.ArgumentParser(prog="python -m bench.floods", description=__doc__)
    parser.add_argument("--asks", type=int, default=ASKS)
    for line in run(parser.parse_args().asks):
        print(line)


if __name__ == "__main__":
    main()
