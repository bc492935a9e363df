"""Made-up people whose rows pass a question's filters and fall into each of its groups.

Made from the card and the question alone (soundness rule 30). A filter is repaired like a formula:
what does not hold is mended by another value of one of its columns, until all of it holds. Each
planted person has the rows of one group only, so no bound on a person's groups takes them away
again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.features.synthetic.column_values import values_of
from sfumato.features.synthetic.row_repair import MEND, Pools, RepairLimit, repair_row
from sfumato.features.synthetic.seeded_numbers import Seeded
from sfumato.query.expression import All, Compare, Constant, Predicate
from sfumato.query.measure import Join
from sfumato.query.model import EachPerson, Query, Reduce
from sfumato.query.plan import Plan, make_plan
from sfumato.query.row_conditions import Value, holds_on, value_on
from sfumato.query.size_limits import MAX_NODES, count_up_to
from sfumato.query.validation import of_source
from sfumato.vault.card.data_card import Card, Table

MOST_GROUPS: Final = 2_000
OF_A_GROUP: Final = 3  # people planted for each group
TRIES: Final = 60  # before a group is said to be out of reach
MOST_ROWS: Final = 12  # of a planted person, where a question reads all rows of each

Person = dict[str, list[dict[str, Value]]]  # table -> rows, by the names of the table's columns


@dataclass
class MatchingRows:
    """What has been made so far: people, and public rows by table and key."""

    people: list[Person] = field(default_factory=list)
    public: dict[str, dict[Value, dict[str, Value]]] = field(default_factory=dict)


def matching_rows(card: Card, question: Query, stream: Seeded) -> MatchingRows:
    """Return people for every group that the question answers; or refuse: the card allows none."""
    plan = make_plan(card, question)
    if question.beside or question.lookups:
        raise Refused(
            "twin-not-possible",
            "Rows are made up for one table with one row for each person, and this question has "
            "others beside it.",
            "Make a twin for each of them, or of the whole data set.",
        )
    garden = _Garden(card, plan, stream, MatchingRows())
    groups = list(islice(_groups(plan), MOST_GROUPS + 1))
    if len(groups) > MOST_GROUPS:
        raise Refused(
            "question-too-large",
            f"A twin can be made for {MOST_GROUPS:,} groups at most.",
            "Group by fewer columns, or make a twin for the filter alone.",
        )
    each = max(1, min(OF_A_GROUP, MOST_GROUPS // len(groups)))
    for group in groups:
        for _ in range(each):
            garden.plant(group)
    return garden.made


def _groups(plan: Plan) -> Iterator[tuple[Predicate, ...]]:
    """Yield what holds in each group: its public keys; private keys are any."""
    sides = [
        [Compare(key.of, "=", constant) for constant in key.keys]
        for key in plan.keys
        if key.keys is not None
    ]
    return product(*sides)


@dataclass
class _Garden:
    """One question's groups, and what has been planted for them."""

    card: Card
    plan: Plan
    stream: Seeded
    made: MatchingRows
    effort: RepairLimit = field(default_factory=RepairLimit)

    def plant(self, group: Sequence[Predicate]) -> None:
        """Plant one person of the group, or refuse."""
        for _ in range(TRIES):
            rows = self._rows(group)
            if rows is not None and self._keep(rows):
                return
        raise Refused(
            "twin-not-possible",
            "No row that the card allows was found that passes this filter and falls into every "
            "group of the question.",
            "Widen the filter, or ask without a group that cannot be; the rows were not looked at.",
        )

    def _rows(self, group: Sequence[Predicate]) -> list[dict[str, Value]] | None:
        """Return rows of one person, as the joined tables have them, that fall into the group."""
        question = self.plan.question
        if question.source is None:
            row = self._row(_both(question.where, group))
            return None if row is None else [row]
        count = 1 + self.stream.integer(min(MOST_ROWS, max(1, self._most(question.source))))
        inner = [self._row(question.source.where) for _ in range(count)]
        rows = [row for row in inner if row is not None]
        if not rows:
            return None
        wanted = _both(question.where, group)
        of_all = sum(count_up_to(MAX_NODES, [v]) for v in (*of_source(question.source), *group))
        for _ in range(MEND):
            self.effort.spend(of_all * len(rows))
            if wanted is None or holds_on(wanted, _reduced(question.source, rows)) is True:
                return rows
            place = self.stream.integer(len(rows))
            again = self._row(question.source.where)
            rows[place] = rows[place] if again is None else again
        return None

    def _most(self, _source: EachPerson) -> int:
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
        """Say whether its tables meet: null equals nothing."""
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
        """Return which column of a joined table equals which column before it."""
        names = [column.name for column in self.plan.card.columns]
        same: dict[int, int] = {}
        for own, before in self._equal():
            first, last = sorted((_root(same, own), _root(same, before)))
            if first != last:
                same[last] = first
        return {names[own]: names[before] for own, before in same.items()}

    def _equal(self) -> Iterator[tuple[int, int]]:
        """Yield the places of columns that joins hold equal, the later one first."""
        for join in self.plan.measure.joins:
            if join.looked_up is not None:
                yield join.start + join.key, join.looked_up
            yield from ((join.start + own, before) for before, own in join.also)

    def _keep(self, rows: Sequence[Mapping[str, Value]]) -> bool:
        """Put the rows into their tables; not if a public row with that key says otherwise."""
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
        """Yield each joined table with its own part of the row, by its own names."""
        every = self.card.every_table
        places = [self.plan.measure.table, *(join.table for join in self.plan.measure.joins)]
        values = [row[column.name] for column in self.plan.card.columns]
        start = 0
        for place in places:
            names = [column.name for column in every[place].columns]
            yield every[place], dict(zip(names, values[start : start + len(names)], strict=True))
            start += len(names)


def _held_equal(join: Join) -> list[int]:
    """Return the places of the columns before that the join holds equal."""
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


def _reduced(source: EachPerson, rows: Sequence[Mapping[str, Value]]) -> dict[str, Value]:
    return {column.name: _reduce(column, rows) for column in source.columns}


def _reduce(column: Reduce, rows: Sequence[Mapping[str, Value]]) -> Value:
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
