"""A made-up row, changed value by value until a condition holds on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from fractions import Fraction
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.features.synthetic.column_values import value_of_key, values_of
from sfumato.features.synthetic.seeded_numbers import Seeded
from sfumato.query.expression import (
    All,
    Among,
    AnyOf,
    Compare,
    IsNull,
    Not,
    Predicate,
    StartsWith,
    columns_of,
    walk,
)
from sfumato.query.row_conditions import Value, constant_value, holds_on
from sfumato.query.size_limits import MAX_NODES, count_up_to
from sfumato.vault.card.columns import Column

MEND: Final = 200  # changes to a row before another is begun
_SOME: Final = 12  # values of a column that are tried besides those that the filter names
_TEXTS: Final = 40
MOST_EFFORT: Final = 3_000_000  # parts of conditions that are looked at: some seconds


class RepairLimit:
    """How many parts of conditions may still be looked at for one twin, which costs nothing."""

    def __init__(self, most: int = MOST_EFFORT) -> None:
        self._left = most

    def spend(self, parts: int) -> None:
        """Take so many parts, or refuse: somebody else is waiting."""
        self._left -= parts
        if self._left < 0:
            raise Refused(
                "twin-not-possible",
                "It takes too long to find rows that the card allows and that pass this filter.",
                "Ask with a shorter filter, or for fewer groups; the rows were not looked at.",
            )


class Pools:
    """The values that are worth trying for each column that a condition reads."""

    def __init__(  # what a row hangs on
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
        """Return the row with what two tables share being the same."""
        return {name: row[self._root(name)] for name in row}

    def changed(self, row: Mapping[str, Value], name: str, value: Value) -> dict[str, Value]:
        """Return the row with another value of a column, and of those that are the same."""
        root = self._root(name)
        return {other: value if self._root(other) == root else old for other, old in row.items()}

    def of(self, name: str) -> list[Value]:
        """Return the values to try, those of the filter among them where the card allows them."""
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
    """Return the row so changed that the condition holds, or None where that was not found."""
    if wanted is None:
        return row
    for _ in range(MEND):
        if holds_on(wanted, row) is True:
            return row
        row = _step(row, wanted, pools, to=True)
    return None


def _step(row: dict[str, Value], wanted: Predicate, pools: Pools, *, to: bool) -> dict[str, Value]:
    """Return the row with one part of the condition nearer to holding, or to not holding."""
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
    """Return the constants that stand beside each column, null where nulls are asked for."""
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
    """Yield days round about the date: within its period, and on either side of it."""
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
    """Say whether the card lets a row have the value."""
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
