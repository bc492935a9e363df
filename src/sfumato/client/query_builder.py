"""The query builder: write questions in Python, in the same query language as SQL."""

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
from sfumato.client.conditions import clamping_bounds, conjunction, of_column, order_of, share_of
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
    Formula,
    Joined,
    JoinedPersonTable,
    Order,
    Output,
    PersonTable,
    Query,
    Verb,
)

if TYPE_CHECKING:
    from sfumato.client.answer import Answer
    from sfumato.client.display import Budget, CardView, Price


class Target(Protocol):
    """The interface of a data set, to which a built question is sent."""

    @property
    def card(self) -> CardView:
        """Return the data card of the data set."""
        ...

    @property
    def budget(self) -> Budget:
        """Return the privacy budget of the data set: cap, spent and left."""
        ...

    def ask(self, question: Builder, **terms: Unpack[AskTerms]) -> Answer:
        """Answer a question about the data set, and charge its price."""
        ...

    def price(self, question: Builder, **terms: Unpack[PriceTerms]) -> Price:
        """Return the price of a question and the errors to expect; nothing is spent."""
        ...


class Steps(CompoundSteps):
    """The steps that build a question; each returns a new Builder."""

    def where(self, *conditions: Condition | Column, **columns: object) -> Builder:
        """Keep only the rows for which all conditions are true (WHERE).

        Args:
            *conditions: Conditions such as `col("age") >= 65`, or a boolean column.
            **columns: A column's name, and the values to keep: a value, a list of values, a
                (low, high) pair in which None is an open end, or None for null.

        Returns:
            The question, with these conditions added.

        Raises:
            Refused: `not-in-language` if an argument is not a condition.
        """
        made = [condition(one) for one in conditions]
        made += [of_column(name, value) for name, value in columns.items()]
        begun = self.builder()
        return replace(begun, conditions=begun.conditions + tuple(made))

    def group_by(self, *keys: Of, **named: Of | Condition) -> Builder:
        """Group by keys: `group_by("zip", decade=col("age") // 10, old=col("age") >= 65)`.

        Args:
            *keys: Columns to group by.
            **named: A name for the key, and the expression or condition to group by.

        Returns:
            The question, with these keys added.

        Raises:
            Refused: `not-in-language` for a condition without a name, or a key that is neither a
                column's name nor an expression.
        """
        made = [(_name(key), expr_of(key)) for key in keys]
        made += [
            (n, truth_of(k.predicate) if isinstance(k, Condition) else expr_of(k))
            for n, k in named.items()
        ]
        begun = self.builder()
        return replace(begun, keys=begun.keys + tuple(made))

    def at_most(self, *, groups: int | None = None, rows: int | None = None) -> Builder:
        """Set the contribution bounds: how many groups, and rows per group, a person counts in.

        Args:
            groups: How many groups a person counts in at most; the card's, if left out.
            rows: How many rows of a person count in each group at most; the card's, if left out.

        Returns:
            The question, with these bounds.
        """
        begun = self.builder()
        return replace(
            begun,
            groups=begun.groups if groups is None else groups,
            rows=begun.rows if rows is None else rows,
        )

    def count(self, of: Of | Condition | None = None, *, name: str | None = None) -> Builder:
        """Add a count to the question: of rows, non-null values, or rows that meet a condition.

        Args:
            of: A column, whose non-null values are counted, or a condition; rows, if left out.
            name: The name of the answer's column; by default "count" or "count_COLUMN".

        Returns:
            The question, with this column added.

        Raises:
            Refused: `not-in-language` if `of` is neither a column's name, an expression nor a
                condition.
        """
        if of is None:
            return self._with(name or "count", Aggregate("count"))
        if isinstance(of, Condition):
            return self._of("count_values", "count", Column(one_where(of.predicate)), name)
        return self._of("count_values", "count", of, name)

    def people(
        self, where: Condition | Column | None = None, *, name: str | None = None
    ) -> Builder:
        """Add a count of people to the question: all, or those with a row that meets a condition.

        Args:
            where: The condition; all people count, if left out.
            name: The name of the answer's column; by default "people".

        Returns:
            The question, with this column added.

        Raises:
            Refused: `not-in-language` if `where` is not a condition.
        """
        if where is None:
            return self._with(name or "people", Aggregate("count_people"))
        once = Constant.of(0), Constant.of(1)
        of = Aggregate("sum", (one_where(condition(where)),), person_sum_bounds=once)
        return self._with(name or "people", of)

    def running_count(self, *, name: str | None = None) -> Builder:
        """Add a running count of rows to the question, along the period that is the last key.

        Args:
            name: The name of the answer's column; by default "running_count".

        Returns:
            The question, with this column added.
        """
        return self._with(name or "running_count", Aggregate("running_count"))

    def distinct(self, of: Of, *, most: int | None = None, name: str | None = None) -> Builder:
        """Add the number of distinct values of a column to the question.

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            most: The contribution bound: how many distinct values of a person count at most.
            name: The name of the answer's column; by default "distinct_COLUMN".

        Returns:
            The question, with this column added.

        Raises:
            Refused: `not-in-language` if `of` is neither a column's name nor an expression.
        """
        aggregate = Aggregate("count_distinct", (expr_of(of),), most=most)
        return self._with(name or f"distinct_{_name(of)}", aggregate)

    def sum(
        self, of: Of, *, within: tuple[Number, Number] | None = None, name: str | None = None
    ) -> Builder:
        """Add the sum of a column (SUM) to the question.

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            within: (lower, upper): clamp each person's sum in a group to these bounds, instead of
                clamping the rows to the card's bounds.
            name: The name of the answer's column; by default "sum_COLUMN".

        Returns:
            The question, with this column added.

        Raises:
            Refused: `not-in-language` if `of` is neither a column's name nor an expression, or
                `within` is not a pair of values.
        """
        ends = None if within is None else clamping_bounds(within)
        return self._with(
            name or f"sum_{_name(of)}", Aggregate("sum", (expr_of(of),), person_sum_bounds=ends)
        )

    def mean(self, of: Of, *, name: str | None = None) -> Builder:
        """Add the average of a column (AVG) to the question.

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            name: The name of the answer's column; by default "avg_COLUMN".

        Returns:
            The question, with this column added.

        Raises:
            Refused: `not-in-language` if `of` is neither a column's name nor an expression.
        """
        return self._of("mean", "avg", of, name)

    def variance(self, of: Of, *, name: str | None = None) -> Builder:
        """Add the sample variance of a column (divided by n - 1) to the question.

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            name: The name of the answer's column; by default "var_COLUMN".

        Returns:
            The question, with this column added.

        Raises:
            Refused: `not-in-language` if `of` is neither a column's name nor an expression.
        """
        return self._of("variance", "var", of, name)

    def deviation(self, of: Of, *, name: str | None = None) -> Builder:
        """Add the sample standard deviation of a column (divided by n - 1) to the question.

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            name: The name of the answer's column; by default "stddev_COLUMN".

        Returns:
            The question, with this column added.

        Raises:
            Refused: `not-in-language` if `of` is neither a column's name nor an expression.
        """
        return self._of("deviation", "stddev", of, name)

    def population_variance(self, of: Of, *, name: str | None = None) -> Builder:
        """Add the population variance of a column (divided by n) to the question.

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            name: The name of the answer's column; by default "var_pop_COLUMN".

        Returns:
            The question, with this column added.

        Raises:
            Refused: `not-in-language` if `of` is neither a column's name nor an expression.
        """
        return self._of("population_variance", "var_pop", of, name)

    def population_deviation(self, of: Of, *, name: str | None = None) -> Builder:
        """Add the population standard deviation of a column (divided by n) to the question.

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            name: The name of the answer's column; by default "stddev_pop_COLUMN".

        Returns:
            The question, with this column added.

        Raises:
            Refused: `not-in-language` if `of` is neither a column's name nor an expression.
        """
        return self._of("population_deviation", "stddev_pop", of, name)

    def population_covariance(self, y: Of, x: Of, *, name: str | None = None) -> Builder:
        """Add the population covariance of two columns (divided by n) to the question.

        Args:
            y: The first column, or an expression of columns.
            x: The second column, or an expression of columns.
            name: The name of the answer's column; by default "covar_pop_Y_X".

        Returns:
            The question, with this column added.

        Raises:
            Refused: `not-in-language` if `y` or `x` is neither a column's name nor an expression.
        """
        return self._of_two("population_covariance", "covar_pop", (y, x), name)

    def covariance(self, y: Of, x: Of, *, name: str | None = None) -> Builder:
        """Add the sample covariance of two columns (divided by n - 1) to the question.

        Args:
            y: The first column, or an expression of columns.
            x: The second column, or an expression of columns.
            name: The name of the answer's column; by default "covar_Y_X".

        Returns:
            The question, with this column added.

        Raises:
            Refused: `not-in-language` if `y` or `x` is neither a column's name nor an expression.
        """
        return self._of_two("covariance", "covar", (y, x), name)

    def correlation(self, y: Of, x: Of, *, name: str | None = None) -> Builder:
        """Add the correlation coefficient of two columns to the question.

        Args:
            y: The first column, or an expression of columns.
            x: The second column, or an expression of columns.
            name: The name of the answer's column; by default "corr_Y_X".

        Returns:
            The question, with this column added.

        Raises:
            Refused: `not-in-language` if `y` or `x` is neither a column's name nor an expression.
        """
        return self._of_two("correlation", "corr", (y, x), name)

    def slope(self, y: Of, x: Of, *, name: str | None = None) -> Builder:
        """Add the slope of the least-squares line of y on x to the question.

        Args:
            y: The first column, or an expression of columns.
            x: The second column, or an expression of columns.
            name: The name of the answer's column; by default "slope_Y_X".

        Returns:
            The question, with this column added.

        Raises:
            Refused: `not-in-language` if `y` or `x` is neither a column's name nor an expression.
        """
        return self._of_two("slope", "slope", (y, x), name)

    def intercept(self, y: Of, x: Of, *, name: str | None = None) -> Builder:
        """Add the intercept of the least-squares line of y on x to the question.

        Args:
            y: The first column, or an expression of columns.
            x: The second column, or an expression of columns.
            name: The name of the answer's column; by default "intercept_Y_X".

        Returns:
            The question, with this column added.

        Raises:
            Refused: `not-in-language` if `y` or `x` is neither a column's name nor an expression.
        """
        return self._of_two("intercept", "intercept", (y, x), name)

    def median(self, of: Of, *, name: str | None = None) -> Builder:
        """Add a median to the question; it is a point of a public grid, never the value of a row.

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            name: The name of the answer's column; by default "median_COLUMN".

        Returns:
            The question, with this column added.

        Raises:
            Refused: `not-in-language` if `of` is neither a column's name nor an expression.
        """
        return self.quantile(of, Fraction(1, 2), name=name or f"median_{_name(of)}")

    def quantile(self, of: Of, *at: Number, name: str | None = None) -> Builder:
        """Add quantiles to the question; they are points of a public grid, never values of rows.

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            *at: The probabilities of the quantiles, from 0 to 1: `0.25, 0.5, 0.75`.
            name: The name of the answer's column; for several quantiles, the prefix before each
                probability. By default "qSHARE_COLUMN".

        Returns:
            The question, with this column added.

        Raises:
            Refused: `not-in-language` if a probability is not from 0 to 1, or `of` is neither a
                column's name nor an expression.
        """
        built = self.builder()
        for share in at:
            asked = Aggregate("quantile", (expr_of(of),), at=share_of(share))
            called = name if name and len(at) == 1 else f"{name or 'q'}{share}_{_name(of)}"
            built = built._with(called, asked)
        return built

    def minimum(self, of: Of, *, name: str | None = None) -> Builder:
        """Add a minimum to the question: a point of a public grid, biased outwards.

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            name: The name of the answer's column; by default "min_COLUMN".

        Returns:
            The question, with this column added.

        Raises:
            Refused: `not-in-language` if `of` is neither a column's name nor an expression.
        """
        return self._of("minimum", "min", of, name)

    def maximum(self, of: Of, *, name: str | None = None) -> Builder:
        """Add a maximum to the question: a point of a public grid, biased outwards.

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            name: The name of the answer's column; by default "max_COLUMN".

        Returns:
            The question, with this column added.

        Raises:
            Refused: `not-in-language` if `of` is neither a column's name nor an expression.
        """
        return self._of("maximum", "max", of, name)

    def top(self, of: Of, most: int = 1, *, name: str | None = None) -> Builder:
        """Add the most frequent values of a column to the question.

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            most: How many values to return.
            name: The name of the answer's column; by default "top_COLUMN".

        Returns:
            The question, with this column added.

        Raises:
            Refused: `not-in-language` if `of` is neither a column's name nor an expression.
        """
        return self._with(name or f"top_{_name(of)}", Aggregate("top", (expr_of(of),), most=most))

    def bounds(self, of: Of, *, name: str | None = None) -> Builder:
        """Add bounds for clamping to the question: powers of two between which most values are.

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            name: The name of the answer's column; by default "bounds_COLUMN".

        Returns:
            The question, with this column added.

        Raises:
            Refused: `not-in-language` if `of` is neither a column's name nor an expression.
        """
        return self._of("bounds", "bounds", of, name)

    def first_above(self, of: Of, count: int, *, name: str | None = None) -> Builder:
        """Add to the question the first public key, in key order, that has at least `count` rows.

        Args:
            of: The column: its name, or an expression such as `col("cost") * 2`.
            count: How many rows the key needs.
            name: The name of the answer's column; by default "first_above_COLUMN".

        Returns:
            The question, with this column added.

        Raises:
            Refused: `not-in-language` if `of` is neither a column's name nor an expression.
        """
        aggregate = Aggregate("first_above", (expr_of(of),), most=count)
        return self._with(name or f"first_above_{_name(of)}", aggregate)

    def formula(self, **formulas: Column) -> Builder:
        """Compute with numbers of the answer: `formula(each=col("sum_cost") / col("n"))`.

        It is post-processing, so it is free; you pay only for the numbers that it uses.

        Args:
            **formulas: The name of each new column, and its expression of the answer's columns.

        Returns:
            The question, with these columns added.

        Raises:
            Refused: `not-in-language` for a number or a condition in place of an expression.
        """
        begun = self.builder()
        made = tuple(Output(name, Formula(expr_of(column))) for name, column in formulas.items())
        return replace(begun, outputs=begun.outputs + made)

    def show(self, *names: str) -> Builder:
        """Show only these columns; hidden columns of the answer still cost their price.

        Args:
            *names: Names of columns of the answer.

        Returns:
            The question, with only these columns shown.
        """
        return replace(self.builder(), shown=names)

    def having(self, *conditions: Condition) -> Builder:
        """Keep only the released rows for which all conditions are true (HAVING).

        Args:
            *conditions: Conditions on columns of the answer: `col("n") > 100`.

        Returns:
            The question, with these conditions added.

        Raises:
            Refused: `not-in-language` if an argument is not a condition.
        """
        begun = self.builder()
        made = tuple(condition(one) for one in conditions)
        return replace(begun, kept=begun.kept + made)

    def order_by(self, *names: str) -> Builder:
        """Sort the released rows by columns of the answer (ORDER BY).

        Args:
            *names: Names of columns; `-name` sorts from the largest down.

        Returns:
            The question, with this sort order added.

        Raises:
            Refused: `not-in-language` if an argument is not a text.
        """
        begun = self.builder()
        made = tuple(order_of(name) for name in names)
        return replace(begun, order=begun.order + made)

    def limit(self, count: int) -> Builder:
        """Keep only the first `count` released rows (LIMIT).

        Args:
            count: How many rows to keep.

        Returns:
            The question, with this limit.
        """
        return replace(self.builder(), most=count)

    def _of(self, verb: Verb, short: str, of: Of, name: str | None) -> Builder:
        return self._with(name or f"{short}_{_name(of)}", Aggregate(verb, (expr_of(of),)))

    def _of_two(self, verb: Verb, short: str, of: tuple[Of, Of], name: str | None) -> Builder:
        called = name or f"{short}_{_name(of[0])}_{_name(of[1])}"
        return self._with(called, Aggregate(verb, (expr_of(of[0]), expr_of(of[1]))))

    def _with(self, name: str, aggregate: Aggregate) -> Builder:
        begun = self.builder()
        return replace(begun, outputs=(*begun.outputs, Output(name, aggregate)))


