"""Search past runs for the event that best tells the two data sets apart.

An event is a view of the outputs (one number per run) that is cut into cells, each with a guess or
an abstention. One half of the past runs chooses the guess of each cell. The other half chooses the
cells to keep, and the view. Neither half proves anything. Only fresh runs do, so a greedy search
does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.lab.audit.epsilon_lower_bounds import Score, evidence
from sfumato.lab.audit.outputs import Columns, Floats, Outputs

# --- Views: functions that reduce the outputs of a run to one number


Bools = NDArray[np.bool_]
MAX_NUMBER_VIEWS: Final = 12  # the most columns of numbers that get a view of their own
MAX_CODE_VIEWS: Final = 24  # the most columns of marks that get a view of their own
PAIRED: Final = 4  # the number of first columns whose pairs get a view, too
_NOTHING: Final = -1e300  # replaces a missing number in a maximum


@dataclass(frozen=True)
class View:
    """A way to look at a run: a named function that reduces the run's outputs to one number."""

    name: str
    of: Callable[[Outputs], Floats]


def views(seen: Outputs, is_second: Bools) -> tuple[View, ...]:
    """Return the views of these outputs: single columns, pairs of columns, and all numbers.

    A view reduces the outputs of a run to one number. Past runs choose the views, so the views
    prove nothing themselves.
    """
    names = _most_separating(seen.numbers, is_second, MAX_NUMBER_VIEWS)
    marks = list(seen.codes)
    if len(marks) > MAX_CODE_VIEWS:
        marks = _most_separating(
            {name: _places(seen.codes[name]) for name in marks}, is_second, MAX_CODE_VIEWS
        )
    found = [*map(_coordinate, names), *map(_coordinate, marks)]
    found += [*map(_low_bit, names[:PAIRED]), *_pairs(names)]
    if len(seen.numbers) > 1:
        found += _joint_views(tuple(seen.numbers))
    return tuple(found)


def _most_separating(columns: Columns, is_second: Bools, most: int) -> list[str]:
    """Return the columns that differ most between the two data sets, and the outermost columns.

    The outermost columns are the first and the last.
    """
    names = list(columns)
    if len(names) <= most:
        return names
    apart = {name: _separation(columns[name], is_second) for name in names}
    kept = set(sorted(names, key=lambda name: -apart[name])[: most - 2]) | {names[0], names[-1]}
    return [name for name in names if name in kept]


def _places(marks: Floats) -> Floats:
    """Replace hash codes by their ranks, because the codes are too large to be averaged."""
    return np.unique(marks, return_inverse=True)[1].astype(np.float64)


def _separation(column: Floats, is_second: Bools) -> float:
    """Return how well a column tells the two data sets apart; the best columns are looked at.

    It is the distance of the clipped means, in standard deviations of the column. The difference of
    the shares of missing values is added.
    """
    there = np.isfinite(column)
    low, high = np.percentile(column[there], [1, 99]) if there.any() else (0.0, 0.0)
    filled = np.clip(np.where(there, column, low), low, high)
    missing = abs(float(there[is_second].mean()) - float(there[~is_second].mean()))
    gap = abs(float(filled[is_second].mean() - filled[~is_second].mean()))
    return missing + gap / (float(filled.std()) + 1e-12)


def _coordinate(name: str) -> View:
    return View(name, lambda seen: seen.column(name))


def _low_bit(name: str) -> View:
    return View(f"the lowest set bit of {name}", lambda seen: lowest_bits(seen.column(name)))


def lowest_bits(numbers: Floats) -> Floats:
    """Return the exponent of the lowest set bit of each float; NaN for zero."""
    mantissas, exponents = np.frexp(np.where(np.isfinite(numbers), numbers, 0.0))
    whole = (mantissas * 2.0**53).astype(np.int64)
    lowest = (whole & -whole).astype(np.float64)
    with np.errstate(divide="ignore"):
        found = np.log2(lowest) + exponents - 53
    return np.asarray(np.where(whole == 0, np.nan, found))


def _pairs(names: list[str]) -> Iterator[View]:
    """Yield views of two columns: differences and ratios of the first ones and of neighbours."""
    some = list(combinations(names[:PAIRED], 2))
    some += [pair for pair in pairwise(names) if pair not in some]
    for one, other in some:
        yield _of_two(one, "-", other, _minus)
    for one, other in some[:PAIRED]:
        yield _of_two(one, "/", other, _ratio)


