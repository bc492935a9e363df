"""Compute one site's masked input to a sum without noise: `secure-average (not DP)`.

The sum has no epsilon, because no epsilon would be true. Instead, the card limits the number of
such sums per people domain (data sets about the same people). The site writes each sum to the
ledger before it reads a row. Every later receipt for these people states how many such sums there
are.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from sfumato.dp.json_values import Json
from sfumato.dp.ports import IntegerArray
from sfumato.dp.refusal import Bug
from sfumato.dp.secure_aggregation.participant import Participant
from sfumato.features.federated.agreement import Agreement
from sfumato.features.federated.average_plan import AveragePlan
from sfumato.features.federated.sum_release import SumDependencies, SumPart
from sfumato.query.contribution_bounds import bounds_json, bounds_text
from sfumato.query.model import query_json
from sfumato.query.plan_text import plan_text
from sfumato.release.accounts import data_set_account, left_to_pay
from sfumato.release.charged_reads import RowReader, attempt_read
from sfumato.release.guarantees.central_dp import NoisyCells
from sfumato.release.guarantees.secure_aggregation import mask_exact
from sfumato.release.guarded_release import accounts_paying
from sfumato.release.ledger_guard import NOT_DP, Ledger, question_failed, question_frozen
from sfumato.release.payment import stands_at
from sfumato.release.receipts import answer_text, not_dp_json, shown_answer
from sfumato.release.release_order import Asker
from sfumato.vault.card.data_card import Card
from sfumato.vault.card.secure_average_terms import GUARANTEE, HIDES, STOPPED, not_without_noise

FIRST_EPOCH: Final = 1
BESIDE: Final = (
    "it has no noise: whoever knows or guesses the other rows can compute a person's row from it"
)


@dataclass(frozen=True)
class AverageOrder:
    """A user's request for one site's input to a sum without noise: card, rows, plan, nonce."""

    card: Card
    table: str
    sum: AveragePlan
    asker: Asker
    nonce: bytes
    # refuses if the site may no longer take part in the round
    may_still: Callable[[], None] = lambda: None

    @property
    def agreement(self) -> Agreement:
        """Return the agreement between the sites."""
        return self.sum.joined


def can_average(door: SumDependencies, order: AverageOrder) -> None:
    """Refuse a sum without noise that the card or the ledger does not allow; writes nothing."""
    door.ledger.check_history()
    ledger, sum_ = door.ledger, order.sum
    if sum_.shape in {one["shape"] for one in _stopped(ledger, order.card.people)}:
        raise question_frozen()
    _check_limit(ledger, order, before=None)


def price_of_average(door: SumDependencies, card: Card, asker: Asker, sum_: AveragePlan) -> Json:
    """Return the guarantee of a sum without noise, and how many more the site's card allows.

    Writes nothing.
    """
    accounts = accounts_paying(door.ledger, card, asker)
    left = _releases(card) - len(_averages(door.ledger, card.people))
    return {
        "epsilon": None,
        "guarantee": GUARANTEE,
        "fits": left > 0,
        "releases_left": max(0, left),
        "left": left_to_pay(accounts[1], accounts),
        "says": _says(sum_),
        "hides": HIDES,
        "beside": BESIDE,
        **bounds_json(sum_.plan),
        "spent": False,
    }


def average_part(door: SumDependencies, order: AverageOrder, participant: Participant) -> SumPart:
    """Write the sum to the ledger, check the limit, read the rows, and return masked numbers.

    The ledger entry is durable before a row is read. It is written before earlier sums are counted.
    So two concurrent rounds cannot both count as the last sum that the card allows. The freeze
    check comes after the write: a confirmed freeze has waited for the ledger, so it comes after
    every earlier entry.
    """
    can_average(door, order)
    head = door.ledger.note(NOT_DP, _body(order, participant))
    _check_limit(door.ledger, order, before=head.seq)
    order.may_still()
    message = _read(door, order, participant)
    at = stands_at(head.ledger, head)
    signed: Json = {**at, "op": _operation(order.nonce), "charged": []}
    return SumPart(message, _receipt(door.ledger, order, signed))


def averaged_answer(sum_: AveragePlan, total: IntegerArray) -> Json:
    """Format a finished sum without noise as an answer; read no row."""
    priced = sum_.unpriced()
    answer = shown_answer(priced, answer_text(priced, NoisyCells(tuple(sum_.parts_of(total)))))
    answer.pop("open_intervals", None)
    columns, rows = cast("list[str]", answer["columns"]), cast("list[object]", answer["rows"])
    nothing = [[None] * len(columns) for _ in rows]
    said: Json = {
        "epsilon": None,
        "delta": None,
        "says": _says(sum_),
        "question": query_json(sum_.plan.question),
        "data_set": sum_.plan.card.name,
        "version": sum_.plan.card.version,
        "guarantee": GUARANTEE,
        "hides": HIDES,
        "beside": BESIDE,
        **bounds_json(sum_.plan),
        "noise": [],
    }
    errors: Json = {"std": nothing, "interval": nothing}
    return {**answer, **errors, "guarantee": GUARANTEE, "receipt": said}


# --- the limit --------------------------------------------------------------------------------


def _check_limit(ledger: Ledger, order: AverageOrder, before: int | None) -> None:
    """Refuse a sum above the card's limit, or over other sites or rows than earlier sums.

    Two sums that differ in one site reveal that site's numbers. Two sums that differ in one
    person's rows reveal those rows. `before` is the sequence number of this round's own ledger
    entry, or None if it is not written yet.
    """
    people, limit = order.card.people, _releases(order.card)
    if ledger.store.head().epoch != FIRST_EPOCH:
        raise not_without_noise(
            "the ledger may have lost entries, so nobody knows how many sums without noise were "
            "released"
        )
    earlier = [one for seq, one in _averages(ledger, people) if before is None or seq < before]
    if len(earlier) >= limit:
        raise not_without_noise(
            f"{len(earlier)} sums about {people!r} were already released without noise, and the "
            f"data card allows {limit}"
        )
    if any(one["cohort"] != order.sum.cohort for one in earlier):
        raise not_without_noise(
            f"earlier sums about {people!r} were over other sites, and the difference could show "
            "one site's numbers"
        )
    if any(one.get("rows") != _rows(order) for one in earlier):
        raise not_without_noise(
            f"earlier sums about {people!r} were over other rows, and the difference could show "
            "those rows"
        )


def _averages(ledger: Ledger, people: str) -> list[tuple[int, Any]]:  # Any: JSON of our own ledger
    """Return all sums without noise about these people, as (ledger entry number, entry body)."""
    found = [(entry.seq, json.loads(entry.body)) for entry in ledger.store.notes(NOT_DP)]
    return [(s, b) for s, b in found if (b["people"], b["guarantee"]) == (people, GUARANTEE)]


def _stopped(ledger: Ledger, people: str) -> list[Any]:  # Any: JSON of our own ledger
    found = [json.loads(entry.body) for entry in ledger.store.notes(STOPPED)]
    return [one for one in found if one["people"] == people]


def _releases(card: Card) -> int:
    if card.averages is None:
        raise Bug("a sum without noise was planned for a card that allows none")
    return card.averages.releases


# --- helpers ----------------------------------------------------------------------------------


def _read(door: SumDependencies, order: AverageOrder, participant: Participant) -> bytes:
    """Read the rows and return this site's masked numbers; all failures get one refusal code."""

    reader = RowReader(door.ledger, order.card.name, order.sum.shape)

    def look() -> bytes:
        sealed = reader.read(lambda: door.engine.measure(order.table, order.sum.plan.measure))
        return mask_exact(sealed, order.sum, participant)

    message, is_stopped = attempt_read(look)
    if is_stopped:
        said: Json = {"data_set": order.card.name, "people": order.card.people}
        door.ledger.note(STOPPED, {**said, "shape": order.sum.shape, "says": _says(order.sum)})
    if message is None:
        raise question_failed()
    return message


