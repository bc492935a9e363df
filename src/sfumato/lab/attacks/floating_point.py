"""Distinguish neighbouring counts by the bits of naive float noise (Mironov 2012).

Float noise is the logarithm of one of 2**53 numbers, so most floats are never drawn. Which floats
are possible depends on the true count. A released float that is impossible for a count of 1 comes
from 0. The platform's noise is an integer, and every integer is possible.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.client.plot import Plot
from sfumato.lab.attack import EPSILONS_OPTION, Attack, Setting
from sfumato.lab.attack_report import CONFIDENCE, Report, SuccessRate
from sfumato.lab.line_plot import Axes, Point, curves
from sfumato.lab.platform_noise import private_sums
from sfumato.lab.success_rate_bounds import guessing_bound, interval

Floats = NDArray[np.float64]
Bits = NDArray[np.bool_]
STEPS: Final = 2.0**53  # the generator's uniform numbers are multiples of 1/STEPS
AROUND: Final = 4  # steps tried on both sides, because rounding shifts the step a little
LOOKS: Final = 2000  # number of releases for each epsilon of the plot


def naive_release(counts: NDArray[np.int64], epsilon: float, dice: np.random.Generator) -> Floats:
    """Return counts plus numpy's Laplace noise, as naive code does. It protects nobody."""
    released: Floats = counts + dice.laplace(0.0, 1 / epsilon, counts.shape)
    return released


def could_be(released: Floats, count: float, epsilon: float) -> Bits:
    """Return which released numbers are possible if the true count is `count`, with float noise.

    An impossible number shows that the true count is another one.
    """
    scale = 1 / epsilon
    noise = released - count
    share = np.exp(-np.abs(noise) / scale)
    near = np.rint(np.where(noise > 0, 2 - share, share) / 2 * STEPS)
    found = np.zeros(released.shape, dtype=bool)
    for step in range(-AROUND, AROUND + 1):
        uniform = np.clip(near + step, 1, STEPS - 1) / STEPS
        found |= count + _noise_from(uniform, scale) == released
    return found


def _noise_from(uniform: Floats, scale: float) -> Floats:
    """Return the noise that numpy makes of uniform numbers, by the same float operations."""
    is_upper = uniform >= 0.5
    inner = np.where(is_upper, 2.0 - uniform - uniform, uniform + uniform)
    noise: Floats = np.where(is_upper, -1.0, 1.0) * scale * _logarithm(inner)
    return noise


def _logarithm(uniform: Floats) -> Floats:
    """Return the C library's logarithm, as numpy's generator does; `numpy.log` differs slightly."""
    logs = [math.log(one) for one in uniform.ravel().tolist()]
    return np.array(logs).reshape(uniform.shape)


def lowest_bit(released: Floats) -> NDArray[np.int64]:
    """Return the exponent of the lowest set bit of each number; for zero, a large number."""
    fraction, exponent = np.frexp(released)
    digits = np.abs(fraction * 2.0**53).astype(np.int64)
    lowest = np.where(digits == 0, 4096, np.log2(np.maximum(digits & -digits, 1)).astype(np.int64))
    places: NDArray[np.int64] = lowest + exponent - 53
    return places


def guess_one(released: Floats, epsilon: float) -> Bits:
    """Guess whether each number comes from a count of 1 rather than 0.

    If only one of the counts can produce the number, that one decides; otherwise the nearer one.
    """
    zero, one = could_be(released, 0.0, epsilon), could_be(released, 1.0, epsilon)
    guessed: Bits = np.where(zero != one, one, released >= 1)
    return guessed


