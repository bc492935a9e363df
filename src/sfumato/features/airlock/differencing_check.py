"""Compare a file with earlier files about the same people, to find differencing attacks.

The difference of two files can reveal a few people. Tables of groups are compared by their counts
of people. Other numbers are compared by the words near them and by position. A program that both
renames and reorders escapes this check, but not the reviewers.
"""

from __future__ import annotations

import csv
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Final

from sfumato.features.airlock.cell_numbers import number_of, numbers_in, plain
from sfumato.features.airlock.declared_tables import Counts, DeclaredFile, Finding, Table
from sfumato.features.airlock.file_types import json_of, kind_of, rows_of, text_of
from sfumato.sandbox.file_formats.numpy_array import read_npy
from sfumato.vault.card.airlock_terms import AirlockTerms

STUMBLES: Final = (
    ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RecursionError, csv.Error,
    struct.error,
)  # fmt: skip
MAX_NUMBERS: Final = 10_000  # numbers of a file that are compared
_MAX_ALIKE: Final = 20  # numbers with the same label that each number is compared with
_MAX_BESIDE: Final = 500  # letters read for a number's label, the nearest first
_WORD: Final = re.compile(r"[^\W\d_]+|#[0-9]+")
_CLOSE: Final = Decimal("0.05")  # the relative difference at which fractional numbers are near

_Words = frozenset[str]
_Label = int  # a hash of the set of words near a number; thousands of numbers can share one set
_Numbers = list[tuple[_Label, Decimal]]


@dataclass(frozen=True)
class Compared:
    """One side of a comparison: a file's table and numbers, read once, and where the file is from.

    An unreadable file has neither a table nor numbers.
    """

    asked: DeclaredFile
    where: str
    table: Table | None = None
    numbers: _Numbers | None = None


def compare_files(asked: DeclaredFile, file: bytes, where: str) -> Compared:
    """Prepare a file for comparison: read its table and numbers. Never raises."""
    where = f"{asked.path!r} of {where}"
    if asked.is_for_eyes:
        return Compared(asked, where)
    try:
        table = Table(asked, rows_of(asked.path, file)) if asked.is_table else None
        numbers = list(islice(_labelled(asked, file, table), MAX_NUMBERS + 1))
        return Compared(asked, where, table, numbers)
    # an older version released the file under weaker checks, or another check blocks it
    except STUMBLES:
        return Compared(asked, where)


def differences(mine: Compared, other: Compared, terms: AirlockTerms) -> Iterator[Finding]:
    """Compare a file with another; yield findings if their differences could reveal a few people.

    For two pictures, the finding asks the reviewers to compare them.
    """
    if mine.asked.is_for_eyes or other.asked.is_for_eyes:
        if mine.asked.is_for_eyes and other.asked.is_for_eyes:
            says = f"look at it beside {other.where}: no program can compare them"
            yield Finding(mine.asked.path, "difference", says)
    elif mine.table is not None and other.table is not None:
        yield from _of_tables(mine.table, other.table, other.where, terms)
    elif mine.numbers is not None and other.numbers is not None:
        yield from _of_numbers(mine, other, terms)


# --- tables ---------------------------------------------------------------------------------------


def _of_tables(mine: Table, theirs: Table, where: str, terms: AirlockTerms) -> Iterator[Finding]:
    """Compare the counts of people of the groups that two tables have in common; yield findings.

    A small difference between two counts describes a small set of people. Tables without declared
    counts are compared line by line instead.
    """
    path = mine.asked.path
    if not (mine.asked.count and theirs.asked.count and mine.has_groups and theirs.has_groups):
        yield from _same_lines(mine, theirs, where, terms)
        return
    by = [name for name in mine.asked.by if name in theirs.asked.by]
    before, now = theirs.counts(by), mine.counts(by)
    near = sum(
        1 for key in now if key in before and 0 < abs(now[key] - before[key]) < terms.smallest
    )
    what = ", ".join(by) or "all together"
    if near:
        yield Finding(
            path,
            "difference",
            f"{near} groups ({what}) differ by fewer than {terms.smallest} people from {where}",
        )
    same = _as_many(mine, theirs, before, now) if set(mine.asked.by) == set(theirs.asked.by) else 0
    if same:
        yield Finding(
            path,
            "difference",
            f"{same} groups ({what}) have as many people as in {where}, and other numbers",
        )


def _as_many(mine: Table, theirs: Table, before: Counts, now: Counts) -> int:
    """Count the groups that have equally many people in both tables, but differ in other numbers.

    Counts may be rounded, so equal counts can hide a difference of one person.
    """
    by = mine.asked.by
    named = {*by, mine.asked.count, theirs.asked.count}
    there = set(theirs.heads) - named
    heads = [head for head in mine.heads if head in there]
    old = {theirs.key(line, by): line for line in theirs.lines}
    found = set()
    for line in mine.lines:
        key = mine.key(line, by)
        if key in before and now[key] == before[key]:
            pairs = ((number_of(line[head]), number_of(old[key][head])) for head in heads)
            if any(None not in pair and pair[0] != pair[1] for pair in pairs):
                found.add(key)
    return len(found)


