"""Rows as a text that every program reads as the same rows."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TextIO

# How a value that is not there is written where the card alone says which texts mean nothing.
NO_VALUE: Final = "\ue000 no text is null here \ue000"


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
