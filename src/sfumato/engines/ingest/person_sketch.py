"""Sketches of people: small samples of keyed hashes by which known people are recognised.

A sketch keeps the 512 smallest hashes of a set ("bottom-k"). Of two sketches, what lies below the
lower of their two ends is complete in both, and there they can be compared as sets.

Values that many people have (an age and a town) say little by being in both tables, and much by
being equally often in both. Two independent draws from one town share a value's t rows like t coins
with chance p: their squared distance from p t is t p (1 - p) on average, more if the towns differ,
and that times 1 - 2m/N if m of all N rows are common to both. So the distance counts the shared
rows, however common the values are; values that are unique it counts exactly.
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

from sfumato.engines.ingest.cell_format_sql import TEXT, plain_spelling
from sfumato.engines.ingest.cell_report import Cell
from sfumato.engines.ingest.cell_sql import secret_number, without_nulls
from sfumato.engines.ingest.prepare_order import TableOrder

VERSION: Final = 3
KEPT: Final = 512
ALIKE: Final = 0.5  # this share of the smaller set, found in the other, makes them the same people
SURE: Final = 5  # standard deviations by which counts must be nearer than chance puts them
FEW: Final = 8  # fewer values than these are never sure
_COMMON: Final = 8  # a value of more rows weighs no more than one of so many
_RARE: Final = 4
_GRAIN: Final = 1 / 6  # counts are whole: two persons fall on one side each in a half of all cases

Mark = tuple[int, int]  # a hash, and how often its row occurs (0 for a naming column's value)


@dataclass(frozen=True)
class Fingerprint:
    """The smallest marks of one set, sorted."""

    marks: tuple[Mark, ...]

    @property
    def end(self) -> int:
        """Return below what the sample is complete."""
        return self.marks[-1][0] + 1 if len(self.marks) >= KEPT else 2**64


@dataclass(frozen=True)
class Sketch:
    """The fingerprints of whole rows, of each column that could name a person, and of parts.

    A part is one column or two: what is left in a copy that gained, lost or changed columns. Rows
    are those of each table of people.
    """

    rows: tuple[Fingerprint, ...]
    columns: tuple[Fingerprint, ...]
    parts: tuple[Fingerprint, ...]


def containment(one: Fingerprint, other: Fingerprint) -> float:
    """Return which share of the smaller set seems to be in the other."""
    end = min(one.end, other.end)
    first, second = ({m for m in f.marks if m[0] < end} for f in (one, other))
    smaller = min(len(first), len(second))
    return len(first & second) / smaller if smaller else 0.0


def are_alike(one: Sketch, other: Sketch) -> bool:
    """Say whether two sketches seem to be of the same people."""
    pairs = [*product(one.rows, other.rows), *product(one.columns, other.columns)]
    if any(containment(a, b) >= ALIKE for a, b in pairs):
        return True
    return any(have_shared_rows(a, b) for a in one.parts for b in other.parts)


def have_shared_rows(one: Fingerprint, other: Fingerprint) -> bool:
    """Say whether half of the smaller table's rows are in the other, beyond what chance shares.

    Rare values are asked alone too: a copy of the adults has none of the many pupils who earn 0.
    """
    both = _counts_of_both(one, other)
    return _are_shared(both) or _are_shared([(a, b) for a, b in both if a + b <= _RARE])


def _counts_of_both(one: Fingerprint, other: Fingerprint) -> list[tuple[int, int]]:
    """Return how often each value occurs here and there; nothing if hardly any is in both."""
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
    """Return how unusually small a mean square is (Wilson and Hilferty, 1931: its cube root).

    A dozen common values say more by this than by the bell curve, which knows no bound at zero.
    """
    spread = 2 / (9 * freedom)
    return (1 - spread - math.cbrt(ratio)) / math.sqrt(spread)


def domains_alike(sketch: Sketch, others: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the domains whose people these seem to be; one that cannot be read may be anyone."""
    return tuple(sorted({domain for domain, path in others if _may_be(sketch, Path(path))}))


def _may_be(sketch: Sketch, path: Path) -> bool:
    other = read_sketch(path)
    return other is None or are_alike(sketch, other)


def united(sketches: Sequence[Sketch]) -> Sketch:
    """Return the sketch of several tables of the same people."""
    return Sketch(
        tuple(rows for sketch in sketches for rows in sketch.rows),
        tuple(column for sketch in sketches for column in sketch.columns),
        tuple(part for sketch in sketches for part in sketch.parts),
    )


def write_sketch(path: Path, sketch: Sketch) -> None:
    """Write the sketch as JSON, for the owner of the process alone."""
    body = {
        "rows": [rows.marks for rows in sketch.rows],
        "columns": [column.marks for column in sketch.columns],
        "parts": [part.marks for part in sketch.parts],
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps({"sketch": VERSION, **body}), encoding="ascii")


