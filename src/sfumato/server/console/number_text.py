"""Template filters of the console that format numbers, keys and times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from fractions import Fraction
from typing import Any, Final

from sfumato.client.text_tables import number_text

Shape = Mapping[str, Any]  # Any: JSON of the wire


def plain_number(value: float | str | None) -> str:
    """Format a privacy budget or a bound, without floating-point artefacts."""
    if value is None:
        return "–"
    if isinstance(value, str):  # an exact fraction, as the ledger writes it
        return _digits(float(Fraction(value)))
    return f"{value:,}" if isinstance(value, int) else _digits(value)


def _digits(value: float) -> str:
    return f"{value:,.10g}".replace("e-0", "e-")


def bound(value: float | str) -> str:
    """Format the bound of a column: a number, or a date, which stays unchanged."""
    return value if isinstance(value, str) else plain_number(value)


def key_text(value: object) -> str:
    """Format a group key; null becomes "(missing)"."""
    if value is None:
        return "(missing)"
    return str(value).lower() if isinstance(value, bool) else str(value)


def moment(value: str | None) -> str:
    """Format the time of a ledger entry to the minute, in UTC."""
    if not value:
        return "–"
    return datetime.fromisoformat(value).strftime("%Y-%m-%d %H:%M")


def margin(value: float | None) -> str:
    """Format an error margin (half-width of an interval) with its significant digits only."""
    return "–" if value is None else number_text(float(value), float(value))


def error_words(price: Shape, name: str) -> str:
    """Describe in words how large the error of a column will be, before the question is asked."""
    error, rank = price["error"][name], price["rank_error"].get(name)
    if error is not None:
        return f"± {margin(error)}"
    if rank is not None:
        return f"rank within {rank:,} rows"
    sizes = price["error_by_people"].get(name, [])
    chosen = [pair for pair in sizes if pair[0] in (100, 10_000)]
    said = "\n".join(f"± {margin(error)} for {size:,} people" for size, error in chosen)
    return said or "cannot be told before"


FILTERS: Final[Mapping[str, Callable[..., str]]] = {
    "bound": bound,
    "key": key_text,
    "plain": plain_number,
    "moment": moment,
    "margin": margin,
}


def harmless_cell(value: object) -> object:
    """Return a cell of a CSV file that no spreadsheet program takes for a formula."""
    is_run = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    return f"'{value}" if is_run else value
