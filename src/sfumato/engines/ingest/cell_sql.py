"""Generate SQL that parses a cell's text into a stored value, without errors and without floats.

Every source is read as text, whatever the types of its columns. So a double is the decimal that
people see (0.285, not 0.284999...), and CSV and Parquet follow the same rules for numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.engines.shared.locked_connection import listed, quoted
from sfumato.vault.card.cell_formats import FALSE, TRUE
from sfumato.vault.card.columns import MAX_STEPS, Column

# The white space of str.strip(), so that a card's constants and cells are trimmed in the same way.
SPACES: Final = "".join(c for c in map(chr, range(0x3001)) if c.isspace()) + "\ufeff"
NUMBER: Final = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?"  # also matches .5 and 5.
# fits most numbers: no exponent, and digits that fit in 64 bits
_PLAIN: Final = r"[+-]?[0-9]{1,18}(\.[0-9]+)?"
_YEAR: Final = "([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"  # 1 to 9999
_DATE: Final = _YEAR + r"-[0-9]{2}-[0-9]{2}([ T]00:00:00(\.0{1,9})?)?"
_TIME: Final = _YEAR + r"-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?)?"
_MOST: Final = 10**37  # bound of every parsed number; it fits in a HUGEINT


def trimmed(text: str) -> str:
    """Return SQL that trims white space from a text.

    A text of visible ASCII characters has none, so it takes a fast path.
    """
    return (
        f"CASE WHEN regexp_matches({text}, '[^!-~]')"
        f" THEN trim({text}, {quoted(SPACES)}) ELSE {text} END"
    )


def without_nulls(text: str, nulls: Sequence[str]) -> str:
    """Return SQL of a cell's text, with NULL for the card's missing-value markers."""
    words = listed([word.strip() for word in nulls])
    return f"CASE WHEN {text} IN ({words}) THEN NULL ELSE {text} END" if words else text


def without_nul(text: str) -> str:
    """Return SQL that replaces NUL characters in a text, because PostgreSQL cannot store them."""
    return f"replace({text}, chr(0), chr(65533))"


def stored(column: Column, text: str, text_length: int) -> str:
    """Return SQL that parses a cell's text to its stored value; NULL if that is impossible.

    No cell raises an error.
    """
    match column.type:
        case "integer" | "number":
            return _steps_of_text(column, text)
        case "text":
            return f"left({text}, {text_length})"
        case "boolean":
            return (
                f"CASE WHEN lower({text}) IN ({listed(TRUE)}) THEN true"
                f" WHEN lower({text}) IN ({listed(FALSE)}) THEN false END"
            )
        case "date":
            return _guarded(_DATE, text, f"TRY_CAST(left({text}, 10) AS DATE)")
        case "timestamp":
            return _guarded(_TIME, text, f"TRY_CAST(left({text}, 26) AS TIMESTAMP)")


def _guarded(pattern: str, text: str, value: str) -> str:
    return f"CASE WHEN regexp_full_match({text}, {quoted(pattern)}) THEN {value} END"


# --- numbers -------------------------------------------------------------------------------------


def steps(column: Column, floor: str) -> str:
    """Return SQL that converts a number to whole steps of its column: clamp, then round half up.

    `floor` is the SQL of the number times 10**decimals, rounded down. The decimals are those that
    half a step needs. Rounding down moves no number over a rounding edge, because edges are
    multiples of half a step. The SQL of `floor` may already clamp values outside the bounds.
    """
    if column.is_bounded:  # LEAST and GREATEST ignore NULL, so CASE keeps NULL as NULL
        value = f"CASE WHEN {floor} IS NOT NULL THEN {_clamped(column, floor)} END"
    else:  # columns without bounds are only compared; values beyond MAX_STEPS become NULL
        low, high = _edges(column)
        value = f"CASE WHEN {floor} BETWEEN {low} AND {high} THEN {floor} END"
    return _counted(column, value)


def _steps_of_text(column: Column, text: str) -> str:
    """Return SQL that converts a number in a text to whole steps of its column.

    The text is parsed only once.
    """
    decimals, _ = half_step(column.step)
    plain, scientific = _plain(text, decimals), _scientific(text, decimals)
    if not column.is_bounded:
        return steps(column, _number(text, plain, scientific))
    clamped = (_clamped(column, floor) for floor in (plain, scientific))  # never NULL
    return _counted(column, _number(text, *clamped))


def _clamped(column: Column, floor: str) -> str:
    low, high = _edges(column)
    return f"least(greatest({floor}, {low}), {high})"


def _counted(column: Column, value: str) -> str:
    """Return SQL that expresses a clamped value as a count of its column's steps, rounded half up.

    The value is a whole number of the smallest decimal unit of half a step (`half_step`).
    """
    _, half = half_step(column.step)
    low, _ = _bounds(column)
    # The dividend is never negative, so that // is the floor.
    return f"CAST(({value} - ({2 * half * low}) + {half}) // {2 * half} + ({low}) AS BIGINT)"


def _edges(column: Column) -> tuple[int, int]:
    """Return a column's bounds as whole numbers of the smallest decimal unit of half a step.

    Refuse bounds that do not fit in a HUGEINT.
    """
    _, half = half_step(column.step)
    low, high = (2 * half * bound for bound in _bounds(column))
    if max(abs(low), abs(high)) >= _MOST:
        raise Refused(
            "bad-card",
            f"The bounds or the step of column {column.name!r} have too many digits.",
            "Declare a coarser step or narrower bounds.",
        )
    return low, high


def _bounds(column: Column) -> tuple[int, int]:
    return column.bounds() if column.is_bounded else (-MAX_STEPS, MAX_STEPS)


def half_step(step: Fraction) -> tuple[int, int]:
    """Return how many decimals half a step has, and half a step in units of its last decimal.

    For the step 0.5 it returns (2, 25), because half a step is 0.25.
    """
    decimals, half = 0, step / 2
    while half.denominator != 1:
        decimals, half = decimals + 1, half * 10
    return decimals, int(half)


def _number(text: str, plain: str, scientific: str) -> str:
    """Return SQL that picks `plain` or `scientific` by a number's notation; NULL if it is none."""
    return (
        f"CASE WHEN regexp_full_match({text}, {quoted(_PLAIN)}) THEN {plain}"
        f" WHEN regexp_full_match({text}, {quoted(NUMBER)}) THEN {scientific} END"
    )


