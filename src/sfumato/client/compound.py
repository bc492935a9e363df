"""Steps that ask several questions for one price: regressions, histograms, clamping checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sfumato.client.ask_terms import (
    ROUNDS,
    FitPriceTerms,
    FitTerms,
    Number,
    named_terms,
    no_fit_term,
    no_histogram_term,
    no_line_term,
)
from sfumato.client.column_expressions import Column
from sfumato.client.table_steps import TableSteps

if TYPE_CHECKING:
    from sfumato.client.clamping_report import ClampingReport
    from sfumato.client.histogram import Histogram
    from sfumato.features.regression.fit_price import FitPrice
    from sfumato.features.regression.fit_result import Fit

Of = str | Column


class CompoundSteps(TableSteps):
    """Steps of a question that ask several questions for one price, such as a regression."""

    @named_terms(no_line_term)
    def linear(  # noqa: PLR0913  # the terms of a fit
        self,
        y: str,
        xs: Sequence[str],
        *,
        epsilon: Number | None = None,
        delta: Number | None = None,
        ridge: Number | None = None,
        people: int | None = None,
    ) -> Fit:
        """Fit a linear regression (least squares) of y on columns, by one question.

        Args:
            y: The dependent variable, a numeric column.
            xs: The independent variables: columns of numbers or booleans, at most 7.
            epsilon: The price of the fit. It is required.
            delta: The delta to spend; the card's `delta_per_request` if left out.
            ridge: The ridge penalty, in rows; if left out, the noise determines it.
            people: Accepted so that `linear` takes the arguments of `price_linear`; no effect.

        Returns:
            The coefficients with their 95 % intervals, and the receipt.

        Raises:
            Refused: `bad-budget`, `budget-exceeded`, `no-bounds` for a column without bounds, or
                `not-in-language` after a grouping.
        """
        del people
        from sfumato.features.regression.linear import fit_linear

        return fit_linear(
            self.builder(), y, xs, FitTerms(epsilon=epsilon, delta=delta, ridge=ridge)
        )

    @named_terms(no_fit_term)
    def logistic(  # noqa: PLR0913  # the terms of a fit
        self,
        y: str,
        xs: Sequence[str],
        *,
        epsilon: Number | None = None,
        delta: Number | None = None,
        rounds: int = ROUNDS,
        resume: bool = False,
        ridge: None = None,
        people: int | None = None,
    ) -> Fit:
        """Fit a logistic regression of a boolean y on columns, by several questions for one price.

        Args:
            y: The dependent variable, a boolean column.
            xs: The independent variables: columns of numbers or booleans, at most 7.
            epsilon: The price of all questions together. It is required.
            delta: The delta to spend on all questions together; the card's `delta_per_request` if
                left out.
            rounds: How many questions follow the first one.
            resume: Set it to repeat this very fit, for example after an interruption; questions
                that were answered before are free.
            ridge: Refused: a logistic fit has no ridge penalty.
            people: Accepted so that `logistic` takes the arguments of `price_logistic`; it has no
                effect.

        Returns:
            The coefficients (log odds) with their 95 % intervals, and the receipts.

        Raises:
            Refused: `bad-budget`, `budget-exceeded` before anything is spent, `no-bounds`, or
                `type-mismatch` if y is not boolean.
        """
        del people
        from sfumato.features.regression.logistic import fit_logistic

        terms = FitTerms(epsilon=epsilon, delta=delta, ridge=ridge, rounds=rounds, resume=resume)
        return fit_logistic(self.builder(), y, xs, terms)

    @named_terms(no_line_term)
    def price_linear(  # noqa: PLR0913  # the terms of a fit
        self,
        y: str,
        xs: Sequence[str],
        *,
        epsilon: Number | None = None,
        delta: Number | None = None,
        ridge: Number | None = None,
        people: int | None = None,
    ) -> FitPrice:
        """Return the price of `linear` and the errors to expect; nothing is spent.

        Args:
            y: The dependent variable, a numeric column.
            xs: The independent variables.
            epsilon: The price of the fit. It is required.
            delta: The delta to spend; the card's `delta_per_request` if left out.
            ridge: The ridge penalty, in rows; if left out, the noise determines it.
            people: A guess of the number of rows; if left out, the card's size.

        Returns:
            The price, the error of each coefficient, and whether the budget left covers it.

        Raises:
            Refused: The code with which `linear` would refuse it.
        """
        from sfumato.features.regression.linear import price_linear

        terms = FitPriceTerms(epsilon=epsilon, delta=delta, ridge=ridge, people=people)
        return price_linear(self.builder(), y, xs, terms)

    @named_terms(no_fit_term)
    def price_logistic(  # noqa: PLR0913  # the terms of a fit
        self,
        y: str,
        xs: Sequence[str],
        *,
        epsilon: Number | None = None,
        delta: Number | None = None,
        rounds: int = ROUNDS,
        resume: bool = False,
        ridge: None = None,
        people: int | None = None,
    ) -> FitPrice:
        """Return the price of `logistic` and the errors to expect; nothing is spent.

        Args:
            y: The dependent variable, a boolean column.
            xs: The independent variables.
            epsilon: The price of all questions together. It is required.
            delta: The delta to spend on all questions together; the card's `delta_per_request` if
                left out.
            rounds: How many questions follow the first one.
            resume: Accepted so that it takes the arguments of `logistic`; it changes no price.
            ridge: Refused: a logistic fit has no ridge penalty.
            people: A guess of the number of rows; if left out, the card's size.

        Returns:
            The price of each question, the error of each coefficient, and whether the budget left
                covers them.

        Raises:
            Refused: The code with which `logistic` would refuse it.
        """
        del resume
        from sfumato.features.regression.logistic import price_logistic

        terms = FitPriceTerms(
            epsilon=epsilon, delta=delta, ridge=ridge, rounds=rounds, people=people
        )
        return price_logistic(self.builder(), y, xs, terms)

    @named_terms(no_histogram_term)
    def histogram(  # noqa: PLR0913  # the terms of a histogram
        self,
        of: Of,
        bins: int = 10,
        *,
        epsilon: Number | None = None,
        delta: Number | None = None,
        max_groups: int | None = None,
        max_rows: int | None = None,
    ) -> Histogram:
        """Count values between private quantiles: a histogram whose bins come from the data.

        It asks for the quantiles, then for the counts, both for one epsilon. If you know the bins,
        ask the counts alone: `group_by(col("age").bins(10))`.

        Args:
            of: The numeric column: its name, or an expression.
            bins: How many bins, from 2 to 50.
            epsilon: The price of both questions together; each costs half of it. Required.
            delta: The delta that each question may spend; the card's if left out.
            max_groups: The contribution bound: how many bins a person counts in at most.
            max_rows: The contribution bound: how many rows of a person count at most.

        Returns:
            The noisy counts by bin, and the quantiles that are the bin edges.

        Raises:
            Refused: `bad-budget`, `budget-exceeded` before anything is spent, or `not-in-language`
                if the question asks for something else too.
        """
        from sfumato.client.histogram import HistogramTerms, histogram_of

        terms = HistogramTerms(
            epsilon=epsilon, delta=delta, max_groups=max_groups, max_rows=max_rows
        )
        return histogram_of(self.builder(), of, bins, terms)

    @named_terms(no_fit_term)
    def check_clipping(
        self,
        of: str,
        *,
        epsilon: Number | None = None,
        delta: Number | None = None,
        resume: bool = False,
    ) -> ClampingReport:
        """Measure the share of values at a clamping bound, and of people whom `max_rows` cuts.

        Args:
            of: The name of a numeric column with bounds.
            epsilon: The price of the check. Required.
            delta: The delta to spend; the card's `delta_per_request` if left out.
            resume: Set it to repeat this very check; questions that were answered before are free.

        Returns:
            The shares with their 95 % intervals.

        Raises:
            Refused: `bad-budget`, `budget-exceeded` before anything is spent, or `no-bounds`.
        """
        from sfumato.client.clamping_report import clamping_report

        terms = FitTerms(epsilon=epsilon, delta=delta, resume=resume)
        return clamping_report(self.builder(), of, terms)