def _of_two(one: str, sign: str, other: str, make: Callable[[Floats, Floats], Floats]) -> View:
    return View(f"{one} {sign} {other}", lambda seen: make(seen.column(one), seen.column(other)))


def _minus(one: Floats, other: Floats) -> Floats:
    with np.errstate(invalid="ignore", over="ignore"):
        return one - other


def _ratio(one: Floats, other: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return one / other


def _joint_views(names: tuple[str, ...]) -> list[View]:
    """Return the views of all numbers of a run: extremes, sum, spread, gaps, repeats, order.

    Gaps are numbers that are missing in a run.
    """
    makers: dict[str, Callable[[Floats], Floats]] = {
        "the largest output": lambda all_: _filled(all_).max(axis=1),
        "the smallest output": lambda all_: -_filled(-all_).max(axis=1),
        "which output is largest": lambda all_: _filled(all_).argmax(axis=1).astype(np.float64),
        "which output is smallest": lambda all_: _filled(-all_).argmax(axis=1).astype(np.float64),
        "the sum of all outputs": _sums,
        "how far the outputs spread": lambda a: _minus(
            _filled(a).max(axis=1), -_filled(-a).max(axis=1)
        ),
        "how many outputs are missing": lambda all_: np.isnan(all_).sum(axis=1).astype(np.float64),
        "how many outputs repeat": _repeats,
        "the order of the outputs": _orders,
    }
    return [_of_all(name, names, make) for name, make in makers.items()]


def _of_all(name: str, names: tuple[str, ...], make: Callable[[Floats], Floats]) -> View:
    return View(name, lambda seen: make(_matrix(seen, names)))


def _matrix(seen: Outputs, names: tuple[str, ...]) -> Floats:
    return np.column_stack([seen.column(name) for name in names])


def _filled(numbers: Floats) -> Floats:
    return np.where(np.isnan(numbers), _NOTHING, numbers)


def _sums(numbers: Floats) -> Floats:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.where(np.isnan(numbers), 0.0, numbers).sum(axis=1))


def _repeats(numbers: Floats) -> Floats:
    ordered = np.sort(numbers, axis=1)
    return np.asarray((ordered[:, 1:] == ordered[:, :-1]).sum(axis=1).astype(np.float64))


def _orders(numbers: Floats) -> Floats:
    """Encode the sort order of each run's first eight numbers as one number.

    The order alone can tell the two data sets apart.
    """
    places = np.argsort(_filled(numbers[:, :8]), axis=1, kind="stable")
    return np.asarray(places @ (8.0 ** np.arange(places.shape[1])))


Guesses = NDArray[np.int8]  # 0 or 1 for a side, -1 for an abstention
Integers = NDArray[np.int64]
Range = tuple[float, float]
ABSTAIN: Final = -1
ATOMS: Final = 128  # the most values that get a cell of their own
FINE: Final = 40  # number of quantile cells for all other values, in the fine cut
COARSE: Final = 10  # number of quantile cells in the coarse cut
LOOKED_AT: Final = 16_384  # the most runs that determine the cells
MISSING: Final = 1.7e308  # replaces NaN, above every number
JOINT: Final = "all outputs together"
WEIGHED: Final = "a weighed sum of all outputs"
VOTES: Final = "a weighed vote of all outputs"
EDGE: Final = 1.0  # the tail of each side, in per cent, that is clipped before a weighted sum


@dataclass(frozen=True, eq=False)
class Trials:
    """Runs of a mechanism on one of two data sets each: the outputs, and which data set it was."""

    seen: Outputs
    is_second: NDArray[np.bool_]

    @property
    def size(self) -> int:
        """Return the number of runs."""
        return self.seen.runs

    def half(self, which: int) -> Trials:
        """Return every other run: one half chooses guesses, the other half judges them.

        `which` (0 or 1) is the number of the first run.
        """
        places = slice(which, None, 2)
        return Trials(self.seen.at(places), self.is_second[places])


