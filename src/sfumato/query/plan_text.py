"""Describe a plan and its price in plain words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from sfumato.dp.json_values import Json
from sfumato.dp.mechanisms.private_choice import PrivateChoice
from sfumato.dp.mechanisms.running_count import TreeMechanism
from sfumato.query.aggregates.aggregate import Mechanism
from sfumato.query.aggregates.registry import aggregate_of
from sfumato.query.expression import renamed
from sfumato.query.expression_text import condition_text, expression_text
from sfumato.query.model import Formula, Joined, JoinedPersonTable, Output, PersonTable, Query
from sfumato.query.partition_selection_price import PricedPartitionSelection
from sfumato.query.plan import PartSensitivity, Plan
from sfumato.query.price import Priced


def plan_text(plan: Plan) -> str:
    """Describe the query as a sentence without a full stop."""
    question = plan.question
    asked = " and ".join(aggregate_of(a.aggregate.verb).says(a) for a in plan.asked)
    parts = [asked, *_formulas_in_words(question)]
    if question.group_by:
        parts.append("for each " + " and ".join(map(expression_text, question.group_by)))
    if question.where is not None:
        parts.append(f"where {condition_text(question.where)}")
    if question.table or question.joins:
        parts.append(
            f"from {_tables_in_words(question.table or question.data_set, question.joins)}"
        )
    if question.source is not None:
        parts.append(f"over one row for each person ({_source_in_words(question.source)})")
    parts += [_beside_in_words(question, one) for one in question.joined_person_tables]
    parts += [f"looked up in {_joined_in_words(joined)}" for joined in question.lookups]
    return ", ".join(parts)


def _formulas_in_words(question: Query) -> list[str]:
    unseen = {o.name.casefold(): o.name.partition(") ")[2] for o in question.outputs if _is_ours(o)}
    return [
        f"then {output.name} = {expression_text(renamed(output.of.expr, unseen))}"
        for output in question.outputs
        if isinstance(output.of, Formula) and output.is_shown
    ]


def _is_ours(output: Output) -> bool:
    """Check whether the SQL reader made up the output's name, as in `(3) sum_cost`."""
    return not output.is_shown and output.name.startswith("(")


def _beside_in_words(question: Query, one: JoinedPersonTable) -> str:
    tables = _tables_in_words(one.table or question.data_set, one.joins)
    who = "beside their row, if any," if one.keeps_all else "beside their row"
    return f"{who} from {tables} ({_source_in_words(one.each)})"


def _tables_in_words(table: str, joins: Sequence[Joined]) -> str:
    return " with ".join([table, *map(_joined_in_words, joins)])


def _joined_in_words(joined: Joined) -> str:
    how = f"by {joined.on[0]}" if joined.on else "by the person"
    how += "".join(f" and {before} = {own}" for before, own in joined.also)
    return f"{joined.table} {how}" + (", if any" if joined.keeps_all else "")


def _source_in_words(source: PersonTable) -> str:
    columns = [
        f"{c.name} = {c.verb.replace('_', ' ')}"
        + ("" if c.of is None else f" of {expression_text(c.of)}")
        for c in source.columns
    ]
    where = "" if source.where is None else f", where {condition_text(source.where)}"
    return ", ".join(columns) + where


def split_text(priced: Priced) -> list[Json]:
    """Return how the price is split over the partial aggregates, and the noise of each."""
    pairs = zip(priced.plan.parts, priced.noises, strict=True)
    selection = priced.selection
    share = Fraction(0) if selection is None else selection.epsilon / priced.epsilon
    chosen: list[Json] = []
    if selection is not None:
        chosen.append(
            {
                "part": "choice of keys",
                "share": float(share),
                "epsilon": float(selection.epsilon),
                "delta": float(selection.delta),
                "shown_from_people": {
                    "half": selection.people_for_odds(Fraction(1, 2)),
                    "nearly always": selection.people_for_odds(Fraction(99, 100)),
                },
                **_threshold_in_words(selection),
            }
        )
    # partition selection was paid with the earlier answer
    if priced.earlier is not None and priced.earlier.keys is not None:
        chosen.append({"part": "choice of keys", "share": 0.0, "epsilon": 0.0, "delta": 0.0})
    return chosen + [
        {
            "part": bounded.part.says,
            "share": float(bounded.weight * (1 - share)),
            "epsilon": float(priced.epsilon * bounded.weight * (1 - share)),
            "sensitivity": _sensitivity(bounded, noise),
            "std": None if isinstance(noise, PrivateChoice) else noise.std(),
            **noise.as_json(),
        }
        for bounded, noise in pairs
    ]


def _sensitivity(bounded: PartSensitivity, mechanism: Mechanism) -> int:
    """Return the L1 sensitivity of the numbers that get noise.

    They are the groups' integers, or for a running count the blocks of the tree mechanism.
    """
    if isinstance(mechanism, TreeMechanism):
        return mechanism.tree.l1(bounded.cells, bounded.per_cell)
    return bounded.l1


def _threshold_in_words(selection: PricedPartitionSelection) -> Json:
    found = selection.threshold
    if found is None:
        return {}
    return {"threshold": found.threshold, "variance": str(found.variance)}


def odds_text(epsilon: float, delta: float, unit: str) -> str:
    """Explain the total privacy loss so far: how sure a guess about one person can be."""
    sure = 100 / (1 + math.exp(-epsilon))
    chance = f", except with chance {delta:g}" if delta else ""
    return (
        f"someone 50 % sure of a fact about a {unit} without that {unit}'s data is at most "
        f"{_percent(sure)} % sure after all answers about these people{chance}"
    )


def _percent(sure: float) -> str:
    return f"{sure:.0f}" if sure < 99 else f"{math.floor(sure * 100) / 100:.2f}"
