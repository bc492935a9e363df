"""Whoever talks to two interactive mechanisms at once learns no more than their price says.

The best asker is found by going through all of them: messages are bits, and rounds are two.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from random import Random
from typing import Final

import pytest

Past = tuple[int, ...]  # question, answer, question, answer
Chances = Mapping[tuple[int, Past, int], float]  # bit, past, question -> chance of the answer 1
ROUNDS: Final = 2
BITS: Final = (0, 1)


def some_mechanism(rng: Random, spread: float) -> Chances:
    """Return a mechanism whose answers hang on the bit, by a little or by much."""
    pasts = [past for n in range(ROUNDS) for past in product(BITS, repeat=2 * n)]
    made: dict[tuple[int, Past, int], float] = {}
    for past, question in product(pasts, BITS):
        at = rng.choice((0.0, rng.random(), rng.random()))
        for bit in BITS:
            made[bit, past, question] = min(1.0, max(0.0, at + rng.uniform(0, spread) * bit))
    return made


def worst(several: Sequence[Chances], epsilon: float) -> float:
    """Return the delta at epsilon of the asker who talks to all of them as is best for them."""
    return _best(several, [()] * len(several), (1.0, 1.0), epsilon)


def _best(
    several: Sequence[Chances], pasts: list[Past], chances: tuple[float, float], epsilon: float
) -> float:
    """Return the most of P - exp(epsilon) P' from here on, P being the chance at bit 1."""
    zero, one = chances
    moves = [m for m, past in enumerate(pasts) if len(past) < 2 * ROUNDS]
    if not moves:
        return max(0.0, one - math.exp(epsilon) * zero)
    found = 0.0
    for m, question in product(moves, BITS):
        whole = 0.0
        for answer in BITS:
            after = []
            for bit, chance in enumerate(chances):
                up = several[m][bit, pasts[m], question]
                after.append(chance * (up if answer else 1 - up))
            next_ = [*pasts[:m], (*pasts[m], question, answer), *pasts[m + 1 :]]
            whole += _best(several, next_, (after[0], after[1]), epsilon)
        found = max(found, whole)
    return found


def turned(mechanism: Chances) -> Chances:
    """Return the mechanism with the bit the other way round."""
    return {(1 - bit, past, q): chance for (bit, past, q), chance in mechanism.items()}


def delta_of(mechanism: Chances, epsilon: float) -> float:
    """Return the delta at epsilon of a mechanism by itself, both ways."""
    return max(worst([one], epsilon) for one in (mechanism, turned(mechanism)))


def response(epsilon: float, delta: float) -> list[tuple[float, float]]:
    """Return the chances at either bit of: surely 0, likely 0, likely 1, surely 1."""
    likely = (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
    rest = 1 - delta - likely
    return [(delta, 0.0), (likely, rest), (rest, likely), (0.0, delta)]


def delta_of_responses(prices: Sequence[tuple[float, float]], epsilon: float) -> float:
    """Return the delta at epsilon of randomised responses of these prices together."""
    whole = 0.0
    for outcome in product(*(response(*price) for price in prices)):
        zero, one = (math.prod(side) for side in zip(*outcome, strict=True))
        whole += max(0.0, one - math.exp(epsilon) * zero)
    return whole


@pytest.mark.parametrize("seed", range(12))
def test_talking_to_two_at_once_tells_no_more_than_two_randomised_responses(seed: int) -> None:
    rng = Random(seed)
    several = [some_mechanism(rng, rng.choice((0.1, 0.5))) for _ in range(2)]
    prices = [(epsilon, delta_of(m, epsilon)) for m in several for epsilon in [rng.random()]]
    for epsilon in (0.0, 0.4, prices[0][0] + prices[1][0]):
        seen = max(worst(several, epsilon), worst([turned(m) for m in several], epsilon))
        assert seen <= delta_of_responses(prices, epsilon) + 1e-12
    assert worst(several, 0.0) > 0


def test_a_randomised_response_attains_its_price() -> None:
    chances = {
        (bit, past, question): 0.75 if bit else 0.25
        for bit in BITS
        for past in [(), *product(BITS, repeat=2)]
        for question in BITS
    }
    assert delta_of(chances, 2 * math.log(3)) == pytest.approx(0)  # two answers of ln 3 each
    assert delta_of(chances, 1.9 * math.log(3)) > 0.01


def test_two_that_share_a_coin_tell_together_what_neither_tells_alone() -> None:
    """One says the coin, the other the bit beside it: why every mechanism draws its own."""
    said = {bit: [(coin, coin ^ bit) for coin in BITS] for bit in BITS}
    for m in range(2):
        assert Counter(both[m] for both in said[0]) == Counter(both[m] for both in said[1])
    assert not set(said[0]) & set(said[1])
