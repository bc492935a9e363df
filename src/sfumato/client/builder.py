"""The Python builder: questions without SQL, of the same closed language."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, Unpack

from sfumato.client.terms import AskTerms, PriceTerms
from sfumato.core.question import (
    Aggregate,
    All,
    Among,
    Compare,
    Constant,
    IsNull,
    Not,
    Output,
    Predicate,
    Question,
    Verb,
)
from sfumato.core.refusal import Refused

if TYPE_CHECKING:
    from sfumato.client.answer import Answer
    from sfumato.client.shown import Price


class Target(Protocol):
    """What a built question is asked of: a data set."""

    def ask(self, question: Builder, **terms: Unpack[AskTerms]) -> Answer:
        """Return the answer."""
        ...

    def price(self, question: Builder, **terms: Unpack[PriceTerms]) -> Price:
        """Return the price."""
        ...


@dataclass(frozen=True)
class Builder:
    """A question in the making; every step returns a new one."""

    data_set: str
    target: Target
    outputs: tuple[Output, ...] = ()
    conditions: tuple[Predicate, ...] = ()
    keys: tuple[str, ...] = ()
    groups: int | None = None
    rows: int | None = None

    def where(self, **conditions: object) -> Builder:
        """Narrow: a value, a list, a (low, high) pair with None for open, None for null."""
        made = tuple(_condition(name, value) for name, value in conditions.items())
        return replace(self, conditions=self.conditions + made)

    def group_by(self, *columns: str) -> Builder:
        """Ask for each key of these columns."""
        return replace(self, keys=self.keys + columns)

    def at_most(self, *, groups: int | None = None, rows: int | None = None) -> Builder:
        """Bound a person's part: groups a person, rows a person and group."""
        return replace(self, groups=groups or self.groups, rows=rows or self.rows)

    def count(self, column: str | None = None, *, name: str | None = None) -> Builder:
        """Ask for the number of rows, or of a column's values."""
        if column is None:
            return self._with(name or "count", "count", "")
        return self._with(name or f"count_{column}", "count_values", column)

    def people(self, *, name: str | None = None) -> Builder:
        """Ask for the number of people."""
        return self._with(name or "people", "count_people", "")

    def sum(self, column: str, *, name: str | None = None) -> Builder:
        """Ask for a sum."""
        return self._with(name or f"sum_{column}", "sum", column)

    def mean(self, column: str, *, name: str | None = None) -> Builder:
        """Ask for a mean."""
        return self._with(name or f"avg_{column}", "mean", column)

    def question(self) -> Question:
        """Return the frozen question."""
        keys = tuple(Output(key, key) for key in self.keys)
        return Question(
            data_set=self.data_set,
            outputs=keys + self.outputs,
            where=_joined(self.conditions),
            group_by=self.keys,
            max_groups=self.groups,
            max_rows=self.rows,
        )

    def ask(self, **terms: Unpack[AskTerms]) -> Answer:
        """Return a private answer and pay for it; asking the same again is free."""
        return self.target.ask(self, **terms)

    def price(self, **terms: Unpack[PriceTerms]) -> Price:
        """Return what asking would cost and how far off it would be; nothing is spent."""
        return self.target.price(self, **terms)

    def _with(self, name: str, verb: Verb, column: str) -> Builder:
        return replace(self, outputs=(*self.outputs, Output(name, Aggregate(verb, column))))


def _joined(conditions: tuple[Predicate, ...]) -> Predicate | None:
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else All(conditions)


def _condition(name: str, value: object) -> Predicate:
    if value is None:
        return IsNull(name)
    if value is Ellipsis:
        return Not(IsNull(name))
    if isinstance(value, tuple):
        return _between(name, value)
    if isinstance(value, list | set | frozenset):
        return Among(name, tuple(Constant.of(v) for v in value))
    return Compare(name, "=", Constant.of(value))


def _between(name: str, pair: Sequence[object]) -> Predicate:
    if len(pair) != 2 or pair[0] is pair[1] is None:
        raise Refused(
            "not-in-language",
            f"The range of {name!r} is not (low, high).",
            f"Write {name}=(65, None) for 65 and above.",
        )
    ends: list[Predicate] = []
    if pair[0] is not None:
        ends.append(Compare(name, ">=", Constant.of(pair[0])))
    if pair[1] is not None:
        ends.append(Compare(name, "<=", Constant.of(pair[1])))
    return ends[0] if len(ends) == 1 else All(tuple(ends))
