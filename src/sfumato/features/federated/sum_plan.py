"""Plan a query over several sites: each site adds its own rows and its share of the noise.

The sensitivity is that of the plan at one site. Each count or sum is rounded to its own grid,
coarse enough to draw the noise exactly, and the sensitivity includes the rounding. Everything
depends only on the query, the card and the agreement, so every site computes the same plan. Proof:
dp/mechanisms/skellam.proof.md.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Final

import numpy as np

from sfumato.dp.accounting.privacy_events import ApproximateEvent
from sfumato.dp.accounting.renyi import epsilon_at, failure_budget
from sfumato.dp.accounting.zcdp_conversion import rho_within
from sfumato.dp.json_values import Json
from sfumato.dp.mechanisms import skellam
from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.ports import IntegerArray, RandomSource
from sfumato.dp.refusal import Bug, Refused
from sfumato.dp.secure_aggregation.round_terms import MAX_BITS, MIN_BITS
from sfumato.features.federated.agreement import Agreement
from sfumato.query.expression import canonical_json
from sfumato.query.model import Aggregate, Formula, Query
from sfumato.query.plan import PartSensitivity, Plan, make_plan
from sfumato.query.price import Priced
from sfumato.vault.card.data_card import Card

FORMAT: Final = "sum-over-sites/1"
FINE: Final = 1 << 20  # the largest noise variance in grid steps; above it a coarser grid is tried
MAX_SIZE: Final = 50_000  # the most integers of one sum, so that they fit into one message
FAILS: Final = 100  # delta / FAILS pays for the chance of overflow
_UNIT: Final = 1 << 10  # noise scales are multiples of 1/1024
_MOST: Final = 1 << 16
MAX_STEPS: Final = 1 << 63  # the bound on the size of a sum, in whole steps
ADDITIVE: Final = ("rows", "values", "people", "sum")


@dataclass(frozen=True)
class SummedSkellam(Noise):
    """The noise of a finished sum over sites: Skellam noise, of which each site drew a share.

    It is a subclass of `Noise`, so that an answer is formatted like that of one data set.
    Aggregates treat it as Gaussian noise of the same variance. The variance is in steps of the
    value, not of the rounding grid, and includes the grid's rounding error.
    """

    sites: int = 0
    grid: int = 1

    def is_drawable(self) -> bool:
        """Return True: whether the noise can be drawn was checked when the plan was made."""
        return True

    def sample(self, count: int, dice: RandomSource) -> IntegerArray:
        """Raise Bug: each site draws its own share, and no site draws the whole noise."""
        raise Bug("noise of several sites is drawn in shares")

    def as_json(self) -> Json:
        """Return the noise as JSON, for the receipt."""
        said = {"kind": "skellam", "variance": str(self.parameter)}
        return {**said, "sites": self.sites, "grid": self.grid}


@dataclass(frozen=True)
class Summand:
    """One count or sum of a query over sites: its rounding grid, sensitivity and noise variance.

    Values and variance are in units of `grid` steps.
    """

    grid: int
    cells: int  # the most groups of the answer to which one person contributes
    per_cell: int
    variance: int

    @property
    def l1(self) -> int:
        """Return the L1 sensitivity: one person's largest sum of absolute changes."""
        return self.cells * self.per_cell

    @property
    def l2_squared(self) -> int:
        """Return the squared L2 sensitivity: one person's largest sum of squared changes."""
        return self.cells * self.per_cell**2

    def on_grid(self, values: IntegerArray) -> IntegerArray:
        """Convert values from steps of the column to steps of the grid, rounding halves upwards."""
        return (values + self.grid // 2) // self.grid


@dataclass(frozen=True)
class SumPlan:
    """A priced query over the sites of an agreement; built without reading rows."""

    plan: Plan
    agreement: Agreement
    epsilon: Fraction
    delta: Fraction
    summands: tuple[Summand, ...]

    @property
    def size(self) -> int:
        """Return the number of integers that each site sends: one per group and count or sum."""
        return len(self.summands) * self.plan.measure.cells

    @property
    def failure(self) -> Fraction:
        """Return the chance that a site's noise overflows and it sends nothing; delta covers it."""
        return failure_budget(self.epsilon, self.delta / FAILS)

    @property
    def event(self) -> ApproximateEvent:
        """Return the privacy event that each site pays."""
        return ApproximateEvent(self.epsilon, self.delta)

    def share(self, summand: Summand) -> Fraction:
        """Return the variance of the noise share that each site adds to a count or sum."""
        floor, colluders = self.agreement.floor, self.agreement.colluders
        return skellam.share_of(Fraction(summand.variance), floor, colluders)

    def cost(self) -> Fraction:
        """Return the epsilon that the noise costs at delta; no less than this is charged."""
        return _cost(self.summands, self.delta - self.delta / FAILS)

    @cached_property
    def bits(self) -> int:
        """Return how many bits each integer of the masked sum gets, so that overflow is very rare.

        Overflow would give a wrong sum, so a site then sends nothing; a part of delta covers that
        case.
        """
        each = self.failure / (len(self.agreement.members) * self.size)
        pairs = zip(self.plan.parts, self.summands, strict=True)
        most = max(
            most_of(self.plan.card, bounded) // summand.grid
            + 1
            + skellam.noise_bound(self.share(summand), each)
            for bounded, summand in pairs
        )
        steps = self._coarsest * (most + 1)
        if len(self.agreement.members) * steps >= MAX_STEPS:
            raise _too_wide()
        bits = max(MIN_BITS, (len(self.agreement.members) * most + 1).bit_length() + 1)
        if bits > MAX_BITS:
            raise _too_wide()
        return bits

    @property
    def _coarsest(self) -> int:
        return max(summand.grid for summand in self.summands)

    @cached_property
    def about(self) -> str:
        """Return the hash of query, card bounds, agreement, price and noise, equal at all sites."""
        kept = {k: v for k, v in self.plan.canonical().items() if k not in ("people", "version")}
        said: Json = {
            "format": FORMAT,
            "question": kept,
            "agreement": self.agreement.digest,
            "epsilon": str(self.epsilon),
            "delta": str(self.delta),
            "parts": [[s.grid, s.cells, s.per_cell, s.variance] for s in self.summands],
        }
        return f"{FORMAT} {hashlib.sha256(canonical_json(said).encode()).hexdigest()}"

    def priced(self, sites: int) -> Priced:
        """Return the plan with the noise that `sites` sites add together, to format an answer."""
        noises = tuple(self._noise(summand, sites) for summand in self.summands)
        return Priced(self.plan, self.epsilon, self.delta, self.event, noises)

    def margins(self) -> dict[str, float | None]:
        """Return the 95 % error margin of each output column if every site takes part."""
        priced = self.priced(len(self.agreement.members))
        found: dict[str, float | None] = {}
        for output in self.plan.question.outputs:
            if output.is_shown and isinstance(output.of, Aggregate | Formula):
                margin = priced.margin(output.of, None)
                found[output.name] = None if margin is None or math.isinf(margin) else margin
        return found

    def _noise(self, summand: Summand, sites: int) -> SummedSkellam:
        variance = self.share(summand) * sites
        if summand.grid > 1:  # each site's rounding error is at most half a unit
            variance += Fraction(sites**2, 4)
        return SummedSkellam("gaussian", variance * summand.grid**2, sites, summand.grid)

    def parts_of(self, total: IntegerArray) -> list[IntegerArray]:
        """Split the secure sum's integers into one array, in steps, per count or sum queried."""
        cells = self.plan.measure.cells
        if total.size and int(np.abs(total.astype(object)).max()) * self._coarsest >= MAX_STEPS:
            raise _too_wide()
        rows = total.reshape(len(self.summands), cells)
        return [row * summand.grid for row, summand in zip(rows, self.summands, strict=True)]


@lru_cache(maxsize=256)
def plan_sum(
    card: Card, question: Query, agreement: Agreement, epsilon: Fraction, delta: Fraction
) -> SumPlan:
    """Plan and price the query over the agreement's sites, or refuse; reads no rows."""
    plan = make_plan(card, question)
    check_additive(plan)
    if delta == 0:
        raise Refused(
            "bad-budget",
            "Noise that several sites make together (as in a secure sum) needs a delta above 0.",
            "Give a delta such as 1e-6.",
        )
    made = SumPlan(plan, agreement, epsilon, delta, _summands(plan.parts, epsilon, delta))
    if made.size > MAX_SIZE:
        raise too_large(made.size)
    return made


def check_additive(plan: Plan) -> None:
    """Refuse a query whose answer is not the sum of the sites' answers."""
    is_sum = all(
        b.part.choice is None and b.axis is None and b.part.tally.kind in ADDITIVE
        for b in plan.parts
    )
    if plan.selects_keys or not is_sum:
        raise Refused(
            "not-in-language",
            "Over several sites, only counts, sums and numbers made of them over public keys are "
            "supported.",
            "Leave out private keys, quantiles, minimum, maximum, distinct values and running "
            "counts.",
        )


def _summands(
    parts: Sequence[PartSensitivity], epsilon: Fraction, delta: Fraction
) -> tuple[Summand, ...]:
    """Return the query's counts and sums with the least noise that fits epsilon and delta.

    A bisection finds one factor for all noise variances, in steps of 1/1024. A factor of 1 gives
    the variance that Gaussian noise would need.
    """
    rho = rho_within(epsilon, delta)
    if rho == 0:
        raise _too_wide()
    grids = [_grid(bounded, rho) for bounded in parts]
    rest = delta - delta / FAILS

    def made(scale: int) -> tuple[Summand, ...]:
        pairs = zip(parts, grids, strict=True)
        return tuple(_summand(b, grid, rho * _UNIT / scale) for b, grid in pairs)

    low, high = _UNIT // 2, _MOST
    if _cost(made(high), rest) > epsilon:
        raise _too_wide()
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _cost(made(middle), rest) <= epsilon else (middle, high)
    found = made(high)
    for summand in found:
        skellam.check_variance(Fraction(summand.variance))
    return found


def _grid(bounded: PartSensitivity, rho: Fraction) -> int:
    """Return the step of a count's or sum's rounding grid: the finest with noise of small variance.

    Noise is cheap to draw exactly if its variance is at most 2**20 (FINE) in steps of the grid. The
    grid is a power of two. It stops growing at the sensitivity per group, even if the variance is
    still larger.
    """
    grid = 1
    while grid < bounded.per_cell and _summand(bounded, grid, rho).variance > FINE:
        grid *= 2
    return grid


def _summand(bounded: PartSensitivity, grid: int, rho: Fraction) -> Summand:
    per_cell = -(-bounded.per_cell // grid)  # one person changes the rounded sum by at most this
    l2_squared = bounded.cells * per_cell**2
    needed = Fraction(l2_squared) / (2 * rho * bounded.weight)
    variance = -(-needed.numerator // needed.denominator)
    return Summand(grid, bounded.cells, per_cell, max(1, variance))


def _cost(summands: Sequence[Summand], delta: Fraction) -> Fraction:
    """Return the epsilon, at this `delta`, that the noise of all counts and sums costs together.

    Their Rényi divergences are added at each order.
    """

    def curve(order: int) -> Fraction:
        each = (skellam.renyi(order, s.l1, s.l2_squared, Fraction(s.variance)) for s in summands)
        return sum(each, Fraction(0))

    return epsilon_at(curve, delta)


def most_of(card: Card, bounded: PartSensitivity) -> int:
    """Return an upper bound on one group's count or sum at a site, to choose the bits of a sum.

    It follows from the row limit on the card, so no row is read.
    """
    part = bounded.part
    return card.limits.rows * max(part.per_row, part.per_person or 0)


def too_large(size: int) -> Refused:
    """Return the refusal for a sum that does not fit into a message."""
    return Refused(
        "question-too-large",
        f"The sum over the sites has {size:,} numbers, and at most {MAX_SIZE:,} are allowed.",
        "Group by fewer columns, or ask for fewer aggregates at once.",
    )


def _too_wide() -> Refused:
    return Refused(
        "noise-out-of-range",
        "The noise over several sites is too wide to be drawn exactly.",
        "Choose a larger epsilon or delta, or ask the owners for coarser steps.",
    )
