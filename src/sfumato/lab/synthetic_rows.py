"""Draw a synthetic town, and two kinds of synthetic data from it: a copy, and a private histogram.

The histogram is the simplest differentially private generator: noisy counts of the cells of a
public grid, and rows drawn from those counts. It serves as an attack's target, not for analysis.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.lab.column_tables import Table
from sfumato.lab.platform_noise import private_sums

AREAS: Final = np.array(["north", "east", "south", "west", "centre"])
AGES: Final = np.linspace(18, 90, 7)  # the edges of the public grid
SALARIES: Final = np.linspace(0, 120_000, 7)
SHAPE: Final = (6, 5, 6, 2)
PUBLIC_SIZE: Final = 200  # rows of the synthetic data, independent of the town's true size


def draw_town(count: int, dice: np.random.Generator) -> Table:
    """Draw a synthetic table of people with age, area, salary, and an illness likelier with age."""
    age = dice.uniform(18, 90, count).round(1)
    area = AREAS[dice.integers(0, 5, count)]
    salary = np.clip(8_000 + 700 * age + dice.normal(0, 18_000, count), 0, 119_999).round()
    return {"age": age, "area": area, "salary": salary, "ill": dice.random(count) < age / 150}


def copied(people: Table, _dice: np.random.Generator) -> Table:
    """Return the people's own rows as "synthetic" data, as an overfitted generator does."""
    return people


def from_private_histogram(people: Table, *, epsilon: float, dice: np.random.Generator) -> Table:
    """Draw synthetic rows from a private histogram, which costs epsilon.

    Each person is in one cell of a public grid, so the sensitivity of the counts is 1. The number
    of rows is public. The rows are post-processing of the noisy counts.
    """
    noisy = noisy_cells(people, epsilon=epsilon, dice=dice)
    weights = np.maximum(noisy, 0).ravel().astype(np.float64)
    weights = weights if weights.any() else np.ones_like(weights)
    return _rows_in(dice.choice(weights.size, PUBLIC_SIZE, p=weights / weights.sum()), dice)


def noisy_cells(people: Table, *, epsilon: float, dice: np.random.Generator) -> NDArray[np.int64]:
    """Return the private histogram: a noisy count for each cell of the public grid."""
    return private_sums(cells_of(people), sensitivity=1, epsilon=epsilon, dice=dice)


def cells_of(people: Table) -> NDArray[np.int64]:
    """Count the people in each cell of the public grid."""
    places = np.ravel_multi_index(
        (
            np.clip(np.digitize(people["age"], AGES) - 1, 0, 5),
            np.searchsorted(np.sort(AREAS), people["area"]),
            np.clip(np.digitize(people["salary"], SALARIES) - 1, 0, 5),
            people["ill"].astype(np.int64),
        ),
        SHAPE,
    )
    counts = np.bincount(places, minlength=int(np.prod(SHAPE)))
    return counts.astype(np.int64)


def _rows_in(cells: NDArray[np.int64], dice: np.random.Generator) -> Table:
    """Draw one row in each of the given cells of the public grid, uniformly inside the cell."""
    age, area, salary, ill = np.unravel_index(cells, SHAPE)
    return {
        "age": _between(AGES, age, dice).round(1),
        "area": np.sort(AREAS)[area],
        "salary": _between(SALARIES, salary, dice).round(),
        "ill": ill == 1,
    }


def _between(
    edges: NDArray[np.float64], places: NDArray[np.int64], dice: np.random.Generator
) -> NDArray[np.float64]:
    inside: NDArray[np.float64] = edges[places] + dice.random(len(places)) * np.diff(edges)[places]
    return inside
