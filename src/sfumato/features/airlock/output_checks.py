"""Check files automatically before review: small groups, exact numbers, dominance, differencing.

A check that finds nothing proves nothing (docs/explanation/sharp-edges.md). Reviewers decide on the
release; a file of a wrong kind is never released.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final  # Any: JSON

from sfumato.features.airlock.cell_numbers import count_of, digits_of, number_of, numbers_in, plain
from sfumato.features.airlock.declared_tables import (
    LOOK,
    STOPS,
    DeclaredFile,
    Earlier,
    Finding,
    Table,
)
from sfumato.features.airlock.differencing_check import (
    STUMBLES,
    Compared,
    compare_files,
    differences,
)
from sfumato.features.airlock.file_types import TABLES, fault_of, json_of, kind_of, rows_of, text_of
from sfumato.features.airlock.unseen_text import NOTHING, unseen_text
from sfumato.sandbox.file_formats.numpy_array import read_npy
from sfumato.vault.card.airlock_terms import AirlockTerms
from sfumato.vault.hash_chain import canonical

__all__ = [
    "LOOK", "STOPS", "DeclaredFile", "Earlier", "Finding", "Measured", "checked", "findings_text",
    "read_measured", "stops",
]  # fmt: skip
_MAX_CELLS: Final = 200_000  # the most cells of a file that the checks read
# dominance: all parts but the two largest must sum to this per cent of the largest part
_REST: Final = 10
_CODED: Final = re.compile(r"(?=\S*\d)[A-Za-z0-9+/=_-]{16,}")

# the number of people in a group; and the largest part, second largest part and total of its sum
_Group = tuple[int, float, float, float]


@dataclass(frozen=True)
class Measured:
    """What our own counting program measured in the real rows: the people and sums of each group.

    The output checks compare a program's files with it.
    """

    people: int
    groups: Mapping[str, Mapping[tuple[str, ...], _Group]]


def findings_text(found: Sequence[Finding]) -> str:
    """Return the findings as canonical JSON, which the seal of a vote covers."""
    return canonical([one.as_json() for one in found])


def read_measured(text: str) -> Measured | None:
    """Parse the counting program's measurements; return None if they are missing or malformed."""
    try:
        body: Any = json.loads(text)
        groups = {path: _groups(lines) for path, lines in body["tables"].items()}
        return Measured(int(body["people"]), groups)
    except (
        ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError,
    ):  # fmt: skip
        return None


def _groups(lines: Any) -> dict[tuple[str, ...], _Group]:
    """Parse the counting program's lines: people and parts of sums of a table's groups, by key.

    Keys are normalised. If that makes two keys equal, keep the worse of each number.
    """
    groups: dict[tuple[str, ...], _Group] = {}
    for key, n, first, second, total in lines:
        name = tuple(map(plain, key))
        one = int(n), *_sized(float(first), float(second), float(total))
        groups[name] = _worse(groups[name], one) if name in groups else one
    return groups


def _sized(first: float, second: float, total: float) -> tuple[float, float, float]:
    """Return a sum's largest part by one person, its second largest part, and its total.

    If one of them is not finite, return values for which one person dominates the sum.
    """
    parts = first, second, total
    return parts if all(map(math.isfinite, parts)) else (math.inf, 0.0, math.inf)


def _worse(one: _Group, two: _Group) -> _Group:
    totals = [group[3] for group in (one, two) if group[3] > 0]
    return (
        min(one[0], two[0]), max(one[1], two[1]), max(one[2], two[2]), min(totals, default=0.0),
    )  # fmt: skip


def checked(
    asked: Sequence[DeclaredFile],
    files: Mapping[str, bytes],
    terms: AirlockTerms,
    measured: Measured | None,
    earlier: Sequence[Earlier],
) -> tuple[Finding, ...]:
    """Run all checks on all files; return the findings in the order of the files. Never raises."""
    found: list[Finding] = []
    past = [compare_files(one.asked, one.file, f"request {one.request}") for one in earlier]
    for one in asked:
        file = files.get(one.path)
        if file is None:
            found.append(
                Finding(
                    one.path,
                    "missing",
                    "the program did not write this file, or a reviewer removed it",
                )
            )
            continue
        try:
            found += list(_one_checked(one, file, terms, measured, past))
        except STUMBLES:
            found.append(Finding(one.path, "kind", "the checks cannot read this file", STOPS))
            continue
        past.append(compare_files(one, file, "this request"))
    return tuple(found)


