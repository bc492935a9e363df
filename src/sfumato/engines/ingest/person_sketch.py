"""Bottom-k sketches of persons: detect that two data sets contain the same people.

A sketch keeps the 512 smallest keyed hashes of a set ("bottom-k"). Below the smaller end of two
sketches both samples are complete, and there they can be compared as sets.

For common values (an age and a town), it says little that a value is in both tables. It says much
that a value occurs equally often in both. Let a value have t rows in the two tables together, and
let p be the first table's share of all rows. If both tables are independent samples of one
population, the first table has a Binomial(t, p) number of the t rows. Its expected squared distance
from p t is then t p (1 - p), and more if the populations differ. If m of all N rows are common to
both tables, the expectation is multiplied by 1 - 2m/N. So the distance estimates the number of
shared rows, however common the values are. For unique values the count is exact.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from statistics import mean, pvariance
from typing import Final

import duckdb

from sfumato.engines.ingest.cell_format_sql import plain_spelling
from sfumato.engines.ingest.cell_report import Cell
from sfumato.engines.ingest.cell_sql import secret_number, without_nulls
from sfumato.engines.ingest.prepare_order import TableOrder

VERSION: Final = 3
KEPT: Final = 512
ALIKE: Final = 0.5  # two sets are the same people if this share of the smaller set is in the other
# significance level: counts agree better than by chance by this many standard deviations
SURE: Final = 5
FEW: Final = 8  # with fewer shared values than this, nothing is significant
_COMMON: Final = 8  # a value with more rows than these gets a smaller weight, 1 / rows
_RARE: Final = 4  # a value with at most so many rows is rare
# continuity correction: two rows of a value are one in each table in half of all cases
_GRAIN: Final = 1 / 6

Mark = tuple[int, int]  # a hash, and how often its value occurs (0 for an identifying column)


@dataclass(frozen=True)
class Fingerprint:
    """Bottom-k sample of a set: its smallest keyed hashes, each with how often its value occurs."""

    marks: tuple[Mark, ...]

    @property
    def end(self) -> int:
        """Return the end of the complete part: below this hash, the sample has the whole set."""
        return self.marks[-1][0] + 1 if len(self.marks) >= KEPT else 2**64


@dataclass(frozen=True)
class Sketch:
    """Samples of keyed hashes that identify the people in a data set, to compare it with others.

    There are samples of whole rows (one per table), of identifying columns, and of parts of rows:
    one column or a pair of columns. Parts detect a copy whose other columns were added, removed or
    changed.
    """

    rows: tuple[Fingerprint, ...]
    columns: tuple[Fingerprint, ...]
    parts: tuple[Fingerprint, ...]
    # a keyed hash of all rows of each table, and one of people's files; empty in an older sketch
    whole: tuple[str, ...] = ()


def containment(one: Fingerprint, other: Fingerprint) -> float:
    """Estimate the share of the smaller set that is also in the other set (containment)."""
    end = min(one.end, other.end)
    first, second = ({m for m in f.marks if m[0] < end} for f in (one, other))
    smaller = min(len(first), len(second))
    return len(first & second) / smaller if smaller else 0.0


def are_alike(one: Sketch, other: Sketch) -> bool:
    """Say whether two sketches appear to describe the same people."""
    pairs = [*product(one.rows, other.rows), *product(one.columns, other.columns)]
    if any(containment(a, b) >= ALIKE for a, b in pairs):
        return True
    return any(have_shared_rows(a, b) for a in one.parts for b in other.parts)


def have_shared_rows(one: Fingerprint, other: Fingerprint) -> bool:
    """Say whether at least half of the smaller table's rows are in the other, beyond chance.

    Rare values are also tested alone, because a selection can lack common values. For example, a
    copy of all adults lacks the many pupils with an income of 0.
    """
    both = _counts_of_both(one, other)
    return _are_shared(both) or _are_shared([(a, b) for a, b in both if a + b <= _RARE])


def _counts_of_both(one: Fingerprint, other: Fingerprint) -> list[tuple[int, int]]:
    """Return how often each value occurs in both samples; empty if too few values are shared."""
    end = min(one.end, other.end)
    first, second = ({h: n for h, n in f.marks if h < end} for f in (one, other))
    if len(first.keys() & second.keys()) < FEW:
        return []
    return [(first.get(h, 0), second.get(h, 0)) for h in first.keys() | second.keys()]


def _are_shared(both: Sequence[tuple[int, int]]) -> bool:
    rows, others = sum(a for a, _ in both), sum(b for _, b in both)
    if not rows or not others:
        return False
    p = rows / (rows + others)
    chance = distance = variance = grain = 0.0
    for a, b in both:
        total, weight = a + b, 1 / max(a + b, _COMMON)
        expected = total * p * (1 - p)
        fourth = expected * (1 + (3 * total - 6) * p * (1 - p))
        chance += weight * expected
        distance += weight * (a - p * total) ** 2
        variance += weight**2 * (fourth - expected**2)
        grain += weight * _GRAIN
    shared = (1 - distance / chance) * (rows + others) / 2  # the ratio is 1 - 2m/N
    if shared < ALIKE * min(rows, others):
        return False
    if chance - distance >= SURE * math.sqrt(max(variance, 0)):
        return True
    freedom = 2 * chance**2 / max(variance, 1e-9)
    return _deviations_below((distance + grain) / chance, freedom) >= SURE


def _deviations_below(ratio: float, freedom: float) -> float:
    """Return by how many standard deviations a mean square of normal values is below 1.

    `ratio` is the mean square, and `freedom` its degrees of freedom. Its cube root is nearly normal
    (Wilson-Hilferty, 1931). For a dozen common values this is more accurate than a normal
    approximation of the mean square itself, which ignores the bound at zero.
    """
    spread = 2 / (9 * freedom)
    return (1 - spread - math.cbrt(ratio)) / math.sqrt(spread)


def domains_alike(new: NewSketch, others: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the people domains (names of the people in data sets) that appear to be the same.

    A domain whose sketch is unreadable counts as the same people. The sketches of a domain are also
    compared together: of rows that came in many parts, each part may have few of the people.
    """
    paths: dict[str, list[Path]] = {}
    for domain, path in others:
        paths.setdefault(domain, []).append(Path(path))
    return tuple(
        sorted(
            domain
            for domain, some in paths.items()
            if any(_may_be(new, domain, path) for path in some) or _are_together(new, domain, some)
        )
    )


