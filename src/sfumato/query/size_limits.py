"""How many parts a question has, counted no further than they may be.

What several parts share is one value in memory and counts each time that it stands: a CASE of one
column stands in each of its branches, and a CASE of such a CASE in each of those. To compare, hash
or print it takes as long as it is large, so it is counted first, and never to the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.query.expression import Expr, Predicate, parts_of

MAX_NODES: Final = 2000  # of all expressions and conditions together; COUNT(*) of a person is one
MAX_PHYSICAL: Final = 40_000  # of what they become; a statement of more is too long to be written


def count_up_to(most: int, values: Iterable[Expr | Predicate]) -> int:
    """Return how many parts the values have together; most + 1 if they have more than most."""
    waiting, count = [*values], 0
    while waiting and count <= most:
        waiting += parts_of(waiting.pop())
        count += 1
    return count


def check_parts(values: Iterable[Expr | Predicate], besides: int = 0) -> None:
    """Refuse what has more parts than a question may have; so many stand beside them."""
    if besides + count_up_to(MAX_NODES, values) > MAX_NODES:
        raise Refused(
            "question-too-large", f"More than {MAX_NODES} parts.", "Ask in several questions."
        )


def check_physical(values: Iterable[Expr | Predicate | None]) -> None:
    """Refuse what becomes too long on physical columns: each ABS names its number three times."""
    known = (value for value in values if value is not None)
    if count_up_to(MAX_PHYSICAL, known) > MAX_PHYSICAL:
        raise Refused(
            "question-too-large",
            "An expression is nested too deeply to be computed.",
            "Nest fewer ABS, CASE, divisions and bounds.",
        )
