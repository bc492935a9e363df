"""Ballots: several questions in one report, with one epsilon for all (soundness rule 31).

`Split` asks every question, so the epsilon of the ballot is the sum over the questions. `Sampled`
asks one question, chosen at random independently of the answers. Its report names the question, and
its epsilon is the largest of any question. Each question then gets fewer but much more accurate
reports.

A question may itself be a ballot. A multiple choice is a sampled ballot with yes, no or silence (no
answer) for each choice. A ranking is a sampled ballot with one question per pair of items. Proof:
ballot_split.proof.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import prod

import numpy as np

from sfumato.dp.local.frequency_oracle import Booleans, Parameters, Randomiser, Reports
from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.likelihood_ratio import epsilon_of
from sfumato.dp.local.random_words import Integers, Words, among, drawn
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug, Refused

MAX_QUESTIONS: int = 1 << 16  # most questions; two bytes hold the question number


@dataclass(frozen=True)
class Split:
    """A ballot that asks every respondent all questions.

    Its report concatenates the reports on all questions, in order, and so do its random words.
    """

    questions: tuple[Randomiser, ...]

    def __post_init__(self) -> None:
        _check(self.questions)

    @staticmethod
    def within(makers: Sequence[Callable[[Fraction], Randomiser]], epsilon: Fraction) -> Split:
        """Return the ballot of all questions, each with an equal share of `epsilon`.

        Each of `makers` builds the randomiser of one question from its epsilon.
        """
        return Split(tuple(make(epsilon / len(makers)) for make in makers))

    @property
    def arity(self) -> int:
        """Return the number of answer columns of the ballot: one for each single question.

        A question that is itself a ballot has several columns.
        """
        return sum(map(arity, self.questions))

    @property
    def words_per_report(self) -> int:
        """Return the number of 32-bit random words per ballot: the sum over all questions."""
        return sum(question.words_per_report for question in self.questions)

    @property
    def width(self) -> int:
        """Return the length of a ballot's report in bytes: the sum over all questions."""
        return sum(question.width for question in self.questions)

    @property
    def parameters(self) -> Parameters:
        """Return the JSON parameters of the ballot: its kind, and those of each question."""
        return {"kind": "split", "questions": [dict(q.parameters) for q in self.questions]}

    @property
    def ratio(self) -> Fraction:
        """Return how many times likelier a ballot can be under some answers than under others.

        It is the product of the questions' likelihood ratios, because the ballot asks all
        questions. Its logarithm is the local epsilon of the ballot.
        """
        return prod((question.ratio for question in self.questions), start=Fraction(1))

    @property
    def epsilon(self) -> Fraction:
        """Return the local epsilon of the whole ballot, which asks all questions."""
        return epsilon_of(self.ratio)

    def randomise(self, values: Integers, words: Words) -> Reports:
        """Randomise the answers to all questions; return one ballot (row of bytes) per person."""
        columns = _columns(values, self.questions)
        rows = _cut([question.words_per_report for question in self.questions])
        said = [
            question.randomise(column, words[some])
            for question, column, some in zip(self.questions, columns, rows, strict=True)
        ]
        return np.concatenate(said, axis=1)

    def are_valid(self, reports: Reports) -> Booleans:
        """Return a mask of the valid ballots: those with a valid report on every question."""
        valid = [question.are_valid(part) for question, part in self.parts(reports)]
        return np.asarray(np.all(valid, axis=0))

    def parts(self, reports: Reports) -> list[tuple[Randomiser, Reports]]:
        """Cut the ballots into reports; return each question with the reports on it."""
        places = _cut([question.width for question in self.questions])
        return [
            (question, np.ascontiguousarray(reports[:, some]))
            for question, some in zip(self.questions, places, strict=True)
        ]


