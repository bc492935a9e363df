"""Read a source with dictionaries: what a column's repeated values need is computed once a value.

Trimming, spelling and hashing a cell takes longer than reading it. A column with few different
values gets a dictionary table: each value with its trimmed text, its plain spelling, its keyed
hash and its number of rows. The rows are then joined with it. Other columns are computed row by
row. Both ways give the same values, so it does not matter which columns get a dictionary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sfumato.engines.ingest.cell_format_sql import TEXT, plain_spelling
from sfumato.engines.ingest.cell_sql import secret_number, without_nulls
from sfumato.engines.ingest.source_files import DECIMAL, FLOATS, SIMPLE, Source

if TYPE_CHECKING:
    import duckdb

    from sfumato.engines.ingest.cell_report import Cell
    from sfumato.engines.ingest.prepare_order import TableOrder

_FEWEST_ROWS: Final = 20_000  # a smaller source is read without dictionaries
_MOST_VALUES: Final = 1 << 20  # of one dictionary, which is in memory while rows are joined
_ROWS_A_VALUE: Final = 4  # with fewer rows for each value, a column gets no dictionary
_MOST_COLUMNS: Final = 64  # of a source that is read with dictionaries


@dataclass(frozen=True)
class CodedSource:
    """A source behind the view `texts`, with the dictionaries of some of its columns.

    For column 3 the view has `r3`, the cell; `c3`, its trimmed text; `n3`, its plain spelling; and
    `p3`, the spelling with its length. With a dictionary it also has `q3`, the code of the value.
    """

    width: int
    coded: frozenset[int]  # the columns with a dictionary
    # for each column: an estimate of how many different spellings it has, and how many cells
    counts: tuple[tuple[int, int], ...]

    def values(self, place: int) -> str:
        """Return the table with the spellings `n` of a column: its dictionary, or all rows."""
        if place in self.coded:
            return dictionary(place)
        return f"(SELECT n{place} AS n FROM texts)"

    def mark(self, place: int) -> str:
        """Return SQL of the keyed hash of a cell of `texts`; the one bound parameter is the salt.

        It is NULL for an empty cell. The column must have no dictionary.
        """
        return _mark(f"n{place}")


def dictionary(place: int) -> str:
    """Return the name of a column's dictionary: `code`, `c`, `n`, `mark` and `rows` of a value."""
    return f"values{place}"


def coded_source(
    connection: duckdb.DuckDBPyConnection,
    order: TableOrder,
    source: tuple[Source, Mapping[int, Cell]],
    rows: int,
    salt: str,
) -> CodedSource:
    """Create the dictionaries of a source, and the view `texts` that reads it with them.

    Args:
        connection: A connection with the view `source`, which has the columns r0, r1, ...
        order: The order to read the table, with its missing-value markers.
        source: The source, and by index the columns that the card declares.
        rows: The number of rows.
        salt: The secret of the keyed hashes.
    """
    opened, cells = source
    width = len(opened.names)
    spelling = [_spelling(order, i, cells.get(i)) for i in range(width)]
    coded = _repeated(connection, opened, rows)
    for i in coded:
        connection.execute(
            f"CREATE OR REPLACE TEMP TABLE {dictionary(i)} AS SELECT *, {_piece('n')} AS piece,"
            f" CAST(row_number() OVER () AS UINTEGER) AS code, {_mark('n')} AS mark FROM"
            f" (SELECT * RENAME (n{i} AS n, c{i} AS c) FROM"
            f" (SELECT *, {spelling[i]} AS n{i} FROM (SELECT *, {opened.texts[i]} AS c{i} FROM"
            f" (SELECT r{i}, count(*) AS rows FROM source WHERE r{i} IS NOT NULL"
            f" GROUP BY r{i}))))",
            [salt],
        )
    others = [i for i in range(width) if i not in coded]
    cells_sql = [f"source.r{i}" for i in range(width)]
    cells_sql += [f"{opened.texts[i]} AS c{i}" for i in others]
    cells_sql += [f"{dictionary(i)}.{x} AS {y}{i}" for i in coded for x, y in _JOINED]
    joins = "".join(
        f" LEFT JOIN {dictionary(i)} ON {dictionary(i)}.r{i} = source.r{i}" for i in coded
    )
    spelled = ["*", *(f"{spelling[i]} AS n{i}" for i in others)]
    pieces = ["*", *(f"{_piece(f'n{i}')} AS p{i}" for i in others)]
    connection.execute(
        f"CREATE OR REPLACE TEMP VIEW texts AS SELECT {', '.join(pieces)} FROM"
        f" (SELECT {', '.join(spelled)} FROM (SELECT {', '.join(cells_sql)} FROM source{joins}))"
    )
    return CodedSource(width, frozenset(coded), _counts(connection, width, coded))


