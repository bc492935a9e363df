"""Charge a training run, and compute one site's masked input to its rounds.

The run is DP-SGD or DP-FedAvg. A site pays once for all rounds, and reads its rows once per round.
The operation in the ledger is named after the run. A round's number is stored permanently before
the rows are read. So no round is answered twice, not in another secure sum and not after a restart.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Never

from sfumato.dp.accounting.privacy_events import privacy_cost
from sfumato.dp.accounting.privacy_filter import fits_under_cap
from sfumato.dp.budget import DELTA_UNITS, EPSILON_UNITS
from sfumato.dp.json_values import Json
from sfumato.dp.ports import IntegerArray, RandomSource
from sfumato.dp.refusal import Refused
from sfumato.dp.secure_aggregation.participant import Participant
from sfumato.features.federated.agreement import Agreement
from sfumato.features.federated.sum_release import MECHANISM, SumPart, against, check_fits
from sfumato.features.federated.training_plan import FORMAT, TrainPlan
from sfumato.query.expression import canonical_json
from sfumato.query.plan_text import odds_text
from sfumato.release.accounts import debtors, left_to_pay
from sfumato.release.charged_reads import RowReader, attempt_read
from sfumato.release.guarantees.secure_aggregation import GUARANTEE, learning_masked, learning_share
from sfumato.release.guarded_release import accounts_paying
from sfumato.release.ledger_guard import Ledger, question_failed, question_frozen
from sfumato.release.payment import Payment, on_card, payment_json, relation, signed_payment
from sfumato.release.plan_description import digest
from sfumato.release.receipts import not_dp_json
from sfumato.release.release_order import Asker
from sfumato.vault.budget_windows import spent_in_all
from sfumato.vault.card.data_card import Card
from sfumato.vault.ledger_entries import Charge, Charged, Pending
from sfumato.vault.training_port import LearnEngine, LearnOrder

KIND: Final = "training"
ROUND: Final = "training-round"  # kind of ledger entry: one round of a paid training run is used up


@dataclass(frozen=True)
class TrainDoor:
    """What a site needs for a training round: ledger, engine, randomness, and the used rounds."""

    ledger: Ledger
    engine: LearnEngine
    dice: RandomSource
    is_new: Callable[[bytes], bool]  # stores a round durably, and returns whether it is new
    code: str = ""
    turn: threading.Lock = field(default_factory=threading.Lock)  # one round reads rows at a time


@dataclass(frozen=True)
class TrainOrder:
    """A user's request for one site's input to one round of a training run."""

    card: Card
    table: str
    plan: TrainPlan
    asker: Asker
    number: int
    weights: bytes
    told: tuple[tuple[str, float], ...] = ()  # metrics on public rows, reported by the convener
    paid: tuple[tuple[str, float], ...] = ()  # epsilon per site, reported by the convener
    # refuses if the site may no longer take part in the run
    may_still: Callable[[], None] = lambda: None

    @property
    def agreement(self) -> Agreement:
        """Return the agreement between the sites."""
        return self.plan.agreement

    @property
    def operation(self) -> str:
        """Return the name of the ledger operation that pays for the whole training run."""
        return f"train-{self.plan.lesson.name}"

    @property
    def round(self) -> bytes:
        """Return the hash that identifies this round of this run, in any secure sum."""
        said = f"{self.card.people} {self.card.name} {self.plan.lesson.name} {self.number}"
        return hashlib.sha256(said.encode()).digest()


def can_train(door: TrainDoor, order: TrainOrder) -> None:
    """Refuse a training run that this site cannot pay for; a run that is already paid continues."""
    door.ledger.check_history()
    if door.ledger.answer_of(order.asker.user, order.operation) is not None:
        return
    check_fits(door.ledger, order.card, order.asker, order.plan.event)


def price_of_training(door: TrainDoor, card: Card, asker: Asker, plan: TrainPlan) -> Json:
    """Return the price of a training run at this site and whether it fits; spends nothing."""
    accounts = accounts_paying(door.ledger, card, asker)
    debt = privacy_cost(plan.event)
    after = spent_in_all(accounts[0]) + debt
    unit = "person" if card.by_person else "row"
    return {
        "epsilon": float(plan.epsilon),
        "delta": float(plan.delta),
        "fits": all(fits_under_cap(account.cap, account.spent, debt) for account in accounts),
        "left": left_to_pay(accounts[1], accounts),
        "noise": _noise(plan),
        "says": says(plan),
        "against": against(plan.agreement),
        "bounding": bounding(plan),
        "odds": odds_text(after.epsilon / EPSILON_UNITS, after.delta / DELTA_UNITS, unit),
        "mechanism": MECHANISM,
        "spent": False,
    }


def training_part(door: TrainDoor, order: TrainOrder, participant: Participant) -> SumPart:
    """Charge the run, store the round's number, read the rows, and return masked numbers.

    The noise share is drawn before the read, so its running time does not depend on any row. The
    Poisson sample is drawn anew for this one read. A stored round is never read again.
    """
    share = learning_share(order.plan, door.dice)
    learn = order.plan.order(order.table, order.weights, order.plan.coins(door.dice))
    charge = _charge(door, order)
    outcome = door.ledger.charge(charge)
    if isinstance(outcome, Pending) or not door.is_new(order.round):
        raise Refused(
            "sum-message-refused",
            "The site has already sent its message of this training round, and sends only one.",
            "Continue with the next round.",
        )
    _note(door.ledger, order)
    with door.turn:
        _check_shape(door.ledger, charge)
        message = _read(door, order, charge, participant, share, learn)
    stored = canonical_json(
        {"format": FORMAT, "version": order.card.version, "about": order.plan.about}
    )
    settled = door.ledger.settle(charge.user, charge.op, stored)
    paid_now = isinstance(outcome, Charged) and not outcome.paid_before
    names = tuple(sorted(a.name for a in outcome.accounts)) if paid_now else ()
    paid = Payment(charge.op, order.plan.epsilon, order.plan.delta, names)
    signed = signed_payment(paid, settled.head, outcome.seq)
    return SumPart(message, _receipt(door.ledger, order, paid, settled.head.seq, signed))


def _note(ledger: Ledger, order: TrainOrder) -> None:
    """Write the round into the ledger, so that an older copy of the vault is detected and frozen.

    Later rounds charge nothing. Without an entry, no anchor would show that they were used.
    """
    said: Json = {"data_set": order.card.name, "people": order.card.people}
    words = {"told": dict(order.told), "paid": dict(order.paid)}
    told: Json = {name: word for name, word in words.items() if word}
    ledger.note(ROUND, {**said, "op": order.operation, "round": order.number, **told})


def _check_shape(ledger: Ledger, charge: Charge) -> None:
    """Refuse a training run if an engine limit stopped one of its rounds.

    Whether a limit stops a round can depend on the rows, so each further round would leak one more
    bit. The run is already paid, so the charge does not check the shape again.
    """
    if charge.shape in ledger.store.frozen_shapes():
        raise question_frozen()


def _read(  # noqa: PLR0913, PLR0917  # what one read needs
    door: TrainDoor,
    order: TrainOrder,
    charge: Charge,
    participant: Participant,
    share: IntegerArray,
    learn: LearnOrder,
) -> bytes:
    """Read the rows and return this site's masked numbers; all failures get one refusal code."""

    reader = RowReader.of(door.ledger, charge)

    def look() -> bytes:
        sealed = reader.read(lambda: door.engine.learn(learn))
        return learning_masked(sealed, order.plan, participant, share, door.dice)

    message, is_stopped = attempt_read(look)
    if message is None:
        _failed(door.ledger, charge, charge.shape if is_stopped else None)
    return message


