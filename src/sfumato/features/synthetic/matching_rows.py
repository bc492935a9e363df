"""Synthetic people whose rows pass a query's filter and cover each of its groups.

They depend only on the card and the query (soundness rule 30). A row is repaired until the filter
holds: failing conditions get new values in their columns. The rows of each person are in one group
only, so no contribution bound drops them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from fractions import Fraction
from itertools import islice, product
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.features.synthetic.column_values import value_of_key, values_of
from sfumato.features.synthetic.seeded_numbers import Seeded
from sfumato.query.expression import (
    All,
    Among,
    AnyOf,
    Compare,
    Constant,
    IsNull,
    Not,
    Predicate,
    StartsWith,
    columns_of,
    walk,
)
from sfumato.query.measure import Join
from sfumato.query.model import PersonColumn, PersonTable, Query
from sfumato.query.plan import Plan, make_plan
from sfumato.query.row_evaluation import Value, constant_value, holds_on, value_on
from sfumato.query.size_limits import MAX_NODES, count_up_to
from sfumato.query.validation import of_source
from sfumato.vault.card.columns import Column
from sfumato.vault.card.data_card import Card, Table

# --- Repair of a synthetic row: change values until a condition holds


MOST_REPAIRS: Final = 200  # the most changes to a row before it is given up
_SOME: Final = 12  # the number of random values of a column to try, besides the filter's constants
_TEXTS: Final = 40
# the most condition nodes that are evaluated, which takes some seconds
MAX_EFFORT: Final = 3_000_000


class RepairLimit:
    """A limit on the work to make one synthetic twin, in evaluated nodes of conditions.

    A schema twin costs no budget that would limit the work.
    """

    def __init__(self, most: int = MAX_EFFORT) -> None:
        self._left = most

    def spend(self, parts: int) -> None:
        """Subtract a number of evaluated condition nodes from the limit.

        Refuse when the limit is passed, because other users wait.
        """
        self._left -= parts
        if self._left < 0:
            raise Refused(
                "twin-not-possible",
                "It takes too long to find synthetic rows that the data card allows and that "
                "pass this filter.",
                "Use a shorter filter, or fewer groups. The real rows were not read.",
            )


class Pools:
    """The values that the repair of a row may try in each column that the filter reads."""

    def __init__(  # the things on which a row depends
        self,
        columns: Sequence[Column],
        same: Mapping[str, str],
        wanted: Predicate | None,
        stream: Seeded,
        effort: RepairLimit,
    ) -> None:
        self.stream = stream
        self.effort = effort
        self._same = same
        self._columns = {column.name: column for column in columns}
        self._named = {} if wanted is None else _named(wanted)
        self._pools: dict[str, list[Value]] = {}

    def alike(self, row: Mapping[str, Value]) -> dict[str, Value]:
        """Return the row with equal values in all columns that the query's joins make equal."""
        return {name: row[self._root(name)] for name in row}

    def changed(self, row: Mapping[str, Value], name: str, value: Value) -> dict[str, Value]:
        """Return the row with a new value in a column, and in all columns that it is joined to."""
        root = self._root(name)
        return {other: value if self._root(other) == root else old for other, old in row.items()}

    def of(self, name: str) -> list[Value]:
        """Return the values to try in a column; values near the filter's constants come first.

        Values that the card does not allow are left out.
        """
        if name not in self._pools:
            column = self._columns[name]
            named = [v for v in self._near(column) if _is_allowed(column, v)]
            some = values_of(column, _SOME, self.stream, _TEXTS)
            keys = [value_of_key(column, key) for key in column.keys or ()]
            self._pools[name] = list(dict.fromkeys([*named, *keys, *_ends(column), *some]))
        return self._pools[name]

    def _near(self, column: Column) -> Iterator[Value]:
        for value in self._named.get(column.name, ()):
            yield value
            if isinstance(value, Fraction):
                on_grid = (value / column.step).__floor__() * column.step
                yield from (on_grid, on_grid + column.step, on_grid - column.step)
            elif isinstance(value, str) and column.type in ("date", "timestamp"):
                yield from _days_near(column, value)

    def _root(self, name: str) -> str:
        while name in self._same:
            name = self._same[name]
        return name


