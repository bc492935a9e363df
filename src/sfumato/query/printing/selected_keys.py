"""Private keys that were chosen, as rows of SQL that a grouping is narrowed to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.dp.refusal import Bug
from sfumato.query.expression import Constant, Literally
from sfumato.query.printing.expressions import Dialect, Text, joined, print_expr


@dataclass(frozen=True)
class Wanted:
    """The common table `wanted`, and how a cell's keys g0, g1, ... meet it."""

    rows: Text
    on: str


def print_wanted(keys: Sequence[tuple[Constant, ...]], dialect: Dialect) -> Wanted:
    """Return the keys as rows (cell, h0, h1, ...), bound and typed like every constant."""
    if not keys:
        raise Bug("no key is wanted")
    rows = [_row(place, key, dialect) for place, key in enumerate(keys)]
    names = ", ".join(f"h{i}" for i in range(len(keys[0])))
    values = joined(", ", rows)
    table = Text(f"wanted(cell, {names}) AS (VALUES {values.sql})", values.bound)
    same = " AND ".join(_same(i, key, dialect) for i, key in enumerate(keys[0]))
    return Wanted(table, same)


def _row(place: int, key: tuple[Constant, ...], dialect: Dialect) -> Text:
    texts = joined(", ", [print_expr(Literally(constant), dialect) for constant in key])
    return Text(f"(CAST({place} AS BIGINT), {texts.sql})", texts.bound)


def _same(place: int, key: Constant, dialect: Dialect) -> str:
    """Print the meeting of a key; a text of DuckDB's behind what its statistics do not see.

    See `_needs_care` in expressions.py: what it knows of the rows that are there must not decide.
    """
    is_text = key.kind == "text" and dialect == "duckdb"
    return f"substr(g{place}, 1) = h{place}" if is_text else f"g{place} = h{place}"
