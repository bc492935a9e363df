"""What is looked for before anybody looks: small groups, exact numbers, one person in a sum, and
what the difference to an earlier file would show.

A check can only find; that it found nothing says nothing (docs/sharp-edges.md). It is people who
release a file, and no file of a wrong kind is released at all.
"""

from __future__ import annotations

import csv
import json
import re
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final  # Any: JSON

from sfumato.core.airlock_card import AirlockTerms
from sfumato.core.airlock_files import TABLES, fault_of, kind_of, rows_of, text_of
from sfumato.core.airlock_numbers import count_of, digits_of, number_of, plain
from sfumato.core.chain import canonical
from sfumato.core.expression import Json
from sfumato.core.npy import read_npy

STOPS, LOOK = "stops", "look"
_STUMBLES: Final = (
    ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RecursionError, csv.Error,
    struct.error,
)  # fmt: skip
_REST: Final = 10  # percent of the largest part that all but the two largest must come to
_CODED: Final = re.compile(r"(?=\S*\d)[A-Za-z0-9+/=_-]{16,}")

# people, the largest part, the second, all of it
_Group = tuple[int, float, float, float]
_Counts = dict[tuple[str, ...], Decimal]  # people, by group


@dataclass(frozen=True)
class Asked:
    """A file that a request is about, and what its author says that it is."""

    path: str
    by: tuple[str, ...] = ()  # columns of the card, and of the table, that its lines are groups of
    count: str = ""  # the column with the number of people
    of: str = ""  # the column of the card that is added up in it

    @property
    def is_table(self) -> bool:
        """Say whether its lines can be read."""
        return kind_of(self.path) in TABLES


@dataclass(frozen=True)
class Finding:
    """Something that a check has seen in a file."""

    path: str
    check: str
    says: str
    weight: str = LOOK

    def as_json(self) -> Json:
        """Return it as reviewers see it."""
        return {"path": self.path, "check": self.check, "says": self.says, "weight": self.weight}


@dataclass(frozen=True)
class Earlier:
    """A file that was released before about the same people."""

    request: str
    asked: Asked
    file: bytes


@dataclass(frozen=True)
class Measured:
    """What our own program counted of the real rows: people a group, and the parts of a sum."""

    people: int
    groups: Mapping[str, Mapping[tuple[str, ...], _Group]]


def findings_text(found: Sequence[Finding]) -> str:
    """Return the findings as a vote pins them."""
    return canonical([one.as_json() for one in found])


def read_measured(text: str) -> Measured | None:
    """Return what was measured, or None where nothing was."""
    try:
        body: Any = json.loads(text)
        groups = {path: _groups(lines) for path, lines in body["tables"].items()}
        return Measured(int(body["people"]), groups)
    except (
        ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError,
    ):  # fmt: skip
        return None


def _groups(lines: Any) -> dict[tuple[str, ...], _Group]:
    """Return the groups of a table; of those that read the same, the worst of each number."""
    groups: dict[tuple[str, ...], _Group] = {}
    for key, n, first, second, total in lines:
        name = tuple(map(plain, key))
        one = int(n), float(first), float(second), float(total)
        groups[name] = _worse(groups[name], one) if name in groups else one
    return groups


def _worse(one: _Group, two: _Group) -> _Group:
    totals = [group[3] for group in (one, two) if group[3] > 0]
    return (
        min(one[0], two[0]), max(one[1], two[1]), max(one[2], two[2]), min(totals, default=0.0),
    )  # fmt: skip


def checked(
    asked: Sequence[Asked],
    files: Mapping[str, bytes],
    terms: AirlockTerms,
    measured: Measured | None,
    earlier: Sequence[Earlier],
) -> tuple[Finding, ...]:
    """Return everything that the checks find, in the order of the files; never raises."""
    found: list[Finding] = []
    past = [_past(one.asked, one.file, f"request {one.request}") for one in earlier]
    for one in asked:
        file = files.get(one.path)
        if file is None:
            found.append(
                Finding(one.path, "missing", "the program did not write it, or it was taken out")
            )
            continue
        try:
            found += list(_one_checked(one, file, terms, measured, past))
        except _STUMBLES:
            found.append(Finding(one.path, "kind", "it could not be checked", STOPS))
            continue
        past.append(_past(one, file, "this request"))
    return tuple(found)