def repair_row(
    row: dict[str, Value], wanted: Predicate | None, pools: Pools
) -> dict[str, Value] | None:
    """Change a synthetic row until the condition holds; return None if it still does not."""
    if wanted is None:
        return row
    for _ in range(MOST_REPAIRS):
        if holds_on(wanted, row) is True:
            return row
        row = _step(row, wanted, pools, to=True)
    return None


def _step(row: dict[str, Value], wanted: Predicate, pools: Pools, *, to: bool) -> dict[str, Value]:
    """Change a synthetic row in one attempt, so that the condition evaluates to `to` on it.

    The attempt may fail; `repair_row` then tries again.
    """
    pools.effort.spend(count_up_to(MAX_NODES, [wanted]))
    if holds_on(wanted, row) is to:
        return row
    match wanted:
        case Not(predicate=inner):
            return _step(row, inner, pools, to=not to)
        case All(predicates=parts) | AnyOf(predicates=parts):
            needs_all = isinstance(wanted, All) is to
            wrong = [part for part in parts if holds_on(part, row) is not to]
            for part in wrong if needs_all else [pools.stream.one_of(wrong)]:
                row = _step(row, part, pools, to=to)
            return row
        case _:
            return _simply(row, wanted, pools, to=to)


def _simply(
    row: dict[str, Value], wanted: Predicate, pools: Pools, *, to: bool
) -> dict[str, Value]:
    names = sorted(columns_of(wanted))
    if not names:
        return row
    name = pools.stream.one_of(names)
    values, size = pools.of(name), count_up_to(MAX_NODES, [wanted])
    for place in pools.stream.order(len(values)).tolist():
        pools.effort.spend(size + len(row))
        tried = pools.changed(row, name, values[place])
        if holds_on(wanted, tried) is to:
            return tried
    return pools.changed(row, name, pools.stream.one_of(values))


def _named(wanted: Predicate) -> dict[str, list[Value]]:
    """Return, by column, the constants that the filter names, as values that may pass it.

    IS NULL gives None, and a prefix gives two texts that begin with it.
    """
    found: dict[str, list[Value]] = {}
    for part in walk(wanted):
        match part:
            case Compare(of=of, constant=constant):
                values: list[Value] = [constant_value(constant)]
            case Among(of=of, constants=constants):
                values = [constant_value(constant) for constant in constants]
            case StartsWith(of=of, letters=letters):
                values = [letters, letters + "x"]
            case IsNull(of=of):
                values = [None]
            case _:
                continue
        for name in columns_of(of):
            found.setdefault(name, []).extend(values)
    return found


def _days_near(column: Column, text: str) -> Iterator[Value]:
    """Yield a date and days near it, before and after, as values that a filter may accept."""
    try:
        day = date.fromisoformat(text[:10])
    except ValueError:
        return
    rest = text[10:] or " 00:00:00.000000"
    for days in (0, 1, -1, 3, 15, 45, 100):
        moved = (day + timedelta(days=days)).isoformat()
        yield (
            moved
            if column.type == "date"
            else moved + (rest if len(rest) == 16 else " 00:00:00.000000")
        )


def _ends(column: Column) -> list[Value]:
    if column.lower is None or column.upper is None:
        return []
    if column.is_numeric:
        return [column.lower * column.step, column.upper * column.step]
    return []


def _is_allowed(column: Column, value: Value) -> bool:
    """Return True if the data card allows the value in the column."""
    if value is None:
        return True
    if column.keys is not None:
        return value in [value_of_key(column, key) for key in column.keys]
    if column.is_numeric:
        return isinstance(value, Fraction) and _is_between(column, value)
    if column.type in ("date", "timestamp"):
        return isinstance(value, str) and _is_time(column, value)
    return isinstance(value, str)


def _is_between(column: Column, value: Fraction) -> bool:
    steps = value / column.step
    if steps.denominator != 1:
        return False
    return column.lower is None or column.upper is None or column.lower <= steps <= column.upper


def _is_time(column: Column, value: str) -> bool:
    if len(value) != (10 if column.type == "date" else 26):
        return False
    day = (date.fromisoformat(value[:10]) - date(1970, 1, 1)).days
    return column.lower is None or column.upper is None or column.lower <= day <= column.upper


