"""AVG(expression): a noisy sum, counted from the middle of the public bounds, over a noisy count.

The bounds are L and U, in steps. Adding or removing a row changes the sum of 2v - (L+U) by at most
U - L. It changes the count of values by 1. The mean is (L+U)/2 + sum/(2 count). It is
post-processing of sum and count, clamped to the public range. The number of values stays private.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfumato.dp.confidence.ratio_of_integers import Spread, ratio_interval
from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.refusal import Refused
from sfumato.dp.sensitivity import of_centred_sum, of_count
from sfumato.query.aggregates.aggregate import (
    AggregateKind,
    AskedAggregate,
    Estimate,
    Floats,
    NoisyPart,
    Part,
    Smooth,
    check_number,
    check_sides,
)
from sfumato.query.aggregates.result_ranges import Range
from sfumato.query.aggregates.taylor_intervals import Taylor
from sfumato.query.measure import Tally


def _check(asked: AskedAggregate) -> None:
    check_sides(asked, 1)
    check_number(asked, asked.operand)
    if asked.operand.lower >= asked.operand.upper:
        raise Refused(
            "type-mismatch",
            f"{asked.in_words()!r} is the same number for everyone.",
            "Leave this mean out: it is known without a question.",
        )


def _parts(asked: AskedAggregate) -> tuple[Part, ...]:
    side = asked.operand
    lower, upper = side.lower, side.upper
    centred = Tally("sum", side.physical, scale=2, offset=-(lower + upper))
    counted = Tally("values", side.physical)
    name = asked.in_words()
    return (
        Part(f"sum of {name} about its middle", centred, of_centred_sum(lower, upper)),
        Part(f"count of {name}", counted, of_count()),
    )


def _finish(asked: AskedAggregate, parts: Sequence[NoisyPart]) -> Estimate:
    centred, counted = parts
    side = asked.operand
    lower, upper = side.lower, side.upper
    half, middle, step = (upper - lower) / 2, (lower + upper) / 2, float(side.step)
    top = centred.values.astype(np.float64) / 2
    bottom = counted.values.astype(np.float64)
    spread = _spread(centred.spread(), counted.spread())
    low, high = ratio_interval(top, bottom, spread, lower=-half, upper=half)
    shift = np.where(bottom >= 1, np.clip(top / np.maximum(bottom, 1), -half, half), 0.0)
    std = _std(shift, bottom, centred.spread(), counted.spread())
    return Estimate(
        ((middle + shift) * step).tolist(),
        (np.minimum(std, half) * step).tolist(),
        ((middle + low) * step).tolist(),
        ((middle + high) * step).tolist(),
    )


def _spread(top: Noise, bottom: Noise) -> Spread:
    return Spread(bottom.kind, top.width() / 2, bottom.width(), miss=float(bottom.miss()))


def _std(shift: Floats, count: Floats, top: Noise, bottom: Noise) -> Floats:
    """Return the standard deviation of the noisy mean, in steps, from released values only.

    `shift` is the mean's distance from the middle of the public bounds.
    """
    return np.asarray(np.hypot(top.std() / 2, shift * bottom.std()) / np.maximum(count, 1.0))


def _margin(asked: AskedAggregate, noises: Sequence[Noise], size: int | None) -> float | None:
    """Predict half the 95 % interval of the mean, for a group of `size` people.

    The prediction assumes a mean that is a quarter of the range off the middle. The size is an
    assumption of the asker or the card, never read from the rows.
    """
    if size is None:
        return None
    half = (asked.operand.upper - asked.operand.lower) / 2
    shift = half / 2
    top, bottom = np.array([shift * size]), np.array([float(size)])
    low, high = ratio_interval(top, bottom, _spread(noises[0], noises[1]), lower=-half, upper=half)
    return float(high[0] - low[0]) / 2 * float(asked.operand.step)


def _says(asked: AskedAggregate) -> str:
    return f"the mean of {asked.in_words()}"


def _smooth(asked: AskedAggregate) -> Smooth:
    side = asked.operand
    middle, step = (side.lower + side.upper) / 2, float(side.step)

    def of(parts: Sequence[Taylor]) -> Range:
        return parts[0].over(parts[1]).scaled(step / 2).shifted(middle * step)

    return Smooth(of, (0.0, 0.0))


MEAN = AggregateKind(_check, _parts, _finish, _margin, _says, smooth=_smooth)
