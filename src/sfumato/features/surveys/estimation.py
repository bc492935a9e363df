"""Estimate shares and means from a survey's reports, with intervals and the effect of liars.

A share comes from dp/local/frequency_estimation.py, the mean of numbers on a grid from
features/surveys/mean_interval.py. In format 1, and in waves with `ever`, a number is reported as
`low` or `high`. So its mean follows from a ratio of two estimates: the share of `high` among all
who answered. A ranking's preference between two options is such a ratio, too.

Fieller's interval covers the ratio if both outcomes were reported often (soundness rule 4). For
rare outcomes the estimated variances are unreliable. Then two conservative intervals are combined:
one for the share who answered, one for which of the two outcomes they reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import sqrt
from statistics import NormalDist
from typing import Final

import numpy as np

from sfumato.dp.local.frequency_estimation import estimate, variances
from sfumato.dp.local.frequency_oracle import Tally as Counts
from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.mean_estimation import NumberTally
from sfumato.dp.local.numeric_response import worst_variance
from sfumato.dp.local.permanent_response import PermanentResponse
from sfumato.dp.local.proportion_intervals import OFTEN, intervals
from sfumato.dp.local.sample_size import influence_on_mean
from sfumato.dp.local.simplex_projection import nearest
from sfumato.dp.local.subset_selection import Subset
from sfumato.dp.refusal import Bug, Refused
from sfumato.features.surveys.mean_interval import mean_of
from sfumato.features.surveys.model import Question, Survey
from sfumato.features.surveys.randomisation import (
    NUMBERS,
    Answers,
    Numbers,
    QuestionRandomiser,
    choose_randomisers,
    grid_step_width,
    people_of,
    told_of,
)
from sfumato.features.surveys.randomised_report import Published
from sfumato.features.surveys.tally import Tally

CONFIDENCE: Final = 0.95
# kinds of question with one answer per person, so that the shares add up to 1
ADDABLE: Final = ("yes-no", "choice")
LIARS: Final = Fraction(1, 100)  # the share of liars among all reports for which bounds are stated
# the epsilons that a preview tries
TRIED: Final = tuple(map(Fraction, ("0.25", "0.5", "1", "2", "3", "4")))
# confidences of two intervals that are used together: they fail with 1 % and 4 %, so 5 % in all
_SURE_WHO_ANSWERED: Final = 0.99
_SURE_WHICH: Final = 0.96
_LEAST: Final = 1e-12  # the smallest share of people who answered, because estimates divide by it
_Z: Final = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


@dataclass(frozen=True)
class Estimate:
    """One estimated share or mean of a survey, with its 95 % interval and the effect of liars.

    The effect is the largest change of the value, if one report in a hundred is false and all are
    false in the same way.
    """

    label: str
    value: float
    low: float
    high: float
    # the largest change of the value by liars: one report in a hundred, all lying alike
    liars: float

    def shape(self) -> dict[str, object]:
        """Return the estimate as JSON values."""
        return {
            "label": self.label,
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "liars": self.liars,
        }


@dataclass(frozen=True)
class Answered:
    """The estimates of one question, with the number of reports on which they are based."""

    question: Question
    people: int  # number of ballots with an answer to this question
    measure: str  # share, mean or first
    estimates: tuple[Estimate, ...]

    def shape(self) -> dict[str, object]:
        """Return the question and its estimates as JSON values."""
        return {
            "id": self.question.id,
            "text": self.question.text,
            "kind": self.question.kind,
            "unit": self.question.unit,
            "people": self.people,
            "measure": self.measure,
            "estimates": [one.shape() for one in self.estimates],
        }


def results(published: Published, tally: Tally) -> tuple[Answered, ...]:
    """Estimate the results of every question from the tally of reports.

    A sub-question (slot) with fewer than two reports gets no estimate.
    """
    questions, coins = published.survey.questions, published.coins
    parts = zip(questions, coins, tally.counts, strict=True)
    return tuple(_answered(question, coin, of, tally.reports) for question, coin, of in parts)


def adding_up(found: Sequence[Answered]) -> tuple[Answered, ...]:
    """Project the shares of each yes-no or choice question so that they add up to 1.

    The new shares are the nearest that do (dp/local/simplex_projection.py). This is
    post-processing, which costs nothing. The intervals still cover the truth: they belong to the
    original estimates and are only widened to include the new shares.
    """
    return tuple(_adding_up(one) if one.question.kind in ADDABLE else one for one in found)


def _adding_up(one: Answered) -> Answered:
    if not one.estimates:
        return one
    moved = nearest(np.array([each.value for each in one.estimates]))
    estimates = [
        replace(each, value=share, low=min(each.low, share), high=max(each.high, share))
        for each, share in zip(one.estimates, moved.tolist(), strict=True)
    ]
    return replace(one, estimates=tuple(estimates))


def _answered(
    question: Question, coin: QuestionRandomiser, counts: tuple[tuple[int, ...], ...], reports: int
) -> Answered:
    people = sum(people_of(coin, slot) for slot in counts)
    slots = [(slot, of) for slot, of in enumerate(counts) if people_of(coin, of) >= 2]
    made: Iterable[Estimate]
    if isinstance(coin, NUMBERS):
        made = [_mean(question, coin, of, reports) for _, of in slots]
        return Answered(question, people, "mean", tuple(made))
    match question.kind:
        case "yes-no" | "choice":
            made, measure = _shares(question, coin, slots, reports), "share"
        case "several":
            made, measure = _ticked(question, coin, slots, reports), "share"
        case "number":
            made, measure = _means(question, coin, slots, reports), "mean"
        case "ranking":
            made, measure = _firsts(question, coin, slots, reports), "first"
    return Answered(question, people, measure, tuple(made))


_Slots = list[tuple[int, tuple[int, ...]]]


def _mean(question: Question, coin: Numbers, counts: tuple[int, ...], reports: int) -> Estimate:
    people, unit = people_of(coin, counts), grid_step_width(question)
    tally = NumberTally(coin, people, np.array(counts, dtype=np.int64).reshape(-1, 4))
    found = mean_of(tally, CONFIDENCE)
    liars = _moved_number(question, coin, people, reports) / max(_LEAST, found.response_rate)
    value, low, high = (
        min(float(question.high), question.low + unit * end)
        for end in (found.mean, found.low, found.high)
    )
    return Estimate("mean", value, low, high, min(float(question.high - question.low), liars))


def _shares(question: Question, coin: Answers, slots: _Slots, reports: int) -> Iterable[Estimate]:
    for _, counts in slots:
        for place, label in enumerate(question.words):
            yield _share(label, coin, counts, place, reports)


def _ticked(question: Question, coin: Answers, slots: _Slots, reports: int) -> Iterable[Estimate]:
    for slot, counts in slots:
        yield _share(question.options[slot], coin, counts, 0, reports)


def _share(
    label: str, coin: Answers, counts: tuple[int, ...], place: int, reports: int
) -> Estimate:
    people = people_of(coin, counts)
    spoken = np.array(counts[1:] if isinstance(coin, Subset) else counts)
    found = estimate(Counts(coin, people, spoken), CONFIDENCE)
    liars = _moved(coin, people, reports)
    value = float(found.shares[place])
    return Estimate(label, value, float(found.low[place]), float(found.high[place]), liars)


def _means(question: Question, coin: Answers, slots: _Slots, reports: int) -> Iterable[Estimate]:
    width = question.high - question.low
    for _, counts in slots:
        ratio = _ratio("mean", coin, counts, (1, 0), reports)
        value, low, high = (
            question.low + width * end for end in (ratio.value, ratio.low, ratio.high)
        )
        yield Estimate("mean", value, low, high, width * ratio.liars)


def _firsts(question: Question, coin: Answers, slots: _Slots, reports: int) -> Iterable[Estimate]:
    for slot, counts in slots:
        first, second = (question.options[place] for place in question.pairs[slot])
        yield _ratio(f"{first} before {second}", coin, counts, (0, 1), reports)


def _ratio(
    label: str, coin: Answers, counts: tuple[int, ...], places: tuple[int, int], reports: int
) -> Estimate:
    """Estimate which share of those who gave one of two answers gave the first of them.

    The two answers have the positions `places` in the counts. For shares a and b the result
    estimates a / (a + b), without those who gave no answer.
    """
    if isinstance(coin, Subset):
        raise Bug("a ratio is of one thing that was said and another")
    people, contrast = sum(counts), float(coin.p_minus_q)
    seen = np.array(counts) / people
    shares = (seen - coin.q) / contrast
    over = 1 / ((people - 1) * contrast**2)
    top, other = places
    a, s = float(shares[top]), float(shares[top] + shares[other])
    together = float(seen[top] + seen[other])
    v_aa = float(seen[top] * (1 - seen[top])) * over
    v_ss = together * (1 - together) * over
    v_as = float(seen[top]) * (1 - together) * over
    if min(counts[top], counts[other]) < OFTEN:
        low, high = _joined(coin, (counts[top], counts[other]), people)
    else:
        low, high = _fieller((a, s), (v_aa, v_as, v_ss))
    liars = min(1.0, _moved(coin, people, reports) / s) if s > 0 else 1.0
    value = min(1.0, max(0.0, a / s)) if s > 0 else 0.5
    return Estimate(label, value, min(low, value), max(high, value), liars)


def _moved(coin: Answers, people: int, reports: int) -> float:
    """Bound how far false reports can move an estimated share of one sub-question (slot).

    All liars may choose that slot, so they can be a larger part of its reports than of all reports
    (soundness rule 35).
    """
    return float(_in_slot(people, reports) / coin.p_minus_q)


def _moved_number(question: Question, coin: Numbers, people: int, reports: int) -> float:
    """Bound how far false reports move the sum of numbers, per report of a sub-question (slot).

    The bound is in the number's own unit. All liars may answer the same sub-question.
    """
    return float(influence_on_mean(coin, _in_slot(people, reports)) * grid_step_width(question))


def _in_slot(people: int, reports: int) -> Fraction:
    """Return the largest share of false reports that one sub-question (slot) can have.

    All liars then choose that sub-question.
    """
    return min(Fraction(1), LIARS * reports / people)


def _joined(
    coin: KAry | PermanentResponse, counts: tuple[int, int], people: int
) -> tuple[float, float]:
    """Return an interval for the ratio of two outcomes, valid for any number of reports.

    Let p be the probability that a report is the first outcome, given that it is one of the two:
    p = (chance + contrast * share * ratio) / (2 * chance + contrast * share). Both outcomes have
    the same chance up to one random word (random_words.proof.md). Solved for the ratio, this is
    increasing in p and monotone in the share who answered. So the interval's ends are reached at
    the ends of the intervals for p and for the share.
    """
    said = sum(counts)
    chance, contrast = float(coin.q[0]), float(coin.p_minus_q)
    which = _between(counts[0], said, _SURE_WHICH) if said else (0.0, 1.0)
    seen = _between(said, people, _SURE_WHO_ANSWERED)
    answered = [min(1.0, max(_LEAST, (end - 2 * chance) / contrast)) for end in seen]
    low, high = ([p + (2 * p - 1) * chance / contrast / s for s in answered] for p in which)
    if min(low) > 1 or max(high) < 0:
        return 0.0, 1.0
    return max(0.0, min(low)), min(1.0, max(high))


def _between(seen: int, people: int, confidence: float) -> tuple[float, float]:
    low, high = intervals(np.array([seen]), people, confidence)
    return float(low[0]), float(high[0])


def _fieller(
    means: tuple[float, float], variances: tuple[float, float, float]
) -> tuple[float, float]:
    """Return Fieller's interval for a ratio a / s of two estimates, within 0 to 1.

    `means` is (a, s), and `variances` is those of a, of a with s, and of s. The interval is all of
    0 to 1 if s may be zero.
    """
    (a, s), (v_aa, v_as, v_ss) = means, variances
    square = s * s - _Z**2 * v_ss
    half = a * s - _Z**2 * v_as
    rest = half * half - square * (a * a - _Z**2 * v_aa)
    if square <= 0 or s <= 0 or rest < 0:
        return 0.0, 1.0
    ends = ((half - sqrt(rest)) / square, (half + sqrt(rest)) / square)
    return min(1.0, max(0.0, ends[0])), min(1.0, max(0.0, ends[1]))


@dataclass(frozen=True)
class Expected:
    """The expected error of one question, at the survey's epsilon and its number of people."""

    question: Question
    people: int  # the expected number of reports for one slot
    error: float  # the half-width of a 95 % interval; of a share, at a true share of one half
    odds: int  # the number of reports in a hundred that say the truth
    liars: float  # the same as in Estimate

    @property
    def tells(self) -> bool:
        """Return True if the survey will tell something about the question.

        That is, the expected interval is narrower than the range of possible values.
        """
        return self.error < _width(self.question) / 2

    def shape(self) -> dict[str, object]:
        """Return the question and its expected error as JSON values."""
        return {
            "id": self.question.id,
            "kind": self.question.kind,
            "people": self.people,
            "error": self.error,
            "tells": self.tells,
            "truths": self.odds,
            "liars": self.liars,
        }


