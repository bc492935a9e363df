"""The error of a DP twin: its distance from the real rows, measured privately and paid separately.

The error is given for each table and each size: one, two or three columns. It is the mean total
variation distance of marginals, between the twin's rows and one row of each person. All errors are
one charge.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Final

import numpy as np

from sfumato.dp.json_values import Json
from sfumato.features.synthetic.choice_plan import Candidate
from sfumato.features.synthetic.junction_tree import Clique
from sfumato.features.synthetic.measurement_port import Integers
from sfumato.features.synthetic.measurement_release import PrivateDevice
from sfumato.features.synthetic.misfit_plan import TwinError, TwinErrorPlan, make_misfits
from sfumato.features.synthetic.seeded_numbers import Seeded

SIZES: Final = (1, 2, 3)
# the most marginals of each size in a table; if there are more, the seed selects a sample
MOST: Final = 100
MAX_OF_ALL: Final = 900  # the most marginals over all tables and sizes
MAX_CELLS: Final = 10_000  # the most cells of a marginal
TRIES: Final = 20 * MOST
# the half-width of a 95 % interval of Laplace noise, in stds
LAPLACE: Final = math.log(20) / math.sqrt(2)
SAYS: Final = (
    "mean total variation between marginals of this twin's rows and of one row of each person, "
    "with the interval of the noise at 95 %, that of the number of people too, cut to 0 and 1"
)


@dataclass(frozen=True, eq=False)
class TwinSide:
    """What a distance needs of one table: the twin's rows, as category codes, and a device.

    The device asks the real table for private counts.
    """

    device: PrivateDevice
    codes: Integers
    people: int  # the released number of people
    people_std: float  # the std of the noise in `people`

    @property
    def scale(self) -> int:
        """Return the factor by which counts of real people are multiplied to compare them.

        The twin may have more or fewer rows than there are people. With this factor, and another
        for the twin's rows, both counts become comparable integers.
        """
        return len(self.codes) // math.gcd(len(self.codes), self.people)


def error_of(sides: Mapping[str, TwinSide], seed: str, epsilon: Fraction) -> Json:
    """Measure how far the synthetic twin is from the real rows, for all tables in one charge.

    A repetition of the same measurement is free.
    """
    most = min(MOST, MAX_OF_ALL // (len(SIZES) * len(sides)))
    found = [
        (name, size, cliques[:most])
        for name, side in sides.items()
        for size in SIZES
        if (cliques := marginals_of(side.device.sizes, size, Seeded(seed, f"{name} {size}")))
    ]
    wanted = [_misfit(sides[name], name, size, cliques) for name, size, cliques in found]
    first = next(iter(sides.values())).device
    misfits = make_misfits(first.listing.card, wanted, epsilon)
    told = first.misfit(misfits)
    errors: dict[str, dict[str, Json]] = {name: {} for name in sides}
    for place, (name, size, cliques) in enumerate(found):
        errors[name][str(size)] = {
            "marginals": len(cliques),
            **_shown(misfits, place, told[place], sides[name]),
        }
    return {"epsilon": float(epsilon), "says": SAYS, "of": errors}


def marginals_of(sizes: Sequence[int], count: int, stream: Seeded) -> list[Clique]:
    """Return sets of `count` columns, to compare their marginals between the twin and the rows.

    These are all sets that are small enough to count together, or a random sample.
    """
    columns = range(len(sizes))
    if math.comb(len(sizes), count) <= MOST:
        drawn = list(combinations(columns, count))
    else:
        rounds = (stream.order(len(sizes))[:count].tolist() for _ in range(TRIES))
        drawn = list(dict.fromkeys(tuple(sorted(one)) for one in rounds))
    fit = [one for one in drawn if math.prod(sizes[c] for c in one) <= MAX_CELLS]
    return fit[:MOST]


def _misfit(side: TwinSide, name: str, size: int, cliques: Sequence[Clique]) -> TwinError:
    times = side.people // math.gcd(len(side.codes), side.people)
    candidates = [
        Candidate(side.device.question_of(clique), times * _counts(side, clique))
        for clique in cliques
    ]
    return TwinError(f"{name}, {size}", side.scale, tuple(candidates))


def _counts(side: TwinSide, clique: Clique) -> Integers:
    """Return the marginal counts of the synthetic twin's own rows, with one axis per column."""
    shape = tuple(side.device.sizes[c] for c in clique)
    flat = np.ravel_multi_index(tuple(side.codes[:, c] for c in clique), shape)
    return np.bincount(flat, minlength=math.prod(shape)).astype(np.int64).reshape(shape)


def _shown(misfits: TwinErrorPlan, place: int, number: int, side: TwinSide) -> Json:
    """Convert one noisy distance to a share of people from 0 to 1, with its interval.

    The calculation is in misfit_plan.proof.md.
    """
    one = misfits.numbers[place]
    parts = 2 * side.scale * side.people * len(one.plans)
    value, noise = number / parts, one.noise.std() / parts
    std = math.hypot(noise, side.people_std / (2 * side.people))
    rounding = 1 / (4 * side.people)  # because the number of people is rounded to an integer
    margin = max(one.noise.margin() / parts, LAPLACE * std) + rounding
    low, shown, high = (min(1.0, max(0.0, at)) for at in (value - margin, value, value + margin))
    return {"error": shown, "interval": [low, high], "std": std}
