"""The price of a regression fit, query by query, and the expected errors of its coefficients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, cast

from sfumato.client.budget_shares import Share
from sfumato.client.query_builder import Builder, Target
from sfumato.client.text_tables import number_text
from sfumato.dp.refusal import Refused
from sfumato.features.regression.scaled_columns import Model

EVEN = 1 / 3  # the variance of a column that is uniform on [-1, 1]
Margins = Callable[[dict[str, float], int], dict[str, float]]


@dataclass(frozen=True)
class Stage:
    """One query of a regression fit, with its purpose (`says`) and its share of the budget."""

    says: str
    question: Builder
    share: Share


@dataclass(frozen=True)
class FitPrice:
    """The price of a regression fit, known before anything is spent.

    `error` holds half the 95 % interval of each coefficient, by column.
    """

    epsilon: float
    delta: float
    questions: tuple[tuple[str, float, float, str], ...]  # purpose, epsilon, delta, mechanism
    fits: bool
    assumed_people: int | None
    error: Mapping[str, float] | None
    why: str

    def __repr__(self) -> str:
        lines = [f"epsilon {self.epsilon:g} for {len(self.questions)} question(s), nothing spent"]
        lines += [f"  {says}: epsilon {e:g}, {how}" for says, e, _, how in self.questions]
        lines += [f"{n}: ± {number_text(m, m)} at 95 %" for n, m in (self.error or {}).items()]
        return "\n".join([*lines, self.why, "it fits" if self.fits else "it does NOT fit"])

    def _repr_html_(self) -> str:
        return "<br>".join(escape(line) for line in repr(self).splitlines())


def fit_price(
    data_set: Target,
    stages: Sequence[Stage],
    margins: Margins,
    people: int | None,
    check: Callable[..., None],
) -> FitPrice:
    """Return the price of all queries of a fit, and the expected errors; spends nothing.

    The errors follow from the noise of the last query.
    """
    shapes = [
        cast("dict[str, Any]", s.question.price(  # Any: JSON of the wire
            epsilon=s.share.epsilon, delta=s.share.delta, people=people
        ).shape)
        for s in stages
    ]  # fmt: skip
    size = people or data_set.card["size"]
    return FitPrice(
        epsilon=float(sum(stage.share.epsilon for stage in stages)),
        delta=float(sum(shape["delta"] for shape in shapes)),
        questions=tuple(
            (s.says, float(s.share.epsilon), float(shape["delta"]), str(shape["mechanism"]))
            for s, shape in zip(stages, shapes, strict=True)
        ),
        fits=_fits(data_set, stages, check),
        assumed_people=size,
        error=None if size is None else margins(shapes[-1]["error"], size),
        why=_why(size),
    )


def _fits(data_set: Target, stages: Sequence[Stage], check: Callable[..., None]) -> bool:
    try:
        check(data_set, [(stage.question, stage.share) for stage in stages], resume=False)
    except Refused as refused:
        if refused.code != "budget-exceeded":
            raise
        return False
    return True


def _why(size: int | None) -> str:
    if size is None:
        return "The errors depend on the number of rows. Give your own guess of it: people=N."
    return (
        f"The errors assume {size:,} rows, small effects, and independent columns that are "
        "spread evenly between the data card's bounds. Columns within a tenth of their bounds "
        "have errors a hundred times as large. Columns that say nearly the same have larger "
        "errors too."
    )


def column_margins(
    model: Model, scaled: Sequence[float], rows: int, unit: float
) -> dict[str, float]:
    """Convert the error margins of scaled sums of products to margins of coefficients.

    It assumes columns that are independent of each other and spread evenly between their bounds.
    """
    return {
        x.name: margin / (rows * (1.0 if x.is_boolean else EVEN)) * unit / float(x.half)
        for x, margin in zip(model.xs, scaled, strict=True)
    }
