"""The simplest secret: is one person among the counted? An attacker who knows all others guesses.

The person is in or out by the toss of a coin, anew in every trial, so that guessing is right in
half of them. Of a release that is epsilon-DP, nobody is right more often than in
e^epsilon / (1 + e^epsilon) of them, and one count with the platform's noise lets them be just that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.lab.attack_report import SuccessRate
from sfumato.lab.platform_noise import EPSILONS, private_sums
from sfumato.lab.success_intervals import guessing_bound

Whole = NDArray[np.int64]
Guess = Callable[[Whole, np.random.Generator], Whole]  # of rows of counts, to zeros and ones
COIN: Final = 0.5
CELLS: Final = 4_000_000  # counts that are drawn at a time


def coin_flips(dice: np.random.Generator, *, runs: int) -> Whole:
    """Return for each trial whether the person is in: one or zero."""
    return dice.integers(0, 2, size=runs, dtype=np.int64)


def by_the_mean(counts: Whole, dice: np.random.Generator) -> Whole:
    """Return a guess from the mean of each row of counts, less all others."""
    return _told(counts.mean(axis=1) - COIN, dice)


def by_the_votes(counts: Whole, dice: np.random.Generator) -> Whole:
    """Return a guess from how many counts of a row are likelier with the person than without.

    Of independent counts with the same noise, nobody can guess better.
    """
    return _told((counts >= 1).mean(axis=1) - COIN, dice)


@dataclass(frozen=True)
class Look:
    """How often the attacker looks at the count for one epsilon, and how they guess from it."""

    counts: int = 1
    guess: Guess = by_the_votes

    def hits(self, dice: np.random.Generator, *, epsilon: float, runs: int) -> int:
        """Return how often the guess is right against the platform's noise."""
        return sum(self._hits(dice, epsilon, part) for part in parts(runs, self.counts))

    def _hits(self, dice: np.random.Generator, epsilon: float, runs: int) -> int:
        truth = coin_flips(dice, runs=runs)
        exact = np.repeat(truth[:, np.newaxis], self.counts, axis=1)
        seen = private_sums(exact, sensitivity=1, epsilon=epsilon / self.counts, dice=dice)
        return int((self.guess(seen, dice) == truth).sum())


def parts(runs: int, width: int) -> list[int]:
    """Return how many runs to take at a time, so that rows of that width fit into memory."""
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
    """Return how often the guess is right at each epsilon, with the most that anybody can be."""
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
    """Return one where it leans that way, zero where it leans the other, a coin between."""
    coins = coin_flips(dice, runs=len(leaning))
    return np.where(leaning == 0, coins, leaning > 0).astype(np.int64)
