"""Methods of a synthetic DP twin, which select the marginals to measure: independent, MST and AIM.

MST (McKenna, Miklau, Sheldon 2021) measures each column, then the pairs of a spanning tree. The
tree is chosen privately by how far each pair is from independence. AIM (McKenna, Mullins, Sheldon,
Miklau 2022) repeatedly measures the marginal with the largest model error beyond its own noise.

Categories with counts below the noise are merged before pairs are counted. In columns with too many
categories for a pair, the smallest are merged too. All of it depends only on released numbers;
marginal_selection.proof.md has the cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.features.synthetic.junction_tree import Clique, Floats, tree_of
from sfumato.features.synthetic.maximum_entropy_model import (
    Measured,
    Model,
    fit_model,
    total_of,
    total_std_of,
)
from sfumato.features.synthetic.measurement_port import (
    Candidate,
    Choice,
    Device,
    Merged,
    regrouped,
    sizes_of,
    unmerged,
)
from sfumato.features.synthetic.row_sampling import sample_given, sample_rows
from sfumato.features.synthetic.seeded_numbers import Integers, Seeded

DROWNED: Final = 3.0  # a category with a count below so many stds of noise is merged with others
MAX_CELLS: Final = 20_000  # the most cells of one measured marginal
# the largest sum of a marginal's numbers of categories; the query's text lists all categories
MAX_SIDES: Final = 300
# the most groups of a column, if pairs of the widest columns would be too large
MAX_WIDE: Final = 140
# the most candidates of a choice; with more columns, AIM uses only pairs
MAX_CANDIDATES: Final = 300
MAX_MODEL: Final = 300_000  # the most cells in AIM's model
NOISE_OF: Final = math.sqrt(2 / math.pi)  # the mean of |Gaussian noise|, in stds
# shares of MST's price: for columns, the choice and the pairs
MST_SHARES: Final = (Fraction(1, 4), Fraction(1, 8), Fraction(5, 8))
# shares of AIM's price: for columns; and of each round's price, for its choice
AIM_SHARES: Final = (Fraction(1, 5), Fraction(1, 10))


@dataclass(frozen=True, eq=False)
class FittedTwin:
    """A fitted model over merged categories, from which rows of a DP twin's table can be drawn."""

    model: Model
    merged: Merged
    alone: tuple[Floats, ...]  # the noisy counts of each column's categories before merging
    total_std: float  # std of the noise in the model's total
    marginals: tuple[Clique, ...]

    def draw(self, rows: int | None, stream: Seeded) -> Integers:
        """Draw synthetic rows as category codes [rows, columns].

        With `rows` None, there are as many rows as were measured.
        """
        count = max(1, round(self.model.total)) if rows is None else rows
        return self._categories(sample_rows(self.model, count, stream), stream)

    def draw_beside(self, column: int, given: Integers, stream: Seeded) -> Integers:
        """Draw synthetic rows as category codes, given each row's group in one column.

        That column is the one that links the table to the anchor table.
        """
        return self._categories(sample_given(self.model, column, given, stream), stream)

    def _categories(self, codes: Integers, stream: Seeded) -> Integers:
        columns = [
            _unmerge(codes[:, column], groups, counts, stream)
            for column, (groups, counts) in enumerate(zip(self.merged, self.alone, strict=True))
        ]
        return np.stack(columns, axis=1)


def _unmerge(codes: Integers, groups: Sequence[int], counts: Floats, stream: Seeded) -> Integers:
    """Replace each row's merged group by one of the group's categories, drawn at random.

    The draws are in proportion to the categories' noisy counts.
    """
    made = np.empty(len(codes), dtype=np.int64)
    where = np.asarray(groups)
    for group in range(int(where.max()) + 1):
        members = np.flatnonzero(where == group)
        rows = np.flatnonzero(codes == group)
        weights = np.cumsum(np.maximum(counts[members], 0) + 1e-3)
        places = np.searchsorted(weights, stream.uniforms(len(rows)) * weights[-1], side="right")
        made[rows] = members[np.minimum(places, len(members) - 1)]
    return made


