"""Bottom-k sketches of persons: detect that two data sets contain the same people.

A sketch keeps the 512 smallest keyed hashes of a set ("bottom-k"). Below the smaller end of two
sketches both samples are complete, and there they can be compared as sets.

For common values (an age and a town), it says little that a value is in both tables. It says much
that a value occurs equally often in both. Let a value have t rows in the two tables together, and
let p be the first table's share of all rows. If both tables are independent samples of one
population, the first table has a Binomial(t, p) number of the t rows. Its expected squared distance
from p t is then t p (1 - p), and more if the populations differ. If m of all N rows are common to
both tables, the expectation is multiplied by 1 - 2m/N. So the distance estimates the number of
shared rows, however common the values are. For unique values the count is exact.
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
ALIKE: Final = 0.5  # two sets are the same people if this share of the smaller set is in the other
# significance level: counts agree better than by chance by this many standard deviations
SURE: Final = 5
FEW: Final = 8  # with fewer shared values than this, nothing is significant
_COMMON: Final = 8  # a value with more rows than these gets a smaller weight, 1 / rows
_RARE: Final = 4  # a value with at most so many rows is rare
# continuity correction: two rows of a value are one in each table in half of all cases
_GRAIN: Final = 1 / 6

Mark = tuple[int, int]  # a hash, and how often its value occurs (0 for an identifying column)


@dataclass(frozen=True)
class Fingerprint:
    """Bottom-k sample of a set: its smallest keyed hashes, each with how often its value occurs."""

    marks: tuple[Mark, ...]

    @property
    def end(self) -> int:
        """Return the end of the complete part: below this hash, the sample has the whole set."""
        return self.marks[-1][0] + 1 if len(self.marks) >= KEPT else 2**64


@dataclass(frozen=True)
class Sketch:
    """Samples of keyed hashes that identify the people in a data set, to compare it with others.

    There are samples of whole rows (one per table), of identifying columns, and of parts of rows:
    one column or a pair of columns. Parts detect a copy whose other columns were added, removed or
    changed.
    """

    rows: tuple[Fingerprint, ...]
    columns: tuple[Fingerprint, ...]
    parts: tuple[Fingerprint, ...]
    # a keyed hash of all rows of each table, and one of people's files; empty in an older sketch
    whole: tuple[str, ...] = ()


def containment(one: Fingerprint, other: Fingerprint) -> float:
    """Estimate the share of the smaller set that is also in the other set (containment)."""
    end = min(one.end, other.end)
    first, second = ({m for m in f.marks if m[0] < end} for f in (one, other))
    smaller = min(len(first), len(second))
    return len(first & second) / smaller if smaller else 0.0


def are_alike(one: Sketch, other: Sketch) -> bool:
    """Say whether two sketches appear to describe the same people."""
    pairs = [*product(one.rows, other.rows), *product(one.columns, other.columns)]
    if any(containment(a, b) >= ALIKE for a, b in pairs):
        return True
    return any(have_shared_rows(a, b) for a in one.parts for b in other.parts)


def have_shared_rows(one: Fingerprint, other: Fingerprint) -> bool:
    """Say whether at least half of the smaller table's rows are in the other, beyond chance.

    Rare values are also tested alone, because a selection can lack common values. For example, a
    copy of all adults lacks the many pupils with an income of 0.
    """
    both = _counts_of_both(one, other)
    return _are_shared(both) or _are_shared([(a, b) for a, b in both if a + b <= _RARE])


def _counts_of_both(one: Fingerprint, other: Fingerprint) -> list[tuple[int, int]]:
    """Return how often each value occurs in both samples; empty if too few values are shared."""
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
    """Return by how many standard deviations a mean square of normal values is below 1.

    `ratio` is the mean square, and `freedom` its degrees of freedom. Its cube root is nearly normal
    (Wilson-Hilferty, 1931). For a dozen common values this is more accurate than a normal
    approximation of the mean square itself, which ignores the bound at zero.
    """
    spread = 2 / (9 * freedom)
    return (1 - spread - math.cbrt(ratio)) / math.sqrt(spread)


def domains_alike(new: NewSketch, others: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the people domains (names of the people in data sets) that appear to be the same.

    A domain whose sketch is unreadable counts as the same people. The sketches of a domain are also
    compared together: of rows that came in many parts, each part may have few of the people.
    """
    paths: dict[str, list[Path]] = {}
    for domain, path in others:
        paths.setdefault(domain, []).append(Path(path))
    return tuple(
        sorted(
            domain
            for domain, some in paths.items()
            if any(_may_be(new, domain, path) for path in some) or _are_together(new, domain, some)
        )
    )


