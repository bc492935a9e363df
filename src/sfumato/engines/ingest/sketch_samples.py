"""Compute the sketch of the people in a source: whole rows, identifying columns, parts of rows.

A row is the sorted multiset of its cells, so column names and column order do not matter. Its mark
has the number of its occurrences. So two tables with few different rows (yes, no) match only if
their counts agree.

A column is identifying if at least 20 of its values, and at least 90 % of them, are distinct. A
gapless run of integers or dates is not, because row numbers do not identify people. The card's
person column always is. So two hospitals that both number patients from 1 look alike, and a second
person has to confirm that they are not. The opposite error would be worse.

A part is one column, or an unordered pair of the eight non-identifying columns with the most
distinct values; each value has its number of occurrences. Numberings, calendars, and parts with
fewer than 8 values are left out.

Limits: a table with few different values is recognised by its whole rows alone. Of a single column
such as age, a full copy is recognised, but hardly a half, and no selection by age. A copy whose
cells were all rounded or perturbed is never recognised. Two weather stations that measure at the
same hours look alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean, pvariance
from typing import Any, Final

import duckdb
import numpy as np
from numpy.typing import NDArray

from sfumato.dp.refusal import Bug
from sfumato.engines.ingest.cell_sql import secret_number
from sfumato.engines.ingest.person_sketch import FEW, KEPT, Fingerprint, Sketch
from sfumato.engines.ingest.value_dictionaries import CodedSource, dictionary

Marks = NDArray[np.uint64]
Counts = NDArray[np.int64]
Sample = tuple[Marks, Counts]  # hashes in ascending order, and how many rows each has
Pair = tuple[int, int]

_NEAR_UNIQUE: Final = 0.9
_DISTINCT: Final = 20
_PAIRED: Final = 8  # columns: 28 pairs
_NEARLY_ALL: Final = 0.9
_END: Final = 2**62  # marks of parts are below this, so that the sum of two marks fits in 64 bits
_MARKS: Final = 2**64
_TO_PART: Final = np.uint64(2)  # a part's mark is the cell's mark without so many bits
_COUNTED: Final = 1 << 20  # most combinations of two columns' values that are all counted
_CHUNK: Final = 1 << 18  # rows that are in memory at once, to add up pairs of columns


@dataclass(frozen=True)
class Sampled:
    """The columns of a source whose values are sampled: identifying ones and others."""

    source: CodedSource
    identifiers: tuple[int, ...]
    quasi_identifiers: tuple[int, ...]

    @property
    def row_mark(self) -> str:
        """Return SQL of the keyed hash of a row of `texts`; the bound parameter is the salt."""
        places = range(self.source.width)
        cells = ", ".join(f"coalesce(p{i}, '-')" for i in places)
        return secret_number("sketch-row", f"array_to_string(list_sort([{cells}]), ',')")

    def staged(self, salt: str) -> tuple[list[str], list[str]]:
        """Return SQL of what staging keeps of each row for the sketch, and its parameters.

        It is the code of the value, or its keyed hash without a dictionary; 0 for an empty cell.
        """
        texts, bound = [], []
        for i in self.quasi_identifiers:
            if i in self.source.coded:
                texts.append(f"coalesce(q{i}, 0)")
            else:
                texts.append(f"coalesce({self.source.mark(i)}, 0)")
                bound.append(salt)
        return texts, bound


def sampled_columns(
    connection: duckdb.DuckDBPyConnection, source: CodedSource, unit: int | None
) -> Sampled:
    """Choose the columns of a source whose values are sampled, by how many they are."""
    counts, places = source.counts, range(source.width)
    identifiers = [i for i in places if i == unit or _may_identify(connection, source, i)]
    others = [i for i in places if i not in identifiers and counts[i][0] > 1]
    others = sorted(others, key=lambda i: -counts[i][0])[:_PAIRED]
    return Sampled(source, tuple(identifiers), tuple(others))


def take_sketch(
    connection: duckdb.DuckDBPyConnection, sampled: Sampled, staged: str, salt: str
) -> Sketch:
    """Compute the sketch of the people in a source from its staging table and dictionaries."""
    rows, whole = _rows(connection, staged, salt)
    columns, singles = [], {}
    for i in sampled.identifiers:
        marks = _identifiers(connection, sampled.source, i, salt)
        columns.append(_fingerprint([(mark, 0) for mark, _ in marks]))
        singles[i] = _shifted(marks)
    for i in sampled.quasi_identifiers:
        single = _single(connection, sampled.source, i, staged)
        if not (_is_even(single) and _numbers(connection, sampled.source, i).are_a_run()):
            singles[i] = single
    paired = [i for i in sampled.quasi_identifiers if i in singles]
    parts = [*singles.values(), *_Pairs(connection, sampled.source, staged, tuple(paired)).found()]
    return Sketch((rows,), tuple(columns), tuple(p for p in parts if len(p.marks) >= FEW), (whole,))


# --- which columns -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Numbers:
    """Counts of a column's values: all, distinct, and integers or dates, with their range."""

    filled: int
    distinct: int
    whole: int
    width: int  # size of the range of the integers or dates

    def are_a_run(self, share: float = _NEARLY_ALL) -> bool:
        """Say whether a column is a numbering: integers or dates that fill their range.

        They fill it if at least `share` of the range occurs.
        """
        return self.whole == self.filled and self.distinct >= share * self.width


