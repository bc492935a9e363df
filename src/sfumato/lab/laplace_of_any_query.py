"""Apply the Laplace mechanism to any numeric query, without floating-point leaks.

Fractions are rounded to a grid, on which they get exact integer noise. The grid depends only on the
sensitivity and on the shape and type of the result (laplace_of_any_query.proof.md). The caller
claims the sensitivity. A measured one is only a lower bound, so a release with it has no guarantee,
and is labelled so.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.anonymity.tables_in_memory import Tabular, array_of, library_of
from sfumato.dp.budget import read_epsilon
from sfumato.dp.mechanisms import laplace
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.lab.empirical_sensitivity import Sensitivity, empirical_sensitivity
from sfumato.lab.platform_noise import NumpyRandomSource
from sfumato.system.randomness import SystemRandomSource

Query = Callable[[Any], Any]  # Any: the query's own kinds of table and result
Numbers = NDArray[Any]  # Any: integers or floats
SINGLE: Final = 24  # significant bits of a float32; a float64 has 53
# Significant bits of a float -> two powers of two: grid steps per sensitivity, and the rounding
# error of two query results together, in units in the last place.
FINENESS: Final = {53: (16, 7), SINGLE: (6, 3)}
LARGEST: Final = 1 << 61  # the largest integer that noise is added to
NOT_DP: Final = (
    "none: its noise is scaled by a sensitivity measured on these rows, which is only a lower bound"
)


@dataclass(frozen=True)
class Unproven:
    """A noisy result without a guarantee: the sensitivity behind its noise is only measured."""

    value: Any  # of the same kind as the query's result
    sensitivity: Sensitivity
    epsilon: float
    guarantee: str = NOT_DP

    @property
    def finding(self) -> str:
        """Return a sentence on the noise, and on why the release is not differentially private."""
        return (
            f"Laplace noise of scale {self.sensitivity.largest / self.epsilon:.6g}. "
            f"{self.sensitivity.finding} So this is not differentially private."
        )


def laplacian_mechanism(
    db: Any,  # the query's own kind of table
    query: Query,
    sensitivity: float,
    *,
    epsilon: float,
    dice: np.random.Generator | None = None,
) -> Any:  # the query's own kind of result
    """Return the query's result with Laplace noise of scale sensitivity / epsilon on each number.

    It is epsilon-DP if the sensitivity is right. The shape and labels of the result must be public:
    they are returned unchanged.

    Args:
        db: The table, as the query takes it: rows, a frame, an array, a tensor, anything.
        query: A function of the table; it returns a number, an array, a tensor, or a pandas frame
            or series. Labels must be names of the table's columns.
        sensitivity: The L1 sensitivity: the largest change of the result, summed over its numbers,
            when one person is added or removed, for any table. It is public and not checked.
        epsilon: The privacy parameter, from 1e-6 to 1000.
        dice: A random generator for a repeatable run, which protects nobody; the default is the
            system's randomness.

    Returns:
        The noisy result, of the query's own kind. Integers stay integers; their noise is for the
        sensitivity rounded up to an integer.

    Raises:
        Refused: The result is not finite, or has fewer digits than the noise needs.
            Or the sensitivity is measured, or is no number above zero.
    """
    if isinstance(sensitivity, Sensitivity):
        raise Refused(
            "bad-request",
            "This sensitivity was measured on rows. It is only a lower bound, so its "
            "noise protects nobody.",
            "Give a bound that holds for every table, or use empirical_laplacian_mechanism.",
        )
    distance, price = _distance(sensitivity), read_epsilon(_scalar(epsilon))
    result = _result(query(db), db)
    drawn_by = SystemRandomSource() if dice is None else NumpyRandomSource(dice)
    if result.digits is None:
        return result.rebuilt(_with_noise(result.numbers, math.ceil(distance), price, drawn_by))
    grid = Grid.of(distance, result.numbers.size, result.digits)
    noisy = _with_noise(grid.places_of(result.numbers), grid.sensitivity, price, drawn_by)
    return result.rebuilt(np.ldexp(noisy.astype(np.float64), grid.exponent))


def empirical_laplacian_mechanism(  # noqa: PLR0913  # a mechanism's terms
    db: Tabular,
    query: Query,
    *,
    epsilon: float,
    data: Literal["public", "synthetic"],
    person: str | None = None,
    dice: np.random.Generator | None = None,
) -> Unproven:
    """Add Laplace noise for a sensitivity measured on these rows; the result has no guarantee.

    Args:
        db: Rows, a frame, an array or a tensor, of public or synthetic data only. The measured
            sensitivity reveals something about the rows.
        query: As for `laplacian_mechanism`.
        epsilon: The parameter of the noise; it guarantees nothing here.
        data: What the rows are; anything but `public` and `synthetic` is refused.
        person: The column that identifies the person of a row; without it, each row is a person.
        dice: As for `laplacian_mechanism`.

    Returns:
        The noisy value, with the measured sensitivity.

    Raises:
        Refused: The data are neither public nor synthetic, or no removal changes the query.
    """
    if data not in ("public", "synthetic"):
        raise Refused(
            "bad-request",
            "A measured sensitivity reveals something about the rows, so it needs "
            "public or synthetic data.",
            'If the rows are synthetic or public, give data="synthetic" or data="public".',
        )
    found = empirical_sensitivity(query, db, person=person)
    if not found.largest > 0:
        raise Refused(
            "bad-request",
            "Nobody's removal changes the query on these rows, so the measured noise "
            "would be zero.",
            "Use laplacian_mechanism with a bound that holds for every table.",
        )
    noisy = laplacian_mechanism(db, query, found.largest, epsilon=epsilon, dice=dice)
    return Unproven(noisy, found, float(read_epsilon(_scalar(epsilon))))


@dataclass(frozen=True)
class Grid:
    """The grid that fractions are rounded to: multiples of 2**exponent."""

    exponent: int
    sensitivity: int  # the sensitivity, in grid steps
    limit: float  # the largest result whose rounding error is small enough

    @classmethod
    def of(cls, distance: Fraction, numbers: int, digits: int) -> Grid:
        """Return the grid for a sensitivity; it uses only the shape and type of the result."""
        fineness, last_places = FINENESS[digits]
        exponent = _floor_log2(distance / numbers) - fineness
        steps = distance / Fraction(2) ** exponent
        limit = math.ldexp(1.0, exponent + digits - 1 - last_places)
        return cls(exponent, math.ceil(steps) + 2 * numbers, limit)

    def places_of(self, numbers: Numbers) -> NDArray[np.int64]:
        """Round numbers to the grid; refuse numbers with too few digits for its steps."""
        if np.abs(numbers).max() > self.limit:
            raise Refused(
                "numbers-too-large",
                "The query's result is too large for its sensitivity: the rounding of "
                "its last digits could change it more than one person does.",
                "Give the table in float64 (`db.double()`), or compute with integers.",
            )
        return np.rint(np.ldexp(numbers.astype(np.float64), -self.exponent)).astype(np.int64)


@dataclass(frozen=True)
class _Result:
    """The result of a query: its numbers, their precision, and a function to restore its type."""

    numbers: Numbers
    digits: int | None  # number of significant bits; None for integers
    rebuilt: Callable[[Numbers], Any]  # Any: the query's own kind of result


def _with_noise(
    places: Numbers, steps: int, epsilon: Fraction, dice: RandomSource
) -> NDArray[np.int64]:
    noise = laplace.sample(laplace.scale_for(steps, epsilon), places.size, dice)
    noisy: NDArray[np.int64] = places.astype(np.int64) + noise.reshape(places.shape)
    return noisy


def _distance(sensitivity: Any) -> Fraction:  # Any: a number, or a tensor with one
    """Parse the claimed sensitivity as an exact fraction, or refuse an invalid one."""
    number = _scalar(sensitivity)
    is_number = isinstance(number, int | float | Fraction | Decimal) and math.isfinite(number)
    if not is_number or not 1e-200 < number < 1e200:
        raise Refused(
            "bad-request",
            "The sensitivity is not a number above zero.",
            "Give the largest change of the query's result by one person.",
        )
    return Fraction(number)


def _scalar(value: Any) -> Any:  # Any: an array or a tensor with one number, or a number
    return value.item() if library_of(value) in ("torch", "numpy") else value


def _floor_log2(number: Fraction) -> int:
    guess = number.numerator.bit_length() - number.denominator.bit_length()
    return guess if Fraction(2) ** guess <= number else guess - 1


def _result(found: Any, db: Any) -> _Result:  # Any: the query's own kinds of result and table
    """Read the query's result, or refuse one that noise cannot be added to."""
    array = _numbers_in(found)
    if array.size == 0:
        raise _no_numbers("contains no number")
    if array.dtype.kind in "bi":
        whole = array.astype(np.int64)
        if max(int(whole.max()), -int(whole.min())) > LARGEST:
            raise _no_numbers("is too large for noise to be added exactly")
        return _Result(whole, None, _rebuilding(found, db))
    if not np.isfinite(array).all():
        raise _no_numbers("is not a finite number")
    return _Result(array, _digits(found, db, array), _rebuilding(found, db))