def expected(survey: Survey) -> tuple[Expected, ...]:
    """Compute the expected error of each question from the design alone (soundness rule 4)."""
    coins = choose_randomisers(survey)
    asked = survey.people * survey.asked_each // len(survey.questions)
    return tuple(
        _expected(question, coin, asked, survey.people)
        for question, coin in zip(survey.questions, coins, strict=True)
    )


def tried(survey: Survey) -> tuple[tuple[Fraction, tuple[Expected, ...]], ...]:
    """Compute a survey's expected errors at several other epsilons, for its owner to compare.

    Epsilons that the survey's design does not allow are left out.
    """
    found = ((epsilon, _tried(survey, epsilon)) for epsilon in TRIED)
    return tuple((epsilon, made) for epsilon, made in found if made)


def _tried(survey: Survey, epsilon: Fraction) -> tuple[Expected, ...]:
    if survey.ever is not None and epsilon > survey.ever:
        return ()
    try:
        return expected(replace(survey, epsilon=epsilon))
    except Refused:  # no randomiser has so small an epsilon, or two dice cannot have it
        return ()


def _expected(question: Question, coin: QuestionRandomiser, asked: int, reports: int) -> Expected:
    people = max(2, asked // question.slots)
    if isinstance(coin, NUMBERS):
        error = grid_step_width(question) * _Z * sqrt(float(worst_variance(coin)) / people)
        liars = _moved_number(question, coin, people, reports)
        return Expected(question, people, error, round(100 * told_of(coin)), liars)
    halves = np.zeros(coin.size)
    halves[:2] = 0.5
    error = _Z * sqrt(float(variances(coin, halves, people)[0]))
    liars = _moved(coin, people, reports)
    width = _width(question)
    return Expected(question, people, width * error, round(100 * _truths(coin)), width * liars)


def _width(question: Question) -> int:
    """Return how wide the range of a question's true value is: `high - low`, or 1 for a share.

    The expected interval is compared with it.
    """
    return question.high - question.low if question.kind == "number" else 1


def _truths(coin: Answers) -> float:
    """Return how likely a report is the true answer, or lists it: by design or by chance."""
    return float(coin.p_minus_q) + float(coin.q[0])
