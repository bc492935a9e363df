"""Choose the local randomiser of each survey question, and put its reports into words.

Format 1 uses k-ary randomised response for every question; two dice can do that too. A number is
first rounded at random to `low` or `high`. Format 2 uses the dp/local randomiser with the smallest
error. For a number it is on a grid of whole steps, and for a choice it can be subset selection. A
question that is repeated in waves under `ever` has a permanent and a fresh random response
(dp/local/permanent_response.py). The chosen randomiser is written into the published survey and is
read from there. It is never chosen again, so a survey keeps its meaning for ever.
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
from sfumato.dp.local.permanent_response import PermanentResponse
from sfumato.dp.local.piecewise_mechanism import Piecewise
from sfumato.dp.local.random_words import PARTS, Integers
from sfumato.dp.local.randomiser_choice import best_numbers, best_oracle
from sfumato.dp.local.randomiser_registry import randomiser_of
from sfumato.dp.local.subset_selection import Subset
from sfumato.dp.refusal import Bug, Refused
from sfumato.features.surveys.model import NO_ANSWER, Question, Survey, bad_survey

SIDES: Final = 36  # number of outcomes of two dice
MAX_STEPS: Final = 1000  # the most steps of a number's grid
CHOOSABLE: Final = ("k-ary", "subset")  # kinds whose reports read as one option or a set of options
Answers = KAry | Subset | PermanentResponse  # the randomisers of one answer among several
Numbers = Duchi | Piecewise | Hybrid
QuestionRandomiser = Answers | Numbers
NUMBERS: Final = (Duchi, Piecewise, Hybrid)


def choose_randomisers(survey: Survey) -> tuple[QuestionRandomiser, ...]:
    """Choose the randomiser of each question, for the smallest error at the survey's epsilon."""
    made = tuple(_coin(question, survey) for question in survey.questions)
    if not _are_fitting(survey, made):
        raise Bug("a ballot whose parts cost more than the whole, or are of other questions")
    return made


def read_randomisers(
    survey: Survey, listed: Sequence[Parameters]
) -> tuple[QuestionRandomiser, ...]:
    """Read the randomisers that a survey was published with; refuse any that don't fit it."""
    if survey.format == 1:
        made = choose_randomisers(survey)
        if [dict(coin.parameters) for coin in made] != [dict(one) for one in listed]:
            raise bad_survey("the coins are not the survey's")
        return made
    read = tuple(map(coin_of, listed))
    if not _are_fitting(survey, read):
        raise bad_survey("the coins are not the survey's")
    return read


def coin_of(parameters: Parameters) -> QuestionRandomiser:
    """Return the randomiser with these parameters; refuse a kind that surveys don't use."""
    made = None
    try:
        made = randomiser_of(parameters)
    except Refused:
        made = None
    if not isinstance(made, KAry | Subset | PermanentResponse | Duchi | Piecewise | Hybrid):
        raise bad_survey("the coins are of no kind that a survey has")
    return made


def cost_of(coin: QuestionRandomiser, *, is_dice: bool = False) -> Fraction:
    """Return the epsilon of one randomised answer, such that the epsilons of several add up.

    Two dice cost slightly more than the KAry object that models them, because 1/36 is not a
    multiple of 2**-32. A wave costs the epsilon of its fresh (momentary) response. Only that
    epsilon, not the wave's own privacy loss, may be summed over waves. The sum holds whatever the
    answers were and whenever they changed.
    """
    if isinstance(coin, PermanentResponse):
        return coin.momentary.epsilon
    if is_dice and isinstance(coin, KAry):
        return max(coin.epsilon, epsilon_of(dice_ratio(coin.size, sides_of(coin))))
    return coin.epsilon


def told_of(coin: QuestionRandomiser) -> Fraction:
    """Return the probability that a report follows the true answer and not chance.

    The privacy statement shows it to respondents.
    """
    match coin:
        case PermanentResponse():
            return coin.p_minus_q
        case Hybrid():
            share = Fraction(coin.share, PARTS)
            by_window = share * Fraction(coin.truth, PARTS)
            return by_window + (1 - share) * Fraction(coin.ends, PARTS)
        case _:
            return Fraction(coin.truth, PARTS)