def stops(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return those findings that block a release, however the reviewers vote."""
    return tuple(one for one in found if one.weight == STOPS)


def _one_checked(
    one: DeclaredFile,
    file: bytes,
    terms: AirlockTerms,
    measured: Measured | None,
    past: Sequence[Compared],
) -> Iterator[Finding]:
    fault = fault_of(one.path, file)
    if fault is not None:
        yield Finding(one.path, "kind", fault, STOPS)
        return
    yield from _file_checks(one, file, terms, measured)
    mine = compare_files(one, file, "this request")
    for other in past:
        yield from differences(mine, other, terms)


def _file_checks(
    one: DeclaredFile, file: bytes, terms: AirlockTerms, measured: Measured | None
) -> Iterator[Finding]:
    kind = kind_of(one.path)
    if one.is_table:
        table = Table(one, rows_of(one.path, file))
        yield from _table_checks(table, terms, measured)
    elif kind == "json":
        yield from _number_checks(one.path, _cells_of(json_of(file)), terms)
    elif kind == "txt":
        yield from _number_checks(one.path, text_of(file).split(), terms)
    elif kind == "npy":
        yield from _number_checks(one.path, map(repr, read_npy(file).numbers().tolist()), terms)
    else:
        yield Finding(
            one.path,
            "eyes",
            f"no check can tell what a .{kind} file shows: look at all of it yourself",
        )
    unseen = unseen_text(one.path, file) if kind in {*TABLES, "json", "txt"} else 0
    if unseen:
        yield Finding(
            one.path,
            "blanks",
            f"{unseen} places have unusual blanks, line ends or quotes, which can carry hidden "
            "data",
        )


def _cells_of(said: object) -> Iterator[str]:
    """Yield every key, text and number of a parsed JSON as text, like cells of a table."""
    if isinstance(said, dict | list):
        for one in said:
            yield from _cells_of(one)
        for one in said.values() if isinstance(said, dict) else ():
            yield from _cells_of(one)
    elif not isinstance(said, bool) and said is not None:
        yield str(said)


def _table_checks(
    table: Table, terms: AirlockTerms, measured: Measured | None
) -> Iterator[Finding]:
    one = table.asked
    if not table.has_groups:
        yield Finding(one.path, "undeclared", "the table lacks a column that the author declared")
        return
    if not one.count:
        yield Finding(
            one.path,
            "uncounted",
            "no column is declared (count) that gives the number of people of each line",
        )
    else:
        yield from _count_checks(table, terms)
    rest = [head for head in table.heads if head not in {*one.by, one.count}]
    yield from _number_checks(
        one.path, (*rest, *(line[head] for line in table.lines for head in rest)), terms
    )
    yield from _rest_checks(table, rest, terms)
    yield from _measured_checks(table, terms, measured)


def _count_checks(table: Table, terms: AirlockTerms) -> Iterator[Finding]:
    path, name = table.asked.path, table.asked.count
    counts = [count_of(line[name]) for line in table.lines]
    small = sum(1 for count in counts if count is not None and 0 < abs(count) < terms.smallest)
    exact = sum(1 for count in counts if count is not None and count % terms.round_to)
    if any(count is None for count in counts):
        yield Finding(
            path, "uncounted", f"a cell of the count column {name!r} is not a whole number"
        )
    if small:
        yield Finding(path, "small-count", f"{small} counts of people are below {terms.smallest}")
    if exact:
        yield Finding(
            path,
            "unrounded",
            f"{exact} counts of people are not rounded to multiples of {terms.round_to}",
        )


def _number_checks(path: str, cells: Iterable[str], terms: AirlockTerms) -> Iterator[Finding]:
    """Yield findings on cells with numbers not rounded, small whole numbers, or encoded text."""
    exact = small = coded = 0
    for place, cell in enumerate(cells):
        if place >= _MAX_CELLS:
            yield Finding(
                path,
                "many-lines",
                f"the file has more than {_MAX_CELLS:,} cells, and the rest was not checked",
            )
            break
        coded += number_of(cell) is None and _CODED.fullmatch(cell.strip()) is not None
        for number in numbers_in(cell):
            exact += digits_of(number) > terms.digits
            small += number == number.to_integral_value() and 0 < abs(number) < terms.smallest
    if exact:
        yield Finding(path, "unrounded", f"{exact} numbers have more than {terms.digits} digits")
    if small:
        yield Finding(
            path,
            "small-number",
            f"{small} whole numbers below {terms.smallest} may be counts of few people",
        )
    if coded:
        yield Finding(
            path, "coded", f"{coded} cells look like encoded text, which can carry hidden data"
        )


def _rest_checks(table: Table, rest: Sequence[str], terms: AirlockTerms) -> Iterator[Finding]:
    """Yield findings about the columns `rest`, which hold neither groups nor counts of people.

    The checks find shares of few people, words, and sums that the author did not declare.
    """
    one = table.asked
    shares = words = numbers = 0
    for line in table.lines:
        people = count_of(line[one.count]) if one.count else None
        for cell in (line[head] for head in rest):
            found = numbers_in(cell)
            numbers += bool(found)
            words += number_of(cell) is None and cell.strip().casefold() not in NOTHING
            if people is not None:
                shares += any(_is_share_of_few(cell, n, people, terms) for n in found)
    if shares:
        yield Finding(
            one.path, "small-share", f"{shares} shares may be of fewer people than may be shown"
        )
    if words:
        yield Finding(
            one.path, "words", f"{words} cells outside the group columns are texts: read them"
        )
    if numbers and one.by and not one.of:
        yield Finding(
            one.path,
            "undeclared",
            "no column is declared (of) that the numbers are sums of, so it was not checked "
            "whether one person dominates a sum",
        )


def _is_share_of_few(cell: str, number: Decimal, people: Decimal, terms: AirlockTerms) -> bool:
    """Return True if a share, or its complement, stands for few people: 4 % of 50 are two."""
    share = number / 100 if "%" in cell else number
    parts = share * people, (1 - share) * people
    return 0 < share < 1 and any(0 < part < terms.smallest for part in parts)


def _measured_checks(
    table: Table, terms: AirlockTerms, measured: Measured | None
) -> Iterator[Finding]:
    one = table.asked
    if measured is None:
        yield Finding(
            one.path, "unmeasured", "the groups of this table could not be counted in the real rows"
        )
        return
    if len(table.lines) * terms.smallest > measured.people:
        yield Finding(
            one.path, "many-lines", "the table has so many lines that each may describe one person"
        )
    if not one.by:
        yield Finding(
            one.path,
            "undeclared",
            "no columns are declared (by) that define the groups of the lines",
        )
        return
    groups = measured.groups.get(one.path, {})
    shown = [groups.get(table.key(line, one.by)) for line in table.lines]
    real = [group for group in shown if group is not None]
    if len(real) < len(shown):
        count = len(shown) - len(real)
        yield Finding(one.path, "undeclared", f"{count} lines match no group in the real rows")
    small = sum(1 for group in real if group[0] < terms.smallest)
    if small:
        yield Finding(
            one.path, "small-group", f"{small} lines are about fewer than {terms.smallest} people"
        )
    wrong = sum(
        _is_miscounted(table, *pair, terms) for pair in zip(table.lines, shown, strict=True)
    )
    if wrong:
        yield Finding(
            one.path, "miscounted", f"{wrong} counts of people differ from those in the real rows"
        )
    led = sum(1 for group in real if _is_dominated(group, terms)) if one.of else 0
    if led:
        yield Finding(
            one.path, "dominance", f"one or two people make up most of {led} lines' {one.of!r}"
        )


def _is_miscounted(
    table: Table, line: Mapping[str, str], group: _Group | None, terms: AirlockTerms
) -> bool:
    """Return True if a line's count differs from the real count by more than rounding allows."""
    said = count_of(line[table.asked.count]) if table.asked.count else None
    return group is not None and said is not None and abs(said - group[0]) >= terms.round_to


def _is_dominated(group: _Group, terms: AirlockTerms) -> bool:
    """Return True if a group's sum says too much about one person's part of it.

    Either the two largest parts exceed the allowed share of the sum. Or all other parts are so
    small that the second person could compute the largest part closely.
    """
    _, first, second, total = group
    if math.isinf(first) or total <= 0:
        return math.isinf(first)
    rest = total - first - second
    return (first + second) * 100 > total * terms.dominance or rest * 100 < first * _REST