@dataclass(frozen=True, eq=False)
class Event:
    """A guessing rule: each cell (range) of a view's values gets a data set, or an abstention."""

    view: View
    edges: Floats
    guesses: Guesses
    worth: float  # evidence against the target epsilon in the second half of the runs, in nats

    def guessed(self, fresh: Trials) -> Guesses:
        """Return, for each run, the guessed data set or an abstention."""
        return self.guesses[cells_of(self.view.of(fresh.seen), self.edges)]

    @property
    def with_the_rest(self) -> Event:
        """Return this guessing rule, but let it guess the second data set wherever it abstained."""
        guesses = np.where(self.guesses == ABSTAIN, np.int8(1), self.guesses)
        return replace(self, guesses=guesses)

    def score(self, fresh: Trials) -> Score:
        """Apply the guessing rule to fresh runs; count the runs, the guesses and the right ones."""
        guessed = self.guessed(fresh)
        made = guessed != ABSTAIN
        right = made & (guessed == fresh.is_second)
        return Score(fresh.size, int(made.sum()), int(right.sum()))


def best_event(past: Trials, *, target: float, delta: float) -> Event:
    """Return the guessing rule (event) that contradicts the target epsilon most on past runs."""
    first, second = past.half(0), past.half(1)
    found = views(past.seen, past.is_second)
    events = [
        _event(view, edges, (first, second), target, delta)
        for view in (*found, *_joint(found, first))
        for edges in _cuts(view.of(first.seen))
    ]
    return max(events, key=lambda event: event.worth)


def _event(
    view: View, edges: Floats, halves: tuple[Trials, Trials], target: float, delta: float
) -> Event:
    first, second = halves
    guesses, order = _ranked(view, edges, first)
    cells = cells_of(view.of(second.seen), edges)
    right = _counted(cells, second.is_second[:, np.newaxis] == guesses[cells, np.newaxis], edges)
    made = np.bincount(cells, minlength=len(edges) + 1).astype(np.float64)
    worth = _worth(np.cumsum(right[order]), np.cumsum(made[order]), second.size, target, delta)
    best = int(np.argmax(worth))
    kept = np.full(len(guesses), ABSTAIN, dtype=np.int8)
    kept[order[: best + 1]] = guesses[order[: best + 1]]
    return Event(view, edges, kept, float(worth[best]))


def _ranked(view: View, edges: Floats, first: Trials) -> tuple[Guesses, Integers]:
    """Choose the guess for each cell of a view; return the guesses, and the cells by certainty.

    The most certain cell comes first.
    """
    cells = cells_of(view.of(first.seen), edges)
    odds, doubt = _log_odds(*_sides(cells, first.is_second, edges))
    order = np.argsort(-(np.abs(odds) - doubt), kind="stable")
    return (odds > 0).astype(np.int8), order.astype(np.int64)


def _worth(right: Floats, made: Floats, coins: int, target: float, delta: float) -> Floats:
    told = delta * coins + (2 * np.sqrt(delta * coins) + 1 if delta > 0 else 0.0)
    return evidence(np.maximum(right - told, 0.0), np.maximum(made - told, 0.0), target)


def _sides(cells: Integers, is_second: NDArray[np.bool_], edges: Floats) -> tuple[Floats, Floats]:
    ones = _counted(cells, is_second[:, np.newaxis], edges)
    zeros = _counted(cells, ~is_second[:, np.newaxis], edges)
    return zeros, ones


def _counted(cells: Integers, which: NDArray[np.bool_], edges: Floats) -> Floats:
    counts = np.bincount(cells, weights=which.ravel(), minlength=len(edges) + 1)
    return np.asarray(counts, dtype=np.float64)


def _log_odds(zeros: Floats, ones: Floats) -> tuple[Floats, Floats]:
    """Return each cell's log odds that a run was on the second data set, and their errors.

    The arguments are the runs per cell on the first and on the second data set. The errors are
    standard errors.
    """
    odds = np.log((ones + 0.5) / (ones.sum() + 1)) - np.log((zeros + 0.5) / (zeros.sum() + 1))
    return odds, np.sqrt(1 / (ones + 0.5) + 1 / (zeros + 0.5))