MAX_GROUPS: Final = 2_000
OF_A_GROUP: Final = 3  # the number of people that are created for each group
TRIES: Final = 60  # the most attempts to create a person before the group is refused
MAX_ROWS: Final = 12  # rows of each person, if the query aggregates the rows of a person

Person = dict[str, list[dict[str, Value]]]  # table -> rows, by the names of the table's columns


@dataclass
class MatchingRows:
    """The synthetic people made so far, and the rows of public tables to which their rows refer."""

    people: list[Person] = field(default_factory=list)
    public: dict[str, dict[Value, dict[str, Value]]] = field(default_factory=dict)


def matching_rows(card: Card, question: Query, stream: Seeded) -> MatchingRows:
    """Create synthetic people for every group of a query; refuse if the card allows none."""
    plan = make_plan(card, question)
    if question.joined_person_tables or question.lookups:
        raise Refused(
            "twin-not-possible",
            "Synthetic rows need one table with one row for each person, and this question joins "
            "others to it.",
            "Make a synthetic twin for each table, or of the whole data set.",
        )
    garden = _Garden(card, plan, stream, MatchingRows())
    groups = list(islice(_groups(plan), MAX_GROUPS + 1))
    if len(groups) > MAX_GROUPS:
        raise Refused(
            "question-too-large",
            f"A synthetic twin can be made for at most {MAX_GROUPS:,} groups.",
            "Group by fewer columns, or make a twin for the filter alone.",
        )
    each = max(1, min(OF_A_GROUP, MAX_GROUPS // len(groups)))
    for group in groups:
        for _ in range(each):
            garden.plant(group)
    return garden.made


def _groups(plan: Plan) -> Iterator[tuple[Predicate, ...]]:
    """Yield the query's groups by its public keys, each as a tuple of conditions (key = value).

    Private keys are left unrestricted.
    """
    sides = [
        [Compare(key.of, "=", constant) for constant in key.keys]
        for key in plan.keys
        if key.keys is not None
    ]
    return product(*sides)


@dataclass
class _Garden:
    """The generator of synthetic people for one query: it adds a person for each group."""

    card: Card
    plan: Plan
    stream: Seeded
    made: MatchingRows
    effort: RepairLimit = field(default_factory=RepairLimit)

    def plant(self, group: Sequence[Predicate]) -> None:
        """Create a synthetic person whose rows are in the group; refuse if no attempt succeeds."""
        for _ in range(TRIES):
            rows = self._rows(group)
            if rows is not None and self._keep(rows):
                return
        raise Refused(
            "twin-not-possible",
            "No row that the data card allows passes this filter and falls into every group of "
            "the question.",
            "Widen the filter, or leave out an impossible group. The real rows were not read.",
        )

    def _rows(self, group: Sequence[Predicate]) -> list[dict[str, Value]] | None:
        """Try to make one synthetic person's joined rows in the group; return None on failure."""
        question = self.plan.question
        if question.source is None:
            row = self._row(_both(question.where, group))
            return None if row is None else [row]
        count = 1 + self.stream.integer(min(MAX_ROWS, max(1, self._most(question.source))))
        inner = [self._row(question.source.where) for _ in range(count)]
        rows = [row for row in inner if row is not None]
        if not rows:
            return None
        wanted = _both(question.where, group)
        of_all = sum(count_up_to(MAX_NODES, [v]) for v in (*of_source(question.source), *group))
        for _ in range(MOST_REPAIRS):
            self.effort.spend(of_all * len(rows))
            if wanted is None or holds_on(wanted, _reduced(question.source, rows)) is True:
                return rows
            place = self.stream.integer(len(rows))
            again = self._row(question.source.where)
            rows[place] = rows[place] if again is None else again
        return None

    def _most(self, _source: PersonTable) -> int:
        source = self.plan.measure.source
        return 1 if source is None else source.max_rows

    def _row(self, wanted: Predicate | None) -> dict[str, Value] | None:
        columns = self.plan.card.columns
        self.effort.spend(len(columns))
        start = {c.name: values_of(c, 1, self.stream, self._texts)[0] for c in columns}
        pools = Pools(columns, self._same(), wanted, self.stream, self.effort)
        made = repair_row(pools.alike(start), wanted, pools)
        return made if made is not None and self._meets(made) else None

    def _meets(self, row: Mapping[str, Value]) -> bool:
        """Return True if every inner join finds a partner for the row: none of its keys is null."""
        names = [column.name for column in self.plan.card.columns]
        return all(
            row[names[place]] is not None
            for join in self.plan.measure.joins
            if not join.keeps_all
            for place in _held_equal(join)
        )

    @property
    def _texts(self) -> int:
        return self.plan.card.limits.text_length

    def _same(self) -> Mapping[str, str]:
        """Return the earlier column that a join makes equal, for each column that has one."""
        names = [column.name for column in self.plan.card.columns]
        same: dict[int, int] = {}
        for own, before in self._equal():
            first, last = sorted((_root(same, own), _root(same, before)))
            if first != last:
                same[last] = first
        return {names[own]: names[before] for own, before in same.items()}

    def _equal(self) -> Iterator[tuple[int, int]]:
        """Yield the pairs of columns that joins compare, as indices, the later column first."""
        for join in self.plan.measure.joins:
            if join.looked_up is not None:
                yield join.start + join.key, join.looked_up
            yield from ((join.start + own, before) for before, own in join.also)

    def _keep(self, rows: Sequence[Mapping[str, Value]]) -> bool:
        """Add a synthetic person's rows to their tables, and return True.

        If a public row with the same key but other values exists, add nothing and return False.
        """
        person: Person = {}
        public: dict[str, dict[Value, dict[str, Value]]] = {}
        for row in rows:
            for table, own in self._split(row):
                if table.key is None:
                    person.setdefault(table.name, []).append(own)
                    continue
                before = self.made.public.get(table.name, {}) | public.get(table.name, {})
                if before.get(own[table.key], own) != own:
                    return False
                public.setdefault(table.name, {})[own[table.key]] = own
        for name, found in public.items():
            self.made.public.setdefault(name, {}).update(found)
        self.made.people.append(person)
        return True

    def _split(self, row: Mapping[str, Value]) -> Iterator[tuple[Table, dict[str, Value]]]:
        """Split a joined row: yield each table with its own values, by the table's column names."""
        every = self.card.every_table
        places = [self.plan.measure.table, *(join.table for join in self.plan.measure.joins)]
        values = [row[column.name] for column in self.plan.card.columns]
        start = 0
        for place in places:
            names = [column.name for column in every[place].columns]
            yield every[place], dict(zip(names, values[start : start + len(names)], strict=True))
            start += len(names)


def _held_equal(join: Join) -> list[int]:
    """Return the indices of earlier tables' columns to which a join compares its own columns."""
    before = [place for place, _ in join.also]
    return before if join.looked_up is None else [join.looked_up, *before]


def _root(same: Mapping[int, int], place: int) -> int:
    while place in same:
        place = same[place]
    return place


def _both(where: Predicate | None, group: Sequence[Predicate]) -> Predicate | None:
    parts = (*group, *(() if where is None else (where,)))
    return All(parts) if parts else None


# --- tables of people ---------------------------------------------------------------------------


def _reduced(source: PersonTable, rows: Sequence[Mapping[str, Value]]) -> dict[str, Value]:
    return {column.name: _reduce(column, rows) for column in source.columns}


def _reduce(column: PersonColumn, rows: Sequence[Mapping[str, Value]]) -> Value:
    if column.of is None:
        return Constant.of(len(rows)).number
    found = [v for v in (value_on(column.of, row) for row in rows) if v is not None]
    match column.verb:
        case "count" | "count_values":
            return Constant.of(len(found)).number
        case "sum":
            return sum((Constant.of(v).number for v in found), start=Constant.of(0).number)
        case "mean":
            numbers = [Constant.of(v).number for v in found]
            return sum(numbers, start=Constant.of(0).number) / len(numbers) if numbers else None
        case "minimum":
            return min(found, default=None, key=_rank)
        case "maximum":
            return max(found, default=None, key=_rank)


def _rank(value: Value) -> tuple[bool, object]:
    return (isinstance(value, str), value)
