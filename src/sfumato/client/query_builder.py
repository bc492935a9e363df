"""The Python builder: questions without SQL, of the same closed language and the same power."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol, Unpack

from sfumato.client.ask_terms import (
    AskTerms,
    Number,
    PriceTerms,
    Receipted,
    Sized,
    named_terms,
    no_question_term,
)  # fmt: skip
from sfumato.client.column_expressions import Column, Condition, condition, expr_of
from sfumato.client.compound import CompoundSteps, Of
from sfumato.client.conditions import ends_of, joined, of_column, order_of, share_of
from sfumato.dp.refusal import Refused
from sfumato.query.expression import (
    Constant,
    Expr,
    Predicate,
    columns_of,
    one_where,
    truth_of,
)
from sfumato.query.model import (
    Aggregate,
    EachPerson,
    Formula,
    Joined,
    JoinedPeople,
    Order,
    Output,
    Query,
    Verb,
)

if TYPE_CHECKING:
    from sfumato.client.answer import Answer
    from sfumato.client.display import Budget, CardView, Price


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


class Steps(CompoundSteps):
    """Every step of building a question; each returns a new Builder."""

    def where(self, *conditions: Condition | Column, **columns: object) -> Builder:
        """Keep only the rows for which all the conditions hold.

        Args:
            *conditions: Conditions such as `col("age") >= 65`, or a boolean column.
            **columns: A column's name, and what it is to be: a value, a list of values, a
                (low, high) pair in which None is an open end, or None for null.

        Returns:
            The question, with these conditions too.

        Raises:
            Refused: `not-in-language` if a condition is none.
        """
        made = [condition(one) for one in conditions]
        made += [of_column(name, value) for name, value in columns.items()]
        begun = self.begun()
        return replace(begun, conditions=begun.conditions + tuple(made))

    def group_by(self, *keys: Of, **named: Of | Condition) -> Builder:
        """Ask for each key: `group_by("zip", decade=col("age") // 10, old=col("age") >= 65)`.

        Args:
            *keys: Columns to group by.
            **named: A name for the key, and the expression or condition to group by.

        Returns:
            The question, grouped by these keys too.
        """
        made = [(_name(key), expr_of(key)) for key in keys]
        made += [
            (n, truth_of(k.predicate) if isinstance(k, Condition) else expr_of(k))
            for n, k in named.items()
        ]
        begun = self.begun()
        return replace(begun, keys=begun.keys + tuple(made))

    def at_most(self, *, groups: int | None = None, rows: int | None = None) -> Builder:
        """Set the contribution bounds: in how many groups, and with how many rows, a person counts.

        Args:
            groups: How many groups a person counts in at most; the card's, if left out.
            rows: With how many rows a person counts at most, in each group; the card's, if left
                out.

        Returns:
            The question, with these bounds.
        """
        begun = self.begun()
        return replace(
            begun,
            groups=begun.groups if groups is None else groups,
            rows=begun.rows if rows is None else rows,
        )

    def count(self, of: Of | Condition | None = None, *, name: str | None = None) -> Builder:
        """Ask for the number of rows, of values, or of rows for which a condition holds.

        Args:
            of: A column whose values (not nulls) are counted, or a condition; rows, if left out.
            name: What the column of the answer is called; by default "count" or "count_COLUMN".

        Returns:
            The question, with this asked too.
        """
        if of is None:
            return self._with(name or "count", Aggregate("count"))
        if isinstance(of, Condition):
            return self._of("count_values", "count", Column(one_where(of.predicate)), name)
        return self._of("count_values", "count", of, name)

    def people(
        self, where: Condition | Column | None = None, *, name: str | None = None
    ) -> Builder:
        """Ask for the number of people, or of those who have a row for which a condition holds.

        Args:
            where: The condition; everybody counts, if left out.
            name: What the column of the answer is called; by default "people".

        Returns:
            The question, with this asked too.
        """
        if where is None:
            return self._with(name or "people", Aggregate("count_people"))
        once = Constant.of(0), Constant.of(1)
        of = Aggregate("sum", (one_where(condition(where)),), within=once)
        return self._with(name or "people", of)

    def running_count(self, *, name: str | None = None) -> Builder:
        """Ask for the cumulative number of rows, along the period that is the last key.

        Args:
            name: What the column of the answer is called; by default "running_count".

        Returns:
            The question, with this asked too.
        """
        return self._with(name or "running_count", Aggregate("running_count"))

    def distinct(self, of: Of, *, most: int | None = None, name: str | None = None) -> Builder:
        """Ask for the number of different values.

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            most: The contribution bound: how many values of a person count at most.
            name: What the column of the answer is called; by default "distinct_COLUMN".

        Returns:
            The question, with this asked too.
        """
        aggregate = Aggregate("count_distinct", (expr_of(of),), most=most)
        return self._with(name or f"distinct_{_name(of)}", aggregate)

    def sum(
        self, of: Of, *, within: tuple[Number, Number] | None = None, name: str | None = None
    ) -> Builder:
        """Ask for a sum.

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            within: (lower, upper): clamp each person's sum in a group to these bounds, instead of
                clamping their rows to the card's.
            name: What the column of the answer is called; by default "sum_COLUMN".

        Returns:
            The question, with this asked too.
        """
        ends = None if within is None else ends_of(within)
        return self._with(name or f"sum_{_name(of)}", Aggregate("sum", (expr_of(of),), within=ends))

    def mean(self, of: Of, *, name: str | None = None) -> Builder:
        """Ask for a mean.

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            name: What the column of the answer is called; by default "avg_COLUMN".

        Returns:
            The question, with this asked too.
        """
        return self._of("mean", "avg", of, name)

    def variance(self, of: Of, *, name: str | None = None) -> Builder:
        """Ask for a sample variance (divided by n - 1).

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            name: What the column of the answer is called; by default "var_COLUMN".

        Returns:
            The question, with this asked too.
        """
        return self._of("variance", "var", of, name)

    def deviation(self, of: Of, *, name: str | None = None) -> Builder:
        """Ask for a sample standard deviation (divided by n - 1).

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            name: What the column of the answer is called; by default "stddev_COLUMN".

        Returns:
            The question, with this asked too.
        """
        return self._of("deviation", "stddev", of, name)

    def population_variance(self, of: Of, *, name: str | None = None) -> Builder:
        """Ask for a population variance (divided by n).

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            name: What the column of the answer is called; by default "var_pop_COLUMN".

        Returns:
            The question, with this asked too.
        """
        return self._of("population_variance", "var_pop", of, name)

    def population_deviation(self, of: Of, *, name: str | None = None) -> Builder:
        """Ask for a population standard deviation (divided by n).

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            name: What the column of the answer is called; by default "stddev_pop_COLUMN".

        Returns:
            The question, with this asked too.
        """
        return self._of("population_deviation", "stddev_pop", of, name)

    def population_covariance(self, y: Of, x: Of, *, name: str | None = None) -> Builder:
        """Ask for a population covariance (divided by n).

        Args:
            y: The one column, or an expression of columns.
            x: The other column, or an expression of columns.
            name: What the column of the answer is called; by default "covar_pop_Y_X".

        Returns:
            The question, with this asked too.
        """
        return self._of_two("population_covariance", "covar_pop", (y, x), name)

    def covariance(self, y: Of, x: Of, *, name: str | None = None) -> Builder:
        """Ask for a sample covariance (divided by n - 1).

        Args:
            y: The one column, or an expression of columns.
            x: The other column, or an expression of columns.
            name: What the column of the answer is called; by default "covar_Y_X".

        Returns:
            The question, with this asked too.
        """
        return self._of_two("covariance", "covar", (y, x), name)

    def correlation(self, y: Of, x: Of, *, name: str | None = None) -> Builder:
        """Ask for a correlation coefficient.

        Args:
            y: The one column, or an expression of columns.
            x: The other column, or an expression of columns.
            name: What the column of the answer is called; by default "corr_Y_X".

        Returns:
            The question, with this asked too.
        """
        return self._of_two("correlation", "corr", (y, x), name)

    def slope(self, y: Of, x: Of, *, name: str | None = None) -> Builder:
        """Ask for the slope of the least-squares line of y on x.

        Args:
            y: The one column, or an expression of columns.
            x: The other column, or an expression of columns.
            name: What the column of the answer is called; by default "slope_Y_X".

        Returns:
            The question, with this asked too.
        """
        return self._of_two("slope", "slope", (y, x), name)

    def intercept(self, y: Of, x: Of, *, name: str | None = None) -> Builder:
        """Ask for the intercept of the least-squares line of y on x.

        Args:
            y: The one column, or an expression of columns.
            x: The other column, or an expression of columns.
            name: What the column of the answer is called; by default "intercept_Y_X".

        Returns:
            The question, with this asked too.
        """
        return self._of_two("intercept", "intercept", (y, x), name)

    def median(self, of: Of, *, name: str | None = None) -> Builder:
        """Ask for a median: a point of a public grid, and never a value of a row.

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            name: What the column of the answer is called; by default "median_COLUMN".

        Returns:
            The question, with this asked too.
        """
        return self.quantile(of, Fraction(1, 2), name=name or f"median_{_name(of)}")

    def quantile(self, of: Of, *at: Number, name: str | None = None) -> Builder:
        """Ask for one or more quantiles: points of a public grid, and never values of rows.

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            *at: The shares of the quantiles, from 0 to 1: `0.25, 0.5, 0.75`.
            name: What the column of the answer is called; of several, it stands before each
                share. By default "qSHARE_COLUMN".

        Returns:
            The question, with this asked too.
        """
        built = self.begun()
        for share in at:
            asked = Aggregate("quantile", (expr_of(of),), at=share_of(share))
            called = name if name and len(at) == 1 else f"{name or 'q'}{share}_{_name(of)}"
            built = built._with(called, asked)
        return built

    def minimum(self, of: Of, *, name: str | None = None) -> Builder:
        """Ask for a minimum: a point of a public grid, biased outwards.

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            name: What the column of the answer is called; by default "min_COLUMN".

        Returns:
            The question, with this asked too.
        """
        return self._of("minimum", "min", of, name)

    def maximum(self, of: Of, *, name: str | None = None) -> Builder:
        """Ask for a maximum: a point of a public grid, biased outwards.

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            name: What the column of the answer is called; by default "max_COLUMN".

        Returns:
            The question, with this asked too.
        """
        return self._of("maximum", "max", of, name)

    def top(self, of: Of, most: int = 1, *, name: str | None = None) -> Builder:
        """Ask for the most frequent values.

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            most: How many values.
            name: What the column of the answer is called; by default "top_COLUMN".

        Returns:
            The question, with this asked too.
        """
        return self._with(name or f"top_{_name(of)}", Aggregate("top", (expr_of(of),), most=most))

    def bounds(self, of: Of, *, name: str | None = None) -> Builder:
        """Ask between which powers of two most values lie: bounds for clamping, if none are known.

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            name: What the column of the answer is called; by default "bounds_COLUMN".

        Returns:
            The question, with this asked too.
        """
        return self._of("bounds", "bounds", of, name)

    def first_above(self, of: Of, count: int, *, name: str | None = None) -> Builder:
        """Ask for the first public key, in their order, that has at least so many rows.

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            count: How many rows the key has to have.
            name: What the column of the answer is called; by default "first_above_COLUMN".

        Returns:
            The question, with this asked too.
        """
        aggregate = Aggregate("first_above", (expr_of(of),), most=count)
        return self._with(name or f"first_above_{_name(of)}", aggregate)

    def formula(self, **formulas: Column) -> Builder:
        """Compute with numbers of the answer: `formula(each=col("sum_cost") / col("n"))`.

        It is post-processing, so it costs nothing: only the numbers that it uses are paid.

        Args:
            **formulas: A name for the new column, and its expression of columns of the answer.

        Returns:
            The question, with these columns too.
        """
        begun = self.begun()
        made = tuple(Output(name, Formula(expr_of(column))) for name, column in formulas.items())
        return replace(begun, outputs=begun.outputs + made)

    def show(self, *names: str) -> Builder:
        """Show these columns only; what else was asked for is paid all the same.

        Args:
            *names: Names of columns of the answer.

        Returns:
            The question, whose answer has these columns.
        """
        return replace(self.begun(), shown=names)

    def having(self, *conditions: Condition) -> Builder:
        """Keep only the released rows for which all the conditions hold (HAVING).

        Args:
            *conditions: Conditions on columns of the answer: `col("n") > 100`.

        Returns:
            The question, with these conditions too.
        """
        begun = self.begun()
        made = tuple(condition(one) for one in conditions)
        return replace(begun, kept=begun.kept + made)

    def order_by(self, *names: str) -> Builder:
        """Sort the released rows by columns of the answer.

        Args:
            *names: Names of columns; `-name` sorts from the largest down.

        Returns:
            The question, sorted by these columns too.
        """
        begun = self.begun()
        made = tuple(order_of(name) for name in names)
        return replace(begun, order=begun.order + made)

    def limit(self, count: int) -> Builder:
        """Keep the first released rows.

        Args:
            count: How many rows.

        Returns:
            The question, with this limit.
        """
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

    def question(self) -> Query:
        """Return the question as a frozen value."""
        keys = tuple(Output(name, key) for name, key in self.keys)
        return Query(
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

    @named_terms(no_question_term)
    def ask(  # noqa: PLR0913  # the terms of a question
        self,
        *,
        epsilon: Number | None = None,
        error: Mapping[str, Number] | None = None,
        delta: Number | None = None,
        people: int | Sized | None = None,
        max_groups: int | None = None,
        max_rows: int | None = None,
        split: Mapping[str, Number] | None = None,
        top_up: Receipted | str | None = None,
        op: str | None = None,
        fresh: bool | None = None,
    ) -> Answer:
        """Return a private answer and pay for it; asking the same again is free.

        Args:
            epsilon: The price of the whole request. Give this or `error`.
            error: The half-width of the 95 % interval that you want, by column of the answer:
                `{"n": 5}`. The price follows from it.
            delta: What may be spent of delta where that buys less noise; 0 asks for pure noise.
                If left out, it is the card's `delta_per_request`.
            people: The size of a group, for the error of a mean: your guess, or a released count.
            max_groups: The contribution bound on groups: a person counts in so many at most.
            max_rows: The contribution bound on rows: a person counts with so many at most in each
                group.
            split: Each column's share of the price, relative to the other columns: `{"n": 3}`.
            top_up: Your earlier answer, or its operation id. It is made more precise, and you pay
                the difference to `epsilon`.
            op: Your own id of the request. A retry with the same id pays once.
            fresh: Draw new noise and pay in full, also if the answer is stored.

        Returns:
            The noisy values with their 95 % intervals, and the receipt.

        Raises:
            Refused: `budget-exceeded` if less is left than the price; `bad-budget` without a
                usable `epsilon` or `error`; or the code of what the question does not allow
                (`unknown-column`, `no-bounds`, `keys-needed`, `not-in-language`, ...).
        """
        terms = AskTerms(
            epsilon=epsilon, error=error, delta=delta, people=people, max_groups=max_groups,
            max_rows=max_rows, split=split, top_up=top_up, op=op, fresh=fresh,
        )  # fmt: skip
        return self.target.ask(self, **terms)

    @named_terms(no_question_term)
    def price(  # noqa: PLR0913  # the terms of a question
        self,
        *,
        epsilon: Number | None = None,
        error: Mapping[str, Number] | None = None,
        delta: Number | None = None,
        people: int | Sized | None = None,
        max_groups: int | None = None,
        max_rows: int | None = None,
        split: Mapping[str, Number] | None = None,
        top_up: Receipted | str | None = None,
        op: str | None = None,
        fresh: bool | None = None,
    ) -> Price:
        """Return what asking would cost and how far off the answer would be; nothing is spent.

        Args:
            epsilon: The price of the whole request. Give this or `error`.
            error: The half-width of the 95 % interval that you want, by column of the answer:
                `{"n": 5}`. The price follows from it.
            delta: What may be spent of delta where that buys less noise; 0 asks for pure noise.
                If left out, it is the card's `delta_per_request`.
            people: The size of a group, for the error of a mean: your guess, or a released count.
            max_groups: The contribution bound on groups: a person counts in so many at most.
            max_rows: The contribution bound on rows: a person counts with so many at most in each
                group.
            split: Each column's share of the price, relative to the other columns: `{"n": 3}`.
            top_up: Your earlier answer, or its operation id. It is made more precise, and you pay
                the difference to `epsilon`.
            op: Taken so that the arguments of `ask` fit here; it changes no price.
            fresh: Price new noise, also if the answer is stored.

        Returns:
            The price, the error to expect, other prices beside it, and whether it fits what is
            left.

        Raises:
            Refused: The code with which `ask` would refuse the question.
        """
        del op
        terms = PriceTerms(
            epsilon=epsilon, error=error, delta=delta, people=people, max_groups=max_groups,
            max_rows=max_rows, split=split, top_up=top_up, fresh=fresh,
        )  # fmt: skip
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
