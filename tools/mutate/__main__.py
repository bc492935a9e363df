"""Change the source in one place at a time and see that a test fails: python -m tools.mutate.

Verdicts are added to record.jsonl as they come; a run that was stopped goes on where it was.
Who survives needs a test, or a line in explained.toml that says why its meaning is the same.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import zip_longest

from tools.mutate.bench import ROOT, Red, bench
from tools.mutate.mutants import Mutant, mutants
from tools.mutate.record import (
    Line,
    add_line,
    change_of,
    read_explained,
    read_record,
    score_of,
)
from tools.mutate.targets import AREAS, TARGETS, Target

ENOUGH = 0.95  # of the mutants that change the meaning must be noticed
Pair = tuple[Target, Mutant]


def main(arguments: Sequence[str]) -> int:
    """Run the mutants that were asked for and have no verdict; return 1 if too many live."""
    asked = _parser().parse_args(arguments)
    pairs = _wanted(asked)
    if not asked.report:
        _run(pairs, asked)
    return _report(pairs)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.mutate", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="the number of mutants to sample")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the sample")
    parser.add_argument("--area", choices=(*AREAS, "beside"), help="sample from this area only")
    parser.add_argument("--only", help="PATH or PATH:LINE instead of a sample")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="start no mutant after this time"
    )
    parser.add_argument("--again", action="store_true", help="run the surviving mutants again")
    parser.add_argument("--report", action="store_true", help="only print the record")
    return parser


@lru_cache(maxsize=1)
def every() -> tuple[Pair, ...]:
    """Return each target with each of its mutants."""
    return tuple(
        (target, mutant)
        for target in TARGETS
        for mutant in mutants(target.path, (ROOT / target.path).read_bytes())
    )


def sample(pairs: Iterable[Pair], seed: int, count: int, areas: Sequence[str]) -> list[Pair]:
    """Return so many mutants, as many of each area; a smaller sample begins a larger one."""
    ordered = sorted(pairs, key=lambda pair: _place(seed, pair[1]))
    by_area = [[pair for pair in ordered if pair[0].area == area] for area in areas]
    rounds = zip_longest(*by_area)
    return [pair for of_round in rounds for pair in of_round if pair is not None][:count]


def _place(seed: int, mutant: Mutant) -> str:
    return hashlib.sha256(f"{seed} {mutant.key}".encode()).hexdigest()


def _wanted(asked: argparse.Namespace) -> list[Pair]:
    if asked.only is None:
        areas = AREAS if asked.area is None else (asked.area,)
        return sample(every(), asked.seed, asked.count, areas)
    path, _, line = asked.only.partition(":")
    found = [pair for pair in every() if pair[0].path.endswith(path)]
    return [pair for pair in found if not line or pair[1].line == int(line)]


def _run(pairs: Sequence[Pair], asked: argparse.Namespace) -> None:
    record, explained = read_record(), read_explained()
    ends = time.monotonic() + 60 * asked.minutes
    left = [
        (target, mutant)
        for target, mutant in pairs
        if mutant.key not in record
        or (
            asked.again and record[mutant.key].verdict == "survived" and mutant.key not in explained
        )
    ]
    if not left:
        return
    with bench() as made:
        for place, (target, mutant) in enumerate(left, 1):
            if time.monotonic() > ends:
                return
            try:
                verdict, by = made.judge(target, mutant)
            except Red as red:
                print(f"sfumato: {red}", file=sys.stderr)
                continue
            today = datetime.now(UTC).date().isoformat()
            add_line(Line(mutant.key, target.area, verdict, by, today, change_of(mutant)))
            print(
                f"{place}/{len(left)} {verdict} {mutant.path} {change_of(mutant)}  {by}", flush=True
            )


def _report(pairs: Sequence[Pair]) -> int:
    record, explained = read_record(), read_explained()
    print(f"{'area':<12} {'killed':>6} {'same':>5} {'alive':>5} {'to run':>6} {'share':>6}")
    for area in dict.fromkeys(target.area for target, _ in pairs):
        some = [mutant for target, mutant in pairs if target.area == area]
        score = score_of(some, record, explained)
        print(_row(area, score.killed, score.explained, len(score.unexplained), score.unknown))
    whole = score_of((mutant for _, mutant in pairs), record, explained)
    print(_row("all", whole.killed, whole.explained, len(whole.unexplained), whole.unknown))
    for line in whole.unexplained:
        print(f"alive: {line.key}\n       {line.change}")
    return int(whole.share < ENOUGH)


def _row(area: str, killed: int, same: int, alive: int, unknown: int) -> str:
    share = killed / (killed + alive) if killed + alive else 1.0
    return f"{area:<12} {killed:>6} {same:>5} {alive:>5} {unknown:>6} {share:>6.1%}"


if __name__ == "__main__":
    os.nice(max(0, 10 - os.nice(0)))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the copy is removed
    sys.exit(main(sys.argv[1:]))