# --- the methods ----------------------------------------------------------------------------------


def independent(device: Device) -> FittedTwin:
    """Fit a synthetic twin from each column's noisy counts alone, which loses correlations."""
    alone, std = _alone(device, Fraction(1))
    merged = unmerged(device.sizes)
    measured = _singles(alone, std)
    model = fit_model(device.sizes, measured, total_of(measured))
    noise = total_std_of(measured)
    return FittedTwin(model, merged, tuple(alone), noise, tuple((c,) for c in range(len(alone))))


def mst(device: Device) -> FittedTwin:
    """Fit a synthetic twin from columns and pairs along a privately chosen spanning tree (MST)."""
    columns, choice, pairs = MST_SHARES
    if len(device.sizes) == 1:
        return independent(device)
    alone, std = _alone(device, columns)
    merged = _merged(alone, std)
    measured, total = _grouped(alone, std, merged)
    each = pairs / (len(alone) - 1)
    start = fit_model(sizes_of(merged), measured, total)
    chosen = device.choose(Choice("tree", tuple(_pairs(start, device.std(each))), merged), choice)
    candidates = list(combinations(range(len(alone)), 2))
    found = [candidates[place] for place in chosen]
    measured += [_measured(device, pair, merged, each) for pair in found]
    model = fit_model(sizes_of(merged), measured, total)
    noise = total_std_of(_singles(alone, std))
    return FittedTwin(model, merged, tuple(alone), noise, tuple(one.columns for one in measured))


def aim(device: Device) -> FittedTwin:
    """Fit a synthetic twin from marginals chosen one by one for the model's error (AIM).

    Each marginal has up to three columns. The exponential mechanism chooses it.
    """
    first, _ = AIM_SHARES
    if len(device.sizes) == 1:
        return independent(device)
    alone, std = _alone(device, first)
    merged = _merged(alone, std)
    measured, total = _grouped(alone, std, merged)
    state = _Adaptive(device, merged, measured, fit_model(sizes_of(merged), measured, total))
    left = 1 - first
    each = left / (2 * len(alone))
    while left > 0:
        now = left if left < 2 * each else each
        each = 2 * now if state.round(now) else now
        left -= now
    noise = total_std_of(_singles(alone, std))
    columns = tuple(one.columns for one in state.measured)
    return FittedTwin(state.final(), merged, tuple(alone), noise, columns)


METHODS: Final[dict[str, Callable[[Device], FittedTwin]]] = {
    "independent": independent,
    "mst": mst,
    "aim": aim,
}


# --- their steps ----------------------------------------------------------------------------------


def _alone(device: Device, share: Fraction) -> tuple[list[Floats], float]:
    each = share / len(device.sizes)
    whole = unmerged(device.sizes)
    counts = [device.count((c,), whole, each) for c in range(len(device.sizes))]
    return counts, device.std(each)


def is_countable(sizes: Sequence[int]) -> bool:
    """Return True if columns with these numbers of categories may be counted together."""
    return math.prod(sizes) <= MAX_CELLS and sum(sizes) <= MAX_SIDES


def _merged(alone: Sequence[Floats], std: float) -> Merged:
    """Merge the smallest categories of each column so that every pair of columns can be counted.

    The single columns are paid for at this point, so the merging must not fail.
    """
    drowned = [counts < DROWNED * std for counts in alone]
    found = tuple(map(_groups, drowned))
    if is_countable(sorted(sizes_of(found))[-2:]):
        return found
    pairs = zip(alone, drowned, strict=True)
    return tuple(_groups(small | ~_largest(counts)) for counts, small in pairs)


def _largest(counts: Floats) -> NDArray[np.bool_]:
    """Return a mask of a column's largest categories, which are not merged.

    There are few enough of them that pairs with another column can be counted.
    """
    order = np.argsort(-counts, kind="stable")
    return np.isin(np.arange(len(counts)), order[: MAX_WIDE - 1])