def stops(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the findings that no vote can outweigh."""
    return tuple(one for one in found if one.weight == STOPS)


def _one_checked(
    one: Asked,
    file: bytes,
    terms: AirlockTerms,
    measured: Measured | None,
    past: Sequence[_Past],
) -> Iterator[Finding]:
    fault = fault_of(one.path, file)
    if fault is not None:
        yield Finding(one.path, "kind", fault, STOPS)
        return
    yield from _file_checks(one, file, terms, measured)
    if one.is_table:
        mine = _Table(one, rows_of(one.path, file))
        for other in past:
            yield from _differences(mine, other, terms)


def _file_checks(
    one: Asked, file: bytes, terms: AirlockTerms, measured: Measured | None
) -> Iterator[Finding]:
    kind = kind_of(one.path)
    if one.is_table:
        table = _Table(one, rows_of(one.path, file))
        yield from _table_checks(table, terms, measured)
    elif kind in ("json", "txt"):
        words = re.split(r"[\s,:\[\]{}\"]+", text_of(file))
        yield from _number_checks(one.path, words, terms)
    elif kind == "npy":
        yield from _number_checks(one.path, map(repr, read_npy(file).numbers().tolist()), terms)
    else:
        yield Finding(
            one.path, "eyes", f"no program can tell what a .{kind} shows; look at all of it"
        )


class _Table:
    """A table by its column names."""

    def __init__(self, asked: Asked, rows: list[list[str]]) -> None:
        self.asked = asked
        self.heads = [head.strip() for head in rows[0]]
        self.lines = [dict(zip(self.heads, row, strict=True)) for row in rows[1:]]

    @property
    def has_groups(self) -> bool:
        """Say whether the columns that its author named are all there."""
        return {*self.asked.by, self.asked.count} - {""} <= set(self.heads)

    def key(self, line: Mapping[str, str], by: Sequence[str]) -> tuple[str, ...]:
        """Return the group of a line."""
        return tuple(plain(line[name]) for name in by)

    def counts(self, by: Sequence[str]) -> _Counts:
        """Return the people of each group, those of finer groups together."""
        sums: defaultdict[tuple[str, ...], Decimal] = defaultdict(Decimal)
        for line in self.lines:
            sums[self.key(line, by)] += count_of(line[self.asked.count]) or 0
        return dict(sums)


@dataclass(frozen=True)
class _Past:
    """A table that another is compared with, and where it is from; none if it is no table."""

    table: _Table | None
    where: str


def _past(asked: Asked, file: bytes, where: str) -> _Past:
    where = f"{asked.path!r} of {where}"
    if not asked.is_table:
        return _Past(None, where)
    try:
        return _Past(_Table(asked, rows_of(asked.path, file)), where)
    except _STUMBLES:  # it was released under older checks, or is stopped itself
        return _Past(None, where)


def _table_checks(
    table: _Table, terms: AirlockTerms, measured: Measured | None
) -> Iterator[Finding]:
    one = table.asked
    if not table.has_groups:
        yield Finding(one.path, "undeclared", "a column that its author named is not in it")
        return
    if not one.count:
        yield Finding(one.path, "uncounted", "it does not say how many people each line is of")
    else:
        yield from _count_checks(table, terms)
    rest = set(table.heads) - {*one.by, one.count}
    cells = [line[head] for line in table.lines for head in table.heads if head in rest]
    yield from _number_checks(one.path, cells, terms, are_small_told=not one.count)
    yield from _measured_checks(table, terms, measured)


def _count_checks(table: _Table, terms: AirlockTerms) -> Iterator[Finding]:
    path, name = table.asked.path, table.asked.count
    counts = [count_of(line[name]) for line in table.lines]
    small = sum(1 for count in counts if count is not None and 0 < count < terms.smallest)
    exact = sum(1 for count in counts if count is not None and count % terms.round_to)
    if any(count is None for count in counts):
        yield Finding(path, "uncounted", f"a cell of {name!r} is no count")
    if small:
        yield Finding(path, "small-count", f"{small} counts of people are below {terms.smallest}")
    if exact:
        yield Finding(
            path, "unrounded", f"{exact} counts of people are no multiples of {terms.round_to}"
        )


def _number_checks(
    path: str, cells: Any, terms: AirlockTerms, *, are_small_told: bool = True
) -> Iterator[Finding]:
    """Look at cells one by one; `cells` may be any texts."""
    exact = small = coded = 0
    for cell in cells:
        number = number_of(cell)
        if number is None:
            coded += _CODED.fullmatch(cell.strip()) is not None
            continue
        exact += digits_of(number) > terms.digits
        small += number == number.to_integral_value() and 0 < abs(number) < terms.smallest
    if exact:
        yield Finding(path, "unrounded", f"{exact} numbers have more than {terms.digits} digits")
    if small and are_small_told:
        yield Finding(
            path, "small-number", f"{small} whole numbers below {terms.smallest} may be counts"
        )
    if coded:
        yield Finding(path, "coded", f"{coded} cells look like codes, and could be anything")


def _measured_checks(
    table: _Table, terms: AirlockTerms, measured: Measured | None
) -> Iterator[Finding]:
    one = table.asked
    if measured is None:
        yield Finding(one.path, "unmeasured", "its groups could not be counted in the real rows")
        return
    if len(table.lines) * terms.smallest > measured.people:
        yield Finding(one.path, "many-lines", "it has so many lines that they may be people")
    if not one.by:
        yield Finding(
            one.path, "undeclared", "its author does not say what its lines are groups of"
        )
        return
    groups = measured.groups.get(one.path, {})
    shown = [groups.get(table.key(line, one.by)) for line in table.lines]
    real = [group for group in shown if group is not None]
    if len(real) < len(shown):
        count = len(shown) - len(real)
        yield Finding(one.path, "undeclared", f"{count} lines are no groups of the real rows")
    small = sum(1 for group in real if group[0] < terms.smallest)
    if small:
        yield Finding(
            one.path, "small-group", f"{small} lines are of fewer than {terms.smallest} people"
        )
    led = sum(1 for group in real if _is_dominated(group, terms)) if one.of else 0
    if led:
        yield Finding(
            one.path, "dominance", f"one or two people make up most of {led} lines' {one.of!r}"
        )


def _is_dominated(group: _Group, terms: AirlockTerms) -> bool:
    """Say whether two people have too much of a sum, or could tell each other's part of it."""
    _, first, second, total = group
    if total <= 0:
        return False
    rest = total - first - second
    return (first + second) * 100 > total * terms.dominance or rest * 100 < first * _REST


def _differences(mine: _Table, other: _Past, terms: AirlockTerms) -> Iterator[Finding]:
    """Compare the people of groups that both tables add up to: few more or less are few people."""
    theirs, path = other.table, mine.asked.path
    if theirs is None:
        return
    if not (mine.asked.count and theirs.asked.count and mine.has_groups and theirs.has_groups):
        yield from _same_lines(mine, theirs, other.where, terms)
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
            f"{near} groups ({what}) differ by fewer than {terms.smallest} people from "
            f"{other.where}",
        )
    same = _as_many(mine, theirs, before, now) if set(mine.asked.by) == set(theirs.asked.by) else 0
    if same:
        yield Finding(
            path,
            "difference",
            f"{same} groups ({what}) have as many people as in {other.where}, and other numbers",
        )