def _body(order: AverageOrder, participant: Participant) -> Json:
    card, sum_ = order.card, order.sum
    return {
        "guarantee": GUARANTEE,
        "people": card.people,
        "data_set": card.name,
        "version": card.version,
        "by": order.asker.user,
        "says": _says(sum_),
        "question": query_json(sum_.plan.question),
        "bounding": bounds_text(sum_.plan),
        "federation": order.agreement.as_json(),
        "site": participant.name,
        "cohort": sum_.cohort,
        "rows": _rows(order),
        "about": sum_.about,
        "round": order.nonce.hex(),
    }


def _rows(order: AverageOrder) -> str:
    """Return a text that identifies the rows of a sum: the prepared rows and the bound `max_rows`.

    A later sum must have the same text. An amended card keeps the prepared rows. Newly loaded rows
    have another identity, under any name.
    """
    return f"{Path(order.table).stem}/{order.card.max_rows}"


def _says(sum_: AveragePlan) -> str:
    agreement = sum_.joined
    return (
        f"{plan_text(sum_.plan)}, added up without noise over all {len(agreement.members)} sites "
        f"({agreement.name})"
    )


def _operation(nonce: bytes) -> str:
    return f"average-{nonce.hex()}"


def _receipt(ledger: Ledger, order: AverageOrder, signed: Json) -> Json:
    card, sum_ = order.card, order.sum
    accounts = {a.name: a for a in accounts_paying(ledger, card, order.asker)}
    return {
        "epsilon": None,
        "delta": None,
        "left": left_to_pay(accounts[data_set_account(card.name)], accounts.values()),
        "releases_left": max(0, _releases(card) - len(_averages(ledger, card.people))),
        "op": signed["op"],
        "seq": signed["seq"],
        "free": False,
        "charged": {},
        "says": _says(sum_),
        "data_set": card.name,
        "version": card.version,
        "people": card.people,
        "guarantee": GUARANTEE,
        "hides": HIDES,
        "beside": BESIDE,
        **bounds_json(sum_.plan),
        **not_dp_json(ledger, card.people),
        **ledger.sign(signed),
    }
