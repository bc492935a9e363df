"""Stored answers, shown answers and receipts. All values here are released, so they are public."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np

from sfumato.dp.budget import DELTA_UNITS, EPSILON_UNITS
from sfumato.dp.json_values import Json
from sfumato.dp.mechanisms.averaged_noise import AveragedNoise, mean_of
from sfumato.dp.refusal import Bug
from sfumato.query.aggregates.aggregate import Estimate, Integers, NoisyPart
from sfumato.query.aggregates.registry import aggregate_of
from sfumato.query.expression import Constant, Expr, canonical_json
from sfumato.query.expression_json import constant_json
from sfumato.query.grouping_keys import PlanKey
from sfumato.query.model import Aggregate, Formula, aggregate_text
from sfumato.query.plan import Plan
from sfumato.query.plan_text import odds_text
from sfumato.query.postprocess.formula_errors import FormulaErrors
from sfumato.query.postprocess.formulas import evaluate_formula
from sfumato.query.postprocess.having_order_limit import (
    Row,
    apply_having_order_limit,
    is_selected_after_noise,
)
from sfumato.query.postprocess.totals import rows_of_totals
from sfumato.query.price import Priced
from sfumato.release.accounts import people_account
from sfumato.release.guarantees.central_dp import GUARANTEE, Keys, NoisyCells
from sfumato.release.guarantees.k_anonymity import warning_beside_dp
from sfumato.release.ledger_guard import Ledger
from sfumato.release.payment import Payment, payment_json, relation, signed_payment, unit_of
from sfumato.release.plan_description import PlanDescription, copy_description
from sfumato.release.top_up_source import RAISED, paid_json, top_up_json
from sfumato.vault.budget_windows import spent_in_all
from sfumato.vault.ledger_entries import Account, Charge, Debtor, LedgerHead, OperationState

_Column = tuple[list[Any], list[Any], list[Any]]  # values, std, intervals: released JSON
FORMATS: Final = ("answer/2", RAISED)  # formats that this version reads; it writes the newest


def answer_text(priced: Priced, released: NoisyCells) -> str:
    """Return the text of an answer for the ledger: noisy integers, and the aggregates from them.

    Private keys are sorted by value, so that their order reveals nothing about the rows.
    """
    plan = priced.plan
    keys, order = _ordered_keys(plan, released.keys)
    parts = [part if order is None else part[order] for part in released.parts]
    if priced.earlier is not None:
        keys = priced.earlier.keys
    noisy = _with_all_draws(priced, parts)
    return canonical_json(
        {
            "format": RAISED,
            "version": plan.card.version,
            **paid_json(priced),
            "keys": keys,
            "parts": [part.tolist() for part in parts],
            "aggregates": {
                aggregate_text(a): _estimate_json(_estimate(plan, a, noisy))
                for a in plan.aggregates
            },
        }
    )


def _with_all_draws(priced: Priced, parts: Sequence[Integers]) -> list[NoisyPart]:
    """Return the noisy integers of each aggregate; for a top-up, the weighted mean of all draws.

    A draw is one paid answer to the question, with noise of its own.
    """
    if priced.earlier is None:
        return [NoisyPart(c, n) for c, n in zip(parts, priced.noises, strict=True)]
    made = []
    for place, noise in enumerate(priced.effective_noises):
        draws = [draw.parts[place] for draw in priced.earlier.draws]
        if not isinstance(noise, AveragedNoise):
            raise Bug("a top-up of what has no mean")
        made.append(NoisyPart(mean_of(noise.draws, [*draws, parts[place]]), noise))
    return made


def _ordered_keys(
    plan: Plan, keys: Keys | None
) -> tuple[Sequence[Sequence[Json]] | None, list[int] | None]:
    if keys is None:
        return None, None
    read = [[_key(k, value) for k, value in zip(plan.keys, cell, strict=True)] for cell in keys]
    order = sorted(range(len(read)), key=lambda place: [_rank(key) for key in read[place]])
    return [[constant_json(key) for key in read[place]] for place in order], order


def key_text(plan: Plan, cell: Sequence[object]) -> str:
    """Return the text of a private key from the engine, as stored answers write it."""
    pairs = zip(plan.keys, cell, strict=True)
    return canonical_json([constant_json(_key(key, value)) for key, value in pairs])


def _key(key: PlanKey, value: object) -> Constant:
    """Return the constant that is the value of a grouping key.

    For public keys the engine returns an index into the declared keys, for private keys the value.
    """
    return key.read(value) if key.keys is None else key.keys[int(str(value))]


def _rank(key: Constant) -> tuple[str, Fraction, str]:
    return (key.kind, key.number if key.kind == "number" else Fraction(0), key.text)


def answer_version(text: str) -> str:
    """Return the version of the data set that a stored answer is about."""
    return str(json.loads(text)["version"])


def _estimate(plan: Plan, aggregate: Aggregate, noisy: Sequence[NoisyPart]) -> Estimate:
    parts = [noisy[place] for place in plan.parts_of(aggregate)]
    return aggregate_of(aggregate.verb).finish(plan.asked_of(aggregate), parts)


def _estimate_json(estimate: Estimate) -> Json:
    return {
        "values": list(estimate.values),
        "std": list(estimate.std),
        "low": list(estimate.low),
        "high": list(estimate.high),
    }


def shown_answer(priced: Priced, text: str) -> Json:
    """Return a stored answer as a table, with the columns, names and order that the asker chose."""
    stored = json.loads(text)
    if stored.get("format") not in FORMATS:
        raise Bug("a stored answer has a format that nobody reads")
    question = priced.plan.question
    table = apply_having_order_limit(question, _table(priced, stored))
    places = [i for i, output in enumerate(question.outputs) if output.is_shown]
    return {
        "columns": [question.outputs[i].name for i in places],
        "rows": [[row.values[i] for i in places] for row in table],
        "std": [[row.std[i] for i in places] for row in table],
        **intervals_json([[row.intervals[i] for i in places] for row in table]),
        "guarantee": GUARANTEE,
    }


def intervals_json(rows: Sequence[Sequence[Any]]) -> Json:
    """Return finite confidence intervals in one field and open-ended ones in another.

    Older clients read two numbers or null in `interval`, so `interval` holds nothing else.
    """
    closed = [[bar if _has_ends(bar) else None for bar in row] for row in rows]
    opened: list[Json] = [
        {"row": place, "column": column, "low": _end(bar[0]), "high": _end(bar[1])}
        for place, row in enumerate(rows)
        for column, bar in enumerate(row)
        if bar is not None and not _has_ends(bar)
    ]
    return {"interval": closed, **({"open_intervals": opened} if opened else {})}


def _has_ends(bar: Sequence[float] | None) -> bool:
    return bar is not None and all(math.isfinite(end) for end in bar)


def _end(end: float) -> float | None:
    return end if math.isfinite(end) else None


def _table(priced: Priced, stored: Mapping[str, Any]) -> list[Row]:
    """Return the rows of the answer, one per group, in the order of the asker's own GROUP BY."""
    plan = priced.plan
    keys = _cell_keys(plan, stored)
    found = {
        output.name: _column(plan, output.of, stored["aggregates"], keys)
        for output in plan.question.outputs
        if not isinstance(output.of, Formula)
    }
    columns = [
        _reckoned(priced, output.of, stored, found)
        if isinstance(output.of, Formula)
        else found[output.name]
        for output in plan.question.outputs
    ]
    rows = [
        Row(
            tuple(c[0][place] for c in columns),
            tuple(c[1][place] for c in columns),
            tuple(c[2][place] for c in columns),
        )
        for place in range(_cells(plan, stored))
    ]
    return [rows[place] for place in _asked_order(plan, stored)]