def _may_identify(connection: duckdb.DuckDBPyConnection, source: CodedSource, place: int) -> bool:
    distinct, filled = source.counts[place]
    if distinct < (_NEAR_UNIQUE - 0.2) * filled:
        return False
    numbers = _numbers(connection, source, place)
    enough = max(_DISTINCT, _NEAR_UNIQUE * filled)
    return numbers.distinct >= enough and not numbers.are_a_run(1)


def _numbers(connection: duckdb.DuckDBPyConnection, source: CodedSource, place: int) -> _Numbers:
    """Count the values of a column; of a dictionary each value once, which is the same run."""
    number = "CASE WHEN regexp_full_match(n, '[0-9]{1,18}') THEN n END"
    date = "CASE WHEN regexp_full_match(n, '[0-9]{4}-[0-9]{2}-[0-9]{2}') THEN n END"
    whole = f"coalesce(TRY_CAST({number} AS BIGINT), TRY_CAST({date} AS DATE) - DATE '1970-01-01')"
    filled, distinct, numbers, low, high = _one(
        connection,
        f"SELECT count(n), count(DISTINCT n), count({whole}),"
        f" coalesce(min({whole}), 0), coalesce(max({whole}), 0) FROM {source.values(place)}",
    )
    return _Numbers(filled, distinct, numbers, high - low + 1)


def _is_even(part: Fingerprint) -> bool:
    """Say whether values occur more evenly than by chance, as the days of a calendar do.

    Such a column may be a numbering, which does not tell who the people are.
    """
    counts = [count for _, count in part.marks]
    return not counts or pvariance(counts) < mean(counts) / 2


# --- samples: the smallest hashes, each with its number of rows ----------------------------------


def _rows(connection: duckdb.DuckDBPyConnection, staged: str, salt: str) -> tuple[Fingerprint, str]:
    """Return the sample of whole rows, and one keyed hash of all rows, in any order."""
    both = "count(*) || ':' || coalesce(sum(row_mark), 0)"
    whole = connection.execute(
        f"SELECT {secret_number('sketch-whole', both)}, count(*) FROM {staged}", [salt]
    ).fetchall()
    marks = _smallest(connection, (f"SELECT row_mark AS mark FROM {staged}", []), whole[0][1])
    return _fingerprint(marks[:KEPT]), str(whole[0][0])