def _are_together(new: NewSketch, domain: str, paths: Sequence[Path]) -> bool:
    """Say whether the parts of a domain together have the people of all parts of the new rows.

    It says no if the earlier parts of the new rows had them already: that was decided then.
    """
    if len(paths) + len(new.earlier) < 2:  # one part on each side was compared
        return False
    others = [sketch for sketch in map(read_sketch, paths) if sketch is not None]
    other, own = _pooled(others), _pooled((new.own, *new.earlier))
    if not are_alike(own, other) or (new.earlier and are_alike(_pooled(new.earlier), other)):
        return False
    return not all(new.is_confirmed(domain, one) for one in others)


def _pooled(sketches: Sequence[Sketch]) -> Sketch:
    """Return the rows, and the identifying columns, of several sketches as one sample each."""
    return Sketch(
        _whole(rows for sketch in sketches for rows in sketch.rows),
        _whole(column for sketch in sketches for column in sketch.columns),
        (),
    )


def _whole(samples: Iterable[Fingerprint]) -> tuple[Fingerprint, ...]:
    """Return the union of samples, below the end up to which all of them are complete."""
    some = tuple(samples)
    end = min((one.end for one in some), default=0)
    marks = {mark for one in some for mark in one.marks if mark[0] < end}
    return (Fingerprint(tuple(sorted(marks))),) if some else ()


