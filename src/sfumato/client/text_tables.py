"""Format numbers and tables as plain text and as HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape


def number_text(value: float, error: float) -> str:
    """Format a number with only as many digits as its error justifies."""
    if isinstance(value, int) or not math.isfinite(value):
        return f"{value:,}"
    if error <= 0:
        return f"{value:,g}"
    decimals = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:,.{min(decimals, 12)}f}"


def table_text(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a text table with right-aligned columns."""
    widths = [
        max([len(name), *(len(row[place]) for row in cells)]) for place, name in enumerate(columns)
    ]
    lines = ["  ".join(n.rjust(w) for n, w in zip(columns, widths, strict=True))]
    lines.append("  ".join("-" * w for w in widths))
    lines += ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
    return lines


def printable(text: str) -> str:
    """Escape unprintable characters, so that text cannot control a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def warned(warnings: Sequence[str]) -> list[str]:
    """Return warnings as lines of text, each with "Read first:", to be shown before numbers."""
    return [f"Read first: {one}" for one in warnings]


def warned_html(warnings: Sequence[str]) -> str:
    """Return warnings as HTML, to be shown before the numbers."""
    return "".join(f"<p><b>{escape(line)}</b></p>" for line in warned(warnings))


def table_html(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Return a table as HTML, with every header and cell escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in cells
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