def _as_many(mine: _Table, theirs: _Table, before: _Counts, now: _Counts) -> int:
    """Return how many groups have one count in both tables and other numbers beside it.

    Counts are rounded: as many people may well be one more or less.
    """
    by = mine.asked.by
    named = {*by, mine.asked.count, theirs.asked.count}
    heads = [head for head in mine.heads if head in theirs.heads and head not in named]
    old = {theirs.key(line, by): line for line in theirs.lines}
    found = set()
    for line in mine.lines:
        key = mine.key(line, by)
        if key in before and now[key] == before[key]:
            pairs = ((number_of(line[head]), number_of(old[key][head])) for head in heads)
            if any(None not in pair and pair[0] != pair[1] for pair in pairs):
                found.add(key)
    return len(found)


def _same_lines(mine: _Table, theirs: _Table, where: str, terms: AirlockTerms) -> Iterator[Finding]:
    """Compare tables that say little of themselves: whole numbers of lines with the same texts."""
    shared = [head for head in mine.heads if head in theirs.heads]
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
    are_whole = one == one.to_integral_value() and two == two.to_integral_value()
    return are_whole and 0 < abs(one - two) < smallest


def _texts(line: Mapping[str, str], heads: Sequence[str]) -> tuple[str, ...]:
    return tuple(plain(line[head]) for head in heads if number_of(line[head]) is None)