@dataclass(frozen=True)
class NewSketch:
    """The sketch of new rows, and the pairs of sketches that a person has confirmed as different.

    A confirmed pair covers new rows only if nothing has changed: all rows of all tables of people,
    and all of their files, are those of the pair's first sketch, and the other data set's are those
    of its second. Public tables are always compared.
    """

    own: Sketch  # of the tables of people
    public: Sketch  # of the public tables
    # people domain of the other, sketch of an earlier version of this data set, sketch of the other
    different: tuple[tuple[str, str, str], ...] = ()
    earlier: tuple[Sketch, ...] = ()  # of the rows to which the new ones are appended

    def is_confirmed(self, domain: str, other: Sketch) -> bool:
        """Say whether a person has confirmed that these very rows are about other people."""
        return any(
            _are_same_rows(other, read_sketch(Path(second)))
            and _are_same_rows(self.own, read_sketch(Path(first)))
            for people, first, second in self.different
            if people == domain
        )


def _are_same_rows(one: Sketch, other: Sketch | None) -> bool:
    """Say whether two sketches are of the same rows and files; unknown means no."""
    return bool(one.whole) and one == other


def _may_be(new: NewSketch, domain: str, path: Path) -> bool:
    other = read_sketch(path)
    if other is None:
        return True
    if not are_alike(united((new.own, new.public)), other):
        return False
    return not new.is_confirmed(domain, other) or are_alike(new.public, other)


def united(sketches: Sequence[Sketch]) -> Sketch:
    """Unite the sketches of a data set's tables into one sketch."""
    return Sketch(
        tuple(rows for sketch in sketches for rows in sketch.rows),
        tuple(column for sketch in sketches for column in sketch.columns),
        tuple(part for sketch in sketches for part in sketch.parts),
        tuple(mark for sketch in sketches for mark in sketch.whole),
    )


def write_sketch(path: Path, sketch: Sketch) -> None:
    """Write a sketch of people as JSON, readable only by the user of this process."""
    body = {
        "rows": [rows.marks for rows in sketch.rows],
        "columns": [column.marks for column in sketch.columns],
        "parts": [part.marks for part in sketch.parts],
        "whole": list(sketch.whole),
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps({"sketch": VERSION, **body}), encoding="ascii")


def read_sketch(path: Path) -> Sketch | None:
    """Read a sketch of people; return None if it is missing, damaged or of another version."""
    try:
        shape = json.loads(path.read_text(encoding="ascii"))
        if shape["sketch"] != VERSION:
            return None
        rows, columns, parts = (
            tuple(_read(c) for c in shape[n]) for n in ("rows", "columns", "parts")
        )
        return Sketch(rows, columns, parts, tuple(map(str, shape.get("whole", ()))))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read(marks: Sequence[Sequence[int]]) -> Fingerprint:
    return Fingerprint(tuple((int(h), int(n)) for h, n in marks))


# --- Computing the sketch of a source: whole rows, identifying columns, and parts of rows
#
# A row is the sorted multiset of its cells, so column names and column order do not matter. Its
# mark has the number of its occurrences. So two tables with few different rows (yes, no) match only
# if their counts agree.
#
# A column is identifying if at least 20 of its values, and at least 90 % of them, are distinct. A
# gapless run of integers or dates is not, because row numbers do not identify people. The card's
# person column always is. So two hospitals that both number patients from 1 look alike, and a
# second person has to confirm that they are not. The opposite error would be worse.
#
# A part is one column, or an unordered pair of the eight non-identifying columns with the most
# distinct values; each value has its number of occurrences. Numberings, calendars, and parts with
# fewer than 8 values are left out.
#
# Limits: a table with few different values is recognised by its whole rows alone. Of a single
# column such as age, a full copy is recognised, but hardly a half, and no selection by age. A copy
# whose cells were all rounded or perturbed is never recognised. Two weather stations that measure
# at the same hours look alike.


_NEAR_UNIQUE: Final = 0.9
_DISTINCT: Final = 20
_PAIRED: Final = 8  # columns: 28 pairs
_NEARLY_ALL: Final = 0.9
_END: Final = 2**62  # marks of parts are below this, so that the sum of two marks fits in 64 bits


