"""Plan a query: the integers that the engine sums, and the sensitivity of each of them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Final, Literal

from sfumato.dp.json_values import Json
from sfumato.dp.mechanisms.binary_tree import Tree, tree_for_gaussian, tree_for_laplace
from sfumato.dp.mechanisms.running_count import Axis
from sfumato.dp.refusal import Bug, Refused
from sfumato.query.aggregates.aggregate import AskedAggregate, Part
from sfumato.query.aggregates.registry import aggregate_of
from sfumato.query.budget_split import wanted_of, weights_of
from sfumato.query.expression import (
    Constant,
    DateTrunc,
    Expr,
    Predicate,
    canonical_json,
    canonical_order,
    columns_of,
)
from sfumato.query.expression_json import expression_json, predicate_json
from sfumato.query.expression_text import expression_text
from sfumato.query.grouping_keys import PlanKey, plan_key
from sfumato.query.join import View, check_table_names, joined_view
from sfumato.query.measure import (
    Measure,
    PhysicalPersonColumn,
    PhysicalPersonJoin,
    PhysicalPersonTable,
    Tally,
)
from sfumato.query.model import (
    Aggregate,
    Formula,
    Output,
    Query,
    aggregate_json,
    joined_person_table_json,
    joins_json,
    source_json,
)
from sfumato.query.name_resolution import (
    ResolvedPersonTable,
    card_scope,
    in_card_spelling,
    people_tables,
    resolve_expression,
    resolved_scope,
)
from sfumato.query.postprocess.formula_rules import is_number
from sfumato.query.postprocess.having_order_limit import check_having, having_in_kinds
from sfumato.query.printing.statements import lower
from sfumato.query.public_lookup_tables import LookUp, measured
from sfumato.query.refusal_positions import with_position
from sfumato.query.size_limits import check_physical
from sfumato.query.typecheck import typecheck, typecheck_plain
from sfumato.query.typed_expression import Scope
from sfumato.query.validation import (
    checked,
    is_not_too_large,
    is_of_people,
    of_rows,
    of_source,
    tables_of_people,
)
from sfumato.vault.card.columns import Column
from sfumato.vault.card.data_card import Card

# --- Axis of a running count: a public period of GROUP BY, for each value of the other keys


def with_period_axis(question: Query) -> Query:
    """Return the query with a period for each running count to run along, or refuse."""
    if all(aggregate.verb != "running_count" for aggregate in question.aggregates):
        return question
    return replace(question, outputs=tuple(_with_period(o, question) for o in question.outputs))


def _with_period(output: Output, question: Query) -> Output:
    if not isinstance(output.of, Aggregate) or output.of.verb != "running_count":
        return output
    periods = [key for key in question.group_by if isinstance(key, DateTrunc)]
    wanted = output.of.operands or tuple(periods[-1:])
    if len(wanted) != 1 or wanted[0] not in periods:
        raise Refused(
            "not-in-language",
            "A running count needs a period in GROUP BY.",
            "Write GROUP BY date_trunc('month', day), or another unit and column.",
        )
    return replace(output, of=replace(output.of, operands=wanted))


def axis_of(keys: Sequence[PlanKey], along: Expr | None) -> Axis | None:
    """Return the axis of periods among the groups of a running count; refuse private keys.

    The tree of blocks needs a list of periods that is known before any row is read. Private keys
    would also need noise on groups that are not shown.
    """
    if along is None:
        return None
    sizes = [key.key.size for key in keys]
    unknown = [expression_text(key.of) for key in keys if key.key.size is None]
    if unknown:
        raise Refused(
            "keys-needed",
            "A running count needs public keys, and the data card declares none for "
            f"{unknown[0]!r}.",
            "Ask the owner to declare keys, or lower and upper bounds of the date.",
            column=unknown[0],
        )
    public = [size or 1 for size in sizes]
    place = [key.of for key in keys].index(along)
    return Axis(math.prod(public[:place]), public[place], math.prod(public[place + 1 :]))


# --- Per-person tables, in physical form for the engine
#
# Per-person tables join on the person only, and each is reduced before the join. A person who is in
# all of them has one row, made of that person's rows only. So the sensitivity that is claimed for
# an aggregate over such rows holds whatever other per-person tables are joined (soundness rule 12).


_KINDS: Final = {
    "count": "rows", "count_values": "values", "sum": "sum", "minimum": "min", "maximum": "max",
}  # fmt: skip


def measured_people(view: View, question: Query) -> tuple[PhysicalPersonJoin, ...]:
    """Return the query's per-person tables in order, as the engine computes them; or refuse."""
    tables = people_tables(view, question)
    for table in tables[1:]:
        is_of_people(table.view.card, table.source)
    keeps = [False, *(one.keeps_all for one in question.joined_person_tables)]
    return tuple(
        PhysicalPersonJoin(_made(table), table.view.table, table.view.joins, keeps_all)
        for table, keeps_all in zip(tables, keeps, strict=False)  # a query may have no source
    )


