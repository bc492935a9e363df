"""Estimate the mean of randomised numbers on a grid, with an interval valid for any sample size.

Each report gives unbiased estimates of its number and of whether there was one. For a ratio r, the
estimate of (number - r * answered) has mean 0 if r is the true mean. With many reports Fieller's
interval is used (dp/local/mean_estimation.py). With few, the observed variance is unreliable: a
report that one in fifty would send may not have come yet. Then the interval is all r that
Bernstein's bound does not exclude, with the largest variance that any numbers could have. That
interval is conservative: it never covers too little, and is wider than necessary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import log
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.local.mean_estimation import Mean, NumberTally, estimate_mean
from sfumato.dp.local.numeric_response import Line, Numbers

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
_PLACES: Final = 401
# Fieller's interval needs a total variance of so many squared largest deviations
_OFTEN: Final = 200


def mean_of(tally: NumberTally, confidence: float) -> Mean:
    """Estimate the mean, with its interval, from a tally of at least two people."""
    found = estimate_mean(tally, confidence)
    squares = tally.people * (found.response_rate * found.std) ** 2 * tally.people
    if (
        found.response_rate > 0
        and squares >= _OFTEN * _widest(tally.oracle, np.array([found.mean]))[0] ** 2
    ):
        return found
    low, high = _bounded(tally, confidence)
    return replace(found, low=min(low, found.mean), high=max(high, found.mean))


def _bounded(tally: NumberTally, confidence: float) -> tuple[float, float]:
    """Return an interval for the mean of few reports: all means that Bernstein's bound allows.

    The ends are in steps of the question's grid.
    """
    steps, (total, gave) = float(tally.oracle.steps), _sums(tally)
    likely = min(max(total / gave, 0.0), steps) if gave > 0 else steps / 2

    def are_allowed(ratios: Floats) -> Booleans:
        seen = np.abs(total - ratios * gave) / tally.people
        wrong = log(2 / (1 - confidence)) / tally.people
        third = _widest(tally.oracle, ratios) * wrong / 3
        spread = _variance(tally.oracle, ratios)
        return np.asarray(seen <= third + np.sqrt(third**2 + 2 * spread * wrong))

    ends = [_furthest(are_allowed, likely, end) for end in (0.0, steps)]
    if None in ends:
        return 0.0, steps
    low, high = (end for end in ends if end is not None)
    return low, high


def _furthest(are_allowed: Callable[[Floats], Booleans], start: float, end: float) -> float | None:
    """Return one end of an interval: the last mean from `start` to `end` that is allowed.

    The value is rounded outwards. The result is None if `are_allowed` accepts no mean.
    """
    for _ in range(2):  # first on a coarse grid, then on a fine grid after the last allowed value
        places = np.linspace(start, end, _PLACES)
        allowed = np.flatnonzero(are_allowed(places))
        if not len(allowed):
            return None
        last = int(allowed[-1])
        start, end = float(places[last]), float(places[min(last + 1, _PLACES - 1)])
    return end


def _sums(tally: NumberTally) -> tuple[float, float]:
    """Estimate from a tally the sum of all true numbers, and how many people gave a number.

    Both estimates are unbiased. Numbers are in steps of the question's grid.
    """
    total = gave = 0.0
    for line, row in zip(tally.oracle.lines, tally.counts, strict=True):
        people, silent, places, _ = (float(count) for count in row)
        truth, middle = float(line.truth), float(line.middle)
        there = people * (1 + float(line.silence) / truth) - silent / truth
        gave += there
        total += (places - people * float(line.rest)) / truth - middle * there
    return total, gave


def _variance(oracle: Numbers, ratios: Floats) -> Floats:
    """Return, for each ratio, the largest variance of a report's estimate of (number - ratio).

    It is the largest over all true numbers whose mean is the ratio. The variance is a quadratic
    function of the number. If the function is convex, the mean variance is largest with numbers at
    both ends; if it is concave, with all numbers at the mean. "No answer" is the third candidate.
    """
    steps = oracle.steps
    low, high, between = (
        sum(float(line.share) * _square(line, at, ratios) for line in oracle.lines)
        for at in (0.0, float(steps), ratios)
    )
    chord = low + (high - low) * ratios / steps
    quiet = sum(float(line.share) * _quiet_square(line, ratios) for line in oracle.lines)
    return np.asarray(np.maximum(np.maximum(chord, between), quiet))


def _square(line: Line, number: float | Floats, ratios: Floats) -> Floats:
    """Return the mean square of one report's estimate of (number - ratio), for a given true number.

    There is one result for each ratio, a candidate for the mean.
    """
    truth, weight, quiet = float(line.truth), float(line.middle) + ratios, float(line.silence)
    a, b, c = map(float, line.squares)
    place = truth * (number + float(line.middle)) + float(line.rest)
    square = truth * (a + b * number + c * number**2) + float(line.rest_squares)
    spread = square + weight**2 * quiet - (place + weight * quiet) ** 2
    return np.asarray(spread / truth**2 + (number - ratios) ** 2)


def _quiet_square(line: Line, ratios: Floats) -> Floats:
    """Return the mean square of one report's estimate of (number - ratio), if it has no answer.

    There is one result for each ratio, a candidate for the mean.
    """
    truth, weight = float(line.truth), float(line.middle) + ratios
    quiet = truth + float(line.silence)
    place = float(line.rest) + weight * quiet
    spread = float(line.rest_squares) + weight**2 * quiet - place**2
    return np.asarray(spread / truth**2)


def _widest(oracle: Numbers, ratios: Floats) -> Floats:
    """Return the largest absolute estimate of (number - ratio) that one report can give.

    There is one result for each ratio, a candidate for the mean. Bernstein's bound needs it.
    """
    furthest = np.zeros(len(ratios))
    for line in oracle.lines:
        truth, weight = float(line.truth), float(line.middle) + ratios
        start = -float(line.rest) - weight * (truth + float(line.silence))
        for said in (start, start + line.last, start + weight):
            furthest = np.maximum(furthest, np.abs(said) / truth)
    return furthest