def take_sketch(
    connection: duckdb.DuckDBPyConnection,
    order: TableOrder,
    source: tuple[int, Sequence[Cell]],
    unit: int | None,
    salt: str,
) -> Sketch:
    """Compute the sketch of the people in a source, from the columns of the view `texts`.

    `source` holds the source's number of columns, and the columns that the card declares. Cells
    with a declared format are normalised first, so that another file of the same people gives the
    same hashes.
    """
    width, declared = source
    cells_of = {cell.place: cell for cell in declared}
    cells = ", ".join(
        f"{_plain_spelling(_text(order, i, cells_of.get(i)))} AS n{i}" for i in range(width)
    )
    connection.execute(f"CREATE OR REPLACE TEMP VIEW plain AS SELECT {cells} FROM texts")
    guesses = _guesses(connection, width)
    identifiers = [i for i in range(width) if i == unit or _may_identify(connection, i, guesses[i])]
    quasi_identifiers = [i for i in range(width) if i not in identifiers and guesses[i][0] > 1]
    quasi_identifiers = sorted(quasi_identifiers, key=lambda i: -guesses[i][0])[:_PAIRED]
    rows, whole = _rows(connection, width, salt)
    _mark(connection, [*identifiers, *quasi_identifiers], salt)
    columns = tuple(_column(connection, i) for i in identifiers)
    parts = tuple(
        p for p in _parts(connection, identifiers, quasi_identifiers) if len(p.marks) >= FEW
    )
    connection.execute("DROP TABLE marked")
    return Sketch((rows,), columns, parts, (whole,))


def _text(order: TableOrder, place: int, cell: Cell | None) -> str:
    text = without_nulls(f"c{place}", order.nulls_of(None if cell is None else cell.column.name))
    plain = text if cell is None else plain_spelling(cell.column, text, cell.kind)
    return text if plain == text else f"coalesce({plain}, {text})"


def _plain_spelling(text: str) -> str:
    """Return SQL of a text in one form for all tools: 1.50 becomes 1.5, True becomes true."""
    number = f"regexp_full_match({text}, '[+-]?[0-9]+[.][0-9]*')"
    return f"lower(CASE WHEN {number} THEN rtrim(rtrim({text}, '0'), '.') ELSE {text} END)"


# --- which columns -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Numbers:
    """Counts of a column's values: all, distinct, and integers or dates, with their range."""

    filled: int
    distinct: int
    whole: int
    width: int  # size of the range of the integers or dates

    def are_a_run(self, share: float) -> bool:
        """Say whether a column is a numbering: integers or dates that fill their range.

        They fill it if at least `share` of the range occurs.
        """
        return self.whole == self.filled and self.distinct >= share * self.width


def _guesses(connection: duckdb.DuckDBPyConnection, width: int) -> list[tuple[int, ...]]:
    """Estimate each column's number of distinct values, and count its values."""
    counts = ", ".join(f"approx_count_distinct(n{i}), count(n{i})" for i in range(width))
    found = _one(connection, f"SELECT {counts} FROM plain")
    return [found[2 * i : 2 * i + 2] for i in range(width)]


def _may_identify(connection: duckdb.DuckDBPyConnection, place: int, guess: Sequence[int]) -> bool:
    if guess[0] < (_NEAR_UNIQUE - 0.2) * guess[1]:
        return False
    numbers = _numbers(connection, place)
    enough = max(_DISTINCT, _NEAR_UNIQUE * numbers.filled)
    return numbers.distinct >= enough and not numbers.are_a_run(1)


def _numbers(connection: duckdb.DuckDBPyConnection, place: int) -> _Numbers:
    cell = f"n{place}"
    number = f"CASE WHEN regexp_full_match({cell}, '[0-9]{{1,18}}') THEN {cell} END"
    date = (
        f"CASE WHEN regexp_full_match({cell}, '[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}') THEN {cell} END"
    )
    whole = f"coalesce(TRY_CAST({number} AS BIGINT), TRY_CAST({date} AS DATE) - DATE '1970-01-01')"
    filled, distinct, numbers, low, high = _one(
        connection,
        f"SELECT count({cell}), count(DISTINCT {cell}), count({whole}),"
        f" coalesce(min({whole}), 0), coalesce(max({whole}), 0) FROM plain",
    )
    return _Numbers(filled, distinct, numbers, high - low + 1)


# --- parts of rows -------------------------------------------------------------------------------


