"""Generate SQL that normalises formatted cells: `1.234,5` to 1234.5, a date to ISO 8601.

A cell that does not match the format becomes NULL, so that no cell can be read in two ways.
"""

from __future__ import annotations

from typing import Final

from sfumato.engines.shared.locked_connection import listed, quoted
from sfumato.vault.card.cell_formats import PLAIN, THOUSANDS, TOKEN, BooleanWords, NumberFormat
from sfumato.vault.card.columns import Column

TEXT: Final = "VARCHAR"  # formats of numbers and dates apply only to source columns of this type
BOOLEAN: Final = "BOOLEAN"
_EXPONENT: Final = "([eE][+-]?[0-9]{1,4})?"
_DIGITS: Final = {"%Y": "[0-9]{4}", "%f": "[0-9]{1,6}"}


def plain_spelling(column: Column, text: str, kind: str = TEXT) -> str:
    """Return SQL that rewrites a cell's text from its column's declared format to the default one.

    It is NULL if the text violates the declared format.
    """
    if column.boolean_words is not None and kind != BOOLEAN:
        return _usual_words(column.boolean_words, text)
    if kind != TEXT:
        return text
    if column.date_format:
        return _iso(column, text)
    if column.number_format != PLAIN:
        return _plain_number(column.number_format, text)
    return text


def _usual_words(words: BooleanWords, text: str) -> str:
    return (
        f"CASE WHEN lower({text}) IN ({listed(words.true)}) THEN 'true'"
        f" WHEN lower({text}) IN ({listed(words.false)}) THEN 'false' END"
    )


def _plain_number(spelled: NumberFormat, text: str) -> str:
    marks = THOUSANDS[spelled.thousands]
    decimals = f"({_class(spelled.decimal)}[0-9]*)?"
    whole = "[0-9]+"
    if marks:
        whole = f"([0-9]+|[0-9]{{1,3}}({_class(marks)}[0-9]{{3}})+)"
    pattern = f"[+-]?({whole}{decimals}|{_class(spelled.decimal)}[0-9]+){_EXPONENT}"
    plain = text
    for mark in marks:
        plain = f"replace({plain}, {quoted(mark)}, '')"
    if spelled.decimal != ".":
        plain = f"replace({plain}, {quoted(spelled.decimal)}, '.')"
    return f"CASE WHEN regexp_full_match({text}, {quoted(pattern)}) THEN {plain} END"


def _class(letters: str) -> str:
    return f"[{letters}]"  # no mark is special inside a character class


def _iso(column: Column, text: str) -> str:
    """Return SQL that rewrites a cell's date or timestamp as ISO 8601.

    If a date has a time other than midnight, the result keeps that time.
    """
    written = column.date_format
    moment = f"try_strptime({text}, {quoted(written)})"
    second = "'%Y-%m-%d %H:%M:%S.%f'" if "%f" in written else "'%Y-%m-%d %H:%M:%S'"
    iso = f"strftime({moment}, {second})"
    if column.type == "date":
        at_midnight = f"{moment} = date_trunc('day', {moment})"
        iso = f"CASE WHEN {at_midnight} THEN strftime({moment}, '%Y-%m-%d') ELSE {iso} END"
    fits = f"regexp_full_match({text}, {quoted(date_pattern(written))})"
    return f"CASE WHEN {fits} THEN {iso} END"


def date_pattern(written: str) -> str:
    """Return the regular expression of the texts that a declared date format accepts.

    The separators must be there: `%d.%m.%Y` accepts 1.2.2024, but not 1122024.
    """
    tokens = TOKEN.findall(written)
    return "".join(_part(tokens, place) for place in range(len(tokens)))


def _part(tokens: list[str], place: int) -> str:
    part = tokens[place]
    if not part.startswith("%"):
        return _class(part)
    beside = [tokens[i] for i in (place - 1, place + 1) if 0 <= i < len(tokens)]
    is_joined = any(other.startswith("%") for other in beside)
    return _DIGITS.get(part, "[0-9]{2}" if is_joined else "[0-9]{1,2}")
