"""Audit streams end to end: running counts with canaries in each period, closed one by one.

Each stream counts only its own rows, so nobody is in two streams. A canary adds more rows than the
contribution bounds allow, to its own period and to the next one, which must count none of them.
Halfway, a new version of the data set arrives: the rows stay, and everybody's internal number
changes.

Closing a period is slow and releases one number with one noise draw, so a few canaries share a
period. In the tails, beyond the sum of their contributions, all probabilities fall by the same
factor whoever is present. A guess from there is as certain about each canary as if it were alone;
elsewhere the guess abstains. Each canary has its own coin, and the one-run bound holds however a
release correlates them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from typing import Final, cast

import numpy as np

from sfumato.lab.audit.canaries import Canaries, CanaryFlips, CanaryReleases, Table, between
from sfumato.lab.audit.one_run_audit import ENOUGH, OneRunClaim
from sfumato.lab.audit.privacy_claim import Claim

CANARIES_A_PERIOD: Final = (
    2  # canaries per period: with more, two periods reveal too little of each
)
# number of periods with canaries per stream; few, so that each has its own noise draw
PERIODS: Final = 38
IN_ONE: Final = CANARIES_A_PERIOD * PERIODS  # canaries per stream
HALF: Final = PERIODS // 2  # number of periods that are closed on the first version
# number of all periods; the last one has only rows of the canaries before it
EXTRA: Final = PERIODS + 1
ROWS: Final = 2  # the contribution bound: the rows of a person that count, over all periods
BROUGHT: Final = 3  # the rows of a canary in its own period, and again in the next period
FIRST: Final = date(2020, 1, 1)
# number of new people in version 2; they change nearly all internal numbers of people
STRANGERS: Final = 100
# the number of keys for the twin; if fewer catch it, all keys do, too
CONTROL_KEYS: Final = 30 * IN_ONE


@dataclass(frozen=True)
class Streamed:
    """An end-to-end audit of running-count streams with canaries, all at the same price."""

    name: str
    epsilon: int = 1
    factor: int = 2
    is_short: bool = False

    @property
    def claim(self) -> Claim:
        """Return the audited claim: the price of a stream, which is all that a person pays."""
        return OneRunClaim(float(self.epsilon))

    def release(self, canaries: Canaries, factor: int) -> CanaryReleases:
        """Return the increases of the running count in each canary's period and in the next one."""
        return closed(canaries, factor * self.epsilon, CONTROL_KEYS if factor > 1 else ENOUGH)


def closed(canaries: Canaries, epsilon: int, keys: int) -> CanaryReleases:
    """Open and close streams that each cost `epsilon`; return what is released of each canary.

    `keys` is the number of canaries.
    """
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
            own = key % IN_ONE // CANARIES_A_PERIOD
            found[key] = counts[own : own + 2]
    return CanaryReleases(found, placed.is_in)


def _open(canaries: Canaries, name: str, stream: int, epsilon: int) -> None:
    sql = (
        f"SELECT date_trunc('day', day) AS day, RUNNING_COUNT(*) AS n FROM {name} "
        f"WHERE s = {stream} GROUP BY day"
    )
    canaries.vault.open_stream(
        name, f"s{stream}", sql, start=str(FIRST), periods=EXTRA, rows=ROWS, epsilon=epsilon
    )


def _counts(canaries: Canaries, name: str, stream: int) -> list[object]:
    """Return the increase of the stream's running count in each of its periods."""
    shown = canaries.vault[name].stream(f"s{stream}")
    so_far = [cast("int", row[1]) for row in shown.rows]
    return list(np.diff([0, *so_far]).tolist())


def _day(place: int) -> date:
    return FIRST + timedelta(days=place)


def _by_day(name: str, version: int, placed: CanaryFlips) -> Table:
    """Return a table of the canaries' rows, by stream and day, for one version of the data set.

    Later versions begin with new people, who are in no stream.
    """
    unused = len(placed.is_in) // IN_ONE + 1
    # people of this data set alone, because the same people in two would share one budget
    others = range(placed.first, placed.first + STRANGERS * (version - 1))
    strangers = ((f"a{n}", unused, FIRST) for n in others)
    rows = (
        (f"d{placed.first + key}", key // IN_ONE, _day(key % IN_ONE // CANARIES_A_PERIOD + later))
        for key in placed.here
        for later in (0, 1)
        for _ in range(BROUGHT)
    )
    columns = {"s": between(0, unused), "day": between(FIRST, date(2020, 12, 31), "date")}
    terms = {"version": str(version), "max_rows": 2 * BROUGHT}
    return Table(name, columns, (*strangers, *rows), terms)


STREAMS: Final = (Streamed("a stream"),)