def _parts(
    connection: duckdb.DuckDBPyConnection,
    identifiers: Sequence[int],
    quasi_identifiers: Sequence[int],
) -> Iterator[Fingerprint]:
    singles = {i: _part(connection, f"m{i} >> 2") for i in (*identifiers, *quasi_identifiers)}
    for i in quasi_identifiers:
        if _is_even(singles[i]) and _numbers(connection, i).are_a_run(_NEARLY_ALL):
            del singles[i]
    yield from singles.values()
    for i, j in combinations([i for i in quasi_identifiers if i in singles], 2):
        yield _part(connection, f"((m{i} >> 2) + (m{j} >> 2)) & {_END - 1}")


def _is_even(part: Fingerprint) -> bool:
    """Say whether values occur more evenly than by chance, as the days of a calendar do.

    Such a column may be a numbering, which does not tell who the people are.
    """
    counts = [count for _, count in part.marks]
    return not counts or pvariance(counts) < mean(counts) / 2


def _part(connection: duckdb.DuckDBPyConnection, mark: str) -> Fingerprint:
    """Return the sample (the smallest hashes) of a column or of a pair of columns.

    The search starts with the smallest hashes, so most rows need no grouping.
    """
    rows = _one(connection, "SELECT count(*) FROM marked")[0]
    end = 4 * KEPT * _END // max(rows, 1)
    while True:
        marks = connection.execute(
            f"SELECT mark, count(*) FROM (SELECT {mark} AS mark FROM marked)"
            f" WHERE mark < {min(end, _END)} GROUP BY mark ORDER BY mark LIMIT {KEPT}"
        ).fetchall()
        if len(marks) >= KEPT or end >= _END:
            return _fingerprint(marks)
        end *= 16


# --- marks ---------------------------------------------------------------------------------------


def _mark(connection: duckdb.DuckDBPyConnection, places: Sequence[int], salt: str) -> None:
    """Create the table `marked` with a keyed hash of each cell; NULL for an empty cell."""
    marks = [
        f"CASE WHEN n{i} <> '' THEN {secret_number('sketch-cell', f'n{i}')} END AS m{i}"
        for i in places
    ]
    listed = ", ".join(marks) or "NULL AS nothing"
    connection.execute(
        f"CREATE TEMP TABLE marked AS SELECT {listed} FROM plain", [salt] * len(marks)
    )


def _rows(connection: duckdb.DuckDBPyConnection, width: int, salt: str) -> tuple[Fingerprint, str]:
    """Return the sample of whole rows, and one keyed hash of all rows, in any order."""
    cells = ", ".join(f"coalesce(strlen(n{i}) || '=' || n{i}, '-')" for i in range(width))
    row = f"array_to_string(list_sort([{cells}]), ',')"
    connection.execute(
        f"CREATE TEMP TABLE row_marks AS SELECT {secret_number('sketch-row', row)} AS mark"
        " FROM plain",
        [salt],
    )
    marks = connection.execute(
        f"SELECT mark, count(*) FROM row_marks GROUP BY mark ORDER BY mark LIMIT {KEPT}"
    ).fetchall()
    both = "count(*) || ':' || coalesce(sum(mark), 0)"
    whole = connection.execute(
        f"SELECT {secret_number('sketch-whole', both)} FROM row_marks", [salt]
    ).fetchall()
    connection.execute("DROP TABLE row_marks")
    return _fingerprint(marks), str(whole[0][0])


def _column(connection: duckdb.DuckDBPyConnection, place: int) -> Fingerprint:
    cell = f"m{place}"
    marks = connection.execute(
        f"SELECT DISTINCT {cell}, 0 FROM marked WHERE {cell} IS NOT NULL"
        f" ORDER BY {cell} LIMIT {KEPT}"
    ).fetchall()
    return _fingerprint(marks)


def _fingerprint(marks: Sequence[Sequence[int]]) -> Fingerprint:
    return Fingerprint(tuple((int(mark), int(count)) for mark, count in marks))


def _one(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[int, ...]:
    found = connection.execute(sql).fetchone()
    return tuple(int(number) for number in found or ())
