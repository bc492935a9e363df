"""What a researcher will see of each column, from the answers for the card and never from rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.card_steps import Answers, columns_of, is_unit, read_column
from sfumato.features.data_sets.missing_markers import found_note
from sfumato.vault.card.card_json import key_value
from sfumato.vault.card.columns import NUMERIC, TIMES, Column

SHARES: Final = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))  # of the range of a column
_FREE: Final = 100  # the range of numbers and texts that the card does not bound
_FIRST, _DAYS, _ZERO = date(2020, 1, 1), 3_650, date(1970, 1, 1)
_SHOWN: Final = 6  # how many keys are listed
HIDDEN: Final = "Hidden: nobody is told that it exists."
PERSON: Final = "Hidden: it names the person."
UNBOUNDED: Final = "No bounds: no sums and averages."
UNLISTED: Final = "No list: only values that many people have are shown, if δ is above 0."


@dataclass(frozen=True)
class ColumnPreview:
    """A column as researchers see it: type, possible values, and made-up examples."""

    name: str
    type: str = ""
    values: str = ""
    examples: tuple[str, ...] = ()
    note: str = ""  # what the owner should know: no bounds, no list, hidden
    fault: str = ""
    found: str = ""  # words for missing values in its cells; for the owner alone

    @property
    def is_open(self) -> bool:
        """Return True if the owner can still say something useful: bounds or a list."""
        return self.note in (UNBOUNDED, UNLISTED) or bool(self.fault)


def column_previews(answers: Answers) -> list[ColumnPreview]:
    """Return a preview of every column."""
    return [column_preview(answers, number) for number in range(len(columns_of(answers)))]


def column_preview(answers: Answers, number: int) -> ColumnPreview:
    """Return a preview of one column; of an invalid one, what is wrong with it."""
    name, fault, column = answers[f"c{number}-name"], "", None
    try:
        column = read_column(answers, number)
    except Refused as refused:
        fault = refused.cause
    if fault:
        return ColumnPreview(name, fault=fault)
    if column is None:
        return ColumnPreview(name, note=PERSON if is_unit(answers, number) else HIDDEN)
    note, found = _note(column), found_note(answers, number)
    return ColumnPreview(name, column.type, _values(column), _examples(column), note, found=found)


def _note(column: Column) -> str:
    if column.type in NUMERIC and not column.is_bounded:
        return UNBOUNDED
    if column.boolean_words is not None:
        words = column.boolean_words
        return f"Read as true: {', '.join(words.true)}. As false: {', '.join(words.false)}."
    return UNLISTED if column.type == "text" and column.keys is None else ""


def _values(column: Column) -> str:
    if column.type == "boolean":
        return "false or true"
    if column.keys is not None:
        return _listed([str(key_value(key)) for key in column.keys])
    if column.lower is not None and column.upper is not None:
        ends = (_text(column, column.lower), _text(column, column.upper))
        step = f", in steps of {_number(column.step)}" if column.type == "number" else ""
        return " to ".join(ends) + step
    return {"text": "any text", "date": "any day", "timestamp": "any time"}.get(
        column.type, "any number"
    )


def _listed(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return f"{len(keys)}: {', '.join(keys[:_SHOWN])}{more}" if len(keys) > 1 else keys[0]


def _examples(column: Column) -> tuple[str, ...]:
    """Return three made-up values at a quarter, half and three quarters of the declared range."""
    if column.type == "boolean":
        return ("true", "false", "true")
    if column.keys is not None:
        return tuple(str(key_value(key)) for key in column.keys[:3])
    if column.type == "text":
        return tuple(f"text-{int(share * _FREE)}" for share in SHARES)
    low, high = _range(column)
    return tuple(_text(column, low + int((high - low) * share)) for share in SHARES)


def _range(column: Column) -> tuple[int, int]:
    if column.lower is not None and column.upper is not None:
        return column.lower, column.upper
    if column.type in TIMES:
        first = (_FIRST - _ZERO).days
        return first, first + _DAYS
    return 0, _FREE


def _text(column: Column, place: int) -> str:
    if column.type not in TIMES:
        return _number(place * column.step)
    day = (_ZERO + timedelta(days=place)).isoformat()
    return f"{day} 12:00:00" if column.type == "timestamp" else day


def _number(value: Fraction) -> str:
    return f"{Decimal(value.numerator) / Decimal(value.denominator):f}"
