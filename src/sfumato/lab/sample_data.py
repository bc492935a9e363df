"""Load the bundled synthetic data sets, and what an attacker knows of one person in them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

from sfumato.lab.attacks.linkage import Between, Knowledge, Row

DATA: Final = Path(__file__).parent / "data"
MEDICAL: Final = DATA / "medical.csv"
MEDICAL_CARD: Final = DATA / "medical.card.toml"
HEIGHTS: Final = DATA / "heights.tsv"
HEIGHTS_CARD: Final = DATA / "heights.card.toml"
NULLS: Final = ("n/a", "")
HEIGHT_BOUNDS: Final = (140.0, 200.0)  # the bounds of heights, as the card declares them

# An attacker's background knowledge of one person: enough to find one row in a thousand.
NEIGHBOUR_KNOWS: Final[Knowledge] = {
    "age": 52,
    "zip": "00310",
    "salary": Between(140_000, 160_000),
}


def medical_rows() -> tuple[Row, ...]:
    """Return the bundled synthetic medical data set, with one row per person."""
    return tuple(
        {
            "age": int(line["age"]),
            "zip": line["zip"],
            "salary": int(line["salary"]),
            "has_rare_disease": line["has_rare_disease"] == "true",
        }
        for line in read_lines(MEDICAL)
    )


def read_lines(path: Path) -> list[dict[str, str]]:
    """Read a .csv or .tsv file with a header as a list of text rows."""
    mark = "\t" if path.suffix == ".tsv" else ","
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter=mark))


def read_numbers(path: Path, column: str) -> list[float]:
    """Return the numbers of one column of a .csv or .tsv file.

    Missing values are left out, but entry errors are included.
    """
    return [float(line[column]) for line in read_lines(path) if line[column] not in NULLS]
