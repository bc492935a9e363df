"""Builder steps on tables with one row per person: reductions, joins and lookups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.client.column_expressions import expr_of
from sfumato.dp.refusal import Refused
from sfumato.query.model import REDUCTIONS, Joined, JoinedPersonTable, PersonColumn, Query

if TYPE_CHECKING:
    from sfumato.client.column_expressions import Column
    from sfumato.client.query_builder import Builder


def reduced(name: str, column: str | tuple[str, str | Column]) -> PersonColumn:
    """Parse a column of a per-person table: "count", or a pair (aggregate, column).

    Refuse the rest.
    """
    if not isinstance(column, str) and not (isinstance(column, tuple) and len(column) == 2):
        raise Refused(
            "not-in-language",
            f"{name!r} does not say what to compute for each person.",
            f'Write {name}="count", or {name}=("sum", "x").',
        )
    verb, of = (column, None) if isinstance(column, str) else column
    for known in REDUCTIONS:
        if known == verb:
            return PersonColumn(name, known, None if of is None else expr_of(of))
    raise Refused(
        "not-in-language",
        f"{verb!r} is not supported for each person.",
        f"Use {', '.join(REDUCTIONS)}.",
    )


def joined_people(begun: Builder, other: Builder, *, keep_all: bool) -> JoinedPersonTable:
    """Return the join with another table that has one row per person. Refuse any other table."""
    if begun.source is None or other.source is None:
        raise Refused(
            "not-in-language",
            "A table with one row for each person can only stand beside another such table.",
            "Write each_person(...) on both tables first.",
        )
    if other.data_set != begun.data_set:
        raise Refused(
            "not-in-language",
            f"{other.data_set!r} is not the data set {begun.data_set!r}.",
            "Use another table of this data set: of_table(name).",
        )
    plain = Query(other.data_set, (), source=other.source, table=other.table, joins=other.joins)
    if other.question() != plain:
        raise Refused(
            "not-in-language",
            "The second table must be each_person(...) alone, without further steps.",
            "Narrow, group and ask after join_people(...).",
        )
    return JoinedPersonTable(other.source, other.table, other.joins, keep_all)


def looked_up(begun: Builder, public: Joined) -> Joined:
    """Return the join of a public table by a column of a per-person table, or refuse."""
    if begun.source is None:
        raise Refused(
            "not-in-language",
            "The question looks up a public table, but has no table with one row for each person.",
            "Write each_person(...) first, or join(...) it to the rows.",
        )
    return public