def _reckoned(
    priced: Priced, formula: Formula, stored: Mapping[str, Any], columns: Mapping[str, _Column]
) -> _Column:
    """Compute the column of a formula from released values, with intervals; it costs nothing."""
    if not _cells(priced.plan, stored):
        return [], [], []
    parts = [np.array(part, dtype=np.int64) for part in stored["parts"]]
    values = {name: column[0] for name, column in columns.items()}
    rows = rows_of_totals(formula.expr, values)
    return evaluate_formula(
        FormulaErrors(priced.plan, formula, _with_all_draws(priced, parts), rows), values
    )


def _cells(plan: Plan, stored: Mapping[str, Any]) -> int:
    return plan.measure.cells if stored["keys"] is None else len(stored["keys"])


def _asked_order(plan: Plan, stored: Mapping[str, Any]) -> list[int]:
    """Return the stored groups' indexes in the order of the asker's own GROUP BY.

    Stored answers have the canonical order of the plan.
    """
    places = [[key.of for key in plan.keys].index(of) for of in plan.question.group_by]
    if stored["keys"] is None:
        grid = np.arange(plan.measure.cells).reshape([key.key.size or 1 for key in plan.keys])
        return grid.transpose(places).ravel().tolist()
    read = [[Constant(k["kind"], k["text"]) for k in cell] for cell in stored["keys"]]
    return sorted(range(len(read)), key=lambda row: [_rank(read[row][p]) for p in places])