def _made(table: ResolvedPersonTable) -> PhysicalPersonTable:
    scope, source = card_scope(table.view), table.source
    columns = []
    for column in source.columns:
        value = None if column.of is None else typecheck_plain(column.of, scope).physical
        verbs = ("sum", "count_values") if column.verb == "mean" else (column.verb,)
        columns += [PhysicalPersonColumn(_KINDS[verb], value) for verb in verbs]  # type: ignore[arg-type]  # of a closed table
    where = None if source.where is None else resolve_expression(source.where, scope)
    return PhysicalPersonTable(where, tuple(columns), table.most_rows)


MAX_TOTAL: Final = 2**62  # no sum may exceed this, even with every row at its bound
MAX_CELLS: Final = 1_000_000
MAX_POINTS: Final = 2**16  # most points in the public list of a private choice
MAX_COUNTS: Final = 4_000_000  # most counts in all histograms of an answer together
KEYS_AT_ONCE: Final = 1_000  # private keys whose histograms are counted in one read
CHOICES: Final = ("quantile", "minimum", "maximum", "top", "bounds", "first_above")
PEOPLE: Final = Tally("people")


@dataclass(frozen=True)
class PartSensitivity:
    """A partial aggregate with its sensitivity: how much one privacy unit changes it at most."""

    part: Part
    per_cell: int
    cells: int  # most cells that one person is in
    weight: Fraction
    axis: Axis | None = None  # of a running count, which is released as sums of blocks of periods

    @property
    def l1(self) -> int:
        """Return the L1 sensitivity over all groups of the answer.

        A running count is released as sums of blocks of periods. So its sensitivity is that of all
        blocks of the tree mechanism (soundness rule 21).
        """
        if self.axis is not None:
            return self.tree("laplace").l1(self.cells, self.per_cell)
        return self.cells * self.per_cell

    @property
    def l2_squared(self) -> int:
        """Return the squared L2 sensitivity over all groups of the answer.

        A running count is released as sums of blocks of periods. So its sensitivity is that of all
        blocks of the tree mechanism.
        """
        if self.axis is not None:
            return self.tree("gaussian").l2_squared(self.cells, self.per_cell)
        return self.cells * self.per_cell**2

    def tree(self, kind: Literal["laplace", "gaussian"]) -> Tree:
        """Return the tree of blocks of periods for a running count with this kind of noise."""
        if self.axis is None:
            raise Bug("a part that does not run along anything has no blocks")
        if kind == "laplace":
            return tree_for_laplace(self.axis.periods)
        return tree_for_gaussian(self.axis.periods, self.cells)