def _same_lines(mine: Table, theirs: Table, where: str, terms: AirlockTerms) -> Iterator[Finding]:
    """Compare tables without declared counts, line by line; yield a finding for near numbers.

    Two lines are compared if all their texts are equal. The finding counts the whole numbers that
    differ by a few.
    """
    there = set(theirs.heads)
    shared = [head for head in mine.heads if head in there]
    before = {_texts(line, shared): line for line in theirs.lines}
    near = 0
    for line in mine.lines:
        old = before.get(_texts(line, shared))
        for head in shared if old is not None else ():
            one, two = number_of(line[head]), number_of(old[head] if old is not None else "")
            if one is not None and two is not None and _is_near(one, two, terms.smallest):
                near += 1
    if near:
        yield Finding(
            mine.asked.path, "difference", f"{near} whole numbers are near those in {where}"
        )


def _is_near(one: Decimal, two: Decimal, smallest: int) -> bool:
    return _are_whole(one, two) and 0 < abs(one - two) < smallest


def _are_whole(*numbers: Decimal) -> bool:
    return all(one == one.to_integral_value() for one in numbers)


def _texts(line: Mapping[str, str], heads: Sequence[str]) -> tuple[str, ...]:
    return tuple(plain(line[head]) for head in heads if number_of(line[head]) is None)


# --- other numbers --------------------------------------------------------------------------------


def _of_numbers(mine: Compared, other: Compared, terms: AirlockTerms) -> Iterator[Finding]:
    """Compare the numbers of two files; yield a finding if some are so close that people differ.

    Numbers are compared if their labels (the words near them) are equal. If both files have equally
    many numbers, numbers at the same position are compared, too.
    """
    now, before = mine.numbers or [], other.numbers or []
    path = mine.asked.path
    if max(len(now), len(before)) > MAX_NUMBERS:
        says = f"it, or {other.where}, has too many numbers to be compared"
        yield Finding(path, "difference", says)
        return
    named: dict[_Label, list[Decimal]] = {}
    for label, number in before:
        named.setdefault(label, []).append(number)
    pairs = [(one, two) for label, one in now for two in named.get(label, ())[:_MAX_ALIKE]]
    if len(now) == len(before):
        pairs += [(one, two) for (_, one), (_, two) in zip(now, before, strict=True)]
    near = {one for one, two in pairs if _tells(one, two, terms.smallest)}
    if near:
        yield Finding(path, "difference", f"{len(near)} numbers are near those in {other.where}")


def _tells(one: Decimal, two: Decimal, smallest: int) -> bool:
    """Return True if two different numbers are so near that only a few people may lie between them.

    Two whole numbers below the smallest allowed group don't count, because another check finds
    them.
    """
    if one == two or (max(abs(one), abs(two)) < smallest and _are_whole(one, two)):
        return False
    if _are_whole(one, two):
        return abs(one - two) < smallest
    return abs(one - two) <= abs(two) * _CLOSE


def _labelled(
    asked: DeclaredFile, file: bytes, table: Table | None
) -> Iterator[tuple[_Label, Decimal]]:
    """Yield every number of a file with a label: a hash of the words near it, in any order."""
    kind = kind_of(asked.path)
    if table is not None:
        yield from _of_lines(table)
    elif kind == "json":
        yield from _of_json(json_of(file), ())
    elif kind == "npy":
        for place, value in enumerate(read_npy(file).numbers().tolist()):
            number = number_of(repr(value))
            if number is not None:
                yield hash(frozenset({f"#{place}"})), number
    else:
        for line in text_of(file).splitlines():
            words = _words(line)
            for place, number in enumerate(numbers_in(line)):
                yield hash(words | ({f"#{place}"} if place else frozenset())), number


def _of_lines(table: Table) -> Iterator[tuple[_Label, Decimal]]:
    named = set(table.asked.by)
    for line in table.lines:
        texts = [cell for head, cell in line.items() if head in named or number_of(cell) is None]
        beside = _words(" ".join(texts))
        for head, cell in line.items():
            if head not in named:
                for number in numbers_in(cell):
                    yield hash(beside | _words(head)), number


def _of_json(said: object, above: tuple[str, ...]) -> Iterator[tuple[_Label, Decimal]]:
    if isinstance(said, dict):
        texts = (one for one in said.values() if isinstance(one, str))
        beside = _nearest((*islice(texts, _MAX_BESIDE), *above))
        for key, one in said.items():
            yield from _of_json(one, (key, *beside))
    elif isinstance(said, list):
        for place, one in enumerate(said):
            yield from _of_json(one, above if isinstance(one, dict) else (f"#{place}", *above))
    elif not isinstance(said, bool) and said is not None:
        for number in numbers_in(str(said)):
            yield hash(_words(" ".join(_nearest(above)))), number


def _nearest(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the first of the texts near a number, cut to 500 letters in all (_MAX_BESIDE).

    They label the number, so that numbers of two files can be compared.
    """
    left = _MAX_BESIDE
    found: list[str] = []
    for text in texts:
        if left <= 0:
            break
        found.append(text[:left])
        left -= len(text) + 1
    return tuple(found)


def _words(text: str) -> _Words:
    return frozenset(_WORD.findall(text[:_MAX_BESIDE].casefold()))
