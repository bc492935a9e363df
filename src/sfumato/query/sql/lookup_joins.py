"""A table as it stands, joined to inner SELECTs by person: which of their columns is looked up?

Whether it is public, and what its key is, the card says later (query/public_lookup_tables.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sfumato.query.model import Joined
from sfumato.query.sql.columns_and_constants import refuse_unsupported


@dataclass(frozen=True)
class Standing:
    """A table as it stands beside inner SELECTs by person, and by what it is joined.

    `alias` is nothing where USING names the column of whichever table has it.
    """

    name: str  # what the SELECT calls it
    table: str
    node: exp.Expr
    alias: str
    column: str  # of that table before it
    own: str
    keeps_all: bool

    def joined(self, before: str) -> Joined:
        """Return the join, by the outer name of the column before."""
        return Joined(self.table, (before, self.own), self.keeps_all)


def standing(
    node: exp.Expr, name: str, table: str, pairs: Sequence[tuple[str, str]], *, keeps_all: bool
) -> Standing:
    """Return the table with the one pair that its join holds equal, or refuse."""
    if len(pairs) != 1:
        raise refuse_unsupported(
            node,
            "a public table is looked up by its key alone here",
            "Write ON a.x = b.key, and put other conditions into WHERE.",
        )
    left, right = pairs[0]
    if node.args.get("using"):
        return Standing(name, table, node, "", left, right, keeps_all)
    sides = [side.partition(".")[::2] for side in (left, right)]
    mine = [column for alias, column in sides if alias == name]
    theirs = [(alias, column) for alias, column in sides if alias != name]
    if len(mine) != 1:
        raise refuse_unsupported(
            node,
            f"it is not clear which column is of {name!r}",
            "Write ON a.x = b.key, with the table's name before each column.",
        )
    return Standing(name, table, node, *theirs[0], mine[0], keeps_all)


def used_by(tables: Collection[Standing]) -> frozenset[str]:
    """Return the names of USING in small letters, which are of one column for both tables."""
    return frozenset(one.column.casefold() for one in tables if not one.alias)
