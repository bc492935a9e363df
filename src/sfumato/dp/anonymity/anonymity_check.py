"""Check the anonymity of a table: measures over all equivalence classes, and the worst classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from sfumato.dp.anonymity.class_contents import Contents, contents_of
from sfumato.dp.anonymity.coded_table import Codes, Column, Table, Value
from sfumato.dp.anonymity.diversity_measures import (
    alphas,
    betas,
    deltas,
    distinct_ls,
    enhanced_betas,
    entropy_ls,
    lacking,
    recursive_cs,
    ts,
)
from sfumato.dp.anonymity.equivalence_classes import Classes, classes_of

WORST: Final = 10  # number of worst classes in a check
Numbers = dict[str, float]


@dataclass(frozen=True)
class WorstClass:
    """One of the equivalence classes that protect their people least, with its measures.

    It has the values of its quasi-identifiers and its size.
    """

    values: tuple[Value, ...]  # one per quasi-identifier
    written: tuple[str, ...]  # the same values as the source file wrote them
    size: int
    held: dict[str, Numbers]  # sensitive column -> measures of this class


@dataclass(frozen=True)
class Check:
    """The result of an anonymity check of one table: k, and measures of the sensitive columns."""

    rows: int
    quasi: tuple[str, ...]
    classes: int
    k: int  # 0 for a table without rows
    alone: int  # number of unique rows: classes of size one
    sensitive: dict[str, Numbers]  # column -> measures over all classes
    worst: tuple[WorstClass, ...]

    def of_all(self, measure: str) -> float:
        """Return the worst value of one measure (such as `l`) over all sensitive columns.

        The result is NaN without sensitive columns.
        """
        found = [numbers[measure] for numbers in self.sensitive.values()]
        if not found:
            return math.nan
        return min(found) if measure in SMALLER_IS_WORSE else max(found)


SMALLER_IS_WORSE: Final = ("l", "entropy_l")  # measures for which a smaller value is worse


def check(
    table: Table,
    quasi: Sequence[str] | None = None,
    sensitive: Sequence[str] = (),
    *,
    others_known: bool = False,
    worst: int = WORST,
) -> Check:
    """Check a table for k-anonymity, and its sensitive columns for diversity in each class.

    Without `quasi`, all columns that are not sensitive are quasi-identifiers. With `others_known`,
    the attacker who wants one sensitive column knows all other sensitive columns. `worst` is the
    number of worst classes to report.
    """
    hidden = table.of(sensitive)
    if quasi is None:
        quasi = [name for name in table.columns if name not in sensitive]
    known = table.of(quasi)
    if table.people == 0:
        return Check(0, tuple(quasi), 0, 0, 0, {}, ())
    classes = classes_of(known, table.rows, table.weights)
    found = {one.name: _held(table, known, classes, one, hidden, others_known) for one in hidden}
    return Check(
        rows=table.people,
        quasi=tuple(quasi),
        classes=classes.count,
        k=int(classes.sizes.min()),
        alone=int(np.count_nonzero(classes.sizes == 1)),
        sensitive={name: numbers_of(of) for name, of in found.items()},
        worst=() if others_known else _worst(classes, known, found, worst),
    )


def numbers_of(of: Contents) -> Numbers:
    """Return every diversity measure of a sensitive column, as the worst value over all classes."""
    l = int(distinct_ls(of).min())  # noqa: E741
    return {
        "l": l,
        "entropy_l": float(entropy_ls(of).min()),
        "recursive_c": float(recursive_cs(of, l).max()),
        "alpha": float(alphas(of).max()),
        "t": float(ts(of).max()),
        "beta": float(betas(of).max()),
        "enhanced_beta": float(enhanced_betas(of).max()),
        "delta": float(deltas(of).max()),
        "lacking": int(lacking(of).max()),
    }


def _held(  # noqa: PLR0913, PLR0917  # two views of one table
    table: Table,
    known: Sequence[Column],
    classes: Classes,
    one: Column,
    hidden: Sequence[Column],
    others_known: bool,
) -> Contents:
    if others_known and len(hidden) > 1:
        others = [other for other in hidden if other is not one]
        classes = classes_of([*known, *others], table.rows, table.weights)
    return contents_of(classes.of_row, classes.sizes, one, table.weights)


def _worst(
    classes: Classes, known: Sequence[Column], found: dict[str, Contents], count: int
) -> tuple[WorstClass, ...]:
    """Return the `count` worst equivalence classes, for the report of an anonymity check.

    They are those with the fewest different sensitive values, then with the fewest people.
    """
    fewest: Codes = np.full(classes.count, np.iinfo(np.int64).max)
    for of in found.values():
        fewest = np.minimum(fewest, distinct_ls(of))
    order = np.lexsort((np.arange(classes.count), classes.sizes, fewest))
    if not found:
        order = np.argsort(classes.sizes, kind="stable")
    places = order[:count]
    held = {name: _per_class(of, places) for name, of in found.items()}
    written = [column.written for column in known]
    return tuple(
        WorstClass(
            tuple(column.values[column.codes[classes.first[place]]] for column in known),
            tuple(
                texts[column.codes[classes.first[place]]]
                for column, texts in zip(known, written, strict=True)
            ),
            int(classes.sizes[place]),
            {name: numbers[rank] for name, numbers in held.items()},
        )
        for rank, place in enumerate(places.tolist())
    )


def _per_class(of: Contents, places: Codes) -> list[Numbers]:
    made = {
        "l": distinct_ls(of)[places],
        "entropy_l": entropy_ls(of)[places],
        "alpha": alphas(of)[places],
        "t": ts(of)[places],
    }
    return [{name: float(values[i]) for name, values in made.items()} for i in range(len(places))]
