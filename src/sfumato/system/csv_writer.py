"""Write CSV files that every program reads as the same rows."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TextIO

from sfumato.dp.refusal import Refused

# Text for a missing value if the card's `nulls` alone decides which texts are null.
NO_VALUE: Final = "\ue000 no text is null here \ue000"


def of_values(refused: Refused) -> Refused:
    """Reword a refusal of unreadable cells for rows that came as values, not as a text file.

    Such rows are a data frame or a database table. A data card's formats apply to text files only,
    so these values must have the column's type. Other refusals are returned unchanged.
    """
    if refused.code != "cells-unreadable":
        return refused
    return Refused(
        refused.code,
        refused.cause,
        "A frame or a database table has typed values, so the data card's formats do not apply. "
        "Convert its texts to numbers, dates and booleans first. In pandas, use "
        "pd.to_numeric(...), pd.to_datetime(..., dayfirst=True), and .dt.tz_localize(None) for "
        "timestamps. List words for missing values under nulls. To count these cells as empty, "
        "add with accept_unreadable.",
        **refused.facts,
    )


def write_rows(file: TextIO, lines: Iterable[Sequence[str]], separator: str = ",") -> None:
    """Write rows of cells as CSV, with a line feed after each row.

    Python's csv module quotes only the characters of its own line terminator. A bare carriage
    return in a cell would then split the row when it is read. So the writer gets CR LF as its
    terminator, and the CR is removed after each row.
    """
    csv.writer(_Lines(file), delimiter=separator, lineterminator="\r\n").writerows(lines)


@dataclass(frozen=True)
class _Lines:
    """Text file for the CSV writer; it writes a line feed where the CSV writer writes CR LF."""

    file: TextIO

    def write(self, line: str) -> None:
        """Write one line, with a line feed in place of its final CR LF."""
        self.file.write(f"{line[:-2]}\n")
