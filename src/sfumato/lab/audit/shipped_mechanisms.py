"""List the shipped mechanisms for audits by direct calls, each with its claim and two neighbours.

`make` builds a mechanism for a price. So it can also build a twin, which claims half of its price:
an audit that does not catch its twin shows nothing. Each pair of neighbours is chosen so that it
often reveals more than half of the price (decision 0027). A mechanism without an audit here fails
tests/lab/audit/test_shipped_mechanisms.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.accounting.zcdp_conversion import rho_within
from sfumato.dp.learning.poisson_sampling import PoissonSample
from sfumato.dp.local import TwoCoins
from sfumato.dp.mechanisms import bounds_search, gaussian, laplace, partition_selection, skellam
from sfumato.dp.mechanisms.averaged_noise import mean_of
from sfumato.dp.mechanisms.binary_tree import tree_for_laplace
from sfumato.dp.mechanisms.exponential import exponential_mechanism_rows, rate_for
from sfumato.dp.mechanisms.gaussian_partition_selection import threshold_for
from sfumato.dp.mechanisms.median_of_blocks import choose_median
from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.mechanisms.private_choice import FALSE_POSITIVE, PrivateChoice
from sfumato.dp.mechanisms.running_count import Axis, TreeMechanism
from sfumato.dp.mechanisms.spanning_tree import choose_tree
from sfumato.dp.mechanisms.sparse_vector import first_above, sparse_vector_for
from sfumato.dp.mechanisms.top_k import noisy_max
from sfumato.dp.refusal import Bug
from sfumato.lab.audit.auditor import MAX_RUNS, Mechanism, Random
from sfumato.lab.audit.shipped_local_randomisers import LOCAL
from sfumato.lab.platform_noise import NumpyRandomSource

Integers = NDArray[np.int64]
DELTA: Final = Fraction(1, 100)
CONTROL_FACTOR: Final = (
    2  # the twin's epsilon divided by its claim; an audit that misses this twin does not count
)
FEW_RUNS: Final = 8192  # the most runs of a mechanism that draws one answer at a time
PERIODS: Final = 8
HALF: Final = Fraction(1, 2)  # the rate of the Poisson subsampling
PART: Final = 16  # the contribution of a person to the subsampled sum


@dataclass(frozen=True)
class Shipped:
    """A shipped mechanism to audit: how to build it, its price, and two neighbouring data sets."""

    name: str
    files: tuple[str, ...]  # the modules of dp/mechanisms and dp/local that it uses
    make: Callable[[Fraction], Mechanism]  # price -> a mechanism
    pair: tuple[Any, Any]  # Any: each mechanism has data of its own kind
    price: Fraction = Fraction(1)  # an epsilon, a rho, or a divergence of order 2
    delta: float = 0.0
    # the price is a rho or a divergence, so it grows by the square of the factor
    is_rho: bool = False
    is_order_2: bool = False
    most: int = MAX_RUNS
    # if it is larger than CONTROL_FACTOR, the audit detects something, but does not count
    factor: int = CONTROL_FACTOR

    def positive_control(self) -> Mechanism:
        """Return the twin (positive control), with the noise of `factor` times the epsilon.

        A rho grows by the square of the factor.
        """
        return self.make(self.price * (self.factor**2 if self.is_rho else self.factor))


def _many(data: object, runs: int) -> Integers:
    return np.tile(np.asarray(data, dtype=np.int64), (runs, 1))


def _noise(sensitivity: int) -> Callable[[Fraction], Mechanism]:
    def make(epsilon: Fraction) -> Mechanism:
        noise = Noise("laplace", laplace.scale_for(sensitivity, epsilon))
        return lambda data, runs, dice: data + noise.sample(runs, NumpyRandomSource(dice))

    return make


def _gaussian(sensitivity: int) -> Callable[[Fraction], Mechanism]:
    def make(rho: Fraction) -> Mechanism:
        noise = Noise("gaussian", gaussian.variance_for(sensitivity**2, rho))
        return lambda data, runs, dice: data + noise.sample(runs, NumpyRandomSource(dice))

    return make


def _skellam(rho: Fraction) -> Mechanism:
    """Return a mechanism: a sum with Skellam noise from three sites.

    The price is its Renyi divergence of order 2. The variance is the smallest that the price
    allows.
    """
    steps = next(n for n in range(1, 10**5) if skellam.renyi(2, 1, 1, Fraction(n, 50)) <= rho)
    share = skellam.share_of(Fraction(steps, 50), 3, 0)

    def run(data: int, runs: int, dice: Random) -> Integers:
        shares = [skellam.sample(share, runs, NumpyRandomSource(dice)) for _ in range(3)]
        return np.asarray(data + np.sum(shares, axis=0))

    return run


def _drawn(divergence: Fraction) -> Mechanism:
    """Return a mechanism: the Skellam sum under Poisson subsampling, as in a training round.

    The person is drawn into the sample with a chance of 1/2. Each run uses another coin of the same
    key, as each person of a site does.
    """
    curves = (skellam.renyi_curve(PART, PART**2, Fraction(n), HALF) for n in range(1, 10**5))
    variance = 1 + next(place for place, curve in enumerate(curves) if curve(2) <= divergence)
    share = skellam.share_of(Fraction(variance), 3, 0)

    def run(data: int, runs: int, dice: Random) -> Integers:
        is_in = PoissonSample.fresh(HALF, NumpyRandomSource(dice)).tossed(runs)
        shares = [skellam.sample(share, runs, NumpyRandomSource(dice)) for _ in range(3)]
        return np.asarray(data * is_in + np.sum(shares, axis=0))

    return run


def _topped_up(epsilon: Fraction) -> Mechanism:
    """Return a mechanism: a release, and its weighted mean with a second release (a top-up).

    The first release has a third of the price, and the second two thirds.
    """
    draws = [Noise("laplace", 1 / (epsilon * share)) for share in (Fraction(1, 3), Fraction(2, 3))]

    def run(data: int, runs: int, dice: Random) -> NDArray[np.float64]:
        first, second = (data + draw.sample(runs, NumpyRandomSource(dice)) for draw in draws)
        return np.column_stack([first, mean_of(draws, [first, second])])

    return run


def _running(epsilon: Fraction) -> Mechanism:
    tree = tree_for_laplace(PERIODS)
    noise = Noise("laplace", laplace.scale_for(tree.l1(1, 1), epsilon))

    def run(data: object, runs: int, dice: Random) -> Integers:
        running = TreeMechanism(noise, tree, Axis(runs, PERIODS, 1))
        blocks = running.blocks(_many(data, runs).ravel())
        noisy = blocks + noise.sample(blocks.size, NumpyRandomSource(dice))
        return running.prefixes(noisy).reshape(runs, PERIODS)

    return run


def _chooser(kind: Any, **terms: Any) -> Callable[[Fraction], Mechanism]:  # see PrivateChoice
    def make(epsilon: Fraction) -> Mechanism:
        def run(data: object, runs: int, dice: Random) -> Integers:
            histograms = _many(data, runs)
            chooser = PrivateChoice(kind, epsilon, 1, histograms.shape[1], **terms)
            return chooser.choose(histograms, NumpyRandomSource(dice))

        return run

    return make


def _exponential(epsilon: Fraction) -> Mechanism:
    rate = rate_for(epsilon, 1, monotone=False)
    return lambda data, runs, dice: exponential_mechanism_rows(
        _many(data, runs), None, rate, NumpyRandomSource(dice)
    )


def _tree(epsilon: Fraction) -> Mechanism:
    """Return a mechanism: the edges of a spanning tree over three columns, chosen in two rounds.

    The price covers both rounds.
    """
    rate, pairs = rate_for(epsilon / 2, 1, monotone=False), ((0, 1), (0, 2), (1, 2))

    def run(data: object, runs: int, dice: Random) -> Integers:
        utilities, bits = np.asarray(data, dtype=np.int64), NumpyRandomSource(dice)
        found = [choose_tree(utilities, pairs, rate, bits) for _ in range(runs)]
        return np.array(found, dtype=np.int64)

    return run


def _blocks(epsilon: Fraction) -> Mechanism:
    """Return a mechanism: the noisy sums of two outputs over blocks (sample and aggregate).

    One block may change by anything between the bounds, and it changes both sums.
    """
    noise = Noise("laplace", laplace.scale_for(2 * WIDTH, epsilon))

    def run(data: object, runs: int, dice: Random) -> Integers:
        return _many(data, runs) + noise.sample(2 * runs, NumpyRandomSource(dice)).reshape(runs, 2)

    return run


def _median(epsilon: Fraction) -> Mechanism:
    """Return a mechanism: the private median of two blocks, on a grid of nine points."""

    def run(data: object, runs: int, dice: Random) -> Integers:
        values, bits = np.asarray(data, dtype=np.int64), NumpyRandomSource(dice)
        found = [choose_median(values, 8, epsilon, bits) for _ in range(runs)]
        return np.array(found, dtype=np.int64)

    return run


def _block_vector(rho: Fraction) -> Mechanism:
    """Return a mechanism: the noisy sums of an array of four numbers over blocks.

    One block changes all four numbers.
    """
    noise = Noise("gaussian", gaussian.variance_for(WIDTH**2, rho / 4))

    def run(data: object, runs: int, dice: Random) -> Integers:
        return _many(data, runs) + noise.sample(4 * runs, NumpyRandomSource(dice)).reshape(runs, 4)

    return run


def _noisy_max(epsilon: Fraction) -> Mechanism:
    def run(data: object, runs: int, dice: Random) -> Integers:
        counts, bits = np.asarray(data, dtype=np.int64), NumpyRandomSource(dice)
        found = [noisy_max(counts, epsilon=epsilon, values=1, dice=bits) for _ in range(runs)]
        return np.array(found, dtype=np.int64)

    return run


def _above(epsilon: Fraction) -> Mechanism:
    """Return a mechanism: sparse-vector answers (yes or no) until the second yes.

    Adding a person may raise one answer while another falls.
    """
    watch = sparse_vector_for(epsilon, 2, 1, monotone=False)

    def run(data: object, runs: int, dice: Random) -> NDArray[np.float64]:
        answers, bits = np.asarray(data, dtype=np.int64), NumpyRandomSource(dice)
        made = np.full((runs, answers.size), np.nan)
        for row in made:
            said = first_above(answers, 1, watch, bits)
            row[: said.size] = said
        return made

    return run


def _selection(epsilon: Fraction) -> Mechanism:
    def run(data: int, runs: int, dice: Random) -> NDArray[np.int64]:
        counts = np.full(runs, data, dtype=np.int64)
        return partition_selection.keep_partitions(
            counts, epsilon, DELTA, NumpyRandomSource(dice)
        ).astype(np.int64)

    return run


def _bounds(epsilon: Fraction) -> Mechanism:
    """Return a mechanism: the private search for bounds, on five bins of which one has rows.

    That bin has about as many rows as the threshold, so one person often changes the result.
    """
    choose = _chooser("bounds")(epsilon)
    limit = bounds_search.threshold(epsilon, 1, 5, FALSE_POSITIVE)
    return lambda data, runs, dice: choose((0, 0, limit + data, 0, 0), runs, dice)


def _threshold(rho: Fraction) -> Mechanism:
    """Return a mechanism: whether Gaussian partition selection shows a key.

    About as many people have the key as the threshold. The audited price is the rho of the noise,
    without a delta.
    """
    found = threshold_for(_epsilon_of(rho), DELTA, 1)
    if found is None:
        raise Bug("no threshold at this price")

    def run(data: int, runs: int, dice: Random) -> NDArray[np.int64]:
        counts = np.full(runs, found.threshold + data, dtype=np.int64)
        return found.keep(counts, NumpyRandomSource(dice)).astype(np.int64)

    return run


def _epsilon_of(rho: Fraction) -> Fraction:
    """Return nearly the smallest epsilon that buys this rho at delta 0.005, half of DELTA."""
    low, high = Fraction(0), Fraction(64)
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if rho_within(middle, DELTA / 2) < rho else (low, middle)
    return high


def _coins(epsilon: Fraction) -> Mechanism:
    """Return a mechanism: randomised response with two coins, as often true as the price allows."""
    coins = TwoCoins.within(epsilon)

    def run(data: bool, runs: int, dice: Random) -> NDArray[np.int64]:
        return coins.randomise(np.full(runs, data, dtype=np.bool_), NumpyRandomSource(dice)).astype(
            np.int64
        )

    return run


RHO: Final = rho_within(Fraction(1), DELTA / 2)
NOBODY: Final = (0,) * PERIODS
FIRST_DAY: Final = (1, *NOBODY[1:])
UP_AND_DOWN: Final = ((0, *(1,) * 9), (1, *(0,) * 9))
# One row at index 28 of 32; the neighbour has another row at the end. Candidates left of the median
# lose utility, those right of it gain, and most of the probability is on the left.
AROUND_A_MEDIAN: Final = ((*(0,) * 28, 1, 0, 0, 0), (*(0,) * 28, 1, 0, 0, 1))
# The third of three pairs leads. In the neighbour it loses and both others gain, so that both
# rounds of the choice reveal the side.
TWO_RARE: Final = ((0, 0, 2), (1, 1, 1))
WIDTH: Final = 40  # number of steps between the lowest and the highest output of a block
WIDE: Final = 5000  # a sensitivity that is so large that its noise is drawn digit by digit

SHIPPED: Final[tuple[Shipped, ...]] = (
    Shipped("discrete Laplace", ("laplace",), _noise(1), (0, 1)),
    Shipped("discrete Laplace, wide", ("laplace", "geometric"), _noise(WIDE), (0, WIDE)),
    Shipped("discrete Gaussian", ("gaussian",), _gaussian(1), (0, 1), RHO, is_rho=True),
    Shipped("discrete Gaussian, wide", ("gaussian",), _gaussian(WIDE), (0, WIDE), RHO,
            is_rho=True),
    Shipped("Skellam shares of three sites", ("skellam",), _skellam, (0, 1), RHO, is_rho=True,
            is_order_2=True),
    Shipped("Skellam shares over a secret sample", ("skellam",), _drawn, (0, PART), RHO,
            is_rho=True, is_order_2=True),
    Shipped("topped-up Laplace", ("averaged_noise", "laplace"), _topped_up, (0, 1)),
    Shipped("running counts", ("running_count", "binary_tree", "laplace"), _running, (NOBODY, FIRST_DAY)),  # noqa: E501
    Shipped("sums over blocks", ("laplace",), _blocks, ((0, 0), (WIDTH, WIDTH))),
    Shipped("an array over blocks", ("gaussian",), _block_vector, ((0,) * 4, (WIDTH,) * 4), RHO,
            is_rho=True),
    Shipped("median of blocks", ("median_of_blocks", "exponential", "permute_and_flip"), _median,
            ((0, 7), (7, 8)), most=4 * FEW_RUNS),
    Shipped("exponential mechanism", ("exponential",), _exponential, UP_AND_DOWN, most=32_768),
    Shipped("a tree of pairs", ("spanning_tree", "exponential"), _tree, TWO_RARE, Fraction(3),
            most=2 * FEW_RUNS),
    Shipped("quantile", ("quantile", "exponential", "private_choice"),
            _chooser("quantile", at=Fraction(1, 2)), AROUND_A_MEDIAN, most=32_768),
    Shipped("least value", ("quantile", "exponential", "private_choice"),
            _chooser("quantile", at=Fraction(0)), ((0,) * 16, (1, *(0,) * 15)), most=32_768),
    Shipped("permute-and-flip", ("permute_and_flip", "private_choice"), _chooser("top", names=1),
            ((0, 1), (1, 1)), most=FEW_RUNS),
    Shipped("the two most frequent", ("top_k", "exponential", "private_choice"), _chooser("top", names=2),  # noqa: E501
            ((1, *(0,) * 7), (2, *(0,) * 7)), Fraction(2), most=2 * FEW_RUNS),
    Shipped("noisy maximum", ("top_k", "laplace"), _noisy_max, ((0, 1), (1, 1)), most=FEW_RUNS),
    Shipped(
        "search for bounds", ("bounds_search", "private_choice"), _bounds, (0, 1), most=FEW_RUNS
    ),
    Shipped("first above", ("sparse_vector", "private_choice"), _chooser("above", threshold=1),
            ((0, 0), (1, 0)), most=FEW_RUNS),
    Shipped("two above", ("sparse_vector",), _above, ((0, 0, 0, 0, 1, 1, 1), (1, 1, 1, 1, 0, 0, 0)),
            Fraction(3), most=4 * FEW_RUNS),
    Shipped("key selection", ("partition_selection",), _selection, (3, 4), delta=float(DELTA)),
    Shipped("key threshold", ("gaussian_partition_selection", "gaussian"), _threshold, (-1, 0), RHO, is_rho=True),  # noqa: E501
    Shipped("two coins", ("two_coins",), _coins, (False, True)),
    *(replace(Shipped(*one), most=FEW_RUNS) for one in LOCAL),
)  # fmt: skip

# The other files of the two folders, and why none of them is a mechanism of its own.
NO_MECHANISM: Final[Mapping[str, str]] = {
    "__init__": "names",
    "sum_of_draws": "how far off a sum of many draws may be, by arithmetic",
    "certified_arithmetic": "arithmetic",
    "randomiser_choice": "which oracle, by its error",
    "frequency_estimation": "from counts back to shares: reports only",
    "proportion_intervals": "from counts to intervals: reports only",
    "randomiser_registry": "parameters by name",
    "likelihood_ratio": "arithmetic: what a table of chances costs",
    "mean_estimation": "from sums back to a mean: reports only",
    "frequency_oracle": "the interface, and blocks of reports",
    "noise": "which noise, and how wide; every noise here is drawn through it",
    "exponential_powers": "arithmetic",
    "sample_size": "errors and numbers of people, from no answer",
    "simultaneous": "a noise read at a stricter confidence",
    "shuffle_amplification": "what mixing adds, by arithmetic",
    "simplex_projection": "post-processing of shares",
    "threshold_table": "how samplers look draws up",
    "weighted_sum_of_draws": "how far off a weighted sum of draws may be, by arithmetic",
}