def _cuts(numbers: Floats) -> list[Floats]:
    """Choose where to cut a view's numbers into cells: one per value, or fine and coarse quantiles.

    Each result is one list of edges.
    """
    some = _placed(numbers[:LOOKED_AT])
    values, counts = np.unique(some, return_counts=True)
    if len(values) <= ATOMS:
        return [_around(values)]
    often = np.argsort(-counts, kind="stable")[:ATOMS]
    atoms = _around(values[often[counts[often] >= max(4, len(some) // 400)]])
    tails = 0.5 ** np.arange(5, max(6, int(np.log2(len(some) / 4))))
    shares = np.concatenate([np.arange(1, FINE) / FINE, tails, 1 - tails])
    fine = np.quantile(some, shares, method="inverted_cdf")
    coarse = np.quantile(some, np.arange(1, COARSE) / COARSE, method="inverted_cdf")
    return [np.unique(np.concatenate([atoms, fine])), np.unique(coarse)]


def _around(values: Floats) -> Floats:
    return np.unique(np.concatenate([values, np.nextafter(values, np.inf)]))


def _placed(numbers: Floats) -> Floats:
    return np.nan_to_num(numbers, nan=MISSING, posinf=1.6e308, neginf=-1.6e308)


def cells_of(numbers: Floats, edges: Floats) -> Integers:
    """Return, for each number, the index of the cell (range between edges) that contains it.

    NaN and infinities have cells of their own.
    """
    return np.searchsorted(edges, _placed(numbers), side="right").astype(np.int64)


def _joint(found: Iterable[View], first: Trials) -> Iterator[View]:
    """Yield views that combine all columns: two weighted sums, and a sum of log odds."""
    singles = [view for view in found if view.name in first.seen.numbers]
    if len(singles) < 2:
        return
    ranges = [_range(view.of(first.seen)) for view in singles]
    yield _weighed(WEIGHED, singles, ranges, first)
    middles = [_middles(view.of(first.seen), first.is_second) for view in singles]
    yield _weighed(VOTES, singles, middles, first)
    tables = [_table(view, first) for view in singles]

    def score(seen: Outputs) -> Floats:
        parts = [
            odds[cells_of(view.of(seen), edges)]
            for view, (edges, odds) in zip(singles, tables, strict=True)
        ]
        return np.asarray(np.sum(parts, axis=0))

    yield View(JOINT, score)


def _table(view: View, first: Trials) -> tuple[Floats, Floats]:
    """Cut one view's numbers into cells; return the edges and each cell's log odds.

    The log odds are those of the second data set, and 0 where they are uncertain.
    """
    numbers = view.of(first.seen)
    edges = _cuts(numbers)[-1]
    odds, doubt = _log_odds(*_sides(cells_of(numbers, edges), first.is_second, edges))
    return edges, np.where(np.abs(odds) > doubt, odds, 0.0)


def _weighed(name: str, singles: list[View], ranges: list[Range], first: Trials) -> View:
    """Return a view: the weighted sum of columns that best separates the two data sets.

    The weights are Fisher's linear discriminant. For Gaussian noise nothing separates better, while
    each number alone says little. For Laplace noise, only where a number is between the medians of
    the two data sets matters. So each number is first clipped to its `ranges`: wide percentiles, or
    those medians.
    """

    def placed(seen: Outputs) -> Floats:
        pairs = zip(singles, ranges, strict=True)
        return np.column_stack([_within(view.of(seen), *ends) for view, ends in pairs])

    weights = _weights(placed(first.seen), first.is_second)
    return View(name, lambda seen: np.asarray(placed(seen) @ weights))


def _middles(numbers: Floats, is_second: NDArray[np.bool_]) -> Range:
    """Return the medians of the numbers for the two data sets, the lower one first."""
    sides = (numbers[which & np.isfinite(numbers)] for which in (is_second, ~is_second))
    low, high = sorted(float(np.median(_placed(side))) if side.size else 0.0 for side in sides)
    return low, high


def _range(numbers: Floats) -> Range:
    there = _placed(numbers[np.isfinite(numbers)])
    if not there.size:
        return 0.0, 0.0
    low, high = np.percentile(there, [EDGE, 100 - EDGE])
    return float(low), float(high)


def _within(numbers: Floats, low: float, high: float) -> Floats:
    """Clip numbers to a range and scale them to [-1/2, 1/2], to weigh and add them.

    Missing numbers become 0.
    """
    if not 0 < high - low < np.inf:
        return np.zeros(len(numbers))
    shares = (np.clip(_placed(numbers), low, high) - low) / (high - low) - 0.5
    return np.asarray(np.where(np.isnan(numbers), 0.0, shares))


def _weights(table: Floats, is_second: NDArray[np.bool_]) -> Floats:
    one, other = table[is_second], table[~is_second]
    if min(len(one), len(other)) < 2:
        return np.zeros(table.shape[1])
    spread = np.cov(one, rowvar=False) + np.cov(other, rowvar=False)
    steadied = spread + 1e-6 * np.eye(len(spread))
    return np.asarray(np.linalg.solve(steadied, one.mean(axis=0) - other.mean(axis=0)))
