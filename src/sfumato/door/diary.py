"""What is kept of a release and what is shown of it; everything here is public already."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np

from sfumato.core.account import Account, Standing
from sfumato.core.budget import DELTA_UNITS, EPSILON_UNITS
from sfumato.core.card import Card
from sfumato.core.card_shown import key_value
from sfumato.core.ports import IntegerArray
from sfumato.core.question import Aggregate, Json, Output, question_json, spelled
from sfumato.core.refusal import Bug
from sfumato.door.accounts import data_set_account, left_json, people_account, smallest_next
from sfumato.door.ledger import Ledger
from sfumato.door.locks.dp import GUARANTEE
from sfumato.plan.explain import bounding_in_words, in_words, odds_in_words, split_in_words
from sfumato.plan.plan import Plan
from sfumato.plan.price import Priced
from sfumato.plan.verbs import VERBS
from sfumato.plan.verbs.verb import Estimate, NoisyPart

FORMAT = "answer/1"


def answer_text(priced: Priced, cells: Sequence[IntegerArray]) -> str:
    """Return the answer as it stands in the ledger for ever: noisy integers and what they give."""
    plan = priced.plan
    noisy = [NoisyPart(c, n) for c, n in zip(cells, priced.noises, strict=True)]
    return spelled(
        {
            "format": FORMAT,
            "version": plan.card.version,
            "parts": [part.values.tolist() for part in noisy],
            "aggregates": {
                _spelled_aggregate(a): _estimate_json(_estimate(plan, a, noisy))
                for a in plan.question.aggregates
            },
        }
    )


def answer_version(text: str) -> str:
    """Return the version of the data set that a stored answer is about."""
    return str(json.loads(text)["version"])


def _estimate(plan: Plan, aggregate: Aggregate, noisy: Sequence[NoisyPart]) -> Estimate:
    column = plan.card.column(aggregate.column) if aggregate.column else None
    return VERBS[aggregate.verb].finish(column, [noisy[p] for p in plan.parts_of(aggregate)])


def _estimate_json(estimate: Estimate) -> Json:
    return {
        "values": list(estimate.values),
        "std": list(estimate.std),
        "low": list(estimate.low),
        "high": list(estimate.high),
    }


def _spelled_aggregate(aggregate: Aggregate) -> str:
    return f"{aggregate.verb}({aggregate.column})"


def shown(priced: Priced, text: str) -> Json:
    """Return the stored answer with the columns, names and order that the asker chose."""
    stored = json.loads(text)
    if stored.get("format") != FORMAT:
        raise Bug("a stored answer has a format that nobody reads")
    plan = priced.plan
    order = _asked_order(plan)
    columns = [_column(plan, output, stored["aggregates"], order) for output in _outputs(plan)]
    return {
        "columns": [output.name for output in _outputs(plan)],
        "rows": _transposed([c["values"] for c in columns]),
        "std": _transposed([c["std"] for c in columns]),
        "interval": _transposed([c["interval"] for c in columns]),
        "guarantee": GUARANTEE,
    }


def _outputs(plan: Plan) -> tuple[Output, ...]:
    return plan.question.outputs


def _asked_order(plan: Plan) -> list[int]:
    """Return the canonical cells in the order of the asker's own GROUP BY."""
    canonical = [column.name for column in plan.key_columns]
    shape = [key.size for key in plan.measure.keys]
    places = [canonical.index(name) for name in plan.question.group_by]
    grid = np.arange(plan.measure.cells).reshape(shape)
    return grid.transpose(places).ravel().tolist()


def _column(
    plan: Plan,
    output: Output,
    aggregates: Mapping[str, Mapping[str, list[float]]],
    order: list[int],
) -> dict[str, list[object]]:
    if isinstance(output.of, str):
        keys = _key_values(plan, output.of)
        nothing: list[object] = [None] * len(order)
        return {"values": [keys[i] for i in order], "std": nothing, "interval": nothing}
    stored = aggregates[_spelled_aggregate(output.of)]
    return {
        "values": [stored["values"][i] for i in order],
        "std": [stored["std"][i] for i in order],
        "interval": [[stored["low"][i], stored["high"][i]] for i in order],
    }


def _key_values(plan: Plan, name: str) -> list[object]:
    """Return the public key of every canonical cell."""
    place = [column.name for column in plan.key_columns].index(name)
    column = plan.key_columns[place]
    keys = [key_value(column, key) for key in column.keys or ()]
    below = 1
    for key in plan.measure.keys[place + 1 :]:
        below *= key.size
    return [keys[cell // below % len(keys)] for cell in range(plan.measure.cells)]


def _transposed(columns: Sequence[Sequence[object]]) -> list[list[object]]:
    return [list(row) for row in zip(*columns, strict=True)]


def receipt(
    ledger: Ledger, priced: Priced, standing: Standing, *, op: str, paying: Sequence[str]
) -> Json:
    """Return what was asked and paid, by what mechanism, what is left, and where it is written."""
    card = priced.plan.card
    people, data_set = people_account(card.people), data_set_account(card.name)
    accounts = ledger.accounts((people, data_set, *paying))
    charged = {name: float(priced.epsilon) for name in standing.debited}
    signed: Json = {
        "ledger": standing.head.ledger,
        "epoch": standing.head.epoch,
        "seq": standing.head.seq,
        "head": standing.head.hash,
        "op": op,
        "entry": standing.seq,
        "charged": sorted(standing.debited),
        "epsilon": str(priced.epsilon),
        "delta": str(priced.delta),
    }
    return {
        "epsilon": float(priced.epsilon),
        "delta": float(priced.delta),
        "left": {
            **left_json(accounts[data_set]),
            "next_epsilon": smallest_next(accounts.values()),
        },
        "op": op,
        "seq": standing.seq,
        "free": not standing.debited,
        "charged": charged,
        "says": in_words(priced.plan),
        "question": question_json(priced.plan.question),
        "data_set": card.name,
        "version": card.version,
        "people": card.people,
        "guarantee": GUARANTEE,
        "unit": "row" if not card.by_person else f"person ({card.unit})",
        "relation": relation(card),
        "bounding": bounding_in_words(priced.plan),
        "mechanism": priced.noises[0].as_json()["kind"],
        "split": split_in_words(priced),
        "odds": odds_of(accounts[people], "person" if card.by_person else "row"),
        "interval": INTERVAL,
        **ledger.sign(signed),
    }


def relation(card: Card) -> str:
    """Return which data sets count as neighbours."""
    return "add or remove one " + ("person" if card.by_person else "row")


INTERVAL = (
    "95 %, for the noise alone; it leaves out what clamping and bounding a person's part cut off, "
    "and what sampling would add"
)


def odds_of(account: Account, unit: str) -> str:
    """Return the odds sentence for all that these people have ever been asked (rules 22)."""
    spent = account.spent
    return odds_in_words(spent.epsilon / EPSILON_UNITS, spent.delta / DELTA_UNITS, unit)
