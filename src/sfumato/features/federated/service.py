"""A site: a vault that takes part in sums over several sites, on what its owner has agreed to.

A caller needs what any asker needs here, a token and a group that the card lets ask. A round needs
more: the convener's signature, and every site of the agreement with the keys that the owner put
down. What it costs is charged by this vault's own door.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfumato.dp.budget import read_delta, read_epsilon
from sfumato.dp.json_values import Json
from sfumato.dp.learning.integer_network import unpacked
from sfumato.dp.learning.training_task import read_training_task
from sfumato.dp.refusal import Refused
from sfumato.dp.secure_aggregation.participant import Participant
from sfumato.dp.secure_aggregation.round_terms import not_trusted
from sfumato.features.federated.agreement import (
    JOINED,
    LEFT,
    Agreement,
    NonceStore,
    agreement_of,
    bad_federation,
    read_agreement,
)
from sfumato.features.federated.average_plan import AveragePlan, plan_average
from sfumato.features.federated.average_release import (
    AverageOrder,
    average_part,
    averaged_answer,
    can_average,
    price_of_average,
)
from sfumato.features.federated.secure_rounds import JOIN, Round, Rounds, hash_of
from sfumato.features.federated.sum_plan import SumPlan, plan_sum
from sfumato.features.federated.sum_release import (
    SumDoor,
    SumOrder,
    can_pay,
    price_of,
    sum_part,
    summed_answer,
)
from sfumato.features.federated.tensor_service import Said, Tensors
from sfumato.features.federated.training_plan import TrainPlan, plan_training
from sfumato.features.federated.training_progress import Looks
from sfumato.features.federated.training_release import (
    TrainDoor,
    TrainOrder,
    can_train,
    price_of_training,
    training_part,
)
from sfumato.query.model import Query
from sfumato.release.permissions import asked_listing, check_thawed, no_data_set, question_of
from sfumato.release.plan_cache import PlanCache
from sfumato.release.release_order import Asker
from sfumato.vault.card.data_card import Card
from sfumato.vault.card.secure_average_terms import GUARANTEE
from sfumato.vault.ports import Catalogue, Listing
from sfumato.vault.users import Caller

STAGES: Final = ("share", "mask", "agree", "reveal")


@dataclass(frozen=True)
class Asked:
    """A question over the sites of a federation, as it came: every site is asked the same."""

    data_set: str
    federation: str
    sql: str | None = None
    question: object = None
    epsilon: object = None
    delta: object = None
    max_groups: int | None = None
    max_rows: int | None = None
    lesson: object = None  # instead of a question: what is to be learnt,
    number: int = 0  # in which round of it,
    weights: bytes = b""  # and the model that this round begins with
    told: tuple[tuple[str, float], ...] = ()  # its loss and accuracy on public rows,
    paid: tuple[tuple[str, float], ...] = ()  # and what each site has paid, by who convenes
    guarantee: str | None = None  # a sum with noise, if left out; else secure-average (not DP)


@dataclass(frozen=True)
class Sites:
    """What a vault does as a site."""

    door: SumDoor
    catalogue: Catalogue
    nonces: Callable[[], NonceStore]
    identity: Callable[[], Ed25519PrivateKey]  # made when the first site verb is used
    trainer: TrainDoor | None = None  # None where the rows lie in an engine that cannot learn
    plans: PlanCache = field(default_factory=PlanCache)
    rounds: Rounds = field(default_factory=Rounds)
    tensors: Tensors = field(default_factory=Tensors)
    looks: Looks = field(default_factory=Looks)

    # --- agreements ---------------------------------------------------------------------------

    def key(self) -> Json:
        """Return the public half of this site's identity, which other sites put down."""
        return {"key": self._public().hex()}

    def join(self, caller: Caller, data_set: str, shape: Mapping[str, object]) -> Json:
        """Put an agreement down for a data set; the owner's act. The same again changes nothing."""
        listing = self._own(caller, data_set)
        agreement = read_agreement(shape)
        if agreement.name_of(self._public()) is None:
            raise bad_federation("this site is not of it, or has another key there")
        standing = self._agreements(listing.card.name).get(agreement.name)
        if standing not in (None, agreement):
            raise bad_federation("another of that name stands; leave it first")
        if standing is None:
            self._note(JOINED, listing.card, agreement, caller)
        return self._shown(agreement)

    def leave(self, caller: Caller, data_set: str, name: str) -> Json:
        """Take no further part in a federation's sums; the owner's act."""
        listing = self._own(caller, data_set)
        agreement = self._found(listing.card.name, name)
        self._note(LEFT, listing.card, agreement, caller)
        return self._shown(agreement)

    def all(self, caller: Caller, data_set: str) -> Json:
        """Return the agreements that stand for a data set, for whoever may ask it."""
        listing, _ = self._listing(caller, data_set)
        found = self._agreements(listing.card.name)
        return {"federations": [self._shown(found[name]) for name in sorted(found)]}

    def lessons(self, caller: Caller, data_set: str) -> Json:
        """Return how far lessons have come: all to the owner, to others their own."""
        listing, _ = self._listing(caller, data_set)
        whose = None if caller.user == listing.owner else caller.user
        return self.looks.lessons(self.door.ledger, listing.card.name, whose)

    # --- sums ---------------------------------------------------------------------------------

    def price(self, caller: Caller, asked: Asked) -> Json:
        """Return what a sum costs here and how far off it would be; nothing is spent or read."""
        listing, asker = self._listing(caller, asked.data_set)
        if asked.lesson is not None:
            plan = self._training(listing.card, asked)
            terms: Json = {"about": plan.about, "size": plan.size, "bits": plan.bits}
            return {**price_of_training(self._trainer(), listing.card, asker, plan), **terms}
        sum_ = self._summed(listing.card, asked)
        terms = {"about": sum_.about, "size": sum_.size, "bits": sum_.bits}
        if isinstance(sum_, AveragePlan):
            return {**price_of_average(self.door, listing.card, asker, sum_), **terms}
        return {**price_of(self.door, listing.card, asker, sum_), **terms}

    def begin(self, caller: Caller, asked: Asked, invitation: bytes) -> Json:
        """Take part in a round: return this site's keys for it, if it is one to take part in."""
        self._check_still(caller, asked.data_set)
        listing, asker = self._listing(caller, asked.data_set)
        before = self.rounds.begun(caller.user, invitation)
        if before is not None:  # the reply was lost on its way
            return before
        sum_, about = self._planned(listing.card, asked)
        participant = self._participant(sum_.agreement)
        keys = participant.join(invitation)
        terms = participant.terms
        sum_.agreement.check(terms)
        if (terms.about, terms.size) != (about, sum_.size) or terms.bits < sum_.bits:
            raise not_trusted("the round is not of this question at this price on this site's card")
        order = self._ordered(listing, sum_, asker, asked, terms.nonce)
        if not self.nonces().take(terms.nonce):
            raise not_trusted("this site has been in a round of that nonce before")
        nonce = terms.nonce.hex()
        reply: Json = {"round": nonce, "message": keys}
        made = Round(order, participant, JOIN, hash_of(invitation), reply)
        self.rounds.add(caller.user, nonce, made)
        return reply

    def go_on(self, caller: Caller, data_set: str, nonce: str, stage: str, said: bytes) -> Json:
        """Return this site's message of that stage of a round that it has joined."""
        listing, _ = self._listing(caller, data_set)
        found = self.rounds.find(caller.user, nonce)
        if found is None or found.order.card.name != listing.card.name:
            raise Refused(
                "sum-message-refused",
                "The site is in no such round: it was not joined, is over, or the site was "
                "started again.",
                "Convene another round.",
            )
        if stage == "mask":
            return found.once(stage, said, lambda: self._masked(caller, listing, found, said))
        act = getattr(found.participant, stage)
        return found.once(stage, said, lambda: {"message": act(said)})

    def answer(self, caller: Caller, asked: Asked, total: list[int], sites: int) -> Json:
        """Return a finished sum as a table; it is anyone's arithmetic, and no row is read."""
        listing, _ = self._listing(caller, asked.data_set)
        sum_ = self._summed(listing.card, asked)
        reach = 1 << 62
        most = len(sum_.agreement.members)
        if len(total) != sum_.size or not all(abs(one) < reach for one in total):
            raise _malformed("the sum has other numbers than the question")
        if not sum_.agreement.floor <= sites <= most:
            raise _malformed("so many sites are not of the agreement, or below its floor")
        added = np.array(total, dtype=np.int64)
        if isinstance(sum_, AveragePlan):
            return averaged_answer(sum_, added)
        return summed_answer(sum_, added, sites)

    def table(self, caller: Caller, data_set: str, said: Said) -> bytes:
        """Return what the caller's own tensors are told of a data set: its declared shape."""
        listing, _ = self._listing(caller, data_set)
        return self.tensors.declare(caller, listing.card, said)

    # --- helpers ------------------------------------------------------------------------------

    def _masked(self, caller: Caller, listing: Listing, found: Round, delivery: bytes) -> Json:
        """Charge, read and mask: on the card of the beginning, by an agreement that stands."""
        order = found.order
        may_still = partial(self._check_still, caller, listing.card.name)
        may_still()
        if listing.card != order.card:
            raise not_trusted("the data set has become another since the round began")
        if self._found(listing.card.name, order.agreement.name) != order.agreement:
            raise not_trusted("the agreement has become another since the round began")
        found.participant.hear(delivery)
        if isinstance(order, TrainOrder):
            now = replace(order, table=listing.table, may_still=may_still)
            part = training_part(self._trainer(), now, found.participant)
        elif isinstance(order, AverageOrder):
            exact = replace(order, table=listing.table, may_still=may_still)
            part = average_part(self.door, exact, found.participant)
        else:
            noisy = replace(order, table=listing.table, may_still=may_still)
            part = sum_part(self.door, noisy, found.participant)
        return {"message": part.message, "receipt": part.receipt}

    def _planned(self, card: Card, asked: Asked) -> tuple[SumPlan | AveragePlan | TrainPlan, str]:
        """Return what is summed, and what a round of it has to say that it is about."""
        if asked.lesson is None:
            sum_ = self._summed(card, asked)
            return sum_, sum_.about
        plan = self._training(card, asked)
        if not 1 <= asked.number <= plan.lesson.rounds:
            raise _malformed(f"the lesson has rounds 1 to {plan.lesson.rounds}")
        unpacked(asked.weights, plan.size)
        if dict(asked.paid).keys() - {member.name for member in plan.agreement.members}:
            raise _malformed("what is told of payments is of sites of the agreement")
        return plan, plan.about_round(asked.number, asked.weights)

    def _ordered(
        self,
        listing: Listing,
        sum_: SumPlan | AveragePlan | TrainPlan,
        asker: Asker,
        asked: Asked,
        nonce: bytes,
    ) -> SumOrder | AverageOrder | TrainOrder:
        """Return the order of a round that this site can pay, or refuse."""
        card, table = listing.card, listing.table
        if isinstance(sum_, AveragePlan):
            average = AverageOrder(card, table, sum_, asker, nonce)
            can_average(self.door, average)
            return average
        if isinstance(sum_, SumPlan):
            order = SumOrder(card, table, sum_, asker, nonce)
            can_pay(self.door, order)
            return order
        told = asked.told, asked.paid
        lesson = TrainOrder(card, table, sum_, asker, asked.number, asked.weights, *told)
        can_train(self._trainer(), lesson)
        return lesson

    def _summed(self, card: Card, asked: Asked) -> SumPlan | AveragePlan:
        if asked.guarantee is not None:
            return self._averaged(card, asked)
        agreement, epsilon, delta = self._terms(card, asked)
        return plan_sum(card, self._question(card, asked), agreement, epsilon, delta)

    def _averaged(self, card: Card, asked: Asked) -> AveragePlan:
        if asked.guarantee != GUARANTEE or (asked.epsilon, asked.delta) != (None, None):
            raise _malformed(f"a sum without noise has no price, and is asked as {GUARANTEE!r}")
        agreement = self._found(card.name, asked.federation)
        return plan_average(card, self._question(card, asked), agreement)

    def _training(self, card: Card, asked: Asked) -> TrainPlan:
        self._trainer()
        agreement, epsilon, delta = self._terms(card, asked)
        return plan_training(card, read_training_task(asked.lesson), agreement, epsilon, delta)

    def _terms(self, card: Card, asked: Asked) -> tuple[Agreement, Fraction, Fraction]:
        agreement = self._found(card.name, asked.federation)
        delta = card.delta_per_request if asked.delta is None else read_delta(asked.delta)
        return agreement, read_epsilon(asked.epsilon), delta

    def _trainer(self) -> TrainDoor:
        if self.trainer is None:
            raise Refused(
                "engine-unavailable",
                "Models are trained where rows lie in DuckDB, and this site's lie elsewhere.",
                "Ask it questions, or have its owner make a vault without --engine.",
            )
        return self.trainer

    def _question(self, card: Card, asked: Asked) -> Query:
        if asked.sql is not None:
            return self.plans.question(asked.sql, card.name, asked.max_groups, asked.max_rows)
        question = question_of(card, asked.question)
        return replace(
            question,
            max_groups=asked.max_groups or question.max_groups,
            max_rows=asked.max_rows or question.max_rows,
        )

    def _participant(self, agreement: Agreement) -> Participant:
        name = agreement.name_of(self._public())
        if name is None:  # the site's key is another since
            raise not_trusted("this site is not of the cohort")
        return Participant(name, self.identity(), agreement.trust(), self.door.dice, set())

    def _agreements(self, data_set: str) -> dict[str, Agreement]:
        """Return what stands by the ledger: what was joined last and not left since."""
        store = self.door.ledger.store
        acts = sorted((*store.notes(JOINED), *store.notes(LEFT)), key=lambda entry: entry.seq)
        found: dict[str, Agreement] = {}
        for entry in acts:
            if json.loads(entry.body)["data_set"] == data_set:
                agreement = agreement_of(entry.body)
                found.pop(agreement.name, None)
                if entry.kind == JOINED:
                    found[agreement.name] = agreement
        return found

    def _found(self, data_set: str, name: str) -> Agreement:
        found = self._agreements(data_set).get(name)
        if found is None:
            raise Refused(
                "federation-unknown",
                f"The owner has not put down a federation {name!r} for this data set.",
                "Ask the owner to join it with `sfumato federate join`.",
            )
        return found

    def _note(self, kind: str, card: Card, agreement: Agreement, caller: Caller) -> None:
        body: Json = {"data_set": card.name, "people": card.people, "by": caller.user}
        self.door.ledger.check_history()
        self.door.ledger.note(kind, {**body, "agreement": agreement.as_json()})

    def _shown(self, agreement: Agreement) -> Json:
        own = agreement.name_of(self._public())
        return {**agreement.as_json(), "digest": agreement.digest, "this_site": own}

    def _public(self) -> bytes:
        return self.identity().public_key().public_bytes_raw()

    def _check_still(self, caller: Caller, data_set: str) -> None:
        """Refuse whoever may not ask any more, and anybody while the owner lets nobody ask."""
        listing, _ = self._listing(caller, data_set)
        check_thawed(self.catalogue, listing, caller.user)

    def _own(self, caller: Caller, data_set: str) -> Listing:
        found = self.catalogue.find(data_set) if caller.reaches(data_set) else None
        if found is None or found.owner != caller.user:
            raise no_data_set(data_set, caller.user)
        return found

    def _listing(self, caller: Caller, data_set: str) -> tuple[Listing, Asker]:
        """Return a data set that the caller owns or may ask, or refuse."""
        found, groups = asked_listing(self.catalogue, caller, data_set)
        return found, Asker(caller.user, groups)


def _malformed(why: str) -> Refused:
    return Refused("bad-request", f"The request is malformed: {why}.", "See /openapi.json.")
