"""Streams at the door: a canary in each period of many streams, closed one after the other.

Each stream counts the rows of its own, so that nobody is in two. A canary brings more rows than
count for one person, to a period and to the next: the next one has to count none of them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from sfumato.lab.audit.claim import Claim
from sfumato.lab.audit.door import Canaries, Seen, read_toml, written
from sfumato.lab.audit.fits import OTHERS
from sfumato.lab.audit.one_run import ENOUGH, OneRunClaim, coins

PERIODS: Final = 38  # of a stream: so few that each has one block of its own, and one draw
EXTRA: Final = PERIODS + 1  # the last one has no canary, only what is left of the one before
ROWS: Final = 2  # that count for a person, over all periods together
BROUGHT: Final = 3  # rows of a canary in its own period, and as many in the next
FIRST: Final = date(2020, 1, 1)
TWINS: Final = 1900  # keys of the twin: each costs a closing, and fewer than all do


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
    is_in = coins(max(keys, ENOUGH), canaries.dice)[:keys]
    name = f"streamed{len(canaries.others)}"
    canaries.put_once(name, lambda _, name: _put(canaries, name, is_in))
    found: dict[Hashable, list[object]] = {}
    for stream in range(-(-keys // PERIODS)):
        counts = _counts(canaries, name, stream, epsilon)
        for place in range(min(PERIODS, keys - stream * PERIODS)):
            found[stream * PERIODS + place] = counts[place : place + 2]
    return Seen(found, is_in)


def _counts(canaries: Canaries, name: str, stream: int, epsilon: int) -> list[object]:
    """Return what each period of a stream adds to its running count."""
    sql = (
        f"SELECT date_trunc('day', day) AS day, RUNNING_COUNT(*) AS n FROM {name} "
        f"WHERE s = {stream} GROUP BY day"
    )
    canaries.vault.open_stream(
        name, f"s{stream}", sql, start=str(FIRST), periods=EXTRA, rows=ROWS, epsilon=epsilon
    )
    canaries.vault.close_days(name, f"s{stream}", until=str(_day(EXTRA - 1)))
    shown = canaries.vault[name].stream(f"s{stream}")
    so_far = [cast("int", row[1]) for row in shown.rows]
    return list(np.diff([0, *so_far]).tolist())


def _day(place: int) -> date:
    return FIRST + timedelta(days=place)


def _put(canaries: Canaries, name: str, is_in: NDArray[np.bool_]) -> NDArray[np.bool_]:
    start = (3 + len(canaries.others)) * OTHERS
    rows = (
        (f"d{start + key}", key // PERIODS, _day(key % PERIODS + later))
        for key in np.flatnonzero(is_in).tolist()
        for later in (0, 1)
        for _ in range(BROUGHT)
    )
    source = written(canaries.folder / f"{name}.csv", ("who", "s", "day"), rows)
    canaries.vault.add(name, source, read_toml(_CARD % (name, -(-len(is_in) // PERIODS))))
    return is_in


_CARD: Final = """
unit = "who"
people = "%s"
version = "1"
budget = { epsilon = 1000 }
max_rows = 10
[columns.s]
type = "integer"
lower = 0
upper = %d
[columns.day]
type = "date"
lower = 2020-01-01
upper = 2020-12-31
"""

STREAMS: Final = (Streamed("a stream"),)
