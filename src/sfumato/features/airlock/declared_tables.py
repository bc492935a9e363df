"""Files of the airlock as their authors declare them: tables of groups of people, with counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.features.airlock.cell_numbers import count_of, plain
from sfumato.features.airlock.file_types import TABLES, kind_of

STOPS, LOOK = "stops", "look"
_UNSEEN: Final = ("png", "svg", "safetensors")

Counts = dict[tuple[str, ...], Decimal]  # group -> number of people


@dataclass(frozen=True)
class DeclaredFile:
    """A file that a program writes, and its group, count and sum columns as the author declares."""

    path: str
    by: tuple[str, ...] = ()  # the group columns, which are columns of the card and the table
    count: str = ""  # the table's column with the number of people
    of: str = ""  # the card's column that the table sums up

    @property
    def is_table(self) -> bool:
        """Return True if the file is a CSV or TSV table."""
        return kind_of(self.path) in TABLES

    @property
    def is_for_eyes(self) -> bool:
        """Return True if no check can judge the content, only people: a picture or tensors."""
        return kind_of(self.path) in _UNSEEN


@dataclass(frozen=True)
class Finding:
    """One finding of an output check in a file: the check, a text, and if it stops a release."""

    path: str
    check: str
    says: str
    weight: str = LOOK

    def as_json(self) -> Json:
        """Return the finding as JSON for reviewers."""
        return {"path": self.path, "check": self.check, "says": self.says, "weight": self.weight}


@dataclass(frozen=True)
class Earlier:
    """A file about the same people that another request released, to find differencing attacks."""

    request: str
    asked: DeclaredFile
    file: bytes


class Table:
    """A CSV or TSV table, read as one dictionary (column name -> cell) for each line."""

    def __init__(self, asked: DeclaredFile, rows: list[list[str]]) -> None:
        self.asked = asked
        self.heads = [head.strip() for head in rows[0]]
        self.lines = [dict(zip(self.heads, row, strict=True)) for row in rows[1:]]

    @property
    def has_groups(self) -> bool:
        """Return True if the table has all columns that its author declared: groups and count."""
        return {*self.asked.by, self.asked.count} - {""} <= set(self.heads)

    def key(self, line: Mapping[str, str], by: Sequence[str]) -> tuple[str, ...]:
        """Return the normalised cells of a line in the group columns `by`."""
        return tuple(plain(line[name]) for name in by)

    def counts(self, by: Sequence[str]) -> Counts:
        """Return the number of people in each group of the columns `by`, summed over lines."""
        sums: defaultdict[tuple[str, ...], Decimal] = defaultdict(Decimal)
        for line in self.lines:
            sums[self.key(line, by)] += count_of(line[self.asked.count]) or 0
        return dict(sums)