def _failed(ledger: Ledger, charge: Charge, shape: str | None) -> Never:
    if shape is not None or ledger.answer_of(charge.user, charge.op) is None:
        ledger.fail(charge.user, charge.op, shape)  # a run that has an answer continues
    raise question_failed()


def says(plan: TrainPlan) -> str:
    """Return the sentence of receipts that describes a run's network, its rounds and its sites."""
    lesson, agreement = plan.lesson, plan.agreement
    where = "at each site" if lesson.is_of_sites else "of each person's own"
    along, drawn = "all rows", ""
    if lesson.sample < 1:
        along = "the rows of a sample"
        drawn = f"; everybody is in it with chance {float(lesson.sample):g}"
    how = f"{lesson.local} steps {where}" if lesson.local else f"one step along {along}"
    known = "1 column" if len(lesson.features) == 1 else f"{len(lesson.features)} columns"
    return (
        f"A network of {plan.size:,} numbers{_front(plan)} learns {lesson.target} from {known} in "
        f"at most {lesson.rounds} rounds ({how} a round{drawn}), "
        f"added up over {len(agreement.members)} sites ({agreement.name})"
    )


def _front(plan: TrainPlan) -> str:
    """Describe, for a receipt, the convolutions and embeddings before the linear layers."""
    front = plan.network.front
    if front is None:
        return ""
    kernels, tables = len(front.convs), len(front.tables)
    said = [f"{kernels} convolution{'s' * (kernels > 1)}"] if kernels else []
    said += [f"{tables} table{'s' * (tables > 1)} of entries"] if tables else []
    return f" with {' and '.join(said)}"


