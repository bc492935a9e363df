"""Parallel databases: the table with each person removed in turn, and how far a query then moves.

What is found is a lower bound: another table could move the query further. It is computed from the
rows themselves, so it is for synthetic or public data only, never for what a vault keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sfumato.core.refusal import Refused
from sfumato.lab.attacks.linkage import Row

Query = Callable[[Sequence[Row]], ArrayLike]


@dataclass(frozen=True)
class Sensitivity:
    """How far removing one person has moved a query, at most, on these rows."""

    largest: float  # the sum over all numbers of the query's result
    person: Hashable  # whose removal moved it so far
    people: int
    distances: tuple[float, ...]  # one per person

    @property
    def finding(self) -> str:
        """Return the outcome in plain words."""
        return (
            f"Of {self.people:,} people, the removal of person {self.person!r} moves the query "
            f"most: by {self.largest:.6g}. The true sensitivity is at least that; these rows "
            "cannot say how much larger it is."
        )


def parallel_databases(
    rows: Sequence[Row], person: str | None = None
) -> Iterator[tuple[Hashable, list[Row]]]:
    """Yield each person and the rows without theirs; a row is a person where no column says so."""
    places = _places(rows, person)
    for who, gone in places.items():
        yield who, [row for place, row in enumerate(rows) if place not in gone]


def empirical_sensitivity(
    query: Query, rows: Sequence[Row], *, person: str | None = None
) -> Sensitivity:
    """Return how far the query moves when each person is removed in turn."""
    whole = _numbers(query, rows)
    moved = {
        who: float(np.abs(whole - _numbers(query, others)).sum())
        for who, others in parallel_databases(rows, person)
    }
    if not moved:
        raise Refused("bad-request", "There is nobody to remove.", "Give at least one row.")
    farthest = max(moved, key=lambda who: moved[who])
    return Sensitivity(moved[farthest], farthest, len(moved), tuple(moved.values()))


def _places(rows: Sequence[Row], person: str | None) -> Mapping[Hashable, set[int]]:
    found: dict[Hashable, set[int]] = {}
    for place, row in enumerate(rows):
        if person is not None and person not in row:
            raise Refused(
                "unknown-column", f"The rows have no column {person!r}.", "Name one that they have."
            )
        found.setdefault(place if person is None else row[person], set()).add(place)
    return found


def _numbers(query: Query, rows: Sequence[Row]) -> np.ndarray:
    return np.atleast_1d(np.asarray(query(rows), dtype=np.float64))
