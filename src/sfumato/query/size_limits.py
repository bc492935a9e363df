"""Limits on the size of a query: count its nodes, and stop at the limit.

A shared node is one value in memory, but counts each time it occurs. A CASE on one column repeats
the column in each branch, and a CASE on such a CASE repeats that again. Comparing, hashing or
printing a value takes time in proportion to its size. So the nodes are counted first, and counting
stops at the limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.query.expression import Expr, Predicate, parts_of

# most nodes of all expressions and conditions; a per-person COUNT(*) counts as one
MAX_NODES: Final = 2000
MAX_PHYSICAL: Final = 40_000  # most nodes in physical form; a larger statement is too long


def count_up_to(most: int, values: Iterable[Expr | Predicate]) -> int:
    """Count the nodes of all expression trees; return most + 1 if there are more than `most`."""
    waiting, count = [*values], 0
    while waiting and count <= most:
        waiting += parts_of(waiting.pop())
        count += 1
    return count


def check_parts(values: Iterable[Expr | Predicate], besides: int = 0) -> None:
    """Refuse expressions with more than MAX_NODES nodes; `besides` further nodes count too."""
    if besides + count_up_to(MAX_NODES, values) > MAX_NODES:
        raise Refused(
            "question-too-large",
            f"The question has more than {MAX_NODES} columns, constants and operations.",
            "Split it into several questions.",
        )


def check_physical(values: Iterable[Expr | Predicate | None]) -> None:
    """Refuse expressions that are too long in physical form, as the engine evaluates them.

    ABS, for example, repeats its operand.
    """
    known = (value for value in values if value is not None)
    if count_up_to(MAX_PHYSICAL, known) > MAX_PHYSICAL:
        raise Refused(
            "question-too-large",
            "An expression is nested too deeply to be computed.",
            "Nest fewer ABS, CASE, divisions and bounds.",
        )
