"""Suggest number and date formats for the card, for columns whose cells cannot be parsed.

A hint consists of constant words. It reveals only which known format fits nearly all cells of a
column.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from sfumato.engines.ingest.cell_format_sql import date_pattern
from sfumato.engines.ingest.csv_layout import MISSING_MARKERS
from sfumato.vault.card.cell_formats import PLAIN, THOUSANDS, NumberFormat
from sfumato.vault.card.columns import Column

_NEARLY_ALL: Final = 0.95
_DAYS: Final = (
    "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d",
    "%Y-%m-%d",
)  # fmt: skip
_TIMES: Final = ("", " %H:%M", " %H:%M:%S", ", %H:%M", "T%H:%M:%S", "T%H:%M:%SZ")
_WITH_COMMA: Final = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d*)?")
_WITH_POINT: Final = re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+)(\.\d*)?")
_WITH_SPACE: Final = re.compile(r"[+-]?(\d+|\d{1,3}([ \u00a0\u202f]\d{3})+)([.,]\d*)?")
_WITH_APOSTROPHE: Final = re.compile(r"[+-]?(\d+|\d{1,3}(['\u2019]\d{3})+)([.,]\d*)?")
_UNIT: Final = re.compile(r"[+-]?[\d.,' ]+\s*(%|€|\$|£|kg|cm|mm|mg|ml|h|min|s)|[€$£]\s*[\d.,' ]+")
_SHORT_YEAR: Final = re.compile(r"\d{1,2}[-./]\d{1,2}[-./]\d{2}")


def hint_of(column: Column, texts: Sequence[str]) -> str:
    """Advise the owner which card setting would parse a column's texts; "" if none would."""
    filled = [text for text in texts if text.casefold() not in MISSING_MARKERS]
    words = []
    if column.is_numeric:
        words.append(_number_hint(column, filled))
    elif column.type in ("date", "timestamp"):
        words.append(_date_hint(column, filled))
    elif column.type == "boolean":
        words.append(
            "Booleans are true and false, yes and no, t and f, y and n, 1 and 0. If "
            f"{column.name!r} has other words, name them on the card, such as "
            'true = ["ja"] and false = ["nein"].'
        )
    if len(filled) < len(texts):
        words.append(
            f"Some cells of {column.name!r} look like words for a missing value: list those "
            "words under nulls, of the card or of the column."
        )
    return " ".join(word for word in words if word)


def _number_hint(column: Column, texts: Sequence[str]) -> str:
    name = column.name
    spelled = column.number_format
    if _fit(_UNIT, texts):
        return f"Cells of {name!r} have a unit beside the number: remove the unit."
    has_comma = any("," in text for text in texts)
    if spelled == PLAIN and has_comma and _fit(_WITH_COMMA, texts) and _fit(_WITH_POINT, texts):
        return (  # numbers such as 12,500 and 850
            f'{name!r} can be read with decimal = "," or with thousands = "," (only you know '
            "which is right)."
        )
    for pattern, mark in ((_WITH_COMMA, "."), (_WITH_POINT, ",")):
        found = NumberFormat("," if mark == "." else ".", mark)
        if not _fit(pattern, texts):
            continue
        if not any(mark in text for text in texts):
            found = NumberFormat(found.decimal)
        if found != spelled:
            return _spelled(name, found)
    for pattern, mark in ((_WITH_SPACE, " "), (_WITH_APOSTROPHE, "'")):
        if _fit(pattern, texts) and any(m in text for m in THOUSANDS[mark] for text in texts):
            decimal = "," if any("," in text for text in texts) else "."
            return _spelled(name, NumberFormat(decimal, mark))
    return ""


def are_like_thousands(texts: Sequence[str], mark: str) -> bool:
    """Say whether `mark` could be a thousands separator in all texts that contain it (1.234)."""
    marked = [text for text in texts if mark in text]
    pattern = re.compile(rf"[+-]?[1-9][0-9]{{0,2}}([{mark}][0-9]{{3}})+")
    return bool(marked) and all(pattern.fullmatch(text) for text in marked)


def _spelled(name: str, found: NumberFormat) -> str:
    thousands = f' and thousands = "{found.thousands}"' if found.thousands else ""
    return f'{name!r} can be read with decimal = "{found.decimal}"{thousands}.'


def _date_hint(column: Column, texts: Sequence[str]) -> str:
    fitting = formats_of_dates(texts, _NEARLY_ALL)
    if fitting:
        listed = " or ".join(f'"{one}"' for one in fitting)
        which = " (only you know which is right)" if len(fitting) > 1 else ""
        return f"{column.name!r} can be read with format = {listed}{which}."
    if _fit(_SHORT_YEAR, texts):
        return f"The years of {column.name!r} have two digits, so the century is unknown."
    return (
        f"Dates and timestamps of {column.name!r} must be ISO (2024-02-29 13:05:00) or have the "
        "card's format."
    )


def formats_of_dates(texts: Sequence[str], share: float) -> list[str]:
    """Return the known date formats that parse at least `share` of the texts."""
    every = (day + time for day in _DAYS for time in _TIMES)
    return [written for written in every if _are_moments(written, texts, share)]


def _fit(pattern: re.Pattern[str], texts: Sequence[str]) -> bool:
    fitting = sum(pattern.fullmatch(text) is not None for text in texts)
    return bool(texts) and fitting >= _NEARLY_ALL * len(texts)


def _are_moments(written: str, texts: Sequence[str], share: float) -> bool:
    pattern = re.compile(date_pattern(written))
    fitting = sum(pattern.fullmatch(t) is not None and _is_moment(written, t) for t in texts)
    return bool(texts) and fitting >= share * len(texts)


def _is_moment(written: str, text: str) -> bool:
    try:
        datetime.strptime(text, written)  # timestamps of a card have no time zone
    except ValueError:
        return False
    return True
