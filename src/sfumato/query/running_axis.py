"""What a running count runs along: a public period of GROUP BY, for each of the other keys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from sfumato.dp.mechanisms.running_count import Axis
from sfumato.dp.refusal import Refused
from sfumato.query.expression import Expr, Since
from sfumato.query.expression_text import expression_text
from sfumato.query.grouping_keys import PlanKey
from sfumato.query.model import Aggregate, Output, Query


def with_period_axis(question: Query) -> Query:
    """Return the question with every running count saying what it runs along, or refuse."""
    if all(aggregate.verb != "running_count" for aggregate in question.aggregates):
        return question
    return replace(question, outputs=tuple(_with_period(o, question) for o in question.outputs))


def _with_period(output: Output, question: Query) -> Output:
    if not isinstance(output.of, Aggregate) or output.of.verb != "running_count":
        return output
    periods = [key for key in question.group_by if isinstance(key, Since)]
    wanted = output.of.of or tuple(periods[-1:])
    if len(wanted) != 1 or wanted[0] not in periods:
        raise Refused(
            "not-in-language",
            "A running count runs along a period that stands in GROUP BY.",
            "Write GROUP BY date_trunc('month', day), or another unit and column.",
        )
    return replace(output, of=replace(output.of, of=wanted))


def axis_of(keys: Sequence[PlanKey], along: Expr | None) -> Axis | None:
    """Return where the period stands among the cells, or refuse keys that are not all public.

    Blocks of periods make sense only over a list of periods that is known before any row is read;
    and private keys would ask for noise on what is not shown.
    """
    if along is None:
        return None
    sizes = [key.key.size for key in keys]
    unknown = [expression_text(key.of) for key in keys if key.key.size is None]
    if unknown:
        raise Refused(
            "keys-needed",
            f"A running count needs public keys, and the card declares none for {unknown[0]!r}.",
            "Ask the owner to declare keys, or lower and upper bounds of the date.",
            column=unknown[0],
        )
    public = [size or 1 for size in sizes]
    place = [key.of for key in keys].index(along)
    return Axis(math.prod(public[:place]), public[place], math.prod(public[place + 1 :]))
