"""How each question of a survey is randomised, and what its randomised answer says in words.

Format 1 has one mechanism for every question: k-ary randomised response, which dice do too, with a
number rounded to one of its two ends first. In format 2 a number is said by the best of dp/local's
randomisers of numbers, on a grid of whole steps, and a choice by a set of options where that errs
less. A question that waves ask again with `ever` has a permanent lie and a fresh one
(dp/local/permanent_response.py). What was chosen is written into the survey and read from there: it
is never chosen again, so a survey reads the same for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np

from sfumato.dp.budget import EPSILON_UNITS, units_up
from sfumato.dp.local.duchi import Duchi
from sfumato.dp.local.frequency_oracle import Parameters
from sfumato.dp.local.hybrid_mechanism import Hybrid
from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.likelihood_ratio import epsilon_of
from sfumato.dp.local.permanent_response import Waves
from sfumato.dp.local.piecewise_mechanism import Piecewise
from sfumato.dp.local.random_words import PARTS, Integers
from sfumato.dp.local.randomiser_choice import best_numbers, best_oracle
from sfumato.dp.local.randomiser_registry import randomiser_of
from sfumato.dp.local.subset_selection import Subset
from sfumato.dp.refusal import Bug, Refused
from sfumato.features.surveys.model import NO_ANSWER, Question, Survey, bad_survey

SIDES: Final = 36  # two dice
MOST_STEPS: Final = 1000  # of a number's grid
CHOOSABLE: Final = ("k-ary", "subset")  # whose reports can be said in words: options, or one
Answers = KAry | Subset | Waves  # of one answer among several
Numbers = Duchi | Piecewise | Hybrid
Coin = Answers | Numbers
NUMBERS: Final = (Duchi, Piecewise, Hybrid)


def coins_of(survey: Survey) -> tuple[Coin, ...]:
    """Return how each question is randomised: with the least error that the epsilon allows."""
    made = tuple(_coin(question, survey) for question in survey.questions)
    if not _are_fitting(survey, made):
        raise Bug("a ballot whose parts cost more than the whole, or are of other questions")
    return made


def read_coins(survey: Survey, listed: Sequence[Parameters]) -> tuple[Coin, ...]:
    """Return the coins that a survey was published with, or refuse what are none of it."""
    if survey.format == 1:
        made = coins_of(survey)
        if [dict(coin.parameters) for coin in made] != [dict(one) for one in listed]:
            raise bad_survey("the coins are not the survey's")
        return made
    read = tuple(map(coin_of, listed))
    if not _are_fitting(survey, read):
        raise bad_survey("the coins are not the survey's")
    return read


def coin_of(parameters: Parameters) -> Coin:
    """Return the coin that these parameters describe, or refuse one that no survey has."""
    made = None
    try:
        made = randomiser_of(parameters)
    except Refused:
        made = None
    if not isinstance(made, KAry | Subset | Waves | Duchi | Piecewise | Hybrid):
        raise bad_survey("the coins are of no kind that a survey has")
    return made


def cost_of(coin: Coin, *, is_dice: bool = False) -> Fraction:
    """Return what one randomised answer gives away: the number that may be added up.

    Dice tell a little more than the coins that stand for them: thirty-sixths are no whole number
    of 2**-32. A wave is priced by its fresh lie alone: that, and not what the wave tells by itself,
    may be summed over waves, whatever the answers were and whenever they changed.
    """
    if isinstance(coin, Waves):
        return coin.momentary.epsilon
    if is_dice and isinstance(coin, KAry):
        return max(coin.epsilon, epsilon_of(dice_ratio(coin.size, sides_of(coin))))
    return coin.epsilon


def told_of(coin: Coin) -> Fraction:
    """Return how often what is said is said because of the true answer."""
    match coin:
        case Waves():
            return coin.contrast
        case Hybrid():
            share = Fraction(coin.share, PARTS)
            by_window = share * Fraction(coin.truth, PARTS)
            return by_window + (1 - share) * Fraction(coin.ends, PARTS)
        case _:
            return Fraction(coin.truth, PARTS)


def unit_of(question: Question) -> int:
    """Return how far apart the steps of a number's grid are: a whole number."""
    return -(-(question.high - question.low) // MOST_STEPS)


def steps_of(question: Question) -> int:
    """Return the last step of a number's grid; `high` lies on it or just below."""
    return -(-(question.high - question.low) // unit_of(question))


def step_of(question: Question, value: int, word: int) -> int:
    """Return the step of a true number; between two, the upper with the chance that makes it right.

    A value below `low` is silence, which is the step behind the last.
    """
    if value < question.low:
        return steps_of(question) + 1
    whole, rest = divmod(value - question.low, unit_of(question))
    return whole + (word * unit_of(question) < rest * PARTS)


def dice_ratio(categories: int, sides: int) -> Fraction:
    """Return the largest ratio of chances where so many of 36 throws tell the truth."""
    return 1 + Fraction(sides * categories, SIDES - sides)


def sides_of(coin: KAry) -> int:
    """Return how many of the 36 throws of two dice tell the truth, with these coins."""
    return -(-coin.truth * SIDES // PARTS)


@lru_cache(maxsize=1 << 16)
def is_said(coin: Coin, number: int) -> bool:
    """Say whether a device could have said this, as the number that its report's bytes are."""
    if isinstance(coin, (KAry, Waves)):
        return number < coin.size
    if number >= 1 << 8 * coin.width:
        return False
    return bool(coin.are_valid(_row(coin, number))[0])


@lru_cache(maxsize=1 << 16)
def counted(coin: Coin, number: int) -> tuple[int, ...]:
    """Return what one report adds to the counts that are kept of its question."""
    return kept_of(coin, 1, coin.counts(_row(coin, number)))


def kept_of(coin: Coin, people: int, counts: Integers) -> tuple[int, ...]:
    """Return counts as they are kept: of sets, how many reports there were comes first."""
    found = tuple(map(int, counts.flatten()))
    return (people, *found) if isinstance(coin, Subset) else found


def people_of(coin: Coin, counts: tuple[int, ...]) -> int:
    """Return how many reports were counted."""
    if isinstance(coin, Subset):
        return counts[0]
    return sum(counts[::4]) if isinstance(coin, NUMBERS) else sum(counts)


def in_words(question: Question, coin: Coin, slot: int, number: int) -> str:
    """Return in words what one randomised answer says."""
    match coin:
        case KAry() | Waves():
            return question.said(slot, number)
        case Subset():
            return _listed(question, coin, number)
        case Duchi():
            return question.said(slot, number)
        case Piecewise():
            return _stretch(question, coin, number)
        case Hybrid():
            said, is_end = number >> 8, number & 255
            return question.said(slot, said) if is_end else _stretch(question, coin.by_window, said)


def _coin(question: Question, survey: Survey) -> Coin:
    if survey.paper:
        return _by_dice(question, survey)
    if survey.ever is not None:
        ever = survey.ever / len(survey.questions) if survey.budget == "split" else survey.ever
        size = question.categories
        return Waves(KAry.within(size, ever), KAry.within(size, survey.epsilon_each))
    if survey.format == 1:
        return KAry.within(question.categories, survey.epsilon_each)
    return _best(question, survey.epsilon_each)


def _best(question: Question, epsilon: Fraction) -> Coin:
    if question.kind == "number":
        return _best_numbers(steps_of(question), epsilon)
    return _best_answers(question.categories, epsilon)


@lru_cache(maxsize=256)  # a design is looked at for several epsilons, and its questions are alike
def _best_numbers(steps: int, epsilon: Fraction) -> Coin:
    return coin_of(best_numbers(steps, epsilon).parameters)


@lru_cache(maxsize=256)
def _best_answers(categories: int, epsilon: Fraction) -> Coin:
    return coin_of(best_oracle(categories, epsilon, kinds=CHOOSABLE).parameters)


def _by_dice(question: Question, survey: Survey) -> KAry:
    for sides in range(SIDES - 1, 0, -1):
        if epsilon_of(dice_ratio(question.categories, sides)) <= survey.epsilon_each:
            return KAry(question.categories, PARTS * sides // SIDES)
    raise bad_survey("two dice cannot be as unfair as this epsilon asks: give more epsilon")


def _are_fitting(survey: Survey, coins: Sequence[Coin]) -> bool:
    """Say whether each coin is of its question, and all together are within the epsilons."""
    if len(coins) != len(survey.questions):
        return False
    pairs = zip(survey.questions, coins, strict=True)
    if not all(_is_of(question, coin, survey) for question, coin in pairs):
        return False
    spent = [units_up(cost_of(coin, is_dice=survey.paper), EPSILON_UNITS) for coin in coins]
    ever = [units_up(c.epsilon_ever, EPSILON_UNITS) for c in coins if isinstance(c, Waves)]
    whole = sum if survey.budget == "split" else max
    if ever and (survey.ever is None or whole(ever) > units_up(survey.ever, EPSILON_UNITS)):
        return False
    return whole(spent) <= units_up(survey.epsilon, EPSILON_UNITS)


def _is_of(question: Question, coin: Coin, survey: Survey) -> bool:
    if survey.ever is not None:
        return isinstance(coin, Waves) and coin.size == question.categories
    if survey.format == 1 or survey.paper:
        return isinstance(coin, KAry) and coin.size == question.categories
    if question.kind == "number":
        return isinstance(coin, NUMBERS) and coin.steps == steps_of(question)
    is_kind = isinstance(coin, KAry) or (isinstance(coin, Subset) and question.kind == "choice")
    return is_kind and not isinstance(coin, NUMBERS) and coin.size == question.categories


def _row(coin: Coin, number: int) -> np.ndarray:
    return np.frombuffer(number.to_bytes(coin.width, "little"), dtype=np.uint8).reshape(1, -1)


def _listed(question: Question, coin: Subset, number: int) -> str:
    """Return the answers in the set, which a report of a set is."""
    times, shift = number & 0xFFFF, number >> 16
    inside = [
        w for v, w in enumerate(question.words) if (times * v + shift) % coin.field < coin.chosen
    ]
    return f"one of: {', '.join(inside)}" if inside else "none of these"


def _stretch(question: Question, coin: Piecewise, place: int) -> str:
    """Return the numbers whose window a place lies in."""
    if place >= coin.silent:
        return NO_ANSWER
    unit = unit_of(question)
    low = question.low + unit * max(0, place - coin.window + 1)
    high = min(question.high, question.low + unit * min(coin.steps, place))
    low = min(low, question.high)
    said = str(low) if low == high else f"{low} to {high}"
    return f"{said} {question.unit}".strip()
