"""The Python builder: questions without SQL, of the same closed language and the same power."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol, Unpack

from sfumato.client.columns import Column, Condition, condition, expr_of
from sfumato.client.narrowing import ends_of, joined, of_column, order_of, share_of
from sfumato.client.of_tables import OfTables
from sfumato.client.terms import AskTerms, FitPriceTerms, FitTerms, Number, PriceTerms
from sfumato.core.expression import (
    Constant,
    Expr,
    Predicate,
    columns_of,
    one_where,
    truth_of,
)
from sfumato.core.question import (
    Aggregate,
    EachPerson,
    Formula,
    Joined,
    JoinedPeople,
    Order,
    Output,
    Question,
    Verb,
)
from sfumato.core.refusal import Refused

if TYPE_CHECKING:
    from sfumato.client.answer import Answer
    from sfumato.client.clipping import Clipping
    from sfumato.client.histogram import Histogram, HistogramTerms
    from sfumato.client.regression.fit import Fit
    from sfumato.client.regression.price import FitPrice
    from sfumato.client.shown import Budget, CardView, Price

Of = str | Column


class Target(Protocol):
    """What a built question is asked of: a data set."""

    @property
    def card(self) -> CardView:
        """Return what the owner declared."""
        ...

    @property
    def budget(self) -> Budget:
        """Return cap, spent and left."""
        ...

    def ask(self, question: Builder, **terms: Unpack[AskTerms]) -> Answer:
        """Return the answer."""
        ...

    def price(self, question: Builder, **terms: Unpack[PriceTerms]) -> Price:
        """Return the price."""
        ...


class Steps(OfTables):
    """Every step of building a question; each returns a new Builder."""

    def where(self, *conditions: Condition | Column, **columns: object) -> Builder:
        """Narrow: a value, a list, a (low, high) pair with None for open, None for null."""
        made = [condition(one) for one in conditions]
        made += [of_column(name, value) for name, value in columns.items()]
        begun = self.begun()
        return replace(begun, conditions=begun.conditions + tuple(made))

    def group_by(self, *keys: Of, **named: Of | Condition) -> Builder:
        """Ask for each key: `group_by("zip", decade=col("age") // 10, old=col("age") >= 65)`."""
        made = [(_name(key), expr_of(key)) for key in keys]
        made += [
            (n, truth_of(k.predicate) if isinstance(k, Condition) else expr_of(k))
            for n, k in named.items()
        ]
        begun = self.begun()
        return replace(begun, keys=begun.keys + tuple(made))

    def at_most(self, *, groups: int | None = None, rows: int | None = None) -> Builder:
        """Bound a person's part: groups a person, rows a person and group."""
        begun = self.begun()
        return replace(
            begun,
            groups=begun.groups if groups is None else groups,
            rows=begun.rows if rows is None else rows,
        )

    def count(self, of: Of | Condition | None = None, *, name: str | None = None) -> Builder:
        """Ask for the number of rows, of values, or of rows for which a condition holds."""
        if of is None:
            return self._with(name or "count", Aggregate("count"))
        if isinstance(of, Condition):
            return self._of("count_values", "count", Column(one_where(of.predicate)), name)
        return self._of("count_values", "count", of, name)

    def people(
        self, where: Condition | Column | None = None, *, name: str | None = None
    ) -> Builder:
        """Ask for the number of people, or of those who have a row for which a condition holds."""
        if where is None:
            return self._with(name or "people", Aggregate("count_people"))
        once = Constant.of(0), Constant.of(1)
        of = Aggregate("sum", (one_where(condition(where)),), within=once)
        return self._with(name or "people", of)

    def running_count(self, *, name: str | None = None) -> Builder:
        """Ask for the number of rows from the first period on, along the last period grouped by."""
        return self._with(name or "running_count", Aggregate("running_count"))

    def distinct(self, of: Of, *, most: int | None = None, name: str | None = None) -> Builder:
        """Ask for the number of different values; at most `most` of a person count."""
        aggregate = Aggregate("count_distinct", (expr_of(of),), most=most)
        return self._with(name or f"distinct_{_name(of)}", aggregate)

    def sum(
        self, of: Of, *, within: tuple[Number, Number] | None = None, name: str | None = None
    ) -> Builder:
        """Ask for a sum; `within` clamps each person's sum of a group instead of their rows."""
        ends = None if within is None else ends_of(within)
        return self._with(name or f"sum_{_name(of)}", Aggregate("sum", (expr_of(of),), within=ends))

    def mean(self, of: Of, *, name: str | None = None) -> Builder:
        """Ask for a mean."""
        return self._of("mean", "avg", of, name)

    def variance(self, of: Of, *, name: str | None = None) -> Builder:
        """Ask for a variance (of a sample: over n - 1)."""
        return self._of("variance", "var", of, name)

    def deviation(self, of: Of, *, name: str | None = None) -> Builder:
        """Ask for a standard deviation (of a sample: over n - 1)."""
        return self._of("deviation", "stddev", of, name)

    def population_variance(self, of: Of, *, name: str | None = None) -> Builder:
        """Ask for a variance of these rows by themselves (over n)."""
        return self._of("population_variance", "var_pop", of, name)

    def population_deviation(self, of: Of, *, name: str | None = None) -> Builder:
        """Ask for a standard deviation of these rows by themselves (over n)."""
        return self._of("population_deviation", "stddev_pop", of, name)

    def population_covariance(self, y: Of, x: Of, *, name: str | None = None) -> Builder:
        """Ask for a covariance of these rows by themselves (over n)."""
        return self._of_two("population_covariance", "covar_pop", (y, x), name)

    def covariance(self, y: Of, x: Of, *, name: str | None = None) -> Builder:
        """Ask for a covariance (of a sample: over n - 1)."""
        return self._of_two("covariance", "covar", (y, x), name)

    def correlation(self, y: Of, x: Of, *, name: str | None = None) -> Builder:
        """Ask for a correlation."""
        return self._of_two("correlation", "corr", (y, x), name)

    def slope(self, y: Of, x: Of, *, name: str | None = None) -> Builder:
        """Ask for the slope of the line that fits y by x."""
        return self._of_two("slope", "slope", (y, x), name)

    def intercept(self, y: Of, x: Of, *, name: str | None = None) -> Builder:
        """Ask where the line that fits y by x meets x = 0."""
        return self._of_two("intercept", "intercept", (y, x), name)

    def median(self, of: Of, *, name: str | None = None) -> Builder:
        """Ask for a median: a point of a public grid."""
        return self.quantile(of, Fraction(1, 2), name=name or f"median_{_name(of)}")

    def quantile(self, of: Of, *at: Number, name: str | None = None) -> Builder:
        """Ask for one or more quantiles: points of a public grid."""
        built = self.begun()
        for share in at:
            asked = Aggregate("quantile", (expr_of(of),), at=share_of(share))
            called = name if name and len(at) == 1 else f"{name or 'q'}{share}_{_name(of)}"
            built = built._with(called, asked)
        return built

    def minimum(self, of: Of, *, name: str | None = None) -> Builder:
        """Ask for the smallest: a point of a public grid that leans outward."""
        return self._of("minimum", "min", of, name)

    def maximum(self, of: Of, *, name: str | None = None) -> Builder:
        """Ask for the largest: a point of a public grid that leans outward."""
        return self._of("maximum", "max", of, name)

    def top(self, of: Of, most: int = 1, *, name: str | None = None) -> Builder:
        """Ask for the most frequent values."""
        return self._with(name or f"top_{_name(of)}", Aggregate("top", (expr_of(of),), most=most))

    def bounds(self, of: Of, *, name: str | None = None) -> Builder:
        """Ask between which powers of two most values lie: what to clamp to, if none are known."""
        return self._of("bounds", "bounds", of, name)

    def first_above(self, of: Of, count: int, *, name: str | None = None) -> Builder:
        """Ask for the first of the public keys, in their order, of which so many rows there are."""
        aggregate = Aggregate("first_above", (expr_of(of),), most=count)
        return self._with(name or f"first_above_{_name(of)}", aggregate)

    def formula(self, **formulas: Column) -> Builder:
        """Reckon with numbers of the answer, by name: `formula(each=col("sum_cost") / col("n"))`.

        It is free: only the numbers that it is of are paid.
        """
        begun = self.begun()
        made = tuple(Output(name, Formula(expr_of(column))) for name, column in formulas.items())
        return replace(begun, outputs=begun.outputs + made)

    def show(self, *names: str) -> Builder:
        """Show these columns only; what else was asked for is paid all the same."""
        return replace(self.begun(), shown=names)

    def linear(self, y: str, xs: Sequence[str], **terms: Unpack[FitTerms]) -> Fit:
        """Fit y by the columns by least squares; one question, paid as any (see terms.py)."""
        from sfumato.client.regression.linear import fit_linear

        return fit_linear(self.begun(), y, xs, terms)

    def logistic(self, y: str, xs: Sequence[str], **terms: Unpack[FitTerms]) -> Fit:
        """Fit the odds of a boolean y by the columns, in a few questions that are paid together."""
        from sfumato.client.regression.logistic import fit_logistic

        return fit_logistic(self.begun(), y, xs, terms)

    def price_linear(self, y: str, xs: Sequence[str], **terms: Unpack[FitPriceTerms]) -> FitPrice:
        """Return what `linear` would cost and how far off it would be; nothing is spent."""
        from sfumato.client.regression.linear import price_linear

        return price_linear(self.begun(), y, xs, terms)

    def price_logistic(self, y: str, xs: Sequence[str], **terms: Unpack[FitPriceTerms]) -> FitPrice:
        """Return what `logistic` would cost and how far off it would be; nothing is spent."""
        from sfumato.client.regression.logistic import price_logistic

        return price_logistic(self.begun(), y, xs, terms)

    def histogram(self, of: Of, bins: int = 10, **terms: Unpack[HistogramTerms]) -> Histogram:
        """Ask for quantiles, then for the number of rows between them; both for one epsilon.

        Bins that are known beforehand need no quantiles: `group_by(col("age").bins(10))`.
        """
        from sfumato.client.histogram import histogram_of

        return histogram_of(self.begun(), of, bins, terms)

    def check_clipping(self, of: str, **terms: Unpack[FitTerms]) -> Clipping:
        """Ask how much of a column lies at its bounds, and whom `max_rows` cuts; paid apart."""
        from sfumato.client.clipping import clipping_of

        return clipping_of(self.begun(), of, terms)

    def having(self, *conditions: Condition) -> Builder:
        """Keep released rows only: conditions on columns of the answer, by name."""
        begun = self.begun()
        made = tuple(condition(one) for one in conditions)
        return replace(begun, kept=begun.kept + made)

    def order_by(self, *names: str) -> Builder:
        """Sort released rows by columns of the answer; `-name` is from the largest down."""
        begun = self.begun()
        made = tuple(order_of(name) for name in names)
        return replace(begun, order=begun.order + made)

    def limit(self, count: int) -> Builder:
        """Keep so many released rows."""
        return replace(self.begun(), most=count)

    def _of(self, verb: Verb, short: str, of: Of, name: str | None) -> Builder:
        return self._with(name or f"{short}_{_name(of)}", Aggregate(verb, (expr_of(of),)))

    def _of_two(self, verb: Verb, short: str, of: tuple[Of, Of], name: str | None) -> Builder:
        called = name or f"{short}_{_name(of[0])}_{_name(of[1])}"
        return self._with(called, Aggregate(verb, (expr_of(of[0]), expr_of(of[1]))))

    def _with(self, name: str, aggregate: Aggregate) -> Builder:
        begun = self.begun()
        return replace(begun, outputs=(*begun.outputs, Output(name, aggregate)))


