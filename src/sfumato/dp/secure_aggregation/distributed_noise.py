"""Distributed differential privacy: a secure sum to which each site adds a share of the noise.

No single party knows the total noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.accounting.poisson_subsampling import Curve
from sfumato.dp.accounting.renyi import epsilon_with_failures, failure_budget
from sfumato.dp.mechanisms import skellam
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug
from sfumato.dp.secure_aggregation.dithered_rounding import DitheredGrid
from sfumato.dp.secure_aggregation.round_terms import MAX_BITS, MIN_BITS
from sfumato.dp.secure_aggregation.stochastic_rounding import Grid, Numbers, PeopleGrid

AnyGrid = Grid | PeopleGrid | DitheredGrid
FAILS: Final = 100  # 1/FAILS of delta covers the probability that numbers exceed the modulus width


@dataclass(frozen=True)
class NoisySum:
    """The public parameters of one round of a differentially private sum over sites.

    The guarantee holds against the server together with `colluders` sites. Removing one privacy
    unit changes a single site's update, by at most `moves` times the clipping norm:

    - `moves` = 1: the update becomes zero, or loses one clipped term of a sum.
    - `moves` = 2: the update becomes any other update within the clipping norm. This holds for a
      person in an update that is clipped as a whole.

    The members of the cohort are public.
    """

    grid: AnyGrid
    sites: int
    floor: int
    colluders: int
    variance: Fraction  # of the noise of `floor` - `colluders` sites, in steps squared
    failure: Fraction  # probability that any site's noisy numbers exceed the width
    moves: int = 2
    chance: Fraction = skellam.NO_SUBSAMPLING  # sampling probability of a person in each round

    def __post_init__(self) -> None:
        if not 0 <= self.colluders < self.floor <= self.sites or not 0 < self.failure < 1:
            raise Bug("a floor is above the colluders and within the cohort")
        if self.moves not in (1, 2):
            raise Bug("a unit's absence moves one update, by its clip or by twice that")
        if not 0 < self.chance <= 1 or (self.chance < 1 and self.moves > 1):
            raise Bug("people are drawn with a chance, and only for parts of a sum")
        skellam.check_variance(self.variance)

    @property
    def share(self) -> Fraction:
        """Return the variance of the noise share that each site adds, in squared grid steps."""
        return skellam.share_of(self.variance, self.floor, self.colluders)

    @property
    def bits(self) -> int:
        """Return how many bits the modulus needs so that no noisy sum wraps around.

        A site sends numbers of at most (half the modulus / number of sites), or nothing
        (participant.py). So no sum wraps around. Whether a site sends nothing may depend on its
        data, with probability `failure`. Delta includes that probability, for the data and for its
        neighbour.
        """
        far = skellam.noise_bound(self.share, self.failure / (self.sites * self.grid.size))
        need = self.sites * (self.grid.most_each + far) + 1
        bits = max(MIN_BITS, need.bit_length() + 1)
        if bits > MAX_BITS:
            raise Bug("noise that can be drawn fits into 64 bits")
        return bits

    def epsilon(self, delta: Fraction, rounds: int = 1) -> Fraction:
        """Return the epsilon that `rounds` rounds of the noisy sum cost together, at this delta.

        Delta also covers the probability that numbers do not fit the modulus in some round.
        """
        curve = self._curve()
        found = epsilon_with_failures(
            lambda order: rounds * curve(order), delta, rounds * self.failure
        )
        if found is None:
            raise Bug("delta is less than the chance that a round does not fit")
        return found

    def renyi(self, order: int) -> Fraction:
        """Return a bound of the Rényi divergence of one round of the noisy sum, at this order.

        The bounds of all rounds add up at each order, and are then converted to epsilon.
        """
        return self._curve()(order)

    def _curve(self) -> Curve:
        return skellam.renyi_curve(
            *_sensitivity(self.grid, self.moves), self.variance, chance=self.chance
        )

    def noisy(self, update: Numbers, dice: RandomSource) -> NDArray[np.int64]:
        """Clip and round a site's update to integers, and add the site's share of the noise."""
        if isinstance(self.grid, DitheredGrid):
            raise Bug("exact sums are rounded where their noise was drawn before they were known")
        noise = skellam.sample(self.share, self.grid.size, dice)
        return self.grid.rounded(update, dice) + noise


def noisy_sum_for(  # noqa: PLR0913  # what a card says of a federation
    grid: AnyGrid,
    *,
    sites: int,
    floor: int,
    colluders: int,
    epsilon: Fraction,
    delta: Fraction,
    rounds: int = 1,
    moves: int = 2,
    chance: Fraction = skellam.NO_SUBSAMPLING,
    most: Fraction = skellam.MAX_VARIANCE,
) -> NoisySum:
    """Return the parameters with the least noise at which `rounds` rounds cost at most epsilon.

    `moves` and `chance` are as in NoisySum. `most` limits the noise variance.
    """
    failing = delta / FAILS
    failure = failure_budget(epsilon, failing) / rounds
    l1, l2_squared = _sensitivity(grid, moves)
    rest = delta - failing
    variance = skellam.variance_for(l1, l2_squared, epsilon, rest, rounds, chance, most)
    return NoisySum(grid, sites, floor, colluders, variance, failure, moves, chance)


def _sensitivity(grid: AnyGrid, moves: int) -> tuple[int, int]:
    """Return the L1 and the squared L2 sensitivity of the integer sum to one privacy unit."""
    return moves * grid.most_absolute, moves**2 * grid.most_squared
