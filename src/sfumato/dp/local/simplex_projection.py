"""Shares that add up to one: the nearest, or the likeliest. Both are post-processing, and free.

An estimate that is right on average may lie below zero. Moving it to the nearest shares makes its
squared error smaller, never larger, and it is then no longer right on average: the intervals of
`estimate` belong to the estimate as it was.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.local.frequency_oracle import Floats, Oracle, Tally
from sfumato.dp.refusal import Refused

LIKELIEST: Final = ("binary", "hadamard", "k-ary", "projective", "waves")
LARGEST: Final = 1 << 11  # answers: the whole table of chances is needed
_ROUNDS: Final = 20_000


def nearest(shares: Floats) -> Floats:
    """Return the shares of at least zero that add up to one and lie nearest (Euclid)."""
    falling = np.sort(shares)[::-1]
    spare = (np.cumsum(falling) - 1) / np.arange(1, len(shares) + 1)
    kept = int(np.flatnonzero(falling > spare)[-1])
    return np.asarray(np.maximum(shares - spare[kept], 0.0))


def likeliest(tally: Tally, *, close: float = 1e-7) -> Floats:
    """Return the shares under which the counted reports are the likeliest, by expectation steps.

    It takes oracles whose counts are those of whole reports. It stops when nothing moves any more
    by `close` of all people.
    """
    chances = _table(tally.oracle)
    shares = np.full(tally.oracle.size, 1 / tally.oracle.size)
    seen = tally.counts / max(1, tally.people)
    for _ in range(_ROUNDS):
        moved = shares * (chances @ (seen / (shares @ chances)))
        is_still = float(np.abs(moved - shares).sum()) < close
        shares = moved
        if is_still:
            break
    return np.asarray(shares)


def _table(oracle: Oracle) -> NDArray[np.float64]:
    """Return the chance of every report under every answer: a row for each answer."""
    if oracle.parameters["kind"] not in LIKELIEST or oracle.size > LARGEST:
        raise Refused(
            "bad-request", "These counts do not keep whole reports.", "Take the nearest shares."
        )
    law = oracle.law
    return np.array(
        [[float(says[what]) for what in sorted(says)] for _, says in sorted(law.items())]
    )