def guess_one_by_lowest_bit(released: Floats, epsilon: float) -> Bits:
    """Guess whether each number comes from a count of 1, by its size and its lowest set bit.

    A count of 1 plus float noise has no bits below 2**-53. A number near zero has such bits, unless
    all of them happen to be 0: each halves the probability that it comes from a count of 0.
    """
    _, exponent = np.frexp(released)
    zeros = np.maximum(0, -exponent)  # bits below 2**-53 that the float could have
    likelihood = epsilon * (np.abs(released) - np.abs(released - 1)) + zeros * math.log(2)
    guessed: Bits = (lowest_bit(released) >= -53) & (likelihood > 0)
    return guessed


def _run(setting: Setting) -> Report:
    kinds = (_naive, _naive_by_bit, _ours)
    successes = [kind(setting, epsilon) for kind in kinds for epsilon in setting.epsilons()]
    return Report(
        attack="floats",
        title="Telling a count of 0 from 1 by one noisy number",
        knows="The attacker knows that the count is 0 or 1, how the noise was drawn, and its "
        "epsilon.",
        measure="counts guessed correctly from one released number",
        successes=tuple(successes),
        finding=_finding(successes),
        guessing=0.5,
        pictures=(_curve(setting),),
    )


def _naive(setting: Setting, epsilon: float) -> SuccessRate:
    truths = setting.dice.random(setting.runs) < 0.5
    released = naive_release(truths.astype(np.int64), epsilon, setting.dice)
    hits = int((guess_one(released, epsilon) == truths).sum())
    most = f"promised: {100 * guessing_bound(epsilon):.1f} % at most"
    return SuccessRate(f"float noise, 'epsilon = {epsilon:g}'", hits, setting.runs, note=most)


def _naive_by_bit(setting: Setting, epsilon: float) -> SuccessRate:
    truths = setting.dice.random(setting.runs) < 0.5
    released = naive_release(truths.astype(np.int64), epsilon, setting.dice)
    hits = int((guess_one_by_lowest_bit(released, epsilon) == truths).sum())
    name = f"float noise, 'epsilon = {epsilon:g}', size and lowest bit"
    return SuccessRate(name, hits, setting.runs)


def _ours(setting: Setting, epsilon: float) -> SuccessRate:
    truths = setting.dice.random(setting.runs) < 0.5
    released = private_sums(
        truths.astype(np.int64), sensitivity=1, epsilon=epsilon, dice=setting.dice
    )
    hits = int((guess_one(released.astype(np.float64), epsilon) == truths).sum())
    bound = guessing_bound(epsilon)
    return SuccessRate(f"our noise, epsilon = {epsilon:g}", hits, setting.runs, epsilon, bound)


def _finding(successes: list[SuccessRate]) -> str:
    naive = [one for one in successes if one.epsilon is None]
    ours = [one for one in successes if one.epsilon is not None]
    return (
        f"At epsilon {ours[0].epsilon:g}, one number with float noise reveals the count "
        f"in {naive[0].rate:.0%} of the cases; sfumato's noise does so in "
        f"{ours[0].rate:.0%}. The lowest bits of a float reveal the count; sfumato's "
        "noisy integers have no such bits."
    )


def _curve(setting: Setting) -> Plot:
    """Plot the success rate against epsilon: float noise, our noise, and the theoretical bound."""
    looks = Setting(setting.dice, min(LOOKS, setting.runs))
    points = []
    for epsilon in (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0):
        for line, run in (("float noise", _naive), ("our noise", _ours)):
            one = run(looks, epsilon)
            low, high = interval(one.hits, one.tries, CONFIDENCE)
            points.append(Point(line, epsilon, one.rate, low, high))
        most = guessing_bound(epsilon)
        points.append(Point("the promise", epsilon, most, most, most))
    return curves(
        Axes("One guess from one number", "epsilon", "guessed correctly", {}),
        sorted(points, key=lambda point: (point.line, point.x)),
        says="A mechanism above the line breaks its promise.",
    )


ATTACK: Final = Attack(
    "floats",
    "tell a count of 0 from 1 by the bits of float noise",
    _run,
    runs=5000,
    options=EPSILONS_OPTION,
)