def _numbers_in(found: Any) -> Numbers:  # Any: the query's own kind of result
    if isinstance(found, Fraction | Decimal):
        found = float(found)
    if library_of(found) == "pandas":
        found = found.to_numpy()
    if isinstance(found, str | bytes | dict | set):
        raise _no_numbers(f"is a {type(found).__name__}")
    try:
        array = array_of(found)
    except (TypeError, ValueError, RuntimeError):  # ragged lists, sparse tensors, odd types
        array = np.empty(0, object)
    if array.dtype.kind == "u" and (array.dtype.itemsize < 8 or (array <= LARGEST).all()):
        array = array.astype(np.int64)
    if array.dtype.kind not in "bif" or array.dtype == np.float16:
        raise _no_numbers(f"has the type {array.dtype}")
    return array


def _no_numbers(what: str) -> Refused:
    return Refused(
        "bad-request",
        f"The query's result {what}, so no noise can be added to it.",
        "Return a finite number, or an array or a tensor of them, in float64 if in doubt.",
    )


def _digits(found: Any, db: Any, array: Numbers) -> int:  # Any: see `_result`
    """Return how many significant bits a query's result has, judged by the types: 24 or 53.

    A plain number from a torch tensor has 53 if the tensor is float64, else 24, PyTorch's default.
    """
    kinds = [array.dtype]
    if library_of(db) == "torch" and library_of(found) != "torch":
        return 53 if "float64" in str(db.dtype) else SINGLE
    if library_of(db) == "numpy" and getattr(db, "dtype", array.dtype).kind == "f":
        kinds.append(db.dtype)
    if library_of(db) in ("pandas", "polars") and _has_short_floats(db):
        return SINGLE
    return SINGLE if any(kind.itemsize <= 4 for kind in kinds) else 53


