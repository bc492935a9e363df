"""Running counts with the tree mechanism: noise for each block of periods, and sums of blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.confidence.sum_of_draws import margin_95_of_sum, std_of_sum
from sfumato.dp.json_values import Json
from sfumato.dp.mechanisms.binary_tree import Tree
from sfumato.dp.mechanisms.noise import MAX_WIDTH, Noise

Integers = NDArray[np.int64]
Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Axis:
    """Where the time axis is among the axes of an answer with several groups, as an array shape.

    The shape is [above, periods, below]: `above` and `below` are the sizes of the other axes.
    """

    above: int
    periods: int
    below: int

    def for_each_cell(self, of_periods: list[Number]) -> list[Number]:
        """Copy a value given for each period to all answer groups of the period, as a flat list."""
        shape = (self.above, self.periods, self.below)
        places = np.arange(self.periods).reshape(1, -1, 1)
        return [of_periods[place] for place in np.broadcast_to(places, shape).ravel().tolist()]


@dataclass(frozen=True)
class TreeMechanism:
    """The tree mechanism of one running count: its noise, its blocks of periods, and its errors."""

    noise: Noise  # of each block
    tree: Tree
    axis: Axis

    def blocks(self, counts: Integers) -> Integers:
        """Return the exact sum of each block of periods; the caller must add noise to each sum."""
        return self.tree.blocks(self._along(counts)).ravel()

    def prefixes(self, noisy: Integers) -> Integers:
        """Return the running count up to each period, from noisy blocks (free post-processing)."""
        return self.tree.prefixes(self._along(noisy)).ravel()

    def _along(self, cells: Integers) -> Integers:
        return cells.reshape(self.axis.above, self.axis.periods, self.axis.below)

    def std(self) -> float:
        """Return the standard deviation of the noisiest running count."""
        return std_of_sum(self.noise, self.tree.most_blocks)

    def stds(self) -> list[float]:
        """Return the standard deviation of every running count."""
        counts = self.tree.blocks_of_prefixes().tolist()
        return self.axis.for_each_cell([std_of_sum(self.noise, n) for n in counts])

    def margin(self) -> int:
        """Return the half-width of the 95 % interval of the noisiest running count."""
        return margin_95_of_sum(self.noise, self.tree.most_blocks)

    def margins(self) -> list[int]:
        """Return the half-width of the 95 % interval of every running count."""
        counts = self.tree.blocks_of_prefixes().tolist()
        return self.axis.for_each_cell([margin_95_of_sum(self.noise, n) for n in counts])

    def is_drawable(self) -> bool:
        """Return whether the noise can be drawn exactly and running counts fit in 64 bits."""
        widest = self.noise.width() * math.sqrt(self.tree.most_blocks)
        return self.noise.is_drawable() and widest <= MAX_WIDTH

    def as_json(self) -> Json:
        """Return the mechanism and its exact parameters as JSON, for the receipt of an answer."""
        name = "scale" if self.noise.kind == "laplace" else "variance"
        return {
            "kind": f"discrete {self.noise.kind} tree",
            name: str(self.noise.parameter),
            "periods": self.tree.periods,
            "branching": self.tree.branching,
            "levels": self.tree.levels,
        }