def _are_together(new: NewSketch, domain: str, paths: Sequence[Path]) -> bool:
    """Say whether the parts of a domain together have the people of all parts of the new rows.

    It says no if the earlier parts of the new rows had them already: that was decided then.
    """
    if len(paths) + len(new.earlier) < 2:  # one part on each side was compared
        return False
    others = [sketch for sketch in map(read_sketch, paths) if sketch is not None]
    other, own = _pooled(others), _pooled((new.own, *new.earlier))
    if not are_alike(own, other) or (new.earlier and are_alike(_pooled(new.earlier), other)):
        return False
    return not all(new.is_confirmed(domain, one) for one in others)


def _pooled(sketches: Sequence[Sketch]) -> Sketch:
    """Return the rows, and the identifying columns, of several sketches as one sample each."""
    return Sketch(
        _whole(rows for sketch in sketches for rows in sketch.rows),
        _whole(column for sketch in sketches for column in sketch.columns),
        (),
    )


def _whole(samples: Iterable[Fingerprint]) -> tuple[Fingerprint, ...]:
    """Return the union of samples, below the end up to which all of them are complete."""
    some = tuple(samples)
    end = min((one.end for one in some), default=0)
    marks = {mark for one in some for mark in one.marks if mark[0] < end}
    return (Fingerprint(tuple(sorted(marks))),) if some else ()


@dataclass(frozen=True)
class NewSketch:
    """The sketch of new rows, and the pairs of sketches that a person has confirmed as different.

    A confirmed pair covers new rows only if nothing has changed: all rows of all tables of people,
    and all of their files, are those of the pair's first sketch, and the other data set's are those
    of its second. Public tables are always compared.
    """

    own: Sketch  # of the tables of people
    public: Sketch  # of the public tables
    # people domain of the other, sketch of an earlier version of this data set, sketch of the other
    different: tuple[tuple[str, str, str], ...] = ()
    earlier: tuple[Sketch, ...] = ()  # of the rows to which the new ones are appended

    def is_confirmed(self, domain: str, other: Sketch) -> bool:
        """Say whether a person has confirmed that these very rows are about other people."""
        return any(
            _are_same_rows(other, read_sketch(Path(second)))
            and _are_same_rows(self.own, read_sketch(Path(first)))
            for people, first, second in self.different
            if people == domain
        )


def _are_same_rows(one: Sketch, other: Sketch | None) -> bool:
    """Say whether two sketches are of the same rows and files; unknown means no."""
    return bool(one.whole) and one == other


def _may_be(new: NewSketch, domain: str, path: Path) -> bool:
    other = read_sketch(path)
    if other is None:
        return True
    if not are_alike(united((new.own, new.public)), other):
        return False
    return not new.is_confirmed(domain, other) or are_alike(new.public, other)


def united(sketches: Sequence[Sketch]) -> Sketch:
    """Unite the sketches of a data set's tables into one sketch."""
    return Sketch(
        tuple(rows for sketch in sketches for rows in sketch.rows),
        tuple(column for sketch in sketches for column in sketch.columns),
        tuple(part for sketch in sketches for part in sketch.parts),
        tuple(mark for sketch in sketches for mark in sketch.whole),
    )


def write_sketch(path: Path, sketch: Sketch) -> None:
    """Write a sketch of people as JSON, readable only by the user of this process."""
    body = {
        "rows": [rows.marks for rows in sketch.rows],
        "columns": [column.marks for column in sketch.columns],
        "parts": [part.marks for part in sketch.parts],
        "whole": list(sketch.whole),
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps({"sketch": VERSION, **body}), encoding="ascii")


def read_sketch(path: Path) -> Sketch | None:
    """Read a sketch of people; return None if it is missing, damaged or of another version."""
    try:
        shape = json.loads(path.read_text(encoding="ascii"))
        if shape["sketch"] != VERSION:
            return None
        rows, columns, parts = (
            tuple(_read(c) for c in shape[n]) for n in ("rows", "columns", "parts")
        )
        return Sketch(rows, columns, parts, tuple(map(str, shape.get("whole", ()))))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read(marks: Sequence[Sequence[int]]) -> Fingerprint:
    return Fingerprint(tuple((int(h), int(n)) for h, n in marks))
