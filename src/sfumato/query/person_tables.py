"""Tables with one row for each person, as an engine is to make them.

Several stand beside each other by the person alone, each reduced before they meet: whoever is in
all of them is one row, made of that person's rows only. So one person is one row of it still, and
what is claimed of a verb over such rows holds whatever stands beside (soundness rule 12).
"""

from __future__ import annotations

from typing import Final

from sfumato.query.join import View
from sfumato.query.measure import JoinPeople, PerPerson, Reduced
from sfumato.query.model import Query
from sfumato.query.resolve import PeopleTable, card_scope, people_tables, resolve_expression
from sfumato.query.typecheck import typecheck_plain
from sfumato.query.validation import is_of_people

_KINDS: Final = {
    "count": "rows", "count_values": "values", "sum": "sum", "minimum": "min", "maximum": "max",
}  # fmt: skip


def measured_people(view: View, question: Query) -> tuple[JoinPeople, ...]:
    """Return the question's tables of people as physical, the first of them first; or refuse."""
    tables = people_tables(view, question)
    for table in tables[1:]:
        is_of_people(table.view.card, table.source)
    keeps = [False, *(one.keeps_all for one in question.beside)]
    return tuple(
        JoinPeople(_made(table), table.view.table, table.view.joins, keeps_all)
        for table, keeps_all in zip(tables, keeps, strict=False)  # a question may have no source
    )


def _made(table: PeopleTable) -> PerPerson:
    scope, source = card_scope(table.view), table.source
    columns = []
    for column in source.columns:
        value = None if column.of is None else typecheck_plain(column.of, scope).physical
        verbs = ("sum", "count_values") if column.verb == "mean" else (column.verb,)
        columns += [Reduced(_KINDS[verb], value) for verb in verbs]  # type: ignore[arg-type]  # of a closed table
    where = None if source.where is None else resolve_expression(source.where, scope)
    return PerPerson(where, tuple(columns), table.most_rows)
