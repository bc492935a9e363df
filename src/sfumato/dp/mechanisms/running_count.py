"""The noise of a running count: one draw for each block of a tree, and prefixes of noisy blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.confidence.sum_of_draws import margin_of_several, std_of_several
from sfumato.dp.json_values import Json
from sfumato.dp.mechanisms.binary_tree import Tree
from sfumato.dp.mechanisms.noise import WIDEST, Noise

Integers = NDArray[np.int64]
Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Axis:
    """Where the periods stand among an answer's cells: cells are above x periods x below."""

    above: int
    periods: int
    below: int

    def for_each_cell(self, of_periods: list[Number]) -> list[Number]:
        """Return what belongs to each period, for every cell."""
        shape = (self.above, self.periods, self.below)
        places = np.arange(self.periods).reshape(1, -1, 1)
        return [of_periods[place] for place in np.broadcast_to(places, shape).ravel().tolist()]


@dataclass(frozen=True)
class Running:
    """The tree mechanism: noise for every block, and what it makes of the prefixes."""

    noise: Noise  # of each block
    tree: Tree
    axis: Axis

    def blocks(self, counts: Integers) -> Integers:
        """Return the exact sum of each block: what noise is to be added to, one draw each."""
        return self.tree.blocks(self._along(counts)).ravel()

    def prefixes(self, noisy: Integers) -> Integers:
        """Return the running counts of noisy blocks; free post-processing."""
        return self.tree.prefixes(self._along(noisy)).ravel()

    def _along(self, cells: Integers) -> Integers:
        return cells.reshape(self.axis.above, self.axis.periods, self.axis.below)

    def std(self) -> float:
        """Return the standard deviation of the least certain cell."""
        return std_of_several(self.noise, self.tree.most_blocks)

    def stds(self) -> list[float]:
        """Return the standard deviation of every cell."""
        counts = self.tree.blocks_of_prefixes().tolist()
        return self.axis.for_each_cell([std_of_several(self.noise, n) for n in counts])

    def margin(self) -> int:
        """Return the half-interval at 95 % of the least certain cell."""
        return margin_of_several(self.noise, self.tree.most_blocks)

    def margins(self) -> list[int]:
        """Return the half-interval at 95 % of every cell."""
        counts = self.tree.blocks_of_prefixes().tolist()
        return self.axis.for_each_cell([margin_of_several(self.noise, n) for n in counts])

    def is_drawable(self) -> bool:
        """Say whether the exact samplers reach that far, and so many draws stay in 64 bits."""
        widest = self.noise.width() * math.sqrt(self.tree.most_blocks)
        return self.noise.is_drawable() and widest <= WIDEST

    def as_json(self) -> Json:
        """Return the mechanism as the receipt prints it; exact."""
        name = "scale" if self.noise.kind == "laplace" else "variance"
        return {
            "kind": f"discrete {self.noise.kind} tree",
            name: str(self.noise.parameter),
            "periods": self.tree.periods,
            "branching": self.tree.branching,
            "levels": self.tree.levels,
        }
