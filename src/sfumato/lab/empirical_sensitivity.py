"""Measure a query's sensitivity on one table: remove each person in turn (parallel databases).

The result is a lower bound: on another table, a person may change the query by more. It is
computed from the rows, so use it on synthetic or public data only, never on a vault's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.anonymity.tables_in_memory import Tabular, array_of, library_of, plain
from sfumato.dp.refusal import Refused

Query = Callable[[Any], Any]  # Any: the caller's kind of table -> one or more numbers


@dataclass(frozen=True)
class Sensitivity:
    """The largest change of a query by one person's removal, on these rows: a lower bound."""

    largest: float  # the L1 distance: summed over all numbers of the result
    person: Hashable  # the person whose removal gives the largest change
    people: int
    distances: tuple[float, ...]  # one per person

    @property
    def finding(self) -> str:
        """Return the measured sensitivity, and the person who causes it, as sentences."""
        return (
            f"Of {self.people:,} people, the removal of person {self.person!r} changes "
            f"the query most: by {self.largest:.6g}. The true sensitivity is at least "
            "that; these rows do not show how much larger it is."
        )


def parallel_databases(db: Tabular, person: str | None = None) -> Iterator[tuple[Hashable, Any]]:
    """Yield each person, and the table without that person's rows.

    Args:
        db: A list of rows, a pandas or polars frame, an array, or a tensor.
        person: The column that identifies the person of a row; without it, each row is a person.

    Raises:
        Refused: The table is none of these, or has no such column.
    """
    for who, gone in _people(db, person).items():
        kept = np.ones(len(db), dtype=np.bool_)
        kept[gone] = False
        yield who, _kept_rows(db, kept)


def empirical_sensitivity(query: Query, db: Tabular, *, person: str | None = None) -> Sensitivity:
    """Measure how far each person's removal changes a query: a lower bound of its sensitivity.

    Args:
        query: A function of the table that returns a number, an array or a tensor.
        db: Public or synthetic data: a list of rows, a frame, an array, or a tensor.
        person: The column that identifies the person of a row; without it, each row is a person.

    Returns:
        The largest change, whose removal it is, and the distance of each person.

    Raises:
        Refused: The table is empty, or the query's result is not finite or changes its shape.
    """
    whole = _numbers(query, db)
    moved = {who: _distance(whole, query, one) for who, one in parallel_databases(db, person)}
    if not moved:
        raise Refused("bad-request", "The table has no person to remove.", "Give at least one row.")
    farthest = max(moved, key=lambda who: moved[who])
    return Sensitivity(moved[farthest], farthest, len(moved), tuple(moved.values()))


def _distance(whole: NDArray[np.float64], query: Query, db: Tabular) -> float:
    numbers = _numbers(query, db)
    if numbers.shape != whole.shape:
        raise Refused(
            "bad-request",
            "Without one person, the query's result has another shape, so the change cannot be "
            "measured.",
            "Return the same number of values, whoever is missing.",
        )
    return float(np.abs(whole - numbers).sum())


def _people(db: Tabular, person: str | None) -> Mapping[Hashable, list[int]]:
    """Group a table's rows by person: return each person's row indices, to remove the person.

    Without a person column, each row is a person.
    """
    if person is None:
        _check_removable(db)
        return {place: [place] for place in range(len(db))}
    found: dict[Hashable, list[int]] = {}
    for place, who in enumerate(_names_of_people(db, person)):
        if who is None:
            raise Refused(
                "bad-request", "A row has no value in the person column.", "Leave out such rows."
            )
        found.setdefault(who, []).append(place)
    return found


def _names_of_people(db: Tabular, person: str) -> list[Hashable]:
    if library_of(db) is not None:
        names = getattr(getattr(db, "dtype", None), "names", getattr(db, "columns", None))
        is_there = names is not None and person in list(names)
        return [plain(who) for who in db[person]] if is_there else _no_person(person)
    _check_removable(db)
    return [plain(row[person]) if person in row else _no_person(person) for row in db]


def _no_person(person: str) -> Any:  # never returns
    raise Refused(
        "unknown-column",
        f"The rows have no column {person!r}.",
        "Give the name of a column that the rows have.",
    )


def _check_removable(db: Tabular) -> None:
    is_known = library_of(db) in ("pandas", "polars", "numpy", "torch") or (
        isinstance(db, Sequence) and not isinstance(db, str | bytes)
    )
    if not is_known or getattr(db, "ndim", 1) == 0:
        raise Refused(
            "bad-request",
            f"A value of the type {type(db).__name__} has no rows to remove.",
            "Give public or synthetic rows: a list, a frame, an array or a tensor.",
        )


def _kept_rows(db: Tabular, kept: NDArray[np.bool_]) -> Tabular:
    library = library_of(db)
    if library == "pandas":
        return db.loc[kept]
    if library == "polars":
        return db.filter(kept)
    if library == "torch":
        return db[np.flatnonzero(kept)]
    if library == "numpy":
        return db[kept]
    return [row for row, is_kept in zip(db, kept.tolist(), strict=True) if is_kept]


def _numbers(query: Query, db: Tabular) -> NDArray[np.float64]:
    numbers = np.atleast_1d(np.asarray(array_of(query(db)), dtype=np.float64))
    if not np.isfinite(numbers).all():
        raise Refused(
            "bad-request",
            "The query gives a result that is not a finite number, with all people or "
            "without one person.",
            "Make the query return a number in every case, for example for an empty table.",
        )
    return numbers
