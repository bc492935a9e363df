"""Ways to look at outputs: each makes one number of a run, and any of them may give it away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.lab.audit.outputs import Columns, Floats, Outputs

Bools = NDArray[np.bool_]
MOST: Final = 12  # numbers of an output that are looked at one by one
MOST_MARKS: Final = 24
PAIRED: Final = 4  # of them that are looked at two by two
_NOTHING: Final = -1e300  # stands for a missing number where the largest is wanted


@dataclass(frozen=True)
class View:
    """A way to look, by name."""

    name: str
    of: Callable[[Outputs], Floats]


def views(seen: Outputs, is_second: Bools) -> tuple[View, ...]:
    """Return the ways to look at such outputs; chosen on runs that prove nothing yet."""
    names = _telling(seen.numbers, is_second, MOST)
    marks = list(seen.marks)
    if len(marks) > MOST_MARKS:
        marks = _telling({name: _places(seen.marks[name]) for name in marks}, is_second, MOST_MARKS)
    found = [*map(_coordinate, names), *map(_coordinate, marks)]
    found += [*map(_low_bit, names[:PAIRED]), *_pairs(names)]
    if len(seen.numbers) > 1:
        found += _together(tuple(seen.numbers))
    return tuple(found)


def _telling(columns: Columns, is_second: Bools, most: int) -> list[str]:
    """Return the names of the columns that move most between the two sides, in their order."""
    names = list(columns)
    if len(names) <= most:
        return names
    apart = {name: _apart(columns[name], is_second) for name in names}
    kept = set(sorted(names, key=lambda name: -apart[name])[: most - 2]) | {names[0], names[-1]}
    return [name for name in names if name in kept]


def _places(marks: Floats) -> Floats:
    """Return the place of each mark among all of them: marks are too long to be averaged."""
    return np.unique(marks, return_inverse=True)[1].astype(np.float64)


def _apart(column: Floats, is_second: Bools) -> float:
    """Return by how many deviations the middles of a column differ, tails cut off."""
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
    """Return the exponent of the lowest bit that is set in each float; NaN where none is."""
    mantissas, exponents = np.frexp(np.where(np.isfinite(numbers), numbers, 0.0))
    whole = (mantissas * 2.0**53).astype(np.int64)
    lowest = (whole & -whole).astype(np.float64)
    with np.errstate(divide="ignore"):
        found = np.log2(lowest) + exponents - 53
    return np.asarray(np.where(whole == 0, np.nan, found))


def _pairs(names: list[str]) -> Iterator[View]:
    """Yield differences and ratios of neighbours and with the first."""
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


def _together(names: tuple[str, ...]) -> list[View]:
    """Return what is made of all numbers of a run at once."""
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
    """Return the order of the first few numbers, as one number."""
    places = np.argsort(_filled(numbers[:, :8]), axis=1, kind="stable")
    return np.asarray(places @ (8.0 ** np.arange(places.shape[1])))
