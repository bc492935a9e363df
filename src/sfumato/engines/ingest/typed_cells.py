"""How a cell that is a number, a day or a truth value already becomes what its text would become.

Reading a cell as text decides what it is worth (cell_sql.py); these expressions come to the same
value without the text, for those types of a source of which that can be proved. They are total, as
those are, and whether one is taken hangs on the source's type and the card alone.

A DOUBLE x is worth what its text says, the shortest decimal s that is read as x again. Let an edge
be e = m * half / 10**d with |m * half| < 10**15. Its nearest double E is one division of two whole
numbers below 2**53. If x > E then s > e, and if x < E then s < e, for reading is monotone. If
x = E then s = e: both have at most 15 digits, and no two such decimals are one double. So x >= E
says exactly whether s >= e. Floats only *guess* the number of steps, half a step wrong at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sfumato.engines.ingest.cell_sql import half_step, steps
from sfumato.engines.ingest.source_files import DECIMAL
from sfumato.vault.card.columns import Column

_WHOLE: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
_DIGITS: Final = 15  # any decimal of so many is another double
_POWERS: Final = 22  # 10**22 is a double still
_EXACT: Final = 18  # digits of a decimal that is kept in 64 bits
_FITS: Final = 2**62
_SHIFT: Final = 10**18  # 2**63 times as much is a HUGEINT still
_WORDS: Final = ("true", "false")


def typed_cell(column: Column, cell: str, kind: str, nulls: Sequence[str]) -> str | None:
    """Print the stored value of a source's cell of that type; None if its text has to be read."""
    if any(_may_be_a_cell(word) for word in nulls):
        return None
    match column.type, kind:
        case "integer" | "number", "DOUBLE":
            return _of_double(column, cell)
        case "integer" | "number", _:
            return _of_exact(column, cell, kind)
        case "boolean", "BOOLEAN":
            return cell
        case "date", "DATE":
            return _of_years(cell, "DATE")
        case "timestamp", "TIMESTAMP":
            return _of_years(cell, "TIMESTAMP")
        case _:
            return None


def _may_be_a_cell(word: str) -> bool:
    """Say whether a word that means nothing could be how a number, day or truth is spelled."""
    return any(c.isdigit() for c in word) or word.strip().casefold() in _WORDS


def _of_years(cell: str, kind: str) -> str:
    """Print the day or moment if its year is one of those that are read, 1 to 9999."""
    first, beyond = (f"{kind} '{day}'" for day in ("0001-01-01", "10000-01-01"))
    return f"CASE WHEN {cell} >= {first} AND {cell} < {beyond} THEN {cell} END"


def _of_exact(column: Column, cell: str, kind: str) -> str | None:
    """Print whole and decimal numbers by whole numbers alone, cut before anything is multiplied."""
    found = DECIMAL.fullmatch(kind)
    if found is None and kind not in _WHOLE:
        return None
    decimals, half = half_step(column.step)
    width, scale = (18, 0) if found is None else (int(found[1]), int(found[2]))
    if width > _EXACT or scale > decimals:
        return None
    units = cell
    if scale:  # of the last decimal: nothing is rounded, and in so many digits nothing overflows
        wide = cell if width + scale < _EXACT else f"CAST({cell} AS DECIMAL(38,{scale}))"
        units = f"{wide} * {10**scale}"
    shift = 10 ** (decimals - scale)
    if not column.is_bounded:
        return steps(column, f"CAST({units} AS HUGEINT) * {shift}") if shift <= _SHIFT else None
    low, high = (2 * half * bound for bound in column.bounds())
    if max(abs(low), abs(high)) + 10**decimals + half >= _FITS:
        return None
    inside = f"least(greatest(CAST({units} AS BIGINT), {low // shift}), {-(-high // shift)})"
    return steps(column, f"CASE WHEN {cell} IS NOT NULL THEN {inside} * {shift} END")


def _of_double(column: Column, cell: str) -> str | None:
    """Print the number of steps that the decimal of a DOUBLE has, rounded half up."""
    decimals, half = half_step(column.step)
    if not column.is_bounded or decimals > _POWERS:
        return None
    low, high = column.bounds()
    if 2 * half * max(abs(low), abs(high)) + half >= 10**_DIGITS:
        return None
    unit = f"CAST({10**decimals} AS DOUBLE)"
    guess = f"floor({cell} * {unit} / {2 * half})"
    edge = f"({guess} * {2 * half} + {half}) / {unit}"
    value = f"TRY_CAST({guess} AS BIGINT) + CAST({cell} >= {edge} AS BIGINT)"
    ends = (f"CAST({2 * half * bound} AS DOUBLE) / {unit}" for bound in (low, high))
    below, above = (f"CASE WHEN isfinite({cell}) THEN {bound} END" for bound in (low, high))
    first, last = ends
    return (  # a NaN is above everything; it and the infinities are no numbers
        f"CAST(CASE WHEN {cell} < {first} THEN {below} WHEN {cell} > {last} THEN {above}"
        f" ELSE {value} END AS BIGINT)"
    )
