"""Files of the airlock as what their authors say that they are: tables of groups of people."""

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

Counts = dict[tuple[str, ...], Decimal]  # people, by group


@dataclass(frozen=True)
class Asked:
    """A file that a request is about, and what its author says that it is."""

    path: str
    by: tuple[str, ...] = ()  # columns of the card, and of the table, that its lines are groups of
    count: str = ""  # the column with the number of people
    of: str = ""  # the column of the card that is added up in it

    @property
    def is_table(self) -> bool:
        """Say whether its lines can be read."""
        return kind_of(self.path) in TABLES

    @property
    def is_for_eyes(self) -> bool:
        """Say whether no program can tell what it shows."""
        return kind_of(self.path) in _UNSEEN


@dataclass(frozen=True)
class Finding:
    """Something that a check has seen in a file."""

    path: str
    check: str
    says: str
    weight: str = LOOK

    def as_json(self) -> Json:
        """Return it as reviewers see it."""
        return {"path": self.path, "check": self.check, "says": self.says, "weight": self.weight}


@dataclass(frozen=True)
class Earlier:
    """A file that was released before about the same people."""

    request: str
    asked: Asked
    file: bytes


class Table:
    """A table by its column names."""

    def __init__(self, asked: Asked, rows: list[list[str]]) -> None:
        self.asked = asked
        self.heads = [head.strip() for head in rows[0]]
        self.lines = [dict(zip(self.heads, row, strict=True)) for row in rows[1:]]

    @property
    def has_groups(self) -> bool:
        """Say whether the columns that its author named are all there."""
        return {*self.asked.by, self.asked.count} - {""} <= set(self.heads)

    def key(self, line: Mapping[str, str], by: Sequence[str]) -> tuple[str, ...]:
        """Return the group of a line."""
        return tuple(plain(line[name]) for name in by)

    def counts(self, by: Sequence[str]) -> Counts:
        """Return the people of each group, those of finer groups together."""
        sums: defaultdict[tuple[str, ...], Decimal] = defaultdict(Decimal)
        for line in self.lines:
            sums[self.key(line, by)] += count_of(line[self.asked.count]) or 0
        return dict(sums)
