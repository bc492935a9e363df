"""Averaging attack: repeat a question and take the mean, which removes noise that is drawn anew.

A target with correct noise but no answer cache reveals any count: about 31/epsilon^2 repeats give
it exactly. The platform draws the noise of a question once, so repeats are free and reveal nothing
new. A reworded question is the same question. New noise has to be paid for, until the budget is
spent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count, repeat
from typing import Final

import numpy as np

from sfumato.client.ask_terms import Number
from sfumato.lab.attack import EPSILONS_OPTION, Attack, Setting
from sfumato.lab.attack_report import Report, SuccessRate
from sfumato.lab.attack_target import Target
from sfumato.lab.one_bit_game import COIN, Look, by_the_mean, successes_against_ours
from sfumato.lab.platform_noise import EPSILONS, private_sums
from sfumato.lab.probe import Probe, probe
from sfumato.lab.running_mean_plot import means_so_far

REPEATS: Final = (1, 10, 100, 1000)
SHARED: Final = 100  # questions that share one budget
PICTURED: Final = 200  # repeats in the plot
CROWD: Final = 100  # the true count in the plot
EACH: Final = 1.0  # epsilon of each question to a target without a budget


def average(target: Target, sql: str, *, epsilon: Number, questions: int = 100) -> Probe:
    """Ask one question up to `questions` times, to average the noise away.

    Return the answers, and what ended the attack.
    """
    return probe(
        lambda text: target.ask(text, epsilon), repeat(sql), epsilon=epsilon, most=questions
    )


def average_in_other_words(
    target: Target, texts: Iterator[str], *, epsilon: Number, questions: int = 100
) -> Probe:
    """Ask differently worded questions that have the same answer, one after the other.

    `padded` makes such questions. Return the answers, and what ended the attack.
    """
    return probe(lambda text: target.ask(text, epsilon), texts, epsilon=epsilon, most=questions)


def padded(sql: str, column: str, above: int) -> Iterator[str]:
    """Yield questions with the same answer, each with another condition that every row fulfils.

    The question must have a WHERE, and no value of the column may be above `above`.
    """
    return (f"{sql} AND {column} <= {above + more}" for more in count())


def attack_counts(
    dice: np.random.Generator, *, runs: int = 1000, epsilons: Sequence[float] = EPSILONS
) -> Report:
    """Report how often repeated questions reveal whether one person is in a count."""
    shared = Look(counts=SHARED, guess=by_the_mean)
    ours = partial(successes_against_ours, dice, runs=runs, epsilons=epsilons)
    return Report(
        attack="averaging",
        title="One person's secret from repeated questions",
        knows="The attacker knows everybody else, and gives the person a 50 % chance before "
        "the release.",
        measure="correct guesses whether one person is counted",
        successes=(
            *(_forgetful(dice, repeats, runs) for repeats in REPEATS),
            *ours(note="repeats are free, and the same"),
            *ours(look=shared, note=f"split over {SHARED}"),
        ),
        finding=(
            f"With new noise each time and no budget, {REPEATS[-1]:,} repeats reveal "
            "the person. In sfumato, a repeat gives the same answer, and different "
            "questions share one budget. So many questions reveal no more than one "
            "question for the whole budget."
        ),
        guessing=COIN,
        pictures=(
            means_so_far(
                {"new noise each time": _probed(dice, 1), "ours": _probed(dice, PICTURED)},
                truth=CROWD,
            ),
        ),
    )


def _probed(dice: np.random.Generator, repeats: int) -> Probe:
    """Simulate an attack that repeats one question, and return its answers.

    The simulated target draws new noise once in `repeats` answers.
    """
    count = np.full(PICTURED // repeats, CROWD, dtype=np.int64)
    drawn = private_sums(count, sensitivity=1, epsilon=EACH, dice=dice)
    numbers = np.repeat(drawn, repeats).tolist()
    return probe(lambda _: float(numbers.pop()), repeat(""), epsilon=EACH, most=PICTURED)


def _forgetful(dice: np.random.Generator, repeats: int, runs: int) -> SuccessRate:
    look = Look(counts=repeats, guess=by_the_mean)
    hits = look.hits(dice, epsilon=EACH * repeats, runs=runs)
    times = "once" if repeats == 1 else f"{repeats:,} times"
    return SuccessRate("new noise each time", hits, runs, note=f"asked {times} at epsilon {EACH:g}")


def _run(setting: Setting) -> Report:
    return attack_counts(setting.dice, runs=setting.runs, epsilons=setting.epsilons())


ATTACK: Final = Attack(
    "averaging", "ask repeatedly, and take the mean", _run, options=EPSILONS_OPTION
)