@dataclass(frozen=True)
class Builder(Steps):
    """A question in the making; every step returns a new one."""

    data_set: str
    target: Target
    outputs: tuple[Output, ...] = ()
    conditions: tuple[Predicate, ...] = ()
    keys: tuple[tuple[str, Expr], ...] = ()
    groups: int | None = None
    rows: int | None = None
    source: EachPerson | None = None
    kept: tuple[Predicate, ...] = ()
    order: tuple[Order, ...] = ()
    most: int | None = None
    shown: tuple[str, ...] | None = None
    table: str = ""
    joins: tuple[Joined, ...] = ()
    beside: tuple[JoinedPeople, ...] = ()
    lookups: tuple[Joined, ...] = ()

    def __repr__(self) -> str:
        """Return what it would ask, and how it is asked."""
        names = ", ".join(one.name for one in self.outputs) or "nothing yet"
        return f"<a question of {self.data_set!r}: {names}; .price(epsilon=1) or .ask(epsilon=1)>"

    def begun(self) -> Builder:
        """Return this."""
        return self

    def question(self) -> Question:
        """Return the frozen question."""
        keys = tuple(Output(name, key) for name, key in self.keys)
        return Question(
            data_set=self.data_set,
            outputs=_shown(keys + self.outputs, self.shown),
            where=joined(self.conditions),
            group_by=tuple(key for _, key in self.keys),
            max_groups=self.groups,
            max_rows=self.rows,
            source=self.source,
            having=joined(self.kept),
            order=self.order,
            limit=self.most,
            table=self.table,
            joins=self.joins,
            beside=self.beside,
            lookups=self.lookups,
        )

    def ask(self, **terms: Unpack[AskTerms]) -> Answer:
        """Return a private answer and pay for it; asking the same again is free."""
        return self.target.ask(self, **terms)

    def price(self, **terms: Unpack[PriceTerms]) -> Price:
        """Return what asking would cost and how far off it would be; nothing is spent."""
        return self.target.price(self, **terms)


def _shown(outputs: tuple[Output, ...], names: tuple[str, ...] | None) -> tuple[Output, ...]:
    if names is None:
        return outputs
    known = [output.name for output in outputs]
    for name in names:
        if name not in known:
            raise Refused(
                "unknown-column",
                f"The answer has no column {name!r}.",
                "It has: " + ", ".join(known) + ".",
                column=name,
            )
    return tuple(replace(output, is_shown=output.name in names) for output in outputs)


def _name(of: Of) -> str:
    return of if isinstance(of, str) else "_".join(sorted(columns_of(expr_of(of)))) or "constant"
