"""Find the position in the SQL text that a refusal is about, for refusals that need the card.

The parts of the text are planned one by one, inner parts first. The position is that of the first
part that by itself is refused for the same reason. Otherwise it is the position of a name in the
refusal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.query.expression import Expr, Predicate, columns_of, walk
from sfumato.query.expression_text import expression_text
from sfumato.query.join import View, joined_view
from sfumato.query.model import Aggregate, Output, PersonColumn, PersonTable, Query
from sfumato.query.name_resolution import (
    ResolvedPersonTable,
    card_scope,
    max_inner_rows,
    people_scope,
    resolve_expression,
    resolved_scope,
    spelled_predicate,
)
from sfumato.query.source_positions import Place, Places
from sfumato.query.sql.columns_and_constants import refuse_at
from sfumato.query.typecheck import typecheck_plain
from sfumato.query.typed_expression import Scope
from sfumato.query.validation import of_source, tables_of_people
from sfumato.vault.card.data_card import Card

_NAMED: Final = re.compile(r"'([^']+)'")
MAX_PLANS: Final = 100  # most queries that are planned to find the part
Planned = Callable[[Card, Query], object]


def with_position(refused: Refused, card: Card, question: Query, planned: Planned) -> Refused:
    """Add a position in the SQL text to a refusal, if it has none and one can be found."""
    places = question.places
    if places is None or "place" in refused.facts:
        return refused
    alone = _Alone(card, question, planned)
    place = _guilty(refused, alone, places) or _named(refused, places)
    if place is None and alone.is_of_text(refused):
        place = places.first()  # no single part is refused, or none was found
    return refused if place is None else refuse_at(refused, place)


def _named(refused: Refused, places: Places) -> Place | None:
    """Return the first position in the SQL text of a name that the refusal quotes."""
    named = [refused.facts[key] for key in ("table", "column") if key in refused.facts]
    for words in [*map(str, named), *_NAMED.findall(refused.cause)]:
        for part, place, _ in places:
            if isinstance(part, Expr) and expression_text(part).casefold() == words.casefold():
                return place
        found = places.of_name(words)
        if found is not None:
            return found
    return None


def _guilty(refused: Refused, alone: _Alone, places: Places) -> Place | None:
    if _is_same(alone.of_tables(), refused):
        return None  # the tables themselves are refused, not a part of the query
    is_of_all = _is_same(alone.refusal(Aggregate("count"), is_inner=False), refused)
    for part, place, is_inner in places:
        if is_of_all and isinstance(part, Aggregate):
            continue  # every aggregate over these tables is refused in the same way
        if _is_same(alone.refusal(part, is_inner=is_inner), refused):
            return place
    return _shown(refused, alone, places)


def _shown(refused: Refused, alone: _Alone, places: Places) -> Place | None:
    """Return the position of the first output column that by itself is refused for the same reason.

    Such a column isn't in GROUP BY.
    """
    plain = [output for output in alone.question.outputs if isinstance(output.of, Expr)]
    if refused.code != "not-in-language" or not plain or _is_same(alone.of_columns([]), refused):
        return None  # no such column, or GROUP BY itself is refused
    for output in plain:
        if _is_same(alone.of_columns([output]), refused):
            return next((place for part, place, _ in places if part == output.of), None)
    return None


def _is_same(found: Refused | None, refused: Refused) -> bool:
    return found is not None and (found.code, found.cause) == (refused.code, refused.cause)


@dataclass
class _Alone:
    """Planner of single parts of a query, to find the part that is refused.

    It plans at most 100 queries (MAX_PLANS), because planning can be slow.
    """

    card: Card
    question: Query
    planned: Planned
    left: int = MAX_PLANS

    def of_tables(self) -> Refused | None:
        """Return the refusal of the query's tables themselves; None if they are accepted."""
        try:
            joined_view(self.card, self.question)
        except Refused as refused:
            return refused
        return None

    def is_of_text(self, refused: Refused) -> bool:
        """Return True if the SQL text causes the refusal, not another argument of the request.

        It does if the query without contribution bounds and budget shares is refused in the same
        way.
        """
        question = replace(self.question, max_groups=None, max_rows=None)
        if question == self.question and refused.code not in ("bad-budget", "unknown-column"):
            return True  # planning it again can be slow
        self.left = max(self.left, 1)
        return _is_same(self._why(question), refused)

    def of_columns(self, columns: Sequence[Output]) -> Refused | None:
        """Return the refusal of a query for these outputs and COUNT(*), or None if it's accepted.

        The query keeps GROUP BY, but has no WHERE, HAVING, ORDER BY and LIMIT.
        """
        outputs = (*columns, Output("(count)", Aggregate("count")))
        return self._why(
            replace(self.question, outputs=outputs, where=None, having=None, order=(), limit=None)
        )

    def _why(self, question: Query) -> Refused | None:
        try:
            self._plan(question)
        except Refused as refused:
            return refused
        return None

    def refusal(self, part: object, *, is_inner: bool) -> Refused | None:
        """Return the refusal of a part of the query by itself; None if the part is accepted."""
        try:
            self._check(part, is_inner=is_inner)
        except Refused as refused:
            return refused
        return None

    def _check(self, part: object, *, is_inner: bool) -> None:
        if isinstance(part, Aggregate):
            if not is_inner:
                self._plan(self._asking(part))
        elif is_inner or isinstance(part, PersonColumn):
            for view in self._of_tables(part):
                self._check_inner(part, view)
        else:
            if isinstance(part, Predicate) and self._is_of_outputs(part):
                self._plan(replace(self.question, having=part, where=None))
            _check_value(part, resolved_scope(self._view, self.question))

    def _check_inner(self, part: object, view: View) -> None:
        if isinstance(part, PersonColumn):
            most = max_inner_rows(view.card, self.question)
            people_scope([ResolvedPersonTable(view, PersonTable((part,)), most)])
        else:
            _check_value(part, card_scope(view))

    def _of_tables(self, part: object) -> list[View]:
        """Return the views (joined tables) of the per-person tables that contain the part.

        A query with at most one per-person table has one view.
        """
        views = (self._view, *self._view.beside)
        tables = tables_of_people(self.question)
        if len(tables) <= 1:
            return [self._view]
        return [view for view, each in zip(views, tables, strict=True) if _stands_in(part, each)]

    def _asking(self, aggregate: Aggregate) -> Query:
        """Return a query for the aggregate alone, over all rows."""
        output = Output("x", aggregate)
        return replace(
            self.question,
            outputs=(output,), where=None, group_by=(), having=None, order=(), limit=None,
            max_groups=None, max_rows=None,
        )  # fmt: skip

    def _plan(self, question: Query) -> None:
        self.left -= 1
        if self.left >= 0:
            self.planned(self.card, replace(question, places=None))

    def _is_of_outputs(self, condition: Predicate) -> bool:
        """Check whether the condition names outputs only, so that it may be a part of HAVING."""
        names = columns_of(condition)
        return self.question.having is not None and names <= {o.name for o in self.question.outputs}

    @cached_property
    def _view(self) -> View:
        return joined_view(self.card, self.question)[0]


def _stands_in(part: object, each: PersonTable) -> bool:
    """Return True if the inner SELECT (per-person table) `each` has this column or expression.

    Names of its columns are not compared, because the outer SELECT may have renamed them.
    """
    if isinstance(part, PersonColumn):
        return (part.verb, part.of) in [(column.verb, column.of) for column in each.columns]
    return any(part == value for whole in of_source(each) for value in walk(whole))


def _check_value(part: object, scope: Scope) -> None:
    if isinstance(part, Predicate):
        resolve_expression(spelled_predicate(part, scope, {}), scope)
    elif isinstance(part, Expr):
        typecheck_plain(part, scope)