@dataclass(frozen=True)
class Builder(Steps):
    """A question under construction, with its columns and filters; every step returns a new one."""

    data_set: str
    target: Target
    outputs: tuple[Output, ...] = ()
    conditions: tuple[Predicate, ...] = ()
    keys: tuple[tuple[str, Expr], ...] = ()
    groups: int | None = None
    rows: int | None = None
    source: PersonTable | None = None
    kept: tuple[Predicate, ...] = ()
    order: tuple[Order, ...] = ()
    most: int | None = None
    shown: tuple[str, ...] | None = None
    table: str = ""
    joins: tuple[Joined, ...] = ()
    beside: tuple[JoinedPersonTable, ...] = ()
    lookups: tuple[Joined, ...] = ()

    def __repr__(self) -> str:
        """Return the columns asked for, and how to price or ask the question."""
        names = ", ".join(one.name for one in self.outputs) or "nothing yet"
        return f"<a question of {self.data_set!r}: {names}; .price(epsilon=1) or .ask(epsilon=1)>"

    def builder(self) -> Builder:
        """Return this question itself, because it is a builder already."""
        return self

    def question(self) -> Query:
        """Return the built question as an immutable `Query`.

        Raises:
            Refused: `unknown-column` if `show` names a column that the answer lacks.
        """
        keys = tuple(Output(name, key) for name, key in self.keys)
        return Query(
            data_set=self.data_set,
            outputs=_shown(keys + self.outputs, self.shown),
            where=conjunction(self.conditions),
            group_by=tuple(key for _, key in self.keys),
            max_groups=self.groups,
            max_rows=self.rows,
            source=self.source,
            having=conjunction(self.kept),
            order=self.order,
            limit=self.most,
            table=self.table,
            joins=self.joins,
            joined_person_tables=self.beside,
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
        """Answer the question with differential privacy, and charge the budget.

        The same question asked again is free: it returns the stored answer with the same noise.

        Args:
            epsilon: The price of the whole request. Give this or `error`.
            error: The half-width of the 95 % interval that you want, by column of the answer:
                `{"n": 5}`. The price is computed from it.
            delta: The delta to spend where that buys less noise; 0 forces pure-epsilon noise. If
                left out, it is the card's `delta_per_request`.
            people: The size of a group, for the error of a mean: a guess, or a released count.
            max_groups: The contribution bound on groups: how many groups a person counts in.
            max_rows: The contribution bound on rows: how many rows of a person count in each group.
            split: Each column's share of the price, relative to the other columns: `{"n": 3}`.
            top_up: An earlier answer of yours, or its operation id. It becomes more precise, and
                you pay the difference to `epsilon`.
            op: Your own id of the request. A retry with the same id pays once.
            fresh: Draw new noise and pay in full, even if the answer is stored.

        Returns:
            The noisy values with their 95 % intervals, and the receipt.

        Raises:
            Refused: `budget-exceeded` if the price is more than what is left; `bad-budget` without
                a usable `epsilon` or `error`; or a code that says what the question may not do
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
        """Return the price of a question and the error to expect; nothing is spent.

        Args:
            epsilon: The price of the whole request. Give this or `error`.
            error: The half-width of the 95 % interval that you want, by column of the answer:
                `{"n": 5}`. The price is computed from it.
            delta: The delta to spend where that buys less noise; 0 forces pure-epsilon noise. If
                left out, it is the card's `delta_per_request`.
            people: The size of a group, for the error of a mean: a guess, or a released count.
            max_groups: The contribution bound on groups: how many groups a person counts in.
            max_rows: The contribution bound on rows: how many rows of a person count in each group.
            split: Each column's share of the price, relative to the other columns: `{"n": 3}`.
            top_up: An earlier answer of yours, or its operation id. It becomes more precise, and
                you pay the difference to `epsilon`.
            op: Accepted so that `price` takes the arguments of `ask`; it does not change the price.
            fresh: Price new noise, even if the answer is stored.

        Returns:
            The price, the error to expect, other prices with their errors, and whether the budget
            that is left covers it.

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
    named = of if isinstance(of, str) else "_".join(sorted(columns_of(expr_of(of)))) or "constant"
    return " ".join(named.split())  # a column's name may have a line end, an answer's may not