@dataclass(frozen=True)
class Plan:
    """A checked query, ready to be priced; it depends only on the query and the card."""

    card: Card
    question: Query
    measure: Measure
    parts: tuple[PartSensitivity, ...]
    keys: tuple[PlanKey, ...]  # in canonical order
    asked: tuple[AskedAggregate, ...]  # in the order of the query's aggregates
    # cards of the views from which the further per-person tables are made
    beside: tuple[Card, ...] = ()
    lookups: tuple[LookUp, ...] = ()  # public tables joined to per-person tables

    @property
    def selects_keys(self) -> bool:
        """Check whether keys are private, so that the price includes partition selection."""
        return not self.measure.is_public

    @cached_property
    def aggregates(self) -> tuple[Aggregate, ...]:
        """Return the query's aggregates in the order of `asked`; cached, as sorting takes time."""
        return self.question.aggregates

    def asked_of(self, aggregate: Aggregate) -> AskedAggregate:
        """Return one of the query's aggregates together with the types of its operands."""
        return self.asked[self.aggregates.index(aggregate)]

    def parts_of(self, aggregate: Aggregate) -> tuple[int, ...]:
        """Return the indexes of the aggregate's partial aggregates in the plan's `parts`."""
        parts = [bounded.part for bounded in self.parts]
        return tuple(
            parts.index(p) for p in aggregate_of(aggregate.verb).parts(self.asked_of(aggregate))
        )

    def tally_of(self, place: int) -> int:
        """Return the index, in the measure's `tallies`, of the plan's partial aggregate `place`."""
        return self.measure.tallies.index(self.parts[place].part.tally)

    @property
    def has_histograms(self) -> bool:
        """Check whether the plan has histograms, from which a private choice takes its counts."""
        return any(tally.kind == "histogram" for tally in self.measure.tallies)

    def key_constants(self, cell: Sequence[object]) -> tuple[Constant, ...]:
        """Convert a group's private keys from the engine to constants for SQL's comparisons."""
        pairs = zip(self.keys, cell, strict=True)
        return tuple(key.physical(value) for key, value in pairs)

    def canonical(self) -> Json:
        """Return the canonical plan: all that decides the answer, but no output names."""
        return self._canonical

    @cached_property
    def _canonical(self) -> Json:
        question = self.question
        made: Json = {
            "people": self.card.people,
            "data_set": self.card.name,
            "version": self.card.version,
            "unit": self.card.unit,
            "table": question.table,
            "joins": joins_json(question.joins),
            "source": None if question.source is None else source_json(question.source),
            "where": None if question.where is None else predicate_json(question.where),
            "group_by": [expression_json(key.of) for key in self.keys],
            "aggregates": [aggregate_json(a) for a in self.aggregates],
            "columns": [_promise(column) for column in self._columns()],
            "reach": [_sensitivity_text(bounded) for bounded in self.parts],
            "max_groups": self.measure.max_groups,
            "max_rows": self.measure.max_rows,
            "inner_rows": None if self.measure.source is None else self.measure.source.max_rows,
        }
        if (
            question.joined_person_tables
        ):  # omitted if empty, so that digests of older plans stay the same
            made["beside"] = self._beside()
        if question.lookups:
            made["lookups"] = self._lookups()
        return made

    def digest(self) -> str:
        """Return the SHA-256 of the canonical plan.

        Plans with one digest and one price have one stored answer.
        """
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return hashlib.sha256(self._spelled.encode()).hexdigest()

    def canonical_length(self) -> int:
        """Return the length of the canonical plan as text, in characters."""
        return len(self._spelled)

    @cached_property
    def _spelled(self) -> str:
        return canonical_json(self.canonical())

    def shape(self) -> Json:
        """Return the query without its constants, which identifies all queries of the same form.

        If a query had to be stopped, the owner must allow its shape again (thaw it).
        """
        question = self.question
        wheres = [question.where, *(each.where for each in tables_of_people(question))]
        where = [w for w in wheres if w is not None]
        made: Json = {
            "data_set": self.card.name,
            "tables": [question.table, *(joined.table for joined in question.joins)],
            "columns": sorted({name for w in where for name in columns_of(w)}),
            "group_by": [sorted(columns_of(key.of)) for key in self.keys],
            "aggregates": [
                [a.verb, [sorted(columns_of(of)) for of in a.operands]] for a in self.aggregates
            ],
            "people": question.source is not None,
        }
        if question.joined_person_tables:
            beside = [
                [one.table, *(j.table for j in one.joins)] for one in question.joined_person_tables
            ]
            made["beside"] = beside
        if question.lookups:
            made["lookups"] = [joined.table for joined in question.lookups]
        return made

    def _columns(self) -> list[Column]:
        return _named(self.card, of_rows(self.question))

    def _beside(self) -> list[Json]:
        several = zip(
            self.question.joined_person_tables,
            self.measure.joined_person_tables,
            self.beside,
            strict=True,
        )
        return [
            {
                **joined_person_table_json(one),
                "columns": [_promise(column) for column in _named(card, of_source(one.each))],
                "inner_rows": made.source.max_rows,
            }
            for one, made, card in several
        ]

    def _lookups(self) -> list[Json]:
        columns = [[_promise(column) for column in one.table.columns] for one in self.lookups]
        pairs = zip(joins_json(self.question.lookups), columns, strict=True)
        return [{**joined, "columns": promised} for joined, promised in pairs]


