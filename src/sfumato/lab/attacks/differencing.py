"""Differencing attack: ask about all people, ask about all but one, and subtract.

Two exact answers reveal that one person, however many others there are. With new noise for each
answer and no budget, the mean of many differences reveals the person, too. The platform charges
both questions: the pair reveals no more than one question at the price of both. A repetition of the
pair is free and adds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Final

import numpy as np

from sfumato.client.ask_terms import Number
from sfumato.lab.attack import EPSILONS_OPTION, Attack, Setting
from sfumato.lab.attack_report import Report, SuccessRate
from sfumato.lab.attack_target import Target
from sfumato.lab.one_bit_game import COIN, by_the_mean, coin_flips, parts
from sfumato.lab.platform_noise import EPSILONS, private_sums
from sfumato.lab.probe import Probe, probe
from sfumato.lab.success_rate_bounds import guessing_bound

PAIRS: Final = (1, 10, 100, 1000)
EACH: Final = 1.0  # epsilon of each question to a target without a budget
CROWD: Final = 1000  # the other people, about whom the attacker knows nothing


def difference(
    target: Target, everyone: str, without: str, *, epsilon: Number, pairs: int = 50
) -> Probe:
    """Ask two questions, with and without one person, up to `pairs` times.

    Return the differences of the answers, and what ended the attack.
    """

    def ask(second: str) -> float:
        return target.ask(everyone, epsilon) - target.ask(second, epsilon)

    return probe(ask, repeat(without), epsilon=epsilon, most=pairs, questions_each=2)


def attack_counts(
    dice: np.random.Generator, *, runs: int = 1000, epsilons: Sequence[float] = EPSILONS
) -> Report:
    """Report how often differences reveal whether one person has the counted property."""
    return Report(
        attack="differencing",
        title="One person's secret from two questions, with and without them",
        knows="The attacker knows only how to exclude the one person from a question.",
        measure="correct guesses whether the person has the counted property",
        successes=(
            _exact(dice, runs),
            *(_forgetful(dice, pairs, runs) for pairs in PAIRS),
            *(_ours(dice, epsilon, runs) for epsilon in epsilons),
        ),
        finding=(
            "Two exact counts reveal the person, and so do many counts with new noise "
            "each time. sfumato charges both questions, so each has half of the "
            "epsilon. Asking the pair again is free, and gives the same numbers."
        ),
        guessing=COIN,
    )


def hits(dice: np.random.Generator, *, each: float, pairs: int, runs: int) -> int:
    """Return how often a guess from the mean of `pairs` noisy differences is right.

    The guess is whether one person has the counted property. Each question has noise at epsilon
    `each`.
    """
    return sum(_hits(dice, each, pairs, part) for part in parts(runs, pairs))


def _hits(dice: np.random.Generator, each: float, pairs: int, runs: int) -> int:
    truth = coin_flips(dice, runs=runs)
    without = np.full((runs, pairs), CROWD, dtype=np.int64)
    everyone = without + truth[:, np.newaxis]
    seen = [private_sums(c, sensitivity=1, epsilon=each, dice=dice) for c in (everyone, without)]
    return int((by_the_mean(seen[0] - seen[1], dice) == truth).sum())


def _exact(dice: np.random.Generator, runs: int) -> SuccessRate:
    truth = coin_flips(dice, runs=runs)
    told = by_the_mean(((CROWD + truth) - CROWD)[:, np.newaxis], dice)
    return SuccessRate("exact counts", int((told == truth).sum()), runs)


def _forgetful(dice: np.random.Generator, pairs: int, runs: int) -> SuccessRate:
    found = hits(dice, each=EACH, pairs=pairs, runs=runs)
    many = "one pair" if pairs == 1 else f"{pairs:,} pairs"
    return SuccessRate("new noise each time", found, runs, note=f"{many} at epsilon {EACH:g} each")


def _ours(dice: np.random.Generator, epsilon: float, runs: int) -> SuccessRate:
    found = hits(dice, each=epsilon / 2, pairs=1, runs=runs)
    bound = guessing_bound(epsilon)
    return SuccessRate(f"ours, epsilon = {epsilon:g}", found, runs, epsilon=epsilon, bound=bound)


def _run(setting: Setting) -> Report:
    return attack_counts(setting.dice, runs=setting.runs, epsilons=setting.epsilons())


ATTACK: Final = Attack(
    "differencing",
    "ask about all people, then about all but one, and subtract",
    _run,
    options=EPSILONS_OPTION,
)
