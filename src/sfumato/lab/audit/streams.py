"""Streams at the door: canaries in each period of many streams, closed one after the other.

Each stream counts the rows of its own, so that nobody is in two. A canary brings more rows than
count for one person, to a period and to the next: the next one has to count none of them. Half of
the way a new version comes, in which everybody has another number, and the rows are the same.

A closing releases one number with one draw, and takes a while; so a few canaries share it. Far out,
beyond what all of them bring together, each chance falls by the same factor whoever is there: a
guess from there is as sure about each of them as if they were alone, and elsewhere nobody guesses.
Their coins are one by one, and the bound of one run holds however releases tie them together.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from typing import Final, cast

import numpy as np

from sfumato.lab.audit.canaries import Canaries, Placed, Seen, Table, between
from sfumato.lab.audit.claim import Claim
from sfumato.lab.audit.one_run import ENOUGH, OneRunClaim

TOGETHER: Final = 2  # canaries of a period: with more, two periods at once say too little of one
PERIODS: Final = 38  # of a stream: so few that each has one block of its own, and one draw
IN_ONE: Final = TOGETHER * PERIODS  # canaries of a stream
HALF: Final = PERIODS // 2  # of which are closed on the first version
EXTRA: Final = PERIODS + 1  # the last one has no canary, only what is left of the one before
ROWS: Final = 2  # that count for a person, over all periods together
BROUGHT: Final = 3  # rows of a canary in its own period, and as many in the next
FIRST: Final = date(2020, 1, 1)
STRANGERS: Final = 100  # enough that nearly everybody's number is another one
TWINS: Final = 30 * IN_ONE  # keys of the twin: caught with fewer, it is caught with all


@dataclass(frozen=True)
class Streamed:
    """Streams of one price each; nothing of them is a question."""

    name: str
    epsilon: int = 1
    factor: int = 2
    is_short: bool = False

    @property
    def claim(self) -> Claim:
        """Return the price of a stream, which is all that a person pays."""
        return OneRunClaim(float(self.epsilon))

    def seen(self, canaries: Canaries, factor: int) -> Seen:
        """Return what each canary's period adds to the count, and the next one."""
        return closed(canaries, factor * self.epsilon, TWINS if factor > 1 else ENOUGH)


def closed(canaries: Canaries, epsilon: int, keys: int) -> Seen:
    """Return what is released of so many canaries by streams of that price."""
    name = f"streamed{len(canaries.others)}"
    placed = canaries.put_once(name, keys, partial(_by_day, name, 1))
    streams = range(-(-keys // IN_ONE))
    for stream in streams:
        _open(canaries, name, stream, epsilon)
        canaries.vault.close_days(name, f"s{stream}", until=str(_day(HALF - 1)))
    _by_day(name, 2, placed).put(canaries.vault, canaries.folder, name)
    found: dict[Hashable, list[object]] = {}
    for stream in streams:
        canaries.vault.close_days(name, f"s{stream}", until=str(_day(EXTRA - 1)))
        counts = _counts(canaries, name, stream)
        for key in range(stream * IN_ONE, min((stream + 1) * IN_ONE, keys)):
            own = key % IN_ONE // TOGETHER
            found[key] = counts[own : own + 2]
    return Seen(found, placed.is_in)


def _open(canaries: Canaries, name: str, stream: int, epsilon: int) -> None:
    sql = (
        f"SELECT date_trunc('day', day) AS day, RUNNING_COUNT(*) AS n FROM {name} "
        f"WHERE s = {stream} GROUP BY day"
    )
    canaries.vault.open_stream(
        name, f"s{stream}", sql, start=str(FIRST), periods=EXTRA, rows=ROWS, epsilon=epsilon
    )


def _counts(canaries: Canaries, name: str, stream: int) -> list[object]:
    """Return what each period of a stream adds to its running count."""
    shown = canaries.vault[name].stream(f"s{stream}")
    so_far = [cast("int", row[1]) for row in shown.rows]
    return list(np.diff([0, *so_far]).tolist())


def _day(place: int) -> date:
    return FIRST + timedelta(days=place)


def _by_day(name: str, version: int, placed: Placed) -> Table:
    """Return the canaries' rows; in later versions strangers come before them, of no stream."""
    unused = len(placed.is_in) // IN_ONE + 1
    # of this data set alone: the same people in two would share one budget
    others = range(placed.first, placed.first + STRANGERS * (version - 1))
    strangers = ((f"a{n}", unused, FIRST) for n in others)
    rows = (
        (f"d{placed.first + key}", key // IN_ONE, _day(key % IN_ONE // TOGETHER + later))
        for key in placed.here
        for later in (0, 1)
        for _ in range(BROUGHT)
    )
    columns = {"s": between(0, unused), "day": between(FIRST, date(2020, 12, 31), "date")}
    terms = {"version": str(version), "max_rows": 2 * BROUGHT}
    return Table(name, columns, (*strangers, *rows), terms)


STREAMS: Final = (Streamed("a stream"),)
