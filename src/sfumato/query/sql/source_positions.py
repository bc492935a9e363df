"""Record the source position of each part of a query while the part is read."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

from sqlglot import exp

from sfumato.query.source_positions import Places, packed
from sfumato.query.sql.columns_and_constants import nodes_of, place_of

Notes = list[tuple[object, exp.Expr]]
# As an argument, it would pass through every reader, and only the outermost reader would use it.
_NOTES: Final[ContextVar[Notes | None]] = ContextVar("notes", default=None)
Made = TypeVar("Made")


@contextmanager
def record_positions() -> Iterator[Notes]:
    """Record every query part that is read in this context, with its syntax node."""
    notes: Notes = []
    token = _NOTES.set(notes)
    try:
        yield notes
    finally:
        _NOTES.reset(token)


def recorded_positions(made: Made, node: exp.Expr) -> Made:
    """Record that the value was read from the syntax node, and return the value."""
    notes = _NOTES.get()
    if notes is not None:
        notes.append((made, node))
    return made


def names_in(tree: exp.Expr) -> dict[str, int]:
    """Return the first position of each name in the SQL text.

    For columns, there is also an entry with the name of their table.
    """
    found: dict[str, int] = {}
    for node in nodes_of(tree):
        if not isinstance(node, exp.Identifier | exp.Column):
            continue
        place = place_of(node)
        if place is not None:
            for name in _spellings(node):
                at = packed(place)
                found[name] = min(found.get(name, at), at)
    return found


def _spellings(node: exp.Expr) -> Iterator[str]:
    yield node.name.casefold()
    if isinstance(node, exp.Column) and node.table:
        yield f"{node.table}.{node.name}".casefold()


def places_of(notes: Notes, names: dict[str, int]) -> Places:
    """Return the positions of the recorded query parts in the SQL text."""
    known = [(part, node, place_of(node)) for part, node in notes]
    placed = [(part, node, place) for part, node, place in known if place is not None]
    return Places(
        tuple(part for part, _, _ in placed),
        array("I", [packed(place) for _, _, place in placed]),
        frozenset(i for i, (_, node, _) in enumerate(placed) if _is_inner(node)),
        names,
    )


def _is_inner(node: exp.Expr) -> bool:
    return node.find_ancestor(exp.Subquery, exp.CTE) is not None
