"""Steps that ask several questions for one price: regressions, histograms, checks of clamping."""

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
from sfumato.client.table_steps import OfTables

if TYPE_CHECKING:
    from sfumato.client.clamping_report import ClampingReport
    from sfumato.client.histogram import Histogram
    from sfumato.features.regression.fit_price import FitPrice
    from sfumato.features.regression.fit_result import Fit

Of = str | Column


class CompoundSteps(OfTables):
    """What is asked in several questions that are paid together."""

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
        """Fit a least-squares line of y on the columns; one question, and one price.

        Args:
            y: The numeric column that is explained.
            xs: The columns that explain it: numbers or booleans, at most 7.
            epsilon: The price of the fit. It is required.
            delta: What may be spent of delta; the card's `delta_per_request` if left out.
            ridge: The ridge penalty, in rows; if left out, as much as the noise requires.
            people: Taken so that the arguments of `price_linear` fit here; it changes nothing.

        Returns:
            The coefficients with their 95 % intervals, and the receipt.

        Raises:
            Refused: `bad-budget`, `budget-exceeded`, `no-bounds` for a column without bounds, or
                `not-in-language` after a grouping.
        """
        del people
        from sfumato.features.regression.linear import fit_linear

        return fit_linear(self.begun(), y, xs, FitTerms(epsilon=epsilon, delta=delta, ridge=ridge))

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
        """Fit a logistic regression of a boolean y on the columns; a few questions, and one price.

        Args:
            y: The boolean column that is explained.
            xs: The columns that explain it: numbers or booleans, at most 7.
            epsilon: The price of all questions together. It is required.
            delta: What may be spent of delta, by all questions together; the card's
                `delta_per_request` if left out.
            rounds: How many questions are asked after the first.
            resume: This very fit was asked before, perhaps interrupted: what was answered is free.
            ridge: Refused: a logistic fit takes no ridge.
            people: Taken so that the arguments of `price_logistic` fit here; it changes nothing.

        Returns:
            The coefficients of the log odds with their 95 % intervals, and the receipts.

        Raises:
            Refused: `bad-budget`, `budget-exceeded` before anything is spent, `no-bounds`, or
                `type-mismatch` if y is no boolean.
        """
        del people
        from sfumato.features.regression.logistic import fit_logistic

        terms = FitTerms(epsilon=epsilon, delta=delta, ridge=ridge, rounds=rounds, resume=resume)
        return fit_logistic(self.begun(), y, xs, terms)

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
        """Return what `linear` would cost and how far off it would be; nothing is spent.

        Args:
            y: The numeric column that is explained.
            xs: The columns that explain it.
            epsilon: The price of the fit. It is required.
            delta: What may be spent of delta; the card's `delta_per_request` if left out.
            ridge: The ridge penalty, in rows; if left out, as much as the noise requires.
            people: Your guess of how many rows there are; the card's size, if left out.

        Returns:
            The price, the error of each coefficient, and whether it fits what is left.

        Raises:
            Refused: The code with which `linear` would refuse it.
        """
        from sfumato.features.regression.linear import price_linear

        terms = FitPriceTerms(epsilon=epsilon, delta=delta, ridge=ridge, people=people)
        return price_linear(self.begun(), y, xs, terms)

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
        """Return what `logistic` would cost and how far off it would be; nothing is spent.

        Args:
            y: The boolean column that is explained.
            xs: The columns that explain it.
            epsilon: The price of all questions together. It is required.
            delta: What may be spent of delta, by all questions together; the card's
                `delta_per_request` if left out.
            rounds: How many questions are asked after the first.
            resume: Taken so that the arguments of `logistic` fit here; it changes no price.
            ridge: Refused: a logistic fit takes no ridge.
            people: Your guess of how many rows there are; the card's size, if left out.

        Returns:
            The price of each question, the error of each coefficient, and whether it fits.

        Raises:
            Refused: The code with which `logistic` would refuse it.
        """
        del resume
        from sfumato.features.regression.logistic import price_logistic

        terms = FitPriceTerms(
            epsilon=epsilon, delta=delta, ridge=ridge, rounds=rounds, people=people
        )
        return price_logistic(self.begun(), y, xs, terms)

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
        """Ask for quantiles, then for the number of rows between them; both for one epsilon.

        Bins that are known beforehand need no quantiles: `group_by(col("age").bins(10))`.

        Args:
            of: The numeric column: its name, or an expression.
            bins: How many bins, from 2 to 50.
            epsilon: The price of both questions together; half of it is for each. It is required.
            delta: What each question may spend of delta; the card's if left out.
            max_groups: The contribution bound: how many bins a person counts in at most.
            max_rows: The contribution bound: how many rows of a person count at most.

        Returns:
            The noisy counts by bin, and the quantiles that the bins come from.

        Raises:
            Refused: `bad-budget`, `budget-exceeded` before anything is spent, or `not-in-language`
                if more was asked for with it.
        """
        from sfumato.client.histogram import HistogramTerms, histogram_of

        terms = HistogramTerms(
            epsilon=epsilon, delta=delta, max_groups=max_groups, max_rows=max_rows
        )
        return histogram_of(self.begun(), of, bins, terms)

    @named_terms(no_fit_term)
    def check_clipping(
        self,
        of: str,
        *,
        epsilon: Number | None = None,
        delta: Number | None = None,
        resume: bool = False,
    ) -> ClampingReport:
        """Ask what share of a column is clamped, and what share of people `max_rows` cuts.

        Args:
            of: The name of a numeric column with bounds.
            epsilon: The price of the check. It is required, and paid apart from other questions.
            delta: What may be spent of delta; the card's `delta_per_request` if left out.
            resume: This very check was asked before: what was answered is free.

        Returns:
            The shares with their 95 % intervals.

        Raises:
            Refused: `bad-budget`, `budget-exceeded` before anything is spent, or `no-bounds`.
        """
        from sfumato.client.clamping_report import clamping_report

        terms = FitTerms(epsilon=epsilon, delta=delta, resume=resume)
        return clamping_report(self.begun(), of, terms)
