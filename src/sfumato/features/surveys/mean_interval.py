"""The mean of numbers that were said on a grid, with an interval that holds however few answered.

Each report says something of its number and of whether there was one; for a ratio r, what it says
of (number - r * there was one) has the mean 0 where r is the true one. Where the deviations of many
reports have evened out, Fieller's interval serves (dp/local/mean_estimation.py). Before that the
deviations that were seen are a guess - nobody may have said yet what one in fifty would say - so
the interval is of all r that Bernstein's bound does not exclude, with the largest variance that any
numbers could give: it never falls short, and is wider than need be.
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
_OFTEN: Final = 200  # evened out: so many times the square of the largest deviation, in all


def mean_of(tally: NumberTally, confidence: float) -> Mean:
    """Return the mean behind a tally of two people or more."""
    found = estimate_mean(tally, confidence)
    squares = tally.people * (found.gave * found.std) ** 2 * tally.people
    if found.gave > 0 and squares >= _OFTEN * _widest(tally.oracle, np.array([found.mean]))[0] ** 2:
        return found
    low, high = _bounded(tally, confidence)
    return replace(found, low=min(low, found.mean), high=max(high, found.mean))


def _bounded(tally: NumberTally, confidence: float) -> tuple[float, float]:
    """Return the ends of all means that Bernstein's bound allows."""
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
    """Return the furthest allowed place on the way, and a little more; None where there is none."""
    for _ in range(2):  # coarsely, then between the last that is allowed and the next
        places = np.linspace(start, end, _PLACES)
        allowed = np.flatnonzero(are_allowed(places))
        if not len(allowed):
            return None
        last = int(allowed[-1])
        start, end = float(places[last]), float(places[min(last + 1, _PLACES - 1)])
    return end


def _sums(tally: NumberTally) -> tuple[float, float]:
    """Return what all reports say of their numbers together, and of how many gave one."""
    total = gave = 0.0
    for line, row in zip(tally.oracle.lines, tally.counts, strict=True):
        people, silent, places, _ = (float(count) for count in row)
        truth, middle = float(line.truth), float(line.middle)
        there = people * (1 + float(line.silence) / truth) - silent / truth
        gave += there
        total += (places - people * float(line.rest)) / truth - middle * there
    return total, gave


def _variance(oracle: Numbers, ratios: Floats) -> Floats:
    """Return for each ratio the largest variance that any numbers with that mean could give.

    Of a number it is a parabola of that number. Where that is hollow, numbers at both ends with the
    mean in question give most; where it is not, the mean itself does; or it is silence.
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
    """Return the mean square of what is said of (number - ratio), where that is the number."""
    truth, weight, quiet = float(line.truth), float(line.middle) + ratios, float(line.silence)
    a, b, c = map(float, line.squares)
    place = truth * (number + float(line.middle)) + float(line.rest)
    square = truth * (a + b * number + c * number**2) + float(line.rest_squares)
    spread = square + weight**2 * quiet - (place + weight * quiet) ** 2
    return np.asarray(spread / truth**2 + (number - ratios) ** 2)


def _quiet_square(line: Line, ratios: Floats) -> Floats:
    """Return the same, where there is no number."""
    truth, weight = float(line.truth), float(line.middle) + ratios
    quiet = truth + float(line.silence)
    place = float(line.rest) + weight * quiet
    spread = float(line.rest_squares) + weight**2 * quiet - place**2
    return np.asarray(spread / truth**2)


def _widest(oracle: Numbers, ratios: Floats) -> Floats:
    """Return the furthest that any report lies from what it means, for each ratio."""
    furthest = np.zeros(len(ratios))
    for line in oracle.lines:
        truth, weight = float(line.truth), float(line.middle) + ratios
        start = -float(line.rest) - weight * (truth + float(line.silence))
        for said in (start, start + line.last, start + weight):
            furthest = np.maximum(furthest, np.abs(said) / truth)
    return furthest
