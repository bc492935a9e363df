"""Choose the most accurate local randomiser for a question, given limits on size and work.

With e = exp(epsilon), the variance of a rare answer's estimated share, times the number of people,
is about

    k-ary                 (k - 2 + e) / (e - 1)**2
    unary, hashing        4 e / (e - 1)**2
    Hadamard              ((e + 1) / (e - 1))**2
    subset, projective    below both of the first two: optimal (Ye and Barg 2018)

So k-ary response has the smaller error up to about k = 3 e + 2 answers. The code does not compare
these formulas. It compares the exact variance of each candidate with its integer parameters, for a
rare answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np

from sfumato.dp.local.ballot_split import Sampled, Split
from sfumato.dp.local.duchi import Duchi
from sfumato.dp.local.frequency_estimation import variances
from sfumato.dp.local.frequency_oracle import Oracle
from sfumato.dp.local.hadamard_response import Hadamard
from sfumato.dp.local.hybrid_mechanism import Hybrid
from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.local_hashing import Hashing
from sfumato.dp.local.numeric_response import Numbers, worst_variance
from sfumato.dp.local.piecewise_mechanism import Piecewise
from sfumato.dp.local.projective_geometry_response import LARGEST as MOST_POINTS
from sfumato.dp.local.projective_geometry_response import Projective
from sfumato.dp.local.subset_selection import LARGEST as LARGEST_FIELD
from sfumato.dp.local.subset_selection import Subset
from sfumato.dp.local.unary_encoding import Unary
from sfumato.dp.refusal import Refused

_Maker = Callable[[int, Fraction], Oracle]
# errors up to this factor above the least count as equal; then the least work decides
CLOSE: Final = 1.01
# The server's operations per report. A client's work is proportional to its words.
_WORK: Final[dict[str, Callable[[Oracle], float]]] = {
    "k-ary": lambda oracle: 1.0,
    "hadamard": lambda oracle: 1.0,
    "projective": lambda oracle: 2.0,
    "subset": lambda oracle: min(oracle.size, 16),
    "unary": lambda oracle: oracle.size / 4,
    "hashing": lambda oracle: oracle.size,
}


@dataclass(frozen=True)
class Candidate:
    """A frequency oracle to choose from, with its error, report size and server work.

    The error is the variance of the estimated share of a rare answer, times the number of people.
    """

    oracle: Oracle
    error: float
    width: int  # bytes of a report
    work: float  # server operations per report

    @property
    def kind(self) -> str:
        """Return the kind of the frequency oracle, such as "k-ary"."""
        return str(self.oracle.parameters["kind"])


def candidates(size: int, epsilon: Fraction) -> tuple[Candidate, ...]:
    """Return every frequency oracle that supports `size` answers, in ascending order of error."""
    made = [_candidate(make(size, epsilon)) for make in _makers(size)]
    return tuple(sorted(made, key=lambda one: one.error))


def best_oracle(
    size: int,
    epsilon: Fraction,
    *,
    width: int | None = None,
    kinds: Sequence[str] | None = None,
) -> Oracle:
    """Choose the frequency oracle with the least error for a question with `size` answers.

    Among oracles with nearly the least error, it chooses the one with the least work. `width`
    limits the bytes per report, and `kinds` limits the kinds to choose from.
    """
    found = [
        c
        for c in candidates(size, epsilon)
        if (width is None or c.width <= width) and (kinds is None or c.kind in kinds)
    ]
    if not found:
        raise Refused(
            "bad-request",
            "No randomiser of the allowed kinds has a report of at most `width` bytes.",
            "Raise width, or allow more kinds.",
        )
    good = [c for c in found if c.error <= CLOSE * found[0].error]
    return min(good, key=lambda one: (one.work, one.width)).oracle


def best_numbers(steps: int, epsilon: Fraction) -> Numbers:
    """Choose the randomiser of numbers with the least worst-case error at this epsilon.

    `steps` is the last step of the grid.
    """
    made: list[Numbers] = [kind.within(steps, epsilon) for kind in (Duchi, Piecewise, Hybrid)]
    return min(made, key=worst_variance)


def best_ballot(
    makers: Sequence[Callable[[Fraction], Oracle | Numbers]], epsilon: Fraction
) -> Split | Sampled:
    """Choose the ballot with the least total error: ask all questions, or one random question.

    With Q questions, a ballot that asks one gives each question 1/Q of the reports, at the whole
    epsilon. A ballot that asks all divides epsilon by Q. That multiplies the variance by about Q *
    Q for a small epsilon, and by less for a large one.
    """
    split, sampled = Split.within(makers, epsilon), Sampled.within(makers, epsilon)
    all_asked = sum(map(_error_of, split.questions))
    one_drawn = sum(map(_error_of, sampled.questions)) * len(makers)
    return split if all_asked < one_drawn else sampled


def _error_of(question: Any) -> float:  # Any: a frequency oracle, or a randomiser of numbers
    """Return the error of a question's estimate per report, to compare ballots.

    For an answer among several, it is the largest variance of an estimated share, if all answers
    are rare. For numbers it is the worst variance of a mean on a grid from 0 to 1.
    """
    if hasattr(question, "lines"):
        return float(worst_variance(question)) / int(question.steps) ** 2
    return float(variances(question, np.zeros(question.size), 1).max())


def _makers(size: int) -> list[_Maker]:
    makers: list[_Maker] = [KAry.within, Hadamard.within]
    if size <= 1 << 16:
        makers.append(Unary.within)
    if size <= 1 << 17:
        makers.append(Hashing.within)
    if size <= LARGEST_FIELD:
        makers.append(Subset.within)
    if size <= MOST_POINTS // 4:
        makers.append(Projective.within)
    return makers


def _candidate(oracle: Oracle) -> Candidate:
    error = float(variances(oracle, np.zeros(oracle.size), 1).max())
    work = _WORK[str(oracle.parameters["kind"])](oracle)
    return Candidate(oracle, error, oracle.width, work)