_JOINED: Final = (("c", "c"), ("n", "n"), ("piece", "p"), ("code", "q"))


def _repeated(connection: duckdb.DuckDBPyConnection, source: Source, rows: int) -> list[int]:
    """Return the columns whose values repeat so often that each gets a dictionary."""
    if rows < _FEWEST_ROWS or len(source.names) > _MOST_COLUMNS:
        return []
    fitting = [
        i
        for i, kind in enumerate(source.kinds)
        if source.is_text_file or kind in (TEXT, *SIMPLE) or DECIMAL.fullmatch(kind)
    ]
    asked = [f"approx_count_distinct(r{i}), {_bad_zeros(source.kinds[i], i)}" for i in fitting]
    found = _one(connection, f"SELECT {', '.join(asked)} FROM source") if asked else ()
    pairs = zip(fitting, found[::2], found[1::2], strict=True)
    most = min(_MOST_VALUES, rows // _ROWS_A_VALUE)
    return [i for i, distinct, bad in pairs if distinct <= most and not bad]


def _bad_zeros(kind: str, place: int) -> str:
    """Return SQL that counts zeros with a minus: they equal other zeros, but their text differs."""
    return f"count(*) FILTER (r{place} = 0 AND signbit(r{place}))" if kind in FLOATS else "0"


def _counts(
    connection: duckdb.DuckDBPyConnection, width: int, coded: list[int]
) -> tuple[tuple[int, int], ...]:
    others = [i for i in range(width) if i not in coded]
    asked = ", ".join(f"approx_count_distinct(n{i}), count(n{i})" for i in others)
    found = _one(connection, f"SELECT {asked} FROM texts") if others else ()
    counts = dict(zip(others, zip(found[::2], found[1::2], strict=True), strict=True))
    for i in coded:
        first, second = _one(
            connection,
            "SELECT approx_count_distinct(n), coalesce(sum(rows) FILTER (n IS NOT NULL), 0)"
            f" FROM {dictionary(i)}",
        )
        counts[i] = first, second
    return tuple(counts[i] for i in range(width))


def _spelling(order: TableOrder, place: int, cell: Cell | None) -> str:
    """Return SQL of a cell's text in one form for all tools, so that copies of it hash alike.

    A cell with a declared format is normalised first.
    """
    text = without_nulls(f"c{place}", order.nulls_of(None if cell is None else cell.column.name))
    plain = text if cell is None else plain_spelling(cell.column, text, cell.kind)
    return _plain_spelling(text if plain == text else f"coalesce({plain}, {text})")


def _plain_spelling(text: str) -> str:
    """Return SQL of a text in one form for all tools: 1.50 becomes 1.5, True becomes true."""
    number = f"regexp_full_match({text}, '[+-]?[0-9]+[.][0-9]*')"
    return f"lower(CASE WHEN {number} THEN rtrim(rtrim({text}, '0'), '.') ELSE {text} END)"


def _piece(spelling: str) -> str:
    """Return SQL of a spelling with its length, which is a cell's part of the text of a row."""
    return f"strlen({spelling}) || '=' || {spelling}"


def _mark(spelling: str) -> str:
    return f"CASE WHEN {spelling} <> '' THEN {secret_number('sketch-cell', spelling)} END"


def _one(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[int, ...]:
    found = connection.execute(sql).fetchone()
    return tuple(int(number) for number in found or ())
