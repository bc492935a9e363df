"""How a cell's text becomes a stored value: SQL expressions, each total, none with a float in it.

Every source is read as text, whatever its types: a double is then the decimal people see (0.285,
not 0.284999...), and one rule decides what a number is, in CSV and Parquet alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.engines.duckdb.locked_connection import quoted
from sfumato.vault.card.columns import MAX_STEPS, Column

# What str.strip() takes away, so that a card's constant and a cell are trimmed alike.
SPACES: Final = "".join(c for c in map(chr, range(0x3001)) if c.isspace()) + "\ufeff"
NUMBER: Final = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?"  # .5 and 5. too
_PLAIN: Final = r"[+-]?[0-9]{1,18}(\.[0-9]+)?"  # most numbers; no exponent, digits that fit
_YEAR: Final = "([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"  # 1 to 9999
_DATE: Final = _YEAR + r"-[0-9]{2}-[0-9]{2}([ T]00:00:00(\.0{1,9})?)?"
_TIME: Final = _YEAR + r"-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?)?"
_CHAINED: Final = 64  # values in a row: an engine follows a chain of some hundred, and no longer
_MOST: Final = 10**37  # what is read of a number stays below this, and a HUGEINT holds it


def trimmed(text: str) -> str:
    """Print the text without the white space around it; the usual cell has none, which is quick."""
    return (
        f"CASE WHEN regexp_matches({text}, '[^!-~]')"
        f" THEN trim({text}, {quoted(SPACES)}) ELSE {text} END"
    )


def without_nulls(text: str, nulls: Sequence[str]) -> str:
    """Print the trimmed text, or null if the card says that it means nothing."""
    words = ", ".join(quoted(word.strip()) for word in nulls)
    return f"CASE WHEN {text} IN ({words}) THEN NULL ELSE {text} END" if words else text


def without_nul(text: str) -> str:
    """Print the text as PostgreSQL can hold it, which knows no letter NUL."""
    return f"replace({text}, chr(0), chr(65533))"


def stored(column: Column, text: str, text_length: int) -> str:
    """Print the stored value of a cell, or null; nothing a cell can hold makes it fail."""
    match column.type:
        case "integer" | "number":
            return _steps_of_text(column, text)
        case "text":
            return f"left({text}, {text_length})"
        case "boolean":
            return (
                f"CASE WHEN lower({text}) IN ('true', 't', 'yes', 'y', '1', '1.0') THEN true"
                f" WHEN lower({text}) IN ('false', 'f', 'no', 'n', '0', '0.0') THEN false END"
            )
        case "date":
            return _guarded(_DATE, text, f"TRY_CAST(left({text}, 10) AS DATE)")
        case "timestamp":
            return _guarded(_TIME, text, f"TRY_CAST(left({text}, 26) AS TIMESTAMP)")


def _guarded(pattern: str, text: str, value: str) -> str:
    return f"CASE WHEN regexp_full_match({text}, {quoted(pattern)}) THEN {value} END"


# --- numbers -------------------------------------------------------------------------------------


def steps(column: Column, floor: str) -> str:
    """Print a number in whole steps: clamped first, then rounded half up, exactly.

    With d decimals that spell half a step, x becomes the integer a = floor(x * 10**d), which is on
    the same side of every rounding edge as x, for edges are whole multiples of half a step. `floor`
    prints a, as a HUGEINT or less; what is beyond the bounds may be cut to them already.
    """
    if column.is_bounded:  # LEAST and GREATEST skip nulls, hence the guard
        value = f"CASE WHEN {floor} IS NOT NULL THEN {_clamped(column, floor)} END"
    else:  # a column without bounds is only compared; far outside there is nothing to compare
        low, high = _edges(column)
        value = f"CASE WHEN {floor} BETWEEN {low} AND {high} THEN {floor} END"
    return _counted(column, value)


def _steps_of_text(column: Column, text: str) -> str:
    """Print the steps of the number that a text spells, which is read but once."""
    decimals, _ = half_step(column.step)
    plain, scientific = _plain(text, decimals), _scientific(text, decimals)
    if not column.is_bounded:
        return steps(column, _number(text, plain, scientific))
    clamped = (_clamped(column, floor) for floor in (plain, scientific))  # neither is ever null
    return _counted(column, _number(text, *clamped))


def _clamped(column: Column, floor: str) -> str:
    low, high = _edges(column)
    return f"least(greatest({floor}, {low}), {high})"


def _counted(column: Column, value: str) -> str:
    """Print the steps of what lies between the edges."""
    _, half = half_step(column.step)
    low, _ = _bounds(column)
    # The dividend is never negative, so that // is the floor.
    return f"CAST(({value} - ({2 * half * low}) + {half}) // {2 * half} + ({low}) AS BIGINT)"


def _edges(column: Column) -> tuple[int, int]:
    """Return the bounds in units of 10**-d, or refuse those that no HUGEINT holds."""
    _, half = half_step(column.step)
    low, high = (2 * half * bound for bound in _bounds(column))
    if max(abs(low), abs(high)) >= _MOST:
        raise Refused(
            "bad-card",
            f"The bounds or the step of column {column.name!r} have too many digits.",
            "Declare a coarser step or nearer bounds.",
        )
    return low, high


def _bounds(column: Column) -> tuple[int, int]:
    return column.bounds() if column.is_bounded else (-MAX_STEPS, MAX_STEPS)


def half_step(step: Fraction) -> tuple[int, int]:
    """Return (d, h): half a step is h units of 10**-d."""
    decimals, half = 0, step / 2
    while half.denominator != 1:
        decimals, half = decimals + 1, half * 10
    return decimals, int(half)


def _number(text: str, plain: str, scientific: str) -> str:
    """Print the one or the other, as the text spells a number; null if it spells none."""
    return (
        f"CASE WHEN regexp_full_match({text}, {quoted(_PLAIN)}) THEN {plain}"
        f" WHEN regexp_full_match({text}, {quoted(NUMBER)}) THEN {scientific} END"
    )


def _plain(text: str, decimals: int) -> str:
    """Print floor(x * 10**decimals) as HUGEINT, at most 10**37 from zero."""
    whole = f"TRY_CAST(split_part(ltrim({text}, '+-'), '.', 1) AS HUGEINT)"
    fraction = f"split_part({text}, '.', 2)"
    size = whole
    if decimals:
        tail = f"TRY_CAST(rpad(left({fraction}, {decimals}), {decimals}, '0') AS HUGEINT)"
        size = f"({whole} * {10**decimals} + {tail})"
    return _signed(text, size, f"ltrim(substr({fraction}, {decimals + 1}), '0') <> ''")


def _scientific(text: str, decimals: int) -> str:
    """Print the same by moving the point through the digits, however many there are."""
    whole = f"regexp_extract({text}, '^[+-]?([0-9]*)', 1)"
    fraction = rf"regexp_extract({text}, '\.([0-9]+)', 1)"
    exponent = f"coalesce(TRY_CAST(regexp_extract({text}, '[eE](.*)$', 1) AS INTEGER), 0)"
    digits = f"ltrim({whole} || {fraction}, '0')"
    zeros = f"(length({whole} || {fraction}) - length({digits}))"
    point = f"(length({whole}) - {zeros} + {exponent} + {decimals})"
    count = f"CAST(least(greatest({point}, 0), 38) AS INTEGER)"
    kept = f"TRY_CAST(rpad(left({digits}, {count}), {count}, '0') AS HUGEINT)"
    size = (
        f"CASE WHEN {digits} = '' OR {point} <= 0 THEN CAST(0 AS HUGEINT)"
        f" WHEN {point} > 37 THEN CAST({_MOST} AS HUGEINT) ELSE {kept} END"
    )
    rest = f"ltrim(substr({digits}, greatest({point}, 0) + 1), '0') <> ''"
    return _signed(text, f"({size})", rest)


def _signed(text: str, size: str, rest: str) -> str:
    """Print the floor of a number of that size, of which something may have been cut off."""
    sign = f"CASE WHEN starts_with({text}, '-') THEN -1 ELSE 1 END"
    below = f"CASE WHEN starts_with({text}, '-') THEN CASE WHEN {rest} THEN 1 ELSE 0 END ELSE 0 END"
    return f"({sign} * {size} - {below})"


# --- identity ------------------------------------------------------------------------------------


def secret_number(tag: str, *texts: str) -> str:
    """Print the keyed 64-bit PRF of the texts; the salt is the one bound parameter.

    It is md5_number_lower, three times as fast: DuckDB's own goes by way of a text of bits.

    The salt has a fixed length and the tag no colon inside, and only the last text may hold a
    colon or is itself spelled without doubt (`spelled`), so that no two inputs are one.
    """
    whole = f"? || ':{tag}:' || " + " || ':' || ".join(texts)
    return f"CAST(md5_number({whole}) >> 64 AS UBIGINT)"


def secret_name(tag: str, text: str) -> str:
    """Print the keyed digest of the text in 32 bytes, which no other text has; the salt is bound.

    A number of 64 bits is enough to order people, not to tell a billion of them apart for ever.
    """
    return f"unhex(sha256(? || ':{tag}:' || {text}))"


def spelled(values: Sequence[str]) -> str:
    """Print several values as one text that no other values have: each with its length."""
    each = [
        f"coalesce(strlen(CAST({v} AS VARCHAR)) || '=' || CAST({v} AS VARCHAR), '-') || ','"
        for v in values
    ]
    few = [" || ".join(each[at : at + _CHAINED]) for at in range(0, len(each), _CHAINED)]
    return "".join(few) if len(few) <= 1 else " || ".join(f"({texts})" for texts in few)


# --- ranks (engines/kernel/ranks.proof.md) --------------------------------------------------------


def rank_type(rows_per_person: int) -> str:
    """Return the smallest type that holds any place among a person's rows; none is ever cut off."""
    sizes = {"UTINYINT": 2**8, "USMALLINT": 2**16, "UINTEGER": 2**32}
    return next(kind for kind, size in sizes.items() if rows_per_person < size)


