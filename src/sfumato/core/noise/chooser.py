"""A choice from a public list by integer utilities: what a part gets instead of noise."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.core.expression import Json
from sfumato.core.noise.kind import CONFIDENCE
from sfumato.core.noise.quantile import choose_quantiles, rank_error, rank_sensitivity
from sfumato.core.noise.top import most_frequent
from sfumato.core.ports import Dice

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Chooser:
    """The exponential mechanism over a histogram of each cell, at so much epsilon a cell.

    A person has at most `rows` rows in a cell; `points` is how long the public list is.
    """

    kind: Literal["quantile", "top"]
    epsilon: Fraction
    rows: int
    points: int
    at: Fraction = Fraction(0)
    names: int = 1

    def is_drawable(self) -> bool:
        """Say that the exact sampler reaches any epsilon."""
        return True

    def choose(self, histograms: Integers, dice: Dice) -> Integers:
        """Return the places that were chosen for each cell: one, or as many as there are names."""
        if self.kind == "quantile":
            chosen = choose_quantiles(
                histograms, self.at, epsilon=self.epsilon, rows=self.rows, dice=dice
            )
            return chosen.reshape(-1, 1)
        lists = [
            most_frequent(counts, self.names, epsilon=self.epsilon, values=self.rows, dice=dice)
            for counts in histograms
        ]
        return np.array(lists, dtype=np.int64).reshape(len(lists), self.names)

    def rank_error(self) -> int | None:
        """Return by how many rows a quantile's rank is off at most, at 95 %."""
        if self.kind != "quantile":
            return None
        reach = rank_sensitivity(self.at, self.rows)
        return rank_error(self.epsilon, reach, self.points, CONFIDENCE)

    def as_json(self) -> Json:
        """Return the choice as the receipt prints it; exact."""
        made: Json = {"kind": "exponential mechanism", "epsilon_a_group": str(self.epsilon)}
        error = self.rank_error()
        return made if error is None else {**made, "rank_error": error}
