"""What every verb says of itself, and the parts that answers are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.core.card import Card, Column
from sfumato.core.measure import Tally
from sfumato.core.noise.kind import Noise
from sfumato.core.question import Aggregate

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Part:
    """An integer per cell that gets noise: how it is tallied, and how far one row moves it."""

    tally: Tally
    per_row: int


@dataclass(frozen=True)
class NoisyPart:
    """A part after the door: integers that anyone may see, and the noise that is in them."""

    values: Integers
    noise: Noise


@dataclass(frozen=True)
class Estimate:
    """A released column: the value of each cell, its standard deviation and 95 % interval."""

    values: Sequence[int | float]
    std: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True)
class Verb:
    """A verb as plain functions; adding one is adding one of these to the table."""

    check: Callable[[Card, Aggregate], None]
    parts: Callable[[Card, Aggregate], tuple[Part, ...]]
    finish: Callable[[Column | None, Sequence[NoisyPart]], Estimate]
    margin: Callable[[Column | None, Sequence[Noise], int | None], float | None]
    says: Callable[[Aggregate], str]


def value_column(card: Card, aggregate: Aggregate) -> str:
    """Return the physical column that holds the aggregate's values."""
    return f"v{card.index(aggregate.column)}"


def in_units(steps: Integers, step: Fraction) -> list[int | float]:
    """Return whole steps as the numbers they stand for, each rounded once."""
    above, below = step.numerator, step.denominator
    if below == 1:
        return [int(x) * above for x in steps.tolist()]
    return [int(x) * above / below for x in steps.tolist()]


def spread_evenly(value: float, cells: int) -> list[float]:
    """Return the same number for every cell."""
    return [value] * cells