def _groups(together: NDArray[np.bool_]) -> tuple[int, ...]:
    """Give each category of a column the number of its group, to merge small categories.

    All categories that the mask `together` marks share one group. Every other category has a group
    of its own.
    """
    if together.sum() < 2:
        return tuple(range(len(together)))
    numbers = np.cumsum(~together) - 1
    return tuple(np.where(together, int((~together).sum()), numbers).tolist())


def _singles(alone: Sequence[Floats], std: float) -> list[Measured]:
    """Return each column's noisy counts as a measurement, to fit a model to them."""
    return [Measured((column,), counts, std) for column, counts in enumerate(alone)]


def _grouped(alone: Sequence[Floats], std: float, merged: Merged) -> tuple[list[Measured], float]:
    total = total_of(_singles(alone, std))
    measured = []
    for column, (counts, groups) in enumerate(zip(alone, merged, strict=True)):
        largest = int(np.bincount(np.asarray(groups)).max())
        # the std of the widest group, which bounds that of the others
        wide = std * math.sqrt(largest)
        measured.append(Measured((column,), regrouped(counts, groups), wide))
    return measured, total


def _measured(device: Device, columns: Clique, merged: Merged, share: Fraction) -> Measured:
    return Measured(columns, device.count(columns, merged, share), device.std(share))


def _pairs(model: Model, std: float) -> list[Candidate]:
    sizes = model.tree.sizes
    return [_candidate(model, pair, std) for pair in combinations(range(len(sizes)), 2)]


def _candidate(model: Model, columns: Clique, std: float, weight: int = 1) -> Candidate:
    expected = np.rint(model.marginal(columns)).astype(np.int64)
    penalty = round(NOISE_OF * std * min(expected.size, 10**9))
    return Candidate(columns, expected.ravel(), penalty, weight)


@dataclass
class _Adaptive:
    """The state of an AIM run (adaptive marginal selection): measurements, and the fitted model."""

    device: Device
    merged: Merged
    measured: list[Measured]
    model: Model

    def round(self, share: Fraction) -> bool:
        """Privately choose a marginal with a large model error, measure it, and fit again.

        Return True if the measurement changed the model little.
        """
        choice = share * AIM_SHARES[1]
        std = self.device.std(share - choice)
        candidates = self._candidates(std)
        (place,) = self.device.choose(Choice("one", tuple(candidates), self.merged), choice)
        columns = candidates[place].columns
        before = self.model.marginal(columns)
        self.measured.append(_measured(self.device, columns, self.merged, share - choice))
        self.model = fit_model(
            self.model.tree.sizes, self.measured, self.model.total, self.model, steps=100
        )
        moved = float(np.abs(self.model.marginal(columns) - before).sum())
        return moved <= NOISE_OF * std * before.size

    def final(self) -> Model:
        return fit_model(self.model.tree.sizes, self.measured, self.model.total, self.model)

    def _candidates(self, std: float) -> list[Candidate]:
        count = len(self.device.sizes)
        of_three = math.comb(count, 2) + math.comb(count, 3) <= MAX_CANDIDATES
        groups = [
            group
            for size in ((2, 3) if of_three else (2,))
            for group in combinations(range(count), size)
            if self._fits(group)
        ]
        return [_candidate(self.model, g, std, _weight(g, count)) for g in groups]

    def _fits(self, columns: Clique) -> bool:
        """Return True if the model stays small enough after measuring this marginal too."""
        sizes = self.model.tree.sizes
        if not is_countable([sizes[c] for c in columns]):
            return False
        if self.model.tree.holder(columns) is not None:
            return True
        return tree_of(sizes, [*(m.columns for m in self.measured), columns]).cells <= MAX_MODEL


def _weight(columns: Clique, count: int) -> int:
    """Return AIM's weight of a marginal: its columns shared with each triple of columns, summed up.

    With two columns there are no triples, and the only pair has weight 1.
    """
    shared = sum(len(set(columns) & set(other)) for other in combinations(range(count), 3))
    return max(1, shared)