def _identifiers(
    connection: duckdb.DuckDBPyConnection, source: CodedSource, place: int, salt: str
) -> list[tuple[int, int]]:
    """Return at least the smallest hashes of an identifying column, with their rows."""
    if place in source.coded:
        return _coded(connection, "mark", place)
    read = f"SELECT {source.mark(place)} AS mark FROM texts"
    return _smallest(connection, (read, [salt]), source.counts[place][0])


def _single(
    connection: duckdb.DuckDBPyConnection, source: CodedSource, place: int, staged: str
) -> Fingerprint:
    if place in source.coded:
        return _fingerprint(_coded(connection, "mark >> 2", place)[:KEPT])
    read = f"SELECT nullif(q{place}, 0) AS mark FROM {staged}"
    return _shifted(_smallest(connection, (read, []), source.counts[place][0]))


def _coded(connection: duckdb.DuckDBPyConnection, mark: str, place: int) -> list[tuple[int, int]]:
    """Return the smallest hashes of a column with a dictionary, with their rows."""
    return connection.execute(
        f"SELECT {mark} AS m, CAST(sum(rows) AS BIGINT) FROM {dictionary(place)}"
        f" WHERE m IS NOT NULL GROUP BY m ORDER BY m LIMIT {8 * KEPT}"
    ).fetchall()


def _smallest(
    connection: duckdb.DuckDBPyConnection, read: tuple[str, list[str]], values: int
) -> list[tuple[int, int]]:
    """Return at least the KEPT smallest hashes with their rows, or all hashes if they are fewer.

    The search starts with the smallest hashes, so most rows need no grouping.
    """
    sql, bound = read
    end = 4 * KEPT * _MARKS // max(values, 1)
    while True:
        found = connection.execute(
            f"SELECT mark, count(*) FROM ({sql}) WHERE mark <= {min(end, _MARKS) - 1}"
            " GROUP BY mark ORDER BY mark",
            bound,
        ).fetchall()
        # two more bits than a part's mark: the last part may lack a hash, and is cut off
        if len({mark >> 2 for mark, _ in found}) > KEPT or end >= _MARKS:
            return found
        end *= 16


def _shifted(marks: Sequence[tuple[int, int]]) -> Fingerprint:
    """Return the sample of a part that is one column, from the hashes of its cells."""
    counts: dict[int, int] = {}
    for mark, rows in marks:
        counts[mark >> 2] = counts.get(mark >> 2, 0) + rows
    return _fingerprint(sorted(counts.items())[:KEPT])


def _fingerprint(marks: Sequence[Sequence[int]]) -> Fingerprint:
    return Fingerprint(tuple((int(mark), int(count)) for mark, count in marks[:KEPT]))