def bounding(plan: TrainPlan) -> str:
    """Describe, for a receipt, the norm to which a person's or site's contribution is clipped."""
    lesson = plan.lesson
    if lesson.is_of_sites:
        return f"a site's whole update has a norm of at most {float(lesson.clip):g}"
    if lesson.local:
        return (
            f"at most {lesson.max_rows} rows a person, whose whole update has a norm of at most "
            f"{float(lesson.clip):g} in every round"
        )
    return (
        f"at most {lesson.max_rows} rows a person, whose gradients together have a norm of at most "
        f"{float(lesson.clip):g} in every round"
    )


def _noise(plan: TrainPlan) -> list[Json]:
    said: Json = {
        "kind": "skellam",
        "variance": str(plan.sum.variance),
        "share": str(plan.sum.share),
        "unit": plan.unit,
        "rounds": plan.lesson.rounds,
    }
    return [said]


def _charge(door: TrainDoor, order: TrainOrder) -> Charge:
    card, plan, agreement = order.card, order.plan, order.plan.agreement
    terms: Json = {
        "about": plan.about,
        "federation": agreement.as_json(),
        "lesson": plan.lesson.as_json(),
    }
    shape = digest({KIND: {k: v for k, v in plan.lesson.as_json().items() if k != "name"}})
    return Charge(
        user=order.asker.user,
        op=order.operation,
        # after a lost ledger is acknowledged, a new epoch begins, and no run continues in it
        request=digest({**terms, "version": card.version,
                         "epoch": door.ledger.store.head().epoch}),
        answer_key=digest({**terms, "version": card.version, "people": card.people,
                            "by": order.asker.user}),
        shape=shape,
        debtors=debtors(card, order.asker.user, order.asker.groups),
        debt=privacy_cost(plan.event),
        body={
            KIND: terms,
            "code": door.code,
            "says": says(plan),
            "bounding": bounding(plan),
            "mechanism": MECHANISM,
            "shape": shape,
            **on_card(card),
            "guarantee": GUARANTEE,
            "against": against(agreement),
            "event": plan.event.name,
            "epsilon": str(plan.epsilon),
            "delta": str(plan.delta),
            "noise": _noise(plan),
            "selection": None,
        },
        check_access=order.may_still,
    )  # fmt: skip


def _receipt(ledger: Ledger, order: TrainOrder, paid: Payment, seq: int, signed: Json) -> Json:
    card, plan = order.card, order.plan
    accounts = {a.name: a for a in accounts_paying(ledger, card, order.asker)}
    return {
        **payment_json(paid, seq, card.name, accounts),
        "says": says(plan),
        "round": order.number,
        "data_set": card.name,
        "version": card.version,
        "people": card.people,
        "guarantee": GUARANTEE,
        "against": against(plan.agreement),
        "relation": relation(card),
        "bounding": bounding(plan),
        "mechanism": MECHANISM,
        **not_dp_json(ledger, card.people),
        **ledger.sign(signed),
    }
