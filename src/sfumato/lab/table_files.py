"""Read a user's own CSV or TSV table for an attack, with refusals that explain errors."""

from __future__ import annotations

import csv
from pathlib import Path

from sfumato.dp.refusal import Refused
from sfumato.lab.sample_data import NULLS, read_lines


def table(path: str | Path) -> list[dict[str, str]]:
    """Read a .csv or .tsv file with a header as text rows; refuse an unreadable file."""
    try:
        return read_lines(Path(path))
    except (OSError, UnicodeDecodeError, csv.Error):
        pass
    raise Refused(
        "source-unreadable",
        f"sfumato cannot read {Path(path).name}.",
        "Give a .csv or .tsv file with a header.",
    )


def numbers(path: str | Path, column: str) -> list[float]:
    """Read a column of a .csv or .tsv file as numbers, without missing values; refuse texts."""
    lines = table(path)
    if not lines:
        raise Refused("bad-request", f"{Path(path).name} has no rows.", "Name a file with rows.")
    if column not in lines[0]:
        raise Refused(
            "unknown-column",
            f"{Path(path).name} has no column {column!r}.",
            f"Name one of: {', '.join(lines[0])}.",
            column=column,
        )
    try:
        return [float(line[column]) for line in lines if line[column] not in NULLS]
    except ValueError:
        pass
    raise Refused(
        "type-mismatch",
        f"The column {column} contains other values than numbers.",
        "Name another column.",
    )
