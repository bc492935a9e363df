"""Several questions on one ballot, whose epsilon is for the whole of it (soundness rule 31).

`Split` asks all of them, and the price is the sum. `Sampled` asks one, drawn by a word that no
answer touches, and says which: the price is the largest of any question, and every question has
fewer reports, each of them much sharper. A question may be a ballot itself: several choices are a
sampled ballot of yes, no or silence for each of them, a ranking one of its pairs.
Proof: ballot_split.proof.md.
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
from sfumato.dp.ports import Dice
from sfumato.dp.refusal import Bug, Refused

MOST: int = 1 << 16  # questions: which one it is takes two bytes


@dataclass(frozen=True)
class Split:
    """Questions that are all answered, in order: words and bytes stand one after the other."""

    questions: tuple[Randomiser, ...]

    def __post_init__(self) -> None:
        _check(self.questions)

    @staticmethod
    def within(makers: Sequence[Callable[[Fraction], Randomiser]], epsilon: Fraction) -> Split:
        """Return the ballot whose questions have an even part of this epsilon each."""
        return Split(tuple(make(epsilon / len(makers)) for make in makers))

    @property
    def arity(self) -> int:
        """Return how many columns its answers take."""
        return sum(map(arity, self.questions))

    @property
    def words(self) -> int:
        """Return the words of all questions."""
        return sum(question.words for question in self.questions)

    @property
    def width(self) -> int:
        """Return the bytes of all questions."""
        return sum(question.width for question in self.questions)

    @property
    def parameters(self) -> Parameters:
        """Return the kind, and the parameters of each question."""
        return {"kind": "split", "questions": [dict(q.parameters) for q in self.questions]}

    @property
    def ratio(self) -> Fraction:
        """Return the product: every answer may be the worst at once."""
        return prod((question.ratio for question in self.questions), start=Fraction(1))

    @property
    def epsilon(self) -> Fraction:
        """Return what the whole ballot costs."""
        return epsilon_of(self.ratio)

    def say(self, values: Integers, words: Words) -> Reports:
        """Return the reports of all questions, side by side."""
        columns = _columns(values, self.questions)
        rows = _cut([question.words for question in self.questions])
        said = [
            question.say(column, words[some])
            for question, column, some in zip(self.questions, columns, rows, strict=True)
        ]
        return np.concatenate(said, axis=1)

    def are_valid(self, reports: Reports) -> Booleans:
        """Say which are valid in every question."""
        valid = [question.are_valid(part) for question, part in self.parts(reports)]
        return np.asarray(np.all(valid, axis=0))

    def parts(self, reports: Reports) -> list[tuple[Randomiser, Reports]]:
        """Return each question and the reports on it."""
        places = _cut([question.width for question in self.questions])
        return [
            (question, np.ascontiguousarray(reports[:, some]))
            for question, some in zip(self.questions, places, strict=True)
        ]


@dataclass(frozen=True)
class Sampled:
    """Questions of which one is answered, drawn by the first word; which, then its report."""

    questions: tuple[Randomiser, ...]

    def __post_init__(self) -> None:
        _check(self.questions)

    @staticmethod
    def within(makers: Sequence[Callable[[Fraction], Randomiser]], epsilon: Fraction) -> Sampled:
        """Return the ballot whose questions have all of this epsilon each."""
        made = {make: make(epsilon) for make in makers}
        return Sampled(tuple(made[make] for make in makers))

    @property
    def arity(self) -> int:
        """Return how many columns its answers take."""
        return sum(map(arity, self.questions))

    @property
    def words(self) -> int:
        """Return a word for the choice, and those of the question that takes most."""
        return 1 + max(question.words for question in self.questions)

    @cached_property
    def width(self) -> int:
        """Return two bytes for the choice, and those of the longest report."""
        return 2 + max(question.width for question in self.questions)

    @property
    def parameters(self) -> Parameters:
        """Return the kind, and the parameters of each question."""
        return {"kind": "sampled", "questions": [dict(q.parameters) for q in self.questions]}

    @property
    def ratio(self) -> Fraction:
        """Return the largest: which question it is tells nothing of the answers."""
        return max(question.ratio for question in self.questions)

    @property
    def epsilon(self) -> Fraction:
        """Return what the whole ballot costs."""
        return epsilon_of(self.ratio)

    def say(self, values: Integers, words: Words) -> Reports:
        """Return which question each answers, and the report; shorter ones end in zeros."""
        which = among(words[0], len(self.questions))
        reports = np.zeros((len(values), self.width), dtype=np.uint8)
        reports[:, 0], reports[:, 1] = which & np.uint64(255), which >> np.uint64(8)
        for number, (question, column) in enumerate(
            zip(self.questions, _columns(values, self.questions), strict=True)
        ):
            asked = np.flatnonzero(which == number)
            some = np.ascontiguousarray(words[1 : 1 + question.words, asked])
            reports[asked, 2 : 2 + question.width] = question.say(column[asked], some)
        return reports

    def are_valid(self, reports: Reports) -> Booleans:
        """Say which name a question, have a valid report on it, and end in zeros."""
        which, valid = _which(reports), np.zeros(len(reports), dtype=np.bool_)
        for number, question in enumerate(self.questions):
            asked = np.flatnonzero(which == number)
            end = 2 + question.width
            said = np.ascontiguousarray(reports[asked, 2:end])
            valid[asked] = question.are_valid(said) & ~reports[asked, end:].any(axis=1)
        return valid

    def parts(self, reports: Reports) -> list[tuple[Randomiser, Reports]]:
        """Return each question and the reports on it."""
        which = _which(reports)
        return [
            (question, np.ascontiguousarray(reports[which == number, 2 : 2 + question.width]))
            for number, question in enumerate(self.questions)
        ]


def randomise_ballots(ballot: Randomiser, values: Integers, dice: Dice) -> Reports:
    """Return a packed ballot for each row of answers."""
    return ballot.say(values, drawn(dice, ballot.words, len(values)))


def leaves(ballot: Randomiser, reports: Reports) -> list[tuple[Randomiser, Reports]]:
    """Return every single question, in order, and the valid reports on it."""
    if reports.ndim != 2 or reports.shape[1] != ballot.width:
        raise Refused("bad-request", "A ballot has another length.", "Send it as it was made.")
    if not ballot.are_valid(reports).all():
        raise Refused("bad-request", "No client makes such a ballot.", "Send it as it was made.")
    if not isinstance(ballot, (Split, Sampled)):
        return [(ballot, reports)]
    parts = ballot.parts(reports)
    return [leaf for question, some in parts for leaf in leaves(question, some)]


def arity(question: Randomiser) -> int:
    """Return how many columns the answers to a question take."""
    return question.arity if isinstance(question, (Split, Sampled)) else 1


def choices(count: int, epsilon: Fraction) -> Sampled:
    """Return the ballot for several choices: each is not chosen (0), chosen (1), or silence (2)."""
    return Sampled((KAry.within(3, epsilon),) * count)


def _check(questions: tuple[Randomiser, ...]) -> None:
    if not 1 <= len(questions) <= MOST:
        raise Bug("a ballot has one question at least")


def _columns(values: Integers, questions: tuple[Randomiser, ...]) -> list[Integers]:
    """Return the answers to each question: one column as a vector, several as they are."""
    if values.ndim != 2 or values.shape[1] != sum(map(arity, questions)):
        raise Refused("bad-request", "The ballot has other questions.", "Answer each of them.")
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