def read_sketch(path: Path) -> Sketch | None:
    """Return the sketch, or None if the file is not one."""
    try:
        shape = json.loads(path.read_text(encoding="ascii"))
        if shape["sketch"] != VERSION:
            return None
        return Sketch(*(tuple(_read(c) for c in shape[n]) for n in ("rows", "columns", "parts")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read(marks: Sequence[Sequence[int]]) -> Fingerprint:
    return Fingerprint(tuple((int(h), int(n)) for h, n in marks))


# --- Taking the sketch of a source: whole rows, columns that could name a person, and parts of rows
#
# A row is the sorted multiset of its cells, so that neither names nor order of columns matter; its
# mark says how often it occurs, so that two tables of few answers (yes, no) are not the same people
# unless they agree in the counts. A column counts if at least 20 of its values differ and 90 % of
# them; but not if it is exactly a run of whole numbers or days (a row number says nothing of
# people), unless it is the column that names the person. Two hospitals that number their patients
# from 1 look alike, then, and a second person has to say that they are not: better than the other
# error.
#
# A part is a column, or an unordered pair of the eight most distinct columns that name nobody, with
# how often each of its values occurs. Left out: numberings, calendars, and whatever has fewer than
# 8 values. So a table of a few answers is known by its whole rows alone; of one column such as age,
# a full copy is known but hardly a half, and no choice of rows by age. A copy in which every cell
# was rounded or noised is not known at all. Two stations that measure at the same hours look alike.


_NEAR_UNIQUE: Final = 0.9
_DISTINCT: Final = 20
_PAIRED: Final = 8  # columns: 28 pairs
_NEARLY_ALL: Final = 0.9
_END: Final = 2**62  # marks of parts lie below it, so that the sum of two is a number of 64 bits


def take_sketch(
    connection: duckdb.DuckDBPyConnection,
    order: TableOrder,
    source: tuple[int, Sequence[Cell]],
    unit: int | None,
    salt: str,
) -> Sketch:
    """Return the sketch of the texts c0, c1, ... of the view `texts`.

    `source` is how many there are, and which of them the card declares: what it describes by a
    format is spelled plainly first, so that another file of the same people looks alike.
    """
    width, declared = source
    formats = {cell.place: cell for cell in declared if cell.kind == TEXT}
    cells = ", ".join(
        f"{_plain_spelling(_text(order, i, formats.get(i)))} AS n{i}" for i in range(width)
    )
    connection.execute(f"CREATE OR REPLACE TEMP VIEW plain AS SELECT {cells} FROM texts")
    guesses = _guesses(connection, width)
    naming = [i for i in range(width) if i == unit or _may_name(connection, i, guesses[i])]
    telling = [i for i in range(width) if i not in naming and guesses[i][0] > 1]
    telling = sorted(telling, key=lambda i: -guesses[i][0])[:_PAIRED]
    rows = _rows(connection, width, salt)
    _mark(connection, [*naming, *telling], salt)
    columns = tuple(_column(connection, i) for i in naming)
    parts = tuple(p for p in _parts(connection, naming, telling) if len(p.marks) >= FEW)
    connection.execute("DROP TABLE marked")
    return Sketch((rows,), columns, parts)


def _text(order: TableOrder, place: int, cell: Cell | None) -> str:
    text = without_nulls(f"c{place}", order.nulls)
    plain = text if cell is None else plain_spelling(cell.column, text)
    return text if plain == text else f"coalesce({plain}, {text})"


def _plain_spelling(text: str) -> str:
    """Print the text as another tool would have written it: 1.50 is 1.5, True is true."""
    number = f"regexp_full_match({text}, '[+-]?[0-9]+[.][0-9]*')"
    return f"lower(CASE WHEN {number} THEN rtrim(rtrim({text}, '0'), '.') ELSE {text} END)"


# --- which columns -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Numbers:
    """How many values a column has, how many differ; the whole numbers and days among them."""

    filled: int
    distinct: int
    whole: int
    width: int  # of their range

    def are_a_run(self, share: float) -> bool:
        """Say whether all are whole numbers or days, and at least that share of their range."""
        return self.whole == self.filled and self.distinct >= share * self.width


def _guesses(connection: duckdb.DuckDBPyConnection, width: int) -> list[tuple[int, ...]]:
    """Return about how many values of each column differ, and how many there are."""
    counts = ", ".join(f"approx_count_distinct(n{i}), count(n{i})" for i in range(width))
    found = _one(connection, f"SELECT {counts} FROM plain")
    return [found[2 * i : 2 * i + 2] for i in range(width)]


def _may_name(connection: duckdb.DuckDBPyConnection, place: int, guess: Sequence[int]) -> bool:
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
    connection: duckdb.DuckDBPyConnection, naming: Sequence[int], telling: Sequence[int]
) -> Iterator[Fingerprint]:
    singles = {i: _part(connection, f"m{i} >> 2") for i in (*naming, *telling)}
    for i in telling:
        if _is_even(singles[i]) and _numbers(connection, i).are_a_run(_NEARLY_ALL):
            del singles[i]
    yield from singles.values()
    for i, j in combinations([i for i in telling if i in singles], 2):
        yield _part(connection, f"((m{i} >> 2) + (m{j} >> 2)) & {_END - 1}")


def _is_even(part: Fingerprint) -> bool:
    """Say whether the values occur more equally often than chance would have it."""
    counts = [count for _, count in part.marks]
    return not counts or pvariance(counts) < mean(counts) / 2


def _part(connection: duckdb.DuckDBPyConnection, mark: str) -> Fingerprint:
    """Return the smallest marks, looking only as far up as it takes: most rows are not grouped."""
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
    """Make the table of the cells' marks; an empty cell has none."""
    marks = [
        f"CASE WHEN n{i} <> '' THEN {secret_number('sketch-cell', f'n{i}')} END AS m{i}"
        for i in places
    ]
    listed = ", ".join(marks) or "NULL AS nothing"
    connection.execute(
        f"CREATE TEMP TABLE marked AS SELECT {listed} FROM plain", [salt] * len(marks)
    )


def _rows(connection: duckdb.DuckDBPyConnection, width: int, salt: str) -> Fingerprint:
    cells = ", ".join(f"coalesce(strlen(n{i}) || '=' || n{i}, '-')" for i in range(width))
    row = f"array_to_string(list_sort([{cells}]), ',')"
    marks = connection.execute(
        f"SELECT mark, count(*) FROM (SELECT {secret_number('sketch-row', row)} AS mark FROM plain)"
        f" GROUP BY mark ORDER BY mark LIMIT {KEPT}",
        [salt],
    ).fetchall()
    return _fingerprint(marks)


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