@dataclass(frozen=True)
class Sampled:
    """A ballot that asks each respondent one question, chosen by the first random word.

    The ballot holds the number of the question in two bytes, then the report on it.
    """

    questions: tuple[Randomiser, ...]

    def __post_init__(self) -> None:
        _check(self.questions)

    @staticmethod
    def within(makers: Sequence[Callable[[Fraction], Randomiser]], epsilon: Fraction) -> Sampled:
        """Return the ballot of one random question, in which each question has the whole `epsilon`.

        Each of `makers` builds the randomiser of one question from its epsilon.
        """
        made = {make: make(epsilon) for make in makers}
        return Sampled(tuple(made[make] for make in makers))

    @property
    def arity(self) -> int:
        """Return the number of answer columns of the ballot: one for each single question."""
        return sum(map(arity, self.questions))

    @property
    def words_per_report(self) -> int:
        """Return the number of 32-bit random words per ballot.

        One word chooses the question, and the rest suffice for any question.
        """
        return 1 + max(question.words_per_report for question in self.questions)

    @cached_property
    def width(self) -> int:
        """Return the length of a ballot in bytes: two for the question number, plus a report."""
        return 2 + max(question.width for question in self.questions)

    @property
    def parameters(self) -> Parameters:
        """Return the JSON parameters of the ballot: its kind, and those of each question."""
        return {"kind": "sampled", "questions": [dict(q.parameters) for q in self.questions]}

    @property
    def ratio(self) -> Fraction:
        """Return how many times likelier a ballot can be under some answers than under others.

        It is the largest likelihood ratio of any question, and its logarithm is the local epsilon.
        The choice of the question adds nothing, because it is independent of the answers.
        """
        return max(question.ratio for question in self.questions)

    @property
    def epsilon(self) -> Fraction:
        """Return the local epsilon of the whole ballot, which asks one random question."""
        return epsilon_of(self.ratio)

    def randomise(self, values: Integers, words: Words) -> Reports:
        """Randomise each respondent's answer to one random question; return one ballot per row.

        Reports shorter than the longest are padded with zero bytes.
        """
        which = among(words[0], len(self.questions))
        reports = np.zeros((len(values), self.width), dtype=np.uint8)
        reports[:, 0], reports[:, 1] = which & np.uint64(255), which >> np.uint64(8)
        for number, (question, column) in enumerate(
            zip(self.questions, _columns(values, self.questions), strict=True)
        ):
            asked = np.flatnonzero(which == number)
            some = np.ascontiguousarray(words[1 : 1 + question.words_per_report, asked])
            reports[asked, 2 : 2 + question.width] = question.randomise(column[asked], some)
        return reports

    def are_valid(self, reports: Reports) -> Booleans:
        """Return a mask of the valid ballots.

        A valid ballot names an existing question, and holds a valid report on it, padded with zero
        bytes.
        """
        which, valid = _which(reports), np.zeros(len(reports), dtype=np.bool_)
        for number, question in enumerate(self.questions):
            asked = np.flatnonzero(which == number)
            end = 2 + question.width
            said = np.ascontiguousarray(reports[asked, 2:end])
            valid[asked] = question.are_valid(said) & ~reports[asked, end:].any(axis=1)
        return valid

    def parts(self, reports: Reports) -> list[tuple[Randomiser, Reports]]:
        """Return each question with the reports of the ballots that drew it."""
        which = _which(reports)
        return [
            (question, np.ascontiguousarray(reports[which == number, 2 : 2 + question.width]))
            for number, question in enumerate(self.questions)
        ]


def randomise_ballots(ballot: Randomiser, values: Integers, dice: RandomSource) -> Reports:
    """Randomise rows of answers to ballots, one row of bytes for each person."""
    return ballot.randomise(values, drawn(dice, ballot.words_per_report, len(values)))


def leaves(ballot: Randomiser, reports: Reports) -> list[tuple[Randomiser, Reports]]:
    """Return the single questions of a nested ballot (its leaves), in order, with their reports.

    Ballots of the wrong length and invalid ballots are refused.
    """
    if reports.ndim != 2 or reports.shape[1] != ballot.width:
        raise Refused(
            "bad-request",
            "A ballot has another length than this survey's ballots.",
            "Send the bytes that randomising the answers gave, unchanged.",
        )
    if not ballot.are_valid(reports).all():
        raise Refused(
            "bad-request",
            "A ballot has a value that no device following this survey can send.",
            "Send the bytes that randomising the answers gave, unchanged.",
        )
    if not isinstance(ballot, (Split, Sampled)):
        return [(ballot, reports)]
    parts = ballot.parts(reports)
    return [leaf for question, some in parts for leaf in leaves(question, some)]


def arity(question: Randomiser) -> int:
    """Return the number of answer columns of a question: more than one if it is itself a ballot."""
    return question.arity if isinstance(question, (Split, Sampled)) else 1


def choices(count: int, epsilon: Fraction) -> Sampled:
    """Return a ballot for a multiple-choice question: it asks about one random choice of `count`.

    The answers to each choice are: not chosen (0), chosen (1), silence (2). `epsilon` is the local
    epsilon of the ballot.
    """
    return Sampled((KAry.within(3, epsilon),) * count)


def _check(questions: tuple[Randomiser, ...]) -> None:
    if not 1 <= len(questions) <= MAX_QUESTIONS:
        raise Bug("a ballot has one question at least")


def _columns(values: Integers, questions: tuple[Randomiser, ...]) -> list[Integers]:
    """Split a matrix of answers (one row per person) into the columns of each question.

    A single question gets a vector of answers, and a nested ballot gets a matrix.
    """
    if values.ndim != 2 or values.shape[1] != sum(map(arity, questions)):
        raise Refused(
            "bad-request",
            "The answers do not have one column for each question of the survey.",
            "Give an answer to each of the survey's questions.",
        )
    columns = [values[:, some] for some in _cut([arity(question) for question in questions])]
    return [
        column if isinstance(question, (Split, Sampled)) else column[:, 0]
        for question, column in zip(questions, columns, strict=True)
    ]


def _cut(lengths: Sequence[int]) -> list[slice]:
    ends = np.cumsum([0, *lengths]).tolist()
    return [slice(start, end) for start, end in pairwise(ends)]


def _which(reports: Reports) -> Integers:
    return reports[:, 0].astype(np.int64) | reports[:, 1].astype(np.int64) << 8
