"""Consistent shares that sum to one: simplex projection or maximum likelihood.

An unbiased estimate of a share may be negative. Both methods here are post-processing and cost
nothing. The projection never increases the squared error, but its result is biased. So the
intervals of `estimate` apply only to the estimate before projection.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.local.frequency_oracle import Floats, Oracle, Tally
from sfumato.dp.refusal import Refused

LIKELIEST: Final = ("binary", "hadamard", "k-ary", "projective", "waves")
LARGEST: Final = 1 << 11  # most answers, because EM needs the full table of probabilities
_ROUNDS: Final = 20_000


def nearest(shares: Floats) -> Floats:
    """Return the non-negative shares with sum one that are nearest to the estimated shares.

    This is the Euclidean projection onto the simplex.
    """
    falling = np.sort(shares)[::-1]
    spare = (np.cumsum(falling) - 1) / np.arange(1, len(shares) + 1)
    kept = int(np.flatnonzero(falling > spare)[-1])
    return np.asarray(np.maximum(shares - spare[kept], 0.0))


def likeliest(tally: Tally, *, close: float = 1e-7) -> Floats:
    """Return the maximum likelihood shares of a tally, by expectation maximisation (EM).

    The tally must count each possible report by itself. The oracles of the kinds binary, hadamard,
    k-ary, projective and waves do. EM stops when a step changes the shares by less than `close` in
    total.
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
    """Return the matrix of report probabilities, for the maximum likelihood shares.

    It has one row per answer and one column per report. Oracles whose counts do not hold each whole
    report are refused.
    """
    if oracle.parameters["kind"] not in LIKELIEST or oracle.size > LARGEST:
        raise Refused(
            "bad-request",
            "Maximum likelihood does not support this randomiser, or one with so many answers.",
            "Use simplex_projection.nearest instead, which takes any estimated shares.",
        )
    law = oracle.law
    return np.array(
        [[float(says[what]) for what in sorted(says)] for _, says in sorted(law.items())]
    )