def _cell_keys(plan: Plan, stored: Mapping[str, Any]) -> list[list[object]]:
    """Return the displayed key of every stored group, one list per GROUP BY expression."""
    if stored["keys"] is not None:
        return [
            [key.shown(Constant(c[i]["kind"], c[i]["text"])) for c in stored["keys"]]
            for i, key in enumerate(plan.keys)
        ]
    return [_public_keys(plan, place) for place in range(len(plan.keys))]


def _public_keys(plan: Plan, place: int) -> list[object]:
    key = plan.keys[place]
    keys = [key.shown(constant) for constant in key.keys or ()]
    below = 1
    for later in plan.keys[place + 1 :]:
        below *= later.key.size or 1
    return [keys[cell // below % len(keys)] for cell in range(plan.measure.cells)]


def _column(
    plan: Plan, of: Aggregate | Expr, aggregates: Mapping[str, Any], keys: list[list[object]]
) -> _Column:
    if not isinstance(of, Aggregate):
        values = keys[[key.of for key in plan.keys].index(of)]
        nothing: list[object] = [None] * len(values)
        return values, nothing, nothing
    stored = aggregates[aggregate_text(of)]
    pairs = zip(stored["low"], stored["high"], strict=True)
    bars = [None if low is None else [low, high] for low, high in pairs]
    return stored["values"], stored["std"], bars


def receipt(
    ledger: Ledger,
    priced: Priced,
    said: PlanDescription,
    *,
    charge: Charge,
    standing: OperationState,
) -> Json:
    """Return the signed receipt of a release.

    The receipt states the question, the price, the mechanism, the budget left, and the place in the
    ledger.
    """
    card = priced.plan.card
    people = people_account(card.people)
    accounts = _accounts(ledger, standing, charge.debtors)
    paid = Payment(charge.op, priced.epsilon, priced.delta, standing.debited)
    raised = top_up_json(priced)
    more: Json = {} if raised is None else {"top_up": raised}
    return {
        **more,
        **payment_json(paid, standing.seq, card.name, accounts),
        "says": said.says,
        "question": said.question(),
        "data_set": card.name,
        "version": card.version,
        "people": card.people,
        "guarantee": GUARANTEE,
        "unit": unit_of(card),
        "relation": relation(card),
        "bounding": said.bounding,
        "bounds": copy_description(said.bounds),
        "advice": list(said.advice),
        "mechanism": said.mechanism,
        "split": said.split(),
        "odds": odds_of(accounts[people], "person" if card.by_person else "row"),
        "interval": _interval(priced.plan),
        **not_dp_json(ledger, card.people, standing.head),
        **ledger.sign(signed_payment(paid, standing.head, standing.seq)),
    }


def _accounts(
    ledger: Ledger, standing: OperationState, debtors: tuple[Debtor, ...]
) -> dict[str, Account]:
    """Return the paying accounts at the ledger head that the receipt names.

    If the stored state lacks one of the accounts, the function reads all of them as they are now.
    """
    known = {account.name: account for account in standing.accounts}
    is_whole = known.keys() >= {debtor.account for debtor in debtors}
    is_seen = all(d.window is None or known[d.account].window for d in debtors if is_whole)
    return known if is_whole and is_seen else ledger.paying(debtors)


def not_dp_json(ledger: Ledger, people: str, head: LedgerHead | None = None) -> Json:
    """Return the note that releases without DP about these people exist; {} if there are none."""
    said = warning_beside_dp(ledger.not_dp(people, head))
    return {} if said is None else {"not_dp": said}


def _interval(plan: Plan) -> str:
    has_formula = any(isinstance(output.of, Formula) for output in plan.question.outputs)
    chosen = CHOSEN if is_selected_after_noise(plan.question) else ""
    return INTERVAL + (FORMULAS if has_formula else "") + chosen


FORMULAS = (
    "; the interval of a formula is exact for sums, of Fieller's kind for quotients, and "
    "otherwise holds at 95 % or more; if a divisor may be zero, it is the public range or has an "
    "open end"
)
CHOSEN = (
    "; it is not valid for rows that were chosen or ordered by their own noisy values, nor for the "
    "branch that a CASE takes by them"
)
INTERVAL = (
    "95 %, for the noise alone; it covers neither clamping, nor contribution bounds, nor "
    "sampling error"
)


def odds_of(account: Account, unit: str) -> str:
    """Return the sentence that bounds how sure an attacker can be of a guess about one person.

    The bound is for all releases about these people. It uses what their account has spent over all
    time (soundness rule 22).
    """
    spent = spent_in_all(account)
    return odds_text(spent.epsilon / EPSILON_UNITS, spent.delta / DELTA_UNITS, unit)