def make_plan(card: Card, question: Query, split: Mapping[str, Fraction] | None = None) -> Plan:
    """Plan a query, or refuse; the plan depends on the query and the card, never on rows.

    `split` gives columns of the answer their shares of the price, relative to each other.
    """
    try:
        return _plan(card, question, split)
    except Refused as found:
        refused = with_position(found, card, question, _plan)
    raise refused


def _plan(card: Card, question: Query, split: Mapping[str, Fraction] | None = None) -> Plan:
    # checked before the steps that visit the whole query many times
    is_not_too_large(card, question)
    view, question = joined_view(card, question)
    check_table_names(view, question)
    question, card = with_period_axis(in_card_spelling(view, question)), view.card
    checked(card, question)
    scope = resolved_scope(view, question)
    keys = _keys(question, scope)
    if question.having is not None:
        kinds = _kinds(question, keys)
        having = having_in_kinds(question.having, kinds)
        check_having(having, kinds)
        question = replace(question, having=having)
    groups, rows = _bounds(card, question, keys)
    most = rows, _points(question, keys)
    asked = tuple(
        _asked(card, question, aggregate, scope, most) for aggregate in question.aggregates
    )
    people, where = measured_people(view, question), question.where
    condition = None if where is None else resolve_expression(where, scope)
    inner = (value for one in people for value in one.source.values)
    of_asked = (value for one in asked for value in one.values)
    check_physical([condition, *inner, *of_asked, *(key.key.value for key in keys)])
    parts = tuple(
        replace(bounded, axis=axis_of(keys, bounded.part.runs_along))
        for bounded in _parts(card, asked, (groups, rows), wanted_of(question, split or {}))
    )
    tallies = [bounded.part.tally for bounded in parts]
    if any(key.key.size is None for key in keys):
        tallies.append(PEOPLE)
    measure = Measure(
        where=condition,
        keys=tuple(key.key for key in keys),
        tallies=tuple(dict.fromkeys(tallies)),
        by_person=card.by_person,
        max_groups=groups,
        max_rows=rows,
        source=people[0].source if people else None,
        table=view.table,
        joins=view.joins,
        max_table_rows=card.limits.rows + sum(its.card.limits.rows for its in view.beside),
        joined_person_tables=people[1:],
        lookups=measured(view.lookups, scope, sum(len(one.source.columns) for one in people)),
    )
    for part in (
        (measure,)
        if measure.is_public
        else (measure.without_histograms, *_of_any_key(measure, keys))
    ):
        lower(part, "duckdb")  # refuses a statement that is too long, before it is paid
    beside = tuple(its.card for its in view.beside)
    return Plan(card, question, measure, parts, keys, asked, beside, view.lookups)


def _of_any_key(measure: Measure, keys: Sequence[PlanKey]) -> list[Measure]:
    """Return the measure of the histograms for one example private key; empty without histograms.

    The example lets the planner check the SQL before any key is selected.
    """
    if all(tally.kind != "histogram" for tally in measure.tallies):
        return []
    return [measure.histograms_of((tuple(key.any_constant for key in keys),))]


def _keys(question: Query, scope: Scope) -> tuple[PlanKey, ...]:
    """Return the GROUP BY keys in canonical order, whatever their order in the query."""
    keys = [plan_key(of, typecheck(of, scope)) for of in question.group_by]
    cells = math.prod(key.key.size or 1 for key in keys)
    if cells > MAX_CELLS:
        raise Refused(
            "question-too-large",
            f"The columns of GROUP BY make {cells:,} groups (cells), and at most {MAX_CELLS:,} "
            "are allowed.",
            "Group by fewer columns.",
        )
    return tuple(sorted(keys, key=lambda key: canonical_order(key.of)))


