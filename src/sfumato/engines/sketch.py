"""Sketches of people: small samples of keyed hashes by which known people are recognised.

A sketch keeps the 512 smallest hashes of a set ("bottom-k"). Of two sketches, what lies below the
lower of their two ends is complete in both, and there they can be compared as sets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KEPT: Final = 512
ALIKE: Final = 0.5  # this share of the smaller set, found in the other, makes them the same people

Mark = tuple[int, int]  # a hash, and how often its row occurs (0 for a column's value)


@dataclass(frozen=True)
class Fingerprint:
    """The smallest marks of one set, sorted."""

    marks: tuple[Mark, ...]

    @property
    def end(self) -> int:
        """Return below what the sample is complete."""
        return self.marks[-1][0] + 1 if len(self.marks) >= KEPT else 2**64


@dataclass(frozen=True)
class Sketch:
    """The fingerprint of the whole rows, and one of each column that could name a person."""

    rows: Fingerprint
    columns: tuple[Fingerprint, ...]


def containment(one: Fingerprint, other: Fingerprint) -> float:
    """Return which share of the smaller set seems to be in the other."""
    end = min(one.end, other.end)
    first, second = ({m for m in f.marks if m[0] < end} for f in (one, other))
    smaller = min(len(first), len(second))
    return len(first & second) / smaller if smaller else 0.0


def are_alike(one: Sketch, other: Sketch) -> bool:
    """Say whether two sketches seem to be of the same people."""
    pairs = [(one.rows, other.rows), *((a, b) for a in one.columns for b in other.columns)]
    return any(containment(a, b) >= ALIKE for a, b in pairs)


def domains_alike(sketch: Sketch, others: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the domains whose people these seem to be; one that cannot be read may be anyone."""
    return tuple(sorted({domain for domain, path in others if _may_be(sketch, Path(path))}))


def _may_be(sketch: Sketch, path: Path) -> bool:
    other = read_sketch(path)
    return other is None or are_alike(sketch, other)


def write_sketch(path: Path, sketch: Sketch) -> None:
    """Write the sketch as JSON, for the owner of the process alone."""
    body = {"rows": sketch.rows.marks, "columns": [column.marks for column in sketch.columns]}
    path.touch(mode=0o600)
    path.write_text(json.dumps({"sketch": 1, **body}), encoding="ascii")


def read_sketch(path: Path) -> Sketch | None:
    """Return the sketch, or None if the file is not one."""
    try:
        shape = json.loads(path.read_text(encoding="ascii"))
        if shape["sketch"] != 1:
            return None
        return Sketch(_read(shape["rows"]), tuple(_read(c) for c in shape["columns"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read(marks: Sequence[Sequence[int]]) -> Fingerprint:
    return Fingerprint(tuple((int(h), int(n)) for h, n in marks))
