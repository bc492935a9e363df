"""Histograms whose bins come from the data: private quantiles first, then counts between them.

Two questions have two receipts and one price: each costs half of it, whatever the answers are
(soundness rule 4). The second question uses released bin edges, so it is an ordinary question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypedDict, cast

from sfumato.client.answer import Answer
from sfumato.client.ask_terms import Number, PriceTerms
from sfumato.client.budget_shares import Share, check_all_fits
from sfumato.client.column_expressions import Column, case, col
from sfumato.dp.refusal import Refused
from sfumato.query.expression import Constant

if TYPE_CHECKING:
    from sfumato.client.query_builder import Builder

MOST: Final = 50  # the most bins


@dataclass(frozen=True)
class Histogram:
    """Noisy counts by bin, and the answer with the quantiles that are the bin edges."""

    counts: Answer
    quantiles: Answer
    edges: tuple[Fraction, ...]  # inner bin edges, rising

    @property
    def epsilon(self) -> float:
        """Return the total epsilon of the histogram's two questions."""
        return sum(float(str(one.receipt["epsilon"])) for one in (self.quantiles, self.counts))

    def __repr__(self) -> str:
        paid = f"epsilon {self.epsilon:g} in all, half of it for choosing the bins"
        return f"{self.counts!r}\n{paid}"

    def _repr_html_(self) -> str:
        return self.counts._repr_html_()


class HistogramTerms(TypedDict, total=False):
    """The terms to ask for a histogram: those of its two questions together."""

    epsilon: Number | None  # the price of both questions
    delta: Number | None
    max_groups: int | None  # contribution bound: bins that a person counts in
    max_rows: int | None  # contribution bound: rows of a person


def histogram_of(built: Builder, of: str | Column, bins: int, terms: HistogramTerms) -> Histogram:
    """Ask for a histogram: quantiles, then counts between them, for half of the price each."""
    _check(built, bins)
    built = built.at_most(groups=terms.get("max_groups"), rows=terms.get("max_rows"))
    column = col(of) if isinstance(of, str) else of
    shares = [Fraction(place, bins) for place in range(1, bins)]
    places = built.quantile(of, *(_four_decimals(share) for share in shares))
    half = cast("PriceTerms", {"epsilon": _half(_known(terms)), "delta": terms.get("delta")})
    _check_both_fit(places, _counted(built, column, range(1, bins)), half)
    quantiles = places.ask(**half)
    edges = edges_of(quantiles.rows[0])
    counts = _counted(built, column, edges).ask(**half)
    return Histogram(_labelled(counts, edges), quantiles, edges)


def _counted(built: Builder, column: Column, edges: Sequence[Fraction | int]) -> Builder:
    """Build the question of how many values are between each two neighbouring bin edges."""
    whens = [(column < edge, place) for place, edge in enumerate(edges)]
    numbered = built.where(~column.is_null()).group_by(bin=case(*whens, otherwise=len(edges)))
    return numbered.count(name="count")


def edges_of(released: Sequence[object]) -> tuple[Fraction, ...]:
    """Return the distinct released quantiles in order, as bin edges.

    Each quantile has its own noise, so they may be released out of order.
    """
    return tuple(sorted({Fraction(str(edge)) for edge in released}))


def labels_of(edges: Sequence[Fraction]) -> list[str]:
    """Return a readable label for each histogram bin, such as "10 to below 20"."""
    ends = [_text(edge) for edge in edges]
    between = [f"{low} to below {high}" for low, high in pairwise(ends)]
    return [f"below {ends[0]}", *between, f"{ends[-1]} and above"]


def _labelled(counts: Answer, edges: Sequence[Fraction]) -> Answer:
    labels = labels_of(edges)
    rows = tuple((labels[int(str(row[0]))], *row[1:]) for row in counts.rows)
    return replace(counts, rows=rows)


def _text(edge: Fraction) -> str:
    return f"{edge.numerator:,}" if edge.denominator == 1 else f"{float(edge):,}"


def _four_decimals(share: Fraction) -> Decimal:
    return round(Decimal(share.numerator) / share.denominator, 4)


def _known(terms: HistogramTerms) -> Number:
    epsilon = terms.get("epsilon")
    if epsilon is None:
        raise Refused(
            "bad-budget", "A histogram needs an epsilon.", "Write histogram(x, epsilon=1)."
        )
    return epsilon


def _half(epsilon: Number) -> Number:
    """Return exactly half of an epsilon, as a fraction or a decimal; refuse other types."""
    if isinstance(epsilon, bool) or not isinstance(epsilon, Number):
        raise Refused(
            "bad-budget", "epsilon must be a plain number.", "Write histogram(x, epsilon=1)."
        )
    return epsilon / 2 if isinstance(epsilon, Fraction) else Decimal(str(epsilon)) / 2


def _check(built: Builder, bins: int) -> None:
    if type(bins) is not int or not 2 <= bins <= MOST:
        raise Refused(
            "not-in-language",
            f"A histogram needs 2 to {MOST} bins.",
            "Write histogram(x, bins=10).",
        )
    if built.outputs or built.keys or built.kept or built.order or built.most is not None:
        raise Refused(
            "not-in-language",
            "A histogram asks two questions of its own.",
            "Call it on the data set, after where(...) at most, without other columns or keys.",
        )


def _check_both_fit(places: Builder, counts: Builder, half: PriceTerms) -> None:
    """Refuse a histogram, before anything is paid, unless the budget covers both questions.

    The bin edges do not change the price, so any edges may stand for the unknown ones.
    """
    prices: list[Any] = [question.price(**half) for question in (places, counts)]  # Any: JSON
    paid = [Share(Constant.of(p["epsilon"]).number, Constant.of(p["delta"]).number) for p in prices]
    questions = list(zip((places, counts), paid, strict=True))
    check_all_fits(places.target, questions, resume=None)