def _has_short_floats(frame: Any) -> bool:  # Any: a frame, or a column of one
    """Return True if a frame has floats of less than 64 bits, which also make its sums short."""
    kinds = frame.dtypes if hasattr(frame, "columns") else [frame.dtype]
    return any(str(kind).casefold() in ("float16", "float32") for kind in kinds)


def _rebuilding(found: Any, db: Any) -> Callable[[Numbers], Any]:  # Any: see `_result`
    """Return a function that converts noisy numbers to the type of the query's result."""
    library = library_of(found)
    if library == "torch":
        kind = found.dtype if found.is_floating_point() else sys.modules["torch"].int64
        return lambda noisy: found.new_tensor(noisy, dtype=kind, requires_grad=False)
    if library == "pandas":
        return _relabelling(found, db)
    if isinstance(found, np.ndarray) and found.dtype.kind == "f":
        return lambda noisy: noisy.astype(found.dtype)
    if isinstance(found, Sequence | np.ndarray) or np.ndim(found) > 0:
        return lambda noisy: noisy
    return lambda noisy: noisy.item()


def _relabelling(found: Any, db: Any) -> Callable[[Numbers], Any]:  # Any: pandas
    """Return a function that restores pandas labels; refuse labels that may come from rows."""
    known = set(db.columns) if library_of(db) == "pandas" and hasattr(db, "columns") else set()
    axes = list(found.axes)
    if not all(type(a).__name__ == "RangeIndex" or set(a) <= known for a in axes):
        raise Refused(
            "keys-needed",
            "The result has labels that are not column names. They may come from rows, "
            "and noise does not hide them.",
            "Name the keys in the query: `.reindex([...], fill_value=0).to_numpy()`.",
        )
    kind = type(found)
    return lambda noisy: kind(noisy, *axes)