def _plain(text: str, decimals: int) -> str:
    """Return SQL of floor(number * 10**decimals) as a HUGEINT, for a number in plain notation."""
    whole = f"TRY_CAST(split_part(ltrim({text}, '+-'), '.', 1) AS HUGEINT)"
    fraction = f"split_part({text}, '.', 2)"
    size = whole
    if decimals:
        tail = f"TRY_CAST(rpad(left({fraction}, {decimals}), {decimals}, '0') AS HUGEINT)"
        size = f"({whole} * {10**decimals} + {tail})"
    return _signed(text, size, f"ltrim(substr({fraction}, {decimals + 1}), '0') <> ''")


def _scientific(text: str, decimals: int) -> str:
    """Return SQL of floor(number * 10**decimals) as a HUGEINT, for a number in any notation.

    It shifts the decimal point. Larger results than 10**37 become 10**37.
    """
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
    """Return SQL that gives a size the sign of the number in `text`, and rounds it down.

    `size` is the number without sign and cut-off digits. `rest` is the condition that digits were
    cut off.
    """
    sign = f"CASE WHEN starts_with({text}, '-') THEN -1 ELSE 1 END"
    below = f"CASE WHEN starts_with({text}, '-') THEN CASE WHEN {rest} THEN 1 ELSE 0 END ELSE 0 END"
    return f"({sign} * {size} - {below})"


# --- identity ------------------------------------------------------------------------------------


def secret_number(tag: str, *texts: str) -> str:
    """Return SQL of a keyed 64-bit hash (PRF) of the texts; the one bound parameter is the salt.

    It equals DuckDB's md5_number_lower but is three times as fast, because md5_number_lower goes
    through a bit string.

    `tag` names the purpose, so that hashes for two purposes differ. The input is unambiguous: the
    salt has a fixed length, and the tag contains no colon. Only the last text may contain a colon,
    unless it is itself an injective encoding (`canonical_json`).
    """
    whole = f"? || ':{tag}:' || " + " || ':' || ".join(texts)
    return f"CAST(md5_number({whole}) >> 64 AS UBIGINT)"


def secret_name(tag: str, text: str) -> str:
    """Return SQL of the keyed SHA-256 (32 bytes) of the text; the one bound parameter is the salt.

    A 64-bit number is enough to order persons. It is too short to identify a billion persons
    without collisions.
    """
    return f"unhex(sha256(? || ':{tag}:' || {text}))"


# --- ranks (engines/kernel/ranks.proof.md) --------------------------------------------------------


def rank_type(rows_per_person: int) -> str:
    """Return the smallest SQL type that can hold every rank of a person's rows."""
    sizes = {"UTINYINT": 2**8, "USMALLINT": 2**16, "UINTEGER": 2**32}
    return next(kind for kind, size in sizes.items() if rows_per_person < size)


def group_key(place: int, code: str) -> str:
    """Return SQL of the keyed hash that orders a person's groups; NULL without a group key.

    It orders a person's groups exactly as query/printing/statements.py does. A declared key enters
    as its index on the card, which no row can change. A private text enters as the text itself.
    """
    value = f"CAST({code} AS VARCHAR)" if code.startswith("k") else f"v{place}"
    prf = secret_number("cell", "CAST(person_key AS VARCHAR)", value)
    return f"CASE WHEN {code} IS NOT NULL THEN {prf} END"
