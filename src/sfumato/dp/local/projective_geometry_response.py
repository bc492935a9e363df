"""Projective geometry response, a frequency oracle: the report is likely on the answer's plane.

Answers and reports are points of a projective space over a prime field. The plane of an answer is
the set of points that are perpendicular to the answer. A report is on its answer's plane more often
than on others. Every two planes share equally many points, so the error is that of subset
selection. A report is one short number. Proof: projective_geometry_response.proof.md (Feldman,
Nelson, Nguyen and Talwar 2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar, Final

import numpy as np

from sfumato.dp.local.frequency_oracle import (
    Booleans,
    Floats,
    Parameters,
    Reports,
    as_rows,
    bytes_for,
    numbers,
)
from sfumato.dp.local.likelihood_ratio import Law, ReportProbabilities, epsilon_of
from sfumato.dp.local.random_words import (
    PARTS,
    Integers,
    Words,
    among_64,
    below,
    largest_probability_within,
    odds_of,
)
from sfumato.dp.local.subset_selection import is_prime
from sfumato.dp.refusal import Bug, Refused

LARGEST: Final = 1 << 14  # most points; `supports` compares every answer with every point
MAX_DIMENSIONS: Final = 32
_VECTORS: Final = 1 << 22
_PRIMES: Final = tuple(number for number in range(2, 1 << 12) if is_prime(number))


@dataclass(frozen=True)
class Projective:
    """Projective geometry response, a frequency oracle with short reports.

    `size` is the number of answers. The projective space has `dimension` coordinates over the field
    of `prime` elements. `truth` is the probability, in parts of 2**32, that the report is drawn on
    the answer's plane.
    """

    size: int
    prime: int
    dimension: int
    truth: int

    words_per_report: ClassVar[int] = 3

    def __post_init__(self) -> None:
        is_small = 2 <= self.prime <= LARGEST and 2 <= self.dimension <= MAX_DIMENSIONS
        if not (
            is_small
            and is_prime(self.prime)
            and self.prime**self.dimension <= _VECTORS
            and 0 < self.truth < PARTS
        ):
            raise Bug("the field is prime, and the space of a size that is searched")
        if not 2 <= self.size <= self.points <= LARGEST:
            raise Bug("there are no more answers than points, and not too many points")

    @staticmethod
    def within(size: int, epsilon: Fraction) -> Projective:
        """Return the randomiser with the least error whose epsilon is at most `epsilon`."""
        spaces = [space for prime in _PRIMES if (space := _space(prime, size))]
        if not spaces:
            raise Refused(
                "bad-request",
                "There are too many answers for projective geometry response.",
                "Use another randomiser, or offer fewer answers.",
            )
        odds = odds_of(epsilon)
        prime, dimension = min(spaces, key=lambda space: _error(*space, odds=odds))
        truth = largest_probability_within(
            lambda part: Projective(size, prime, dimension, part).ratio, epsilon
        )
        return Projective(size, prime, dimension, truth)

    @property
    def points(self) -> int:
        """Return the number of points of the projective space: the possible reports."""
        return _points(self.prime, self.dimension)

    @property
    def on_plane(self) -> int:
        """Return how many points one answer's plane has: the reports that support the answer."""
        return _points(self.prime, self.dimension - 1)

    @property
    def width(self) -> int:
        """Return the length of a report in bytes: enough for the number of the last point."""
        return bytes_for(self.points - 1)

    @property
    def parameters(self) -> Parameters:
        """Return the JSON parameters: kind, `size`, `prime`, `dimension` and `truth`."""
        return {"kind": "projective", "size": self.size, "prime": self.prime,
                "dimension": self.dimension, "truth": self.truth}  # fmt: skip

    @property
    def law(self) -> Law:
        """Return the exact probability to report each point, for each answer."""
        return {value: self._says(value) for value in range(self.size)}

    @property
    def ratio(self) -> Fraction:
        """Return a bound of how many times likelier a report can be under one answer than another.

        Its logarithm is the local epsilon. The bound compares the most likely point of a plane with
        the least likely point of the space.
        """
        most, least = -(-(PARTS**2) // self.on_plane), PARTS**2 // self.points
        return 1 + Fraction(self.truth * most, (PARTS - self.truth) * least)

    @property
    def epsilon(self) -> Fraction:
        """Return the local epsilon of one report: the logarithm of `ratio`, rounded up to 1e-9."""
        return epsilon_of(self.ratio)

    @property
    def p_minus_q(self) -> Fraction:
        """Return P(report is on the true answer's plane) - P(it is on another plane).

        Estimates of shares divide by it.
        """
        return Fraction(self.truth, PARTS) * (1 - self._shared)

    @property
    def q(self) -> Floats:
        """Return for each answer the probability that another answer's report is on its plane.

        Estimates of shares subtract this chance.
        """
        told = Fraction(self.truth, PARTS)
        anywhere = Fraction(self.on_plane, self.points)
        return np.full(self.size, float(told * self._shared + (1 - told) * anywhere))

    def randomise(self, values: Integers, words: Words) -> Reports:
        """Randomise each answer to a point: on its plane with P = `truth`, else anywhere."""
        places = among_64(words[1], words[2], self.on_plane).astype(np.int64)
        anywhere = among_64(words[1], words[2], self.points).astype(np.int64)
        said = np.where(below(words[0], self.truth), self.plane_points(values, places), anywhere)
        return as_rows(said.astype(np.uint64), self.width)

    def plane_points(self, values: Integers, places: Integers) -> Integers:
        """Return the point with the given index (`places`) on the plane of each answer.

        A point is on an answer's plane if the two vectors are perpendicular. Let c be the answer's
        first non-zero coordinate. The other coordinates are those of the point with this index in
        the space of one dimension less. Coordinate c is then computed so that the two vectors are
        perpendicular.
        """
        prime, dimension = self.prime, self.dimension
        answers = vectors(prime, dimension)[values]
        leads = np.argmax(answers != 0, axis=1)
        rest = vectors(prime, dimension - 1)[places]
        others = np.arange(dimension - 1) + (np.arange(dimension - 1) >= leads[:, np.newaxis])
        found = np.zeros_like(answers)
        np.put_along_axis(found, others, rest, axis=1)
        rows = np.arange(len(values))
        found[rows, leads] = -(found * answers).sum(axis=1) % prime
        return _indices(prime, dimension)[_value(found, prime)]

    def are_valid(self, reports: Reports) -> Booleans:
        """Return a boolean mask: a report is valid if it is the number of a point."""
        return np.asarray(numbers(reports) < self.points)

    def counts(self, reports: Reports) -> Integers:
        """Count how many reports name each point of the space."""
        return np.bincount(numbers(reports), minlength=self.points).astype(np.int64)

    def supports(self, counts: Integers) -> Integers:
        """Count for each answer the reports that are points on its plane."""
        points = vectors(self.prime, self.dimension).astype(np.float64)
        found = np.zeros(self.size, dtype=np.int64)
        step = max(1, (1 << 20) // self.points)
        for start in range(0, self.size, step):
            some = slice(start, min(start + step, self.size))
            is_on = (points[some] @ points.T).astype(np.int64) % self.prime == 0
            found[some] = np.where(is_on, counts, 0).sum(axis=1)
        return found

    @property
    def _shared(self) -> Fraction:
        """Return which share of the points of one answer's plane is also on another answer's plane.

        It is the same for every two answers.
        """
        shared = _points(self.prime, self.dimension - 2)
        return Fraction(shared, self.on_plane)

    def _says(self, value: int) -> ReportProbabilities:
        inside, anywhere = _words_64(self.on_plane), _words_64(self.points)
        told = Fraction(self.truth, PARTS)
        says = {y: (1 - told) * Fraction(words, PARTS**2) for y, words in enumerate(anywhere)}
        plane = self.plane_points(np.full(self.on_plane, value), np.arange(self.on_plane))
        for y, words in zip(plane.tolist(), inside, strict=True):
            says[y] += told * Fraction(words, PARTS**2)
        return says


def _points(prime: int, dimension: int) -> int:
    return int((prime**dimension - 1) // (prime - 1))


def _space(prime: int, size: int) -> tuple[int, int] | None:
    """Return (prime, dimension) of the smallest projective space that has a point for each answer.

    `size` is the number of answers, and `prime` the size of the field. The result is None if that
    space is too large.
    """
    dimension = next(d for d in range(2, MAX_DIMENSIONS) if _points(prime, d) >= size)
    is_small = _points(prime, dimension) <= LARGEST and prime**dimension <= _VECTORS
    return (prime, dimension) if is_small else None


def _error(prime: int, dimension: int, *, odds: Fraction) -> Fraction:
    """Return the variance of the estimated share of a rare answer, times the number of people.

    The best space is that with the least error. `odds` is the likelihood ratio between points on
    the answer's plane and others.
    """
    points, plane = _points(prime, dimension), _points(prime, dimension - 1)
    shared = _points(prime, dimension - 2)
    whole = plane * odds + points - plane
    own, another = plane * odds / whole, (shared * odds + plane - shared) / whole
    return another * (1 - another) / (own - another) ** 2


def _words_64(outcomes: int) -> list[int]:
    """Return how many pairs of 32-bit random words give each outcome of `random_words.among_64`.

    The exact likelihood ratio needs these counts.
    """
    first = [-(-place * PARTS**2 // outcomes) for place in range(outcomes + 1)]
    return [after - before for before, after in pairwise(first)]


def _value(rows: Integers, prime: int) -> Integers:
    """Encode each vector as one number: its coordinates are the digits in base `prime`.

    The first coordinate is the most significant digit.
    """
    return np.asarray(rows @ (prime ** np.arange(rows.shape[1])[::-1]))


@lru_cache(maxsize=8)
def vectors(prime: int, dimension: int) -> Integers:
    """Return the coordinates of each point of the space: one vector per row.

    Multiples of a vector are the same point, so the first non-zero coordinate is scaled to 1.
    """
    blocks = []
    for lead in range(dimension):
        free = dimension - lead - 1
        numbers_ = np.arange(prime**free)[:, np.newaxis]
        block = np.zeros((prime**free, dimension), dtype=np.int64)
        block[:, lead] = 1
        block[:, lead + 1 :] = numbers_ // prime ** np.arange(free)[::-1] % prime
        blocks.append(block)
    return np.concatenate(blocks)


@lru_cache(maxsize=8)
def _indices(prime: int, dimension: int) -> Integers:
    """Return a table from the encoded vector (`_value`) to the index of its point.

    The zero vector represents no point; its entry is 0.
    """
    points = vectors(prime, dimension)
    found = np.zeros(prime**dimension, dtype=np.int64)
    for times in range(1, prime):
        found[_value(points * times % prime, prime)] = np.arange(len(points))
    return found