def _kinds(question: Query, keys: Sequence[PlanKey]) -> dict[str, str]:
    """Return the kind of each released output: number, text, boolean or list."""
    of_keys = {key.of: key.shown_kind for key in keys}
    kinds: dict[str, str] = {}
    for output in question.outputs:
        if isinstance(output.of, Aggregate | Formula):
            kinds[output.name] = "number" if is_number(output) else "list"
        else:
            kinds[output.name] = of_keys[output.of]
    return kinds


def _bounds(card: Card, question: Query, keys: Sequence[PlanKey]) -> tuple[int, int]:
    if not card.by_person or question.source is not None:
        return 1, 1
    # nobody is in more groups than they have rows, and further rows were dropped when prepared
    groups = question.max_groups or min(card.max_groups, card.limits.rows_per_person)
    if all(key.key.size is not None for key in keys):
        groups = min(groups, math.prod(key.key.size or 1 for key in keys))
    return groups, question.max_rows or card.max_rows


def _points(question: Query, keys: Sequence[PlanKey]) -> int:
    """Return the most points that a private choice's public list may have, to fit in memory.

    All histograms of an answer have at most 4,000,000 counts (MAX_COUNTS). Histograms of private
    keys are read for 1,000 keys at a time (KEYS_AT_ONCE), so their size does not depend on rows.
    """
    choices = sum(aggregate.verb in CHOICES for aggregate in question.aggregates)
    cells = math.prod(key.key.size or 1 for key in keys)
    if any(key.key.size is None for key in keys):
        cells = KEYS_AT_ONCE
    return max(1, min(MAX_POINTS, MAX_COUNTS // (cells * max(choices, 1))))


def _asked(
    card: Card, question: Query, aggregate: Aggregate, scope: Scope, most: tuple[int, int]
) -> AskedAggregate:
    asked = AskedAggregate(
        card,
        aggregate,
        tuple(typecheck_plain(of, scope) for of in aggregate.operands),
        max_rows=most[0],
        max_points=most[1],
        is_of_people=question.source is not None,
    )
    aggregate_of(aggregate.verb).check(asked)
    return asked


def _parts(
    card: Card,
    every: Sequence[AskedAggregate],
    bounds: tuple[int, int],
    wanted: Mapping[Aggregate, Fraction],
) -> tuple[PartSensitivity, ...]:
    used = [(asked.aggregate, aggregate_of(asked.aggregate.verb).parts(asked)) for asked in every]
    weights = weights_of(used, wanted)
    return tuple(_sensitivity_of(card, part, *bounds, weight) for part, weight in weights.items())


def _sensitivity_of(
    card: Card, part: Part, groups: int, rows: int, weight: Fraction
) -> PartSensitivity:
    if card.limits.rows * max(part.per_row, part.per_person or 1, 1) >= MAX_TOTAL:
        raise Refused(
            "noise-out-of-range",
            "The column's step is too fine, or the data card's limits.rows too large, for an "
            "exact sum.",
            "Ask the owner for a coarser step or a lower limits.rows.",
        )
    per_cell = part.per_row * rows if part.per_person is None else part.per_person
    return PartSensitivity(part, per_cell, groups, weight)


def _sensitivity_text(bounded: PartSensitivity) -> list[str | int]:
    made: list[str | int] = [bounded.part.tally.kind, bounded.cells, bounded.per_cell]
    return made if bounded.axis is None else [*made, bounded.axis.periods]


def _named(card: Card, values: Sequence[Expr | Predicate]) -> list[Column]:
    """Return, in the card's order, the columns that these expressions and conditions use."""
    names = {name for value in values for name in columns_of(value)}
    return [column for column in card.columns if column.name in names]


def _promise(column: Column) -> Json:
    return {
        "column": column.name,
        "type": column.type,
        "lower": column.lower,
        "upper": column.upper,
        "step": str(column.step),
        "keys": None if column.keys is None else [key.text for key in column.keys],
    }