def group_key(place: int, code: str) -> str:
    """Print the keyed PRF of person and key, null where the row is in no group.

    It is the order of query/printing/statements.py to the last bit. A declared key's code is its
    place on the card, which no row can change; of a private text it is the text itself.
    """
    value = f"CAST({code} AS VARCHAR)" if code.startswith("k") else f"v{place}"
    prf = secret_number("cell", "CAST(person_key AS VARCHAR)", value)
    return f"CASE WHEN {code} IS NOT NULL THEN {prf} END"


def ranks(place: int, code: str, kind: str) -> tuple[str, str]:
    """Print the place of the row's group among the person's, and the row's place in the group.

    Groups are ordered by their key's PRF, then by code: codes lie in value order. Rows without a
    group come last, so that they move nothing, and have no rank.
    """
    groups = f"(PARTITION BY person ORDER BY h{place} NULLS LAST, {code} NULLS LAST)"
    rows = f"(PARTITION BY person ORDER BY h{place} NULLS LAST, {code} NULLS LAST, rr)"
    group = f"dense_rank() OVER {groups}"
    row = f"row_number() OVER {rows} - rank() OVER {groups} + 1"
    there = f"CASE WHEN {code} IS NOT NULL THEN"
    return (
        f"CAST({there} {group} END AS {kind}) AS gr{place}",
        f"CAST({there} {row} END AS {kind}) AS rr{place}",
    )
