"""Rows as a text that every program reads as the same rows."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TextIO

from sfumato.dp.refusal import Refused

# How a value that is not there is written where the card alone says which texts mean nothing.
NO_VALUE: Final = "\ue000 no text is null here \ue000"


def of_values(refused: Refused) -> Refused:
    """Return the refusal of cells that cannot be read, as it is for values and not for a text file.

    A card's formats are for text files, so a frame or a table has to hold values of the type.
    """
    if refused.code != "cells-unreadable":
        return refused
    return Refused(
        refused.code,
        refused.cause,
        "A frame or a table of a database has values, and the card no formats for them. Make "
        "numbers, dates and truths of its texts first; in pandas: pd.to_numeric(...), "
        "pd.to_datetime(..., dayfirst=True), and moments without a zone: .dt.tz_localize(None). "
        "Words for no value stand under nulls. Whoever means these cells to count as empty adds "
        "with accept_unreadable.",
        **refused.facts,
    )


def write_rows(file: TextIO, lines: Iterable[Sequence[str]], separator: str = ",") -> None:
    """Write the lines with that between their cells, a line feed after each.

    Python quotes a cell for the letters that end its own lines and for no other: a lone carriage
    return would break a row in two wherever it is read, so lines are ended by both at first.
    """
    csv.writer(_Lines(file), delimiter=separator, lineterminator="\r\n").writerows(lines)


@dataclass(frozen=True)
class _Lines:
    """A file whose lines end in a line feed, whatever they ended in."""

    file: TextIO

    def write(self, line: str) -> None:
        """Write one line."""
        self.file.write(f"{line[:-2]}\n")
