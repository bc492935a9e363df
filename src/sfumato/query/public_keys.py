"""Find public keys by which a query could group instead of private keys."""

from __future__ import annotations

import math
from typing import Final

from sfumato.query.expression import Ref
from sfumato.query.grouping_keys import PlanKey
from sfumato.query.plan import Plan
from sfumato.vault.card.columns import sql_name

ADVISED: Final = 1_000  # most groups of an answer for which public keys are advised


def public_instead(plan: Plan) -> tuple[list[str], str, int] | None:
    """Return private keys, SQL that groups by public whole numbers instead, and its group count.

    Return None if a key is not a bounded column of whole numbers, or if there would be too many
    groups.
    """
    if plan.question.source is not None:
        return None
    private = [key for key in plan.keys if key.keys is None]
    sizes = [_numbers_between(plan, key) for key in private]
    cells = math.prod(key.key.size or 1 for key in plan.keys) * math.prod(s or 0 for s in sizes)
    if not 0 < cells <= ADVISED:
        return None
    names = [key.of.column for key in private if isinstance(key.of, Ref)]
    return names, ", ".join(f"FLOOR({sql_name(name)})" for name in names), cells


def _numbers_between(plan: Plan, key: PlanKey) -> int | None:
    """Count the whole numbers between the card's bounds of a grouping column; None if unbounded."""
    if not isinstance(key.of, Ref):
        return None
    column = plan.card.column(key.of.column)
    if column.type != "integer" or column.step != 1:
        return None
    if column.lower is None or column.upper is None:
        return None
    return column.upper - column.lower + 1