def grid_step_width(question: Question) -> int:
    """Return the distance between two steps of a number question's grid, as a whole number."""
    return -(-(question.high - question.low) // MAX_STEPS)


def last_grid_step(question: Question) -> int:
    """Return the index of the last grid step of a number question.

    `high` is at this step, or less than a step below it.
    """
    return -(-(question.high - question.low) // grid_step_width(question))


def round_to_grid(question: Question, value: int, word: int) -> int:
    """Round a true number to a grid step; between two steps, at random and unbiased.

    A value below `low` means no answer; its step is one after the last.
    """
    if value < question.low:
        return last_grid_step(question) + 1
    whole, rest = divmod(value - question.low, grid_step_width(question))
    return whole + (word * grid_step_width(question) < rest * PARTS)


def dice_ratio(categories: int, sides: int) -> Fraction:
    """Return exp(epsilon) of an answer that two dice randomise.

    The respondent reports the truth on `sides` of the 36 throws.
    """
    return 1 + Fraction(sides * categories, SIDES - sides)


def sides_of(coin: KAry) -> int:
    """Return how many of the 36 throws of two dice make a respondent report the truth.

    The number is rounded up.
    """
    return -(-coin.truth * SIDES // PARTS)


@lru_cache(maxsize=1 << 16)
def is_valid_report(coin: QuestionRandomiser, number: int) -> bool:
    """Return True if a device with this randomiser can produce the report `number`.

    The number is the report's bytes in little-endian order.
    """
    if isinstance(coin, (KAry, PermanentResponse)):
        return number < coin.size
    if number >= 1 << 8 * coin.width:
        return False
    return bool(coin.are_valid(_row(coin, number))[0])


@lru_cache(maxsize=1 << 16)
def counted(coin: QuestionRandomiser, number: int) -> tuple[int, ...]:
    """Convert one report to what it adds to each stored count of its sub-question (slot)."""
    return kept_of(coin, 1, coin.counts(_row(coin, number)))


def kept_of(coin: QuestionRandomiser, people: int, counts: Integers) -> tuple[int, ...]:
    """Convert a randomiser's array of counts to the flat tuple of integers that a tally stores.

    For subset selection, the number of reports comes first.
    """
    found = tuple(map(int, counts.flatten()))
    return (people, *found) if isinstance(coin, Subset) else found


def people_of(coin: QuestionRandomiser, counts: tuple[int, ...]) -> int:
    """Return how many reports the stored counts of one sub-question (slot) come from."""
    if isinstance(coin, Subset):
        return counts[0]
    return sum(counts[::4]) if isinstance(coin, NUMBERS) else sum(counts)


def in_words(question: Question, coin: QuestionRandomiser, slot: int, number: int) -> str:
    """Return one randomised answer as text for people, such as an option or a range of numbers."""
    match coin:
        case KAry() | PermanentResponse():
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


def _coin(question: Question, survey: Survey) -> QuestionRandomiser:
    if survey.paper:
        return _by_dice(question, survey)
    if survey.ever is not None:
        ever = survey.ever / len(survey.questions) if survey.budget == "split" else survey.ever
        size = question.categories
        return PermanentResponse(KAry.within(size, ever), KAry.within(size, survey.epsilon_each))
    if survey.format == 1:
        return KAry.within(question.categories, survey.epsilon_each)
    return _best(question, survey.epsilon_each)


def _best(question: Question, epsilon: Fraction) -> QuestionRandomiser:
    if question.kind == "number":
        return _best_numbers(last_grid_step(question), epsilon)
    return _best_answers(question.categories, epsilon)


# cached, because a preview tries several epsilons, and many questions share parameters
@lru_cache(maxsize=256)
def _best_numbers(steps: int, epsilon: Fraction) -> QuestionRandomiser:
    return coin_of(best_numbers(steps, epsilon).parameters)


@lru_cache(maxsize=256)
def _best_answers(categories: int, epsilon: Fraction) -> QuestionRandomiser:
    return coin_of(best_oracle(categories, epsilon, kinds=CHOOSABLE).parameters)


def _by_dice(question: Question, survey: Survey) -> KAry:
    for sides in range(SIDES - 1, 0, -1):
        if epsilon_of(dice_ratio(question.categories, sides)) <= survey.epsilon_each:
            return KAry(question.categories, PARTS * sides // SIDES)
    raise bad_survey("two dice cannot give so small an epsilon: choose a larger one")


def _are_fitting(survey: Survey, coins: Sequence[QuestionRandomiser]) -> bool:
    """Check a published survey's randomisers against its questions and its epsilon.

    Return True if each randomiser fits its question, and all of them together keep to the ballot's
    epsilon and to `ever`, if it is set.
    """
    if len(coins) != len(survey.questions):
        return False
    pairs = zip(survey.questions, coins, strict=True)
    if not all(_is_of(question, coin, survey) for question, coin in pairs):
        return False
    spent = [units_up(cost_of(coin, is_dice=survey.paper), EPSILON_UNITS) for coin in coins]
    ever = [
        units_up(c.epsilon_ever, EPSILON_UNITS) for c in coins if isinstance(c, PermanentResponse)
    ]
    whole = sum if survey.budget == "split" else max
    if ever and (survey.ever is None or whole(ever) > units_up(survey.ever, EPSILON_UNITS)):
        return False
    return whole(spent) <= units_up(survey.epsilon, EPSILON_UNITS)


def _is_of(question: Question, coin: QuestionRandomiser, survey: Survey) -> bool:
    if survey.ever is not None:
        return isinstance(coin, PermanentResponse) and coin.size == question.categories
    if survey.format == 1 or survey.paper:
        return isinstance(coin, KAry) and coin.size == question.categories
    if question.kind == "number":
        return isinstance(coin, NUMBERS) and coin.steps == last_grid_step(question)
    is_kind = isinstance(coin, KAry) or (isinstance(coin, Subset) and question.kind == "choice")
    return is_kind and not isinstance(coin, NUMBERS) and coin.size == question.categories


def _row(coin: QuestionRandomiser, number: int) -> np.ndarray:
    return np.frombuffer(number.to_bytes(coin.width, "little"), dtype=np.uint8).reshape(1, -1)


def _listed(question: Question, coin: Subset, number: int) -> str:
    """Return the text of a subset-selection report: the answers that the report lists."""
    times, shift = number & 0xFFFF, number >> 16
    inside = [
        w for v, w in enumerate(question.words) if (times * v + shift) % coin.field < coin.chosen
    ]
    return f"one of: {', '.join(inside)}" if inside else "none of these"


def _stretch(question: Question, coin: Piecewise, place: int) -> str:
    """Return the text of a randomised number: the range of true numbers that it likely comes from.

    Each number has a window, where its reports fall most often. The range is of the numbers whose
    window contains the report.
    """
    if place >= coin.silent:
        return NO_ANSWER
    unit = grid_step_width(question)
    low = question.low + unit * max(0, place - coin.window + 1)
    high = min(question.high, question.low + unit * min(coin.steps, place))
    low = min(low, question.high)
    said = str(low) if low == high else f"{low} to {high}"
    return f"{said} {question.unit}".strip()
