"""Play the simplest membership attack: guess whether one person is in a count.

The attacker knows everybody else. In each trial a fair coin decides whether the person is counted,
so a blind guess is right half the time. Under epsilon-DP, no guess is right more often than
e^epsilon / (1 + e^epsilon). One count with the platform's noise attains that bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.lab.attack_report import SuccessRate
from sfumato.lab.platform_noise import EPSILONS, private_sums
from sfumato.lab.success_rate_bounds import guessing_bound

Whole = NDArray[np.int64]
Guess = Callable[[Whole, np.random.Generator], Whole]  # rows of counts -> zeros and ones
COIN: Final = 0.5
CELLS: Final = 4_000_000  # counts per chunk, to limit memory


def coin_flips(dice: np.random.Generator, *, runs: int) -> Whole:
    """Flip a fair coin for each trial: 1 if the person is counted, else 0."""
    return dice.integers(0, 2, size=runs, dtype=np.int64)


def by_the_mean(counts: Whole, dice: np.random.Generator) -> Whole:
    """Guess from the mean of each row of counts whether the person is counted.

    The other people are already subtracted from the counts.
    """
    return _told(counts.mean(axis=1) - COIN, dice)


def by_the_votes(counts: Whole, dice: np.random.Generator) -> Whole:
    """Guess by a majority vote: are most of a row's counts likelier with the person than without?

    For independent counts with the same noise, no guess is better.
    """
    return _told((counts >= 1).mean(axis=1) - COIN, dice)


@dataclass(frozen=True)
class Look:
    """An attack on a count: how many noisy counts share one epsilon, and how to guess from them."""

    counts: int = 1
    guess: Guess = by_the_votes

    def hits(self, dice: np.random.Generator, *, epsilon: float, runs: int) -> int:
        """Return how many of the attack's guesses are right in `runs` trials.

        The counts have the platform's noise.
        """
        return sum(self._hits(dice, epsilon, part) for part in parts(runs, self.counts))

    def _hits(self, dice: np.random.Generator, epsilon: float, runs: int) -> int:
        truth = coin_flips(dice, runs=runs)
        exact = np.repeat(truth[:, np.newaxis], self.counts, axis=1)
        seen = private_sums(exact, sensitivity=1, epsilon=epsilon / self.counts, dice=dice)
        return int((self.guess(seen, dice) == truth).sum())


def parts(runs: int, width: int) -> list[int]:
    """Split the runs into chunks whose rows of `width` counts fit into memory.

    Return the chunk sizes.
    """
    most = max(1, CELLS // width)
    return [min(most, runs - start) for start in range(0, runs, most)]


ONCE: Final = Look()


def successes_against_ours(
    dice: np.random.Generator,
    *,
    runs: int,
    look: Look = ONCE,
    note: str = "",
    epsilons: Sequence[float] = EPSILONS,
) -> tuple[SuccessRate, ...]:
    """Return the attacker's success rate at each epsilon, with its theoretical bound."""
    return tuple(
        SuccessRate(
            f"ours, epsilon = {epsilon:g}",
            look.hits(dice, epsilon=epsilon, runs=runs),
            runs,
            epsilon=epsilon,
            bound=guessing_bound(epsilon),
            note=note,
        )
        for epsilon in epsilons
    )


def _told(leaning: NDArray[np.float64], dice: np.random.Generator) -> Whole:
    """Turn scores into guesses: 1 if the score is positive, 0 if negative, a random bit if 0."""
    coins = coin_flips(dice, runs=len(leaning))
    return np.where(leaning == 0, coins, leaning > 0).astype(np.int64)
