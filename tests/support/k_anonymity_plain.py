"""The measures again, row by row and in fractions: slow, and sharing no line with the package."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction

from sfumato.dp.anonymity.coded_table import Table, Value

Rows = list[dict[str, Value]]


def rows_of(table: Table) -> Rows:
    """Return the table's rows as values."""
    columns = {
        name: [column.values[code] for code in column.codes.tolist()]
        for name, column in table.columns.items()
    }
    return [{name: values[i] for name, values in columns.items()} for i in range(table.rows)]


def classes(rows: Rows, quasi: Sequence[str]) -> list[Rows]:
    """Return the rows by what they say in these columns."""
    found: dict[tuple[object, ...], Rows] = defaultdict(list)
    for row in rows:
        found[tuple((type(row[name]), row[name]) for name in quasi)].append(row)
    return list(found.values())


def shares(rows: Rows, column: str) -> dict[Value, Fraction]:
    """Return each value's share."""
    counts = Counter(row[column] for row in rows)
    return {value: Fraction(count, len(rows)) for value, count in counts.items()}


def measures(rows: Rows, quasi: Sequence[str], column: str) -> Mapping[str, float]:
    """Return every measure of a table, over all its classes."""
    p = shares(rows, column)
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in p)
    order = sorted(p, key=lambda value: float(str(value))) if numbers else list(p)
    found = [shares(one, column) for one in classes(rows, quasi)]
    lowest = min(len(q) for q in found)
    return {
        "l": lowest,
        "entropy_l": min(_entropy(q) for q in found),
        "recursive_c": max(_recursive(one, column, lowest) for one in classes(rows, quasi)),
        "alpha": max(float(max(q.values())) for q in found),
        "t": max(float(_ordered(p, q, order) if numbers else _equal(p, q)) for q in found),
        "beta": max(float(max((q[v] - p[v]) / p[v] for v in q)) for q in found),
        "enhanced_beta": max(_enhanced(p, q) for q in found),
        "delta": max(abs(math.log(q[v] / p[v])) for q in found for v in q),
    }


def _entropy(q: Mapping[Value, Fraction]) -> float:
    return math.exp(-sum(float(x) * math.log(x) for x in q.values()))


def _recursive(rows: Rows, column: str, least: int) -> float:
    counts = sorted(Counter(row[column] for row in rows).values(), reverse=True)
    tail = sum(counts[least - 1 :])
    return counts[0] / tail if tail else math.inf


def _equal(p: Mapping[Value, Fraction], q: Mapping[Value, Fraction]) -> Fraction:
    return sum((abs(q.get(v, Fraction(0)) - p[v]) for v in p), Fraction(0)) / 2


def _ordered(
    p: Mapping[Value, Fraction], q: Mapping[Value, Fraction], order: list[Value]
) -> Fraction:
    if len(order) < 2:
        return Fraction(0)
    running, moved = Fraction(0), Fraction(0)
    for value in order:
        running += q.get(value, Fraction(0)) - p[value]
        moved += abs(running)
    return moved / (len(order) - 1)


def _enhanced(p: Mapping[Value, Fraction], q: Mapping[Value, Fraction]) -> float:
    gains = {v: float((q[v] - p[v]) / p[v]) for v in q}
    if any(gain > -math.log(p[v]) for v, gain in gains.items()):
        return math.inf
    return max(gains.values())