# --- pairs of columns ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pairs:
    """Samples of the pairs of columns, which are added up in chunks of rows."""

    connection: duckdb.DuckDBPyConnection
    source: CodedSource
    staged: str
    places: tuple[int, ...]

    def found(self) -> Iterator[Fingerprint]:
        """Return the sample of each pair; the search starts with the smallest hashes."""
        pairs = list(combinations(self.places, 2))
        if not pairs:
            return iter(())
        rows = _one(self.connection, f"SELECT count(*) FROM {self.staged}")[0]
        tables = {i: self._marks(i) for i in self.places}
        samples = self._counted(pairs, tables, rows)
        ends = {pair: 4 * KEPT * _END // max(rows, 1) for pair in pairs if pair not in samples}
        while ends:
            found = self._below({pair: min(end, _END) for pair, end in ends.items()}, tables, rows)
            samples |= found
            ends = {
                pair: 16 * end
                for pair, end in ends.items()
                if len(samples[pair][0]) < KEPT and end < _END
            }
        return (_fingerprint(list(zip(*samples[pair], strict=True))) for pair in pairs)

    def _counted(
        self, pairs: Sequence[Pair], tables: dict[int, Marks | None], rows: int
    ) -> dict[Pair, Sample]:
        """Return the samples of those pairs whose few combinations of values can be counted."""
        sizes = {i: _MARKS if table is None else len(table) for i, table in tables.items()}
        counts = {
            (i, j): np.zeros(sizes[i] * sizes[j], np.int64)
            for i, j in pairs
            if sizes[i] * sizes[j] <= _COUNTED
        }
        columns = sorted({i for pair in counts for i in pair})
        for first in range(0, rows if counts else 0, _CHUNK):
            cells = self._chunk(columns, first)
            for i, j in counts:
                both = cells[f"q{i}"].astype(np.int64) * sizes[j] + cells[f"q{j}"]
                counts[i, j] += np.bincount(both, minlength=sizes[i] * sizes[j])
        return {pair: _by_mark(count, *(tables[i] for i in pair)) for pair, count in counts.items()}

    def _marks(self, place: int) -> Marks | None:
        """Return the hashes of a dictionary by code, with 0 for what is empty; None without one."""
        if place not in self.source.coded:
            return None
        found = self.connection.execute(
            f"SELECT coalesce(mark, 0) AS mark FROM {dictionary(place)} ORDER BY code"
        ).fetchnumpy()["mark"]
        return np.concatenate([np.zeros(1, np.uint64), np.asarray(found, np.uint64)])

    def _below(
        self,
        ends: dict[Pair, int],
        tables: dict[int, Marks | None],
        rows: int,
    ) -> dict[Pair, Sample]:
        """Return each pair's hashes below its end, with their rows."""
        chunks: dict[Pair, list[Sample]] = {pair: [] for pair in ends}
        columns = sorted({i for pair in ends for i in pair})
        for first in range(0, rows, _CHUNK):
            cells = self._chunk(columns, first)
            marks = {i: _looked_up(cells[f"q{i}"], tables[i]) for i in columns}
            parts = {i: mark >> _TO_PART for i, mark in marks.items()}
            filled = {i: mark != 0 for i, mark in marks.items()}
            for (i, j), end in ends.items():
                both = (parts[i] + parts[j]) & np.uint64(_END - 1)
                kept = both[(both < np.uint64(end)) & filled[i] & filled[j]]
                chunks[i, j].append(np.unique(kept, return_counts=True))
        return {pair: _merged(some) for pair, some in chunks.items()}

    def _chunk(self, places: Sequence[int], first: int) -> dict[str, NDArray[Any]]:
        names = ", ".join(f"q{i}" for i in places)
        return self.connection.execute(
            f"SELECT {names} FROM {self.staged} WHERE rowid >= {first} AND rowid < {first + _CHUNK}"
        ).fetchnumpy()


def _looked_up(cells: NDArray[Any], table: Marks | None) -> Marks:
    return np.asarray(cells, np.uint64) if table is None else table[np.asarray(cells)]


def _by_mark(count: Counts, one: Marks | None, other: Marks | None) -> Sample:
    """Return the sample of a pair from how often each pair of codes occurs."""
    if one is None or other is None:
        raise Bug("a column without a dictionary has no codes")
    codes = np.flatnonzero(count)
    first, second = one[codes // len(other)], other[codes % len(other)]
    marks = ((first >> _TO_PART) + (second >> _TO_PART)) & np.uint64(_END - 1)
    filled = (first != 0) & (second != 0)
    return _merged([(marks[filled], count[codes][filled])])


def _merged(chunks: Sequence[Sample]) -> Sample:
    marks = np.concatenate([marks for marks, _ in chunks])
    counts = np.concatenate([counts for _, counts in chunks])
    values, places = np.unique(marks, return_inverse=True)
    total = np.zeros(len(values), np.int64)
    np.add.at(total, places, counts)
    return values[:KEPT], total[:KEPT]


def _one(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[int, ...]:
    found = connection.execute(sql).fetchone()
    return tuple(int(number) for number in found or ())
