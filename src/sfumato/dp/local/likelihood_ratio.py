"""The exact local epsilon of a randomiser: the logarithm of its largest likelihood ratio."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Any, Final

from sfumato.dp.refusal import Bug

ReportProbabilities = Mapping[
    Any, Fraction
]  # report -> its probability. Any: a boolean, a number or a set of bits
Law = Mapping[Any, ReportProbabilities]  # true answer -> the probability of each report
_EXACT: Final = Context(prec=60)
_MARGIN: Final = Decimal("1e-40")  # 60-digit arithmetic errs by less than this
_GRID: Final = Decimal("1e-9")


def worst_ratio(law: Law) -> Fraction | None:
    """Return how many times likelier any report can be under one true answer than under another.

    `law` has the probability of each report for each true answer. None means that the ratio is
    infinite: some report is possible for one answer and impossible for another.
    """
    _check(law)
    worst = Fraction(1)
    for said in _possible_reports(law):
        chances = [says.get(said, Fraction(0)) for says in law.values()]
        if min(chances) == 0:
            return None
        worst = max(worst, max(chances) / min(chances))
    return worst


def epsilon_of(ratio: Fraction) -> Fraction:
    """Return the natural logarithm of a likelihood ratio >= 1, rounded up to 1e-9: the epsilon."""
    if ratio < 1:
        raise Bug("the largest ratio of chances is one at least")
    quotient = _EXACT.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    if ratio == 1:
        return Fraction(0)
    exact = _EXACT.add(_EXACT.ln(quotient), _MARGIN)
    return Fraction(exact.quantize(_GRID, rounding=ROUND_CEILING, context=_EXACT))


def _possible_reports(law: Law) -> list[object]:
    said: dict[object, None] = {}
    for says in law.values():
        said.update(dict.fromkeys(one for one, chance in says.items() if chance))
    return list(said)


def _check(law: Law) -> None:
    for says in law.values():
        if sum(says.values()) != 1 or min(says.values()) < 0:
            raise Bug("the chances of what is said add up to one")
