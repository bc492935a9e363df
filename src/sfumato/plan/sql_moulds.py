"""Texts that differ in nothing but numbers of WHERE are read once: the rest gives a mould.

A number that a column is compared with stands in the question as it is, and how all else is read
hangs on no such number. So the next text of the same letters is given its own numbers, each where
the first text's stood. Every other number (of LIMIT, of a bin, with a sign or a point) is a part of
the mould. A text with an inner SELECT leaves none: what that gives is read wherever it is named.
Held by tests/plan/test_moulds.py, which reads every text both ways.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from sfumato.core.expression import All, AnyOf, Compare, Constant, Not, Predicate
from sfumato.core.question import Question
from sfumato.plan.read_sql import Read, read_noted
from sfumato.plan.remembered import Remembered
from sfumato.plan.sql_text import MAX_TEXT

BYTES: Final = 8 * 1024 * 1024
_OF_A_LETTER: Final = 80  # bytes of a mould for a letter of its text: a tree and its places
# No quotes, comments or letters beyond ASCII: what looks like a number is one.
_PLAIN: Final = re.compile(r"(?!.*(?:--|/\*|//))[\w\s,.()<>=!*+/-]*", re.ASCII | re.DOTALL)
_NUMBER: Final = re.compile(r"(?<![\w.])[0-9]{1,15}(?![\w.])", re.ASCII)
_COMPARED: Final = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
Free = tuple[int, ...]  # which of a text's numbers are compared with in WHERE


@dataclass(frozen=True)
class Numbers:
    """A text's numbers, and its letters with each number's digits blotted out."""

    letters: str
    found: tuple[re.Match[str], ...]

    def fixed(self, free: Free) -> tuple[str, ...]:
        """Return the numbers that are a part of the mould."""
        return tuple(one.group() for place, one in enumerate(self.found) if place not in free)


@dataclass(frozen=True)
class Mould:
    """A question that was read, and the comparisons whose numbers another text gives anew."""

    question: Question
    compared: tuple[Compare, ...]


class Moulds:
    """Moulds of the texts that were read of late; a refusal leaves none."""

    def __init__(self, most_bytes: int = BYTES) -> None:
        self._free: Remembered[Free] = Remembered(most_bytes // 4)
        self._moulds: Remembered[Mould] = Remembered(most_bytes)

    def read(
        self, text: str, data_set: str, max_groups: int | None, max_rows: int | None
    ) -> Question:
        """Return the question that `read_sql` would, or refuse as it does."""
        numbers = _numbers_of(text)
        if numbers is None:
            return _bounded(read_noted(text, data_set).question, max_groups, max_rows)
        free = self._free.find((numbers.letters, data_set))
        if free is not None:
            key = (numbers.letters, numbers.fixed(free), data_set)
            mould = self._moulds.find(key)
            if mould is not None:
                made = _filled(mould, [numbers.found[place].group() for place in free])
                return _bounded(made, max_groups, max_rows)
        read = read_noted(text, data_set)
        self._keep(numbers, data_set, read)
        return _bounded(read.question, max_groups, max_rows)

    def _keep(self, numbers: Numbers, data_set: str, read: Read) -> None:
        compared = _compared_in(numbers, read)
        free = tuple(compared)
        size = _OF_A_LETTER * len(numbers.letters)
        # Which numbers are free hangs on the letters alone; were it not so, none would be.
        if (
            free
            and self._free.made((numbers.letters, data_set), lambda: free, lambda _: size) == free
        ):
            mould = Mould(read.question, tuple(compared.values()))
            key = (numbers.letters, numbers.fixed(free), data_set)
            self._moulds.made(key, lambda: mould, lambda _: size)


def _bounded(question: Question, max_groups: int | None, max_rows: int | None) -> Question:
    if max_groups is None and max_rows is None:
        return question
    return replace(question, max_groups=max_groups, max_rows=max_rows)


def _numbers_of(text: str) -> Numbers | None:
    """Return the numbers of a plain text, of which each place tells where it stands; or None."""
    if len(text) > MAX_TEXT or not _PLAIN.fullmatch(text):
        return None
    found = tuple(_NUMBER.finditer(text))
    return Numbers(_NUMBER.sub(_blot, text), found) if found else None


def _blot(number: re.Match[str]) -> str:
    return "#" * len(number.group())  # as long, so that every part keeps its place in the text


def _compared_in(numbers: Numbers, read: Read) -> dict[int, Compare]:
    """Return the comparisons of WHERE with a number, by the number's place among all."""
    if read.has_inner:
        return {}
    places = {one.start(): place for place, one in enumerate(numbers.found)}
    within = {id(one) for one in _conditions(read.question.where)}
    found: dict[int, Compare] = {}
    for made, node in read.notes:
        if type(made) is Compare and id(made) in within and type(node) in _COMPARED:
            start = _start(node)
            place = None if start is None else places.get(start)
            if place is not None and made.constant == _constant(numbers.found[place].group()):
                found[place] = made
    return dict(sorted(found.items()))


def _start(node: exp.Expr) -> int | None:
    """Return where in the text the comparison's only number begins."""
    sides = [one for one in (node.this, node.expression) if type(one) is exp.Literal]
    start = sides[0].meta.get("start") if len(sides) == 1 and not sides[0].is_string else None
    return start if isinstance(start, int) else None


def _conditions(where: Predicate | None) -> Sequence[Predicate]:
    """Return the condition with all that it is made of by AND, OR and NOT."""
    match where:
        case None:
            return []
        case All(predicates=parts) | AnyOf(predicates=parts):
            return [where, *(one for part in parts for one in _conditions(part))]
        case Not(predicate=inner):
            return [where, *_conditions(inner)]
        case _:
            return [where]


def _constant(digits: str) -> Constant:
    return Constant("number", str(int(digits)))


def _filled(mould: Mould, digits: Sequence[str]) -> Question:
    """Return the mould's question with these numbers, in its places too."""
    pairs = zip(mould.compared, digits, strict=True)
    made: dict[int, Predicate] = {
        id(one): Compare(one.of, one.operator, _constant(number)) for one, number in pairs
    }
    question = mould.question
    where = None if question.where is None else _with(question.where, made)
    places = question.places
    if places is not None:
        parts = tuple(made.get(id(part), part) for part in places.parts)
        places = replace(places, parts=parts)
    return replace(question, where=where, places=places)


def _with(condition: Predicate, made: dict[int, Predicate]) -> Predicate:
    """Return the condition with what was made anew, and note what is made of that."""
    found = made.get(id(condition))
    if found is not None:
        return found
    match condition:
        case All(predicates=parts):
            again: Predicate = All(tuple(_with(part, made) for part in parts))
        case AnyOf(predicates=parts):
            again = AnyOf(tuple(_with(part, made) for part in parts))
        case Not(predicate=inner):
            again = Not(_with(inner, made))
        case _:
            return condition
    made[id(condition)] = again
    return again
