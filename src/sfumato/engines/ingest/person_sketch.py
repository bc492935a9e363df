"""Sketches of people: small samples of keyed hashes by which known people are recognised.

A sketch keeps the 512 smallest hashes of a set ("bottom-k"). Of two sketches, what lies below the
lower of their two ends is complete in both, and there they can be compared as sets.

Values that many people have (an age and a town) say little by being in both tables, and much by
being equally often in both. Two independent draws from one town share a value's t rows like t coins
with chance p: their squared distance from p t is t p (1 - p) on average, more if the towns differ,
and that times 1 - 2m/N if m of all N rows are common to both. So the distance counts the shared
rows, however common the values are; values that are unique it counts exactly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

VERSION: Final = 3
KEPT: Final = 512
ALIKE: Final = 0.5  # this share of the smaller set, found in the other, makes them the same people
SURE: Final = 5  # standard deviations by which counts must be nearer than chance puts them
FEW: Final = 8  # fewer values than these are never sure
_COMMON: Final = 8  # a value of more rows weighs no more than one of so many
_RARE: Final = 4
_GRAIN: Final = 1 / 6  # counts are whole: two persons fall on one side each in a half of all cases

Mark = tuple[int, int]  # a hash, and how often its row occurs (0 for a naming column's value)


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
    """The fingerprints of whole rows, of each column that could name a person, and of parts.

    A part is one column or two: what is left in a copy that gained, lost or changed columns. Rows
    are those of each table of people.
    """

    rows: tuple[Fingerprint, ...]
    columns: tuple[Fingerprint, ...]
    parts: tuple[Fingerprint, ...]


def containment(one: Fingerprint, other: Fingerprint) -> float:
    """Return which share of the smaller set seems to be in the other."""
    end = min(one.end, other.end)
    first, second = ({m for m in f.marks if m[0] < end} for f in (one, other))
    smaller = min(len(first), len(second))
    return len(first & second) / smaller if smaller else 0.0


def are_alike(one: Sketch, other: Sketch) -> bool:
    """Say whether two sketches seem to be of the same people."""
    pairs = [*product(one.rows, other.rows), *product(one.columns, other.columns)]
    if any(containment(a, b) >= ALIKE for a, b in pairs):
        return True
    return any(have_shared_rows(a, b) for a in one.parts for b in other.parts)


def have_shared_rows(one: Fingerprint, other: Fingerprint) -> bool:
    """Say whether half of the smaller table's rows are in the other, beyond what chance shares.

    Rare values are asked alone too: a copy of the adults has none of the many pupils who earn 0.
    """
    both = _counts_of_both(one, other)
    return _are_shared(both) or _are_shared([(a, b) for a, b in both if a + b <= _RARE])


def _counts_of_both(one: Fingerprint, other: Fingerprint) -> list[tuple[int, int]]:
    """Return how often each value occurs here and there; nothing if hardly any is in both."""
    end = min(one.end, other.end)
    first, second = ({h: n for h, n in f.marks if h < end} for f in (one, other))
    if len(first.keys() & second.keys()) < FEW:
        return []
    return [(first.get(h, 0), second.get(h, 0)) for h in first.keys() | second.keys()]


def _are_shared(both: Sequence[tuple[int, int]]) -> bool:
    rows, others = sum(a for a, _ in both), sum(b for _, b in both)
    if not rows or not others:
        return False
    p = rows / (rows + others)
    chance = distance = variance = grain = 0.0
    for a, b in both:
        total, weight = a + b, 1 / max(a + b, _COMMON)
        expected = total * p * (1 - p)
        fourth = expected * (1 + (3 * total - 6) * p * (1 - p))
        chance += weight * expected
        distance += weight * (a - p * total) ** 2
        variance += weight**2 * (fourth - expected**2)
        grain += weight * _GRAIN
    shared = (1 - distance / chance) * (rows + others) / 2  # the ratio is 1 - 2m/N
    if shared < ALIKE * min(rows, others):
        return False
    if chance - distance >= SURE * math.sqrt(max(variance, 0)):
        return True
    freedom = 2 * chance**2 / max(variance, 1e-9)
    return _deviations_below((distance + grain) / chance, freedom) >= SURE


def _deviations_below(ratio: float, freedom: float) -> float:
    """Return how unusually small a mean square is (Wilson and Hilferty, 1931: its cube root).

    A dozen common values say more by this than by the bell curve, which knows no bound at zero.
    """
    spread = 2 / (9 * freedom)
    return (1 - spread - math.cbrt(ratio)) / math.sqrt(spread)


def domains_alike(sketch: Sketch, others: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the domains whose people these seem to be; one that cannot be read may be anyone."""
    return tuple(sorted({domain for domain, path in others if _may_be(sketch, Path(path))}))


def _may_be(sketch: Sketch, path: Path) -> bool:
    other = read_sketch(path)
    return other is None or are_alike(sketch, other)


def united(sketches: Sequence[Sketch]) -> Sketch:
    """Return the sketch of several tables of the same people."""
    return Sketch(
        tuple(rows for sketch in sketches for rows in sketch.rows),
        tuple(column for sketch in sketches for column in sketch.columns),
        tuple(part for sketch in sketches for part in sketch.parts),
    )


def write_sketch(path: Path, sketch: Sketch) -> None:
    """Write the sketch as JSON, for the owner of the process alone."""
    body = {
        "rows": [rows.marks for rows in sketch.rows],
        "columns": [column.marks for column in sketch.columns],
        "parts": [part.marks for part in sketch.parts],
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps({"sketch": VERSION, **body}), encoding="ascii")


def read_sketch(path: Path) -> Sketch | None:
    """Return the sketch, or None if the file is not one."""
    try:
        shape = json.loads(path.read_text(encoding="ascii"))
        if shape["sketch"] != VERSION:
            return None
        return Sketch(*(tuple(_read(c) for c in shape[n]) for n in ("rows", "columns", "parts")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read(marks: Sequence[Sequence[int]]) -> Fingerprint:
    return Fingerprint(tuple((int(h), int(n)) for h, n in marks))
