"""Private choices from a public list: quantile, top k, bounds search, above threshold.

An aggregate that releases a choice has a PrivateChoice instead of additive noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.json_values import Json
from sfumato.dp.mechanisms.bounds_search import search_bounds
from sfumato.dp.mechanisms.exponential import rate_for
from sfumato.dp.mechanisms.noise import CONFIDENCE
from sfumato.dp.mechanisms.permute_and_flip import permute_and_flip
from sfumato.dp.mechanisms.quantile import choose_quantiles, rank_error, rank_sensitivity
from sfumato.dp.mechanisms.sparse_vector import first_above, sparse_vector_for_rows
from sfumato.dp.mechanisms.top_k import most_frequent
from sfumato.dp.ports import RandomSource

Integers = NDArray[np.int64]
FALSE_POSITIVE: Final = Fraction(1, 1000)  # false-positive probability of bounds search


@dataclass(frozen=True)
class PrivateChoice:
    """The selection mechanism of an aggregate that chooses from a public list in each group.

    `epsilon` is the cost for each group of the answer. A person has at most `rows` rows in a group.
    `points` is the length of the public list.
    """

    kind: Literal["quantile", "top", "bounds", "above"]
    epsilon: Fraction
    rows: int
    points: int
    at: Fraction = Fraction(0)
    names: int = 1
    threshold: int = 0

    def is_drawable(self) -> bool:
        """Return True: the exact samplers of selection mechanisms support every epsilon."""
        return True

    def choose(self, histograms: Integers, dice: RandomSource) -> Integers:
        """Choose privately from the histogram of each group; return a row of integers per group.

        - quantile: one index into the public list.
        - above: one index into the public list, or -1 for none.
        - top: as many indices as `names`.
        - bounds: 1, lower, upper; or 0, 0, 0 if no bounds were found.
        """
        if self.kind == "quantile":
            chosen = choose_quantiles(
                histograms, self.at, epsilon=self.epsilon, rows=self.rows, dice=dice
            )
            return chosen.reshape(-1, 1)
        choose = {"top": self._top, "bounds": self._bounds, "above": self._above}[self.kind]
        width = {"top": self.names, "bounds": 3, "above": 1}[self.kind]
        found = [choose(counts, dice) for counts in histograms]
        return np.array(found, dtype=np.int64).reshape(len(found), width)

    def _top(self, counts: Integers, dice: RandomSource) -> tuple[int, ...]:
        if self.names == 1:
            rate = rate_for(self.epsilon, self.rows, monotone=True)
            return (permute_and_flip(counts, rate, dice),)
        return most_frequent(counts, self.names, epsilon=self.epsilon, values=self.rows, dice=dice)

    def _bounds(self, counts: Integers, dice: RandomSource) -> tuple[int, int, int]:
        found = search_bounds(
            counts, epsilon=self.epsilon, rows=self.rows, false_positive=FALSE_POSITIVE, dice=dice
        )
        return (0, 0, 0) if found is None else (1, *found)

    def _above(self, counts: Integers, dice: RandomSource) -> tuple[int]:
        watch = sparse_vector_for_rows(self.epsilon, 1, self.rows)
        yes = np.flatnonzero(first_above(counts, self.threshold, watch, dice))
        return (int(yes[0]) if yes.size else -1,)

    def rank_error(self) -> int | None:
        """Return how many ranks (rows) a quantile is off at most, at 95 % confidence.

        The result is None for other choices than quantiles.
        """
        if self.kind != "quantile":
            return None
        sensitivity = rank_sensitivity(self.at, self.rows)
        return rank_error(self.epsilon, sensitivity, self.points, CONFIDENCE)

    def as_json(self) -> Json:
        """Return the mechanism and its exact epsilon as JSON, for the receipt of an answer."""
        made: Json = {"kind": self._name(), "epsilon_a_group": str(self.epsilon)}
        error = self.rank_error()
        return made if error is None else {**made, "rank_error": error}

    def _name(self) -> str:
        if self.kind == "top" and self.names == 1:
            return "permute-and-flip"
        return {"bounds": "bound search", "above": "above threshold"}.get(
            self.kind, "exponential mechanism"
        )
