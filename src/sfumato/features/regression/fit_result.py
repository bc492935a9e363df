"""The result of a regression fit: coefficients with error bars, and receipts of its queries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, cast

import numpy as np

from sfumato.client.answer import Answer
from sfumato.client.answer_table import cell_text
from sfumato.client.text_tables import number_text, table_html, table_text
from sfumato.dp.refusal import Refused
from sfumato.features.regression.logistic_curve import Floats
from sfumato.features.regression.scaled_columns import Model

INTERCEPT = "(intercept)"


@dataclass(frozen=True)
class Coefficient:
    """A coefficient of a fitted model, in its column's own unit.

    `std` and `interval` cover the privacy noise and the fit's own approximations, not the sampling
    error.
    """

    value: float
    std: float
    interval: tuple[float, float]
    sampling_std: float | None = None  # sampling error, apart from the noise


@dataclass(frozen=True)
class Fit:
    """A fitted regression model, computed from released answers (post-processing)."""

    kind: str
    y: str
    intercept: Coefficient
    coefficients: Mapping[str, Coefficient]
    r_squared: float | None
    r_squared_std: float | None
    answers: tuple[Answer, ...]
    notes: tuple[str, ...]

    @property
    def receipts(self) -> tuple[dict[str, object], ...]:
        """Return the receipts of the fit's queries, which state what each one cost."""
        return tuple(answer.receipt for answer in self.answers)

    @property
    def paid(self) -> float:
        """Return the epsilon paid for this fit; queries with stored answers are free."""
        paid = (a.receipt for a in self.answers if not a.receipt["free"])
        return math.fsum(cast("float", receipt["epsilon"]) for receipt in paid)

    def predict(
        self, values: Mapping[str, float] | Sequence[Mapping[str, float]]
    ) -> float | list[float]:
        """Predict y; a logistic fit returns the probability that y is true.

        Args:
            values: A value for each column of the fit, by name; or a list of such mappings.

        Returns:
            The prediction, or a list of predictions.

        Raises:
            Refused: `unknown-column` if a column is missing, or is not part of the fit.
        """
        if isinstance(values, Mapping):
            return self._predicted(values)
        return [self._predicted(one) for one in values]

    def _predicted(self, values: Mapping[str, float]) -> float:
        missing = [name for name in self.coefficients if name not in values]
        if missing or len(values) > len(self.coefficients):
            raise Refused(
                "unknown-column",
                "A prediction needs a value for each column of the regression, and for no other "
                "column.",
                "Give " + ", ".join(self.coefficients) + ".",
            )
        pairs = ((c.value, float(values[name])) for name, c in self.coefficients.items())
        score = self.intercept.value + math.fsum(slope * x for slope, x in pairs)
        return score if self.kind == "linear" else 0.5 * (1 + math.tanh(score / 2))

    def __repr__(self) -> str:
        return "\n".join([*table_text(*self._table()), *self._foot()])

    def _repr_html_(self) -> str:
        foot = "".join(f"<p><small>{escape(line)}</small></p>" for line in self._foot())
        return table_html(*self._table()) + foot

    def _table(self) -> tuple[list[str], list[list[str]]]:
        every = {INTERCEPT: self.intercept, **self.coefficients}
        has_sampling = all(c.sampling_std is not None for c in every.values())
        head = [f"{self.kind} {self.y}", "coefficient"] + ["sampling std"] * has_sampling
        return head, [
            [name, cell_text(c.value, c.interval)]
            + [number_text(c.sampling_std or 0.0, c.sampling_std or 0.0)] * has_sampling
            for name, c in every.items()
        ]

    def _foot(self) -> list[str]:
        last = cast("dict[str, Any]", self.answers[-1].receipt)  # Any: JSON of the wire
        lines = ["± and ranges hold at 95 %, for the noise alone."]
        if self.r_squared is not None:
            lines.append(
                f"r squared {self.r_squared:.3f}, std of its noise {self.r_squared_std:.2g}"
            )
        paid = f"paid epsilon {self.paid:g}" if self.paid else "free: asked before"
        left = f"{paid} for {len(self.answers)} question(s), {last['left']['next_epsilon']:g} left."
        return [*lines, *self.notes, f"{self.answers[0].guarantee}, {left}"]


def in_units(
    model: Model, values: Floats, covariances: tuple[Floats, Floats | None], margins: Floats
) -> tuple[Coefficient, dict[str, Coefficient]]:
    """Convert coefficients of scaled columns to the columns' own units, with their errors.

    `covariances` are the covariance of the noise and that of sampling. `margins` are the 95 %
    half-intervals of the coefficients, in multiples of their noise stds.
    """
    turn = _turn(model)
    value = turn @ values + np.eye(len(values))[0] * _start(model)
    noise, sampling = covariances
    stds = _roots(turn @ noise @ turn.T)
    others = [None] * len(value) if sampling is None else list(_roots(turn @ sampling @ turn.T))
    made = [
        Coefficient(float(v), float(s), (float(v - m * s), float(v + m * s)), _plain(o))
        for v, s, m, o in zip(value, stds, margins, others, strict=True)
    ]
    return made[0], {x.name: c for x, c in zip(model.xs, made[1:], strict=True)}


def _plain(value: float | None) -> float | None:
    return None if value is None else float(value)


def _roots(covariance: Floats) -> Floats:
    return np.asarray(np.sqrt(np.maximum(np.diag(covariance), 0)), np.float64)


def _start(model: Model) -> float:
    """Return what to add to the intercept, because scaled y is zero at the middle of its bounds.

    For a logistic fit it is 0, because the log odds are not scaled.
    """
    return 0.0 if model.is_odds else float(model.y.middle)


def _turn(model: Model) -> Floats:
    """Return the matrix that converts coefficients of scaled columns to the columns' own units.

    It also moves the intercept, because scaled columns are zero in the middle of their bounds.
    """
    unit = 1.0 if model.is_odds else float(model.y.half)
    slopes = [unit / float(x.half) for x in model.xs]
    turn = np.diag([unit, *slopes])
    turn[0, 1:] = [-s * float(x.middle) for s, x in zip(slopes, model.xs, strict=True)]
    return turn
