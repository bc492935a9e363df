"""Verbs of a site: join agreements and take part in secure aggregation and training rounds.

A caller needs a token and membership in a group that the card allows. A round also needs the
convener's signature and the agreement's sites with the keys that the owner has stored. The ledger
of this vault is charged for the site's numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial

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
from sfumato.features.federated.schema import JoinSum, PriceSum, TensorTable
from sfumato.features.federated.secure_rounds import JOIN, Round, Rounds, hash_of
from sfumato.features.federated.sum_plan import SumPlan, plan_sum
from sfumato.features.federated.sum_release import (
    SumDependencies,
    SumOrder,
    can_pay,
    price_of,
    sum_part,
    summed_answer,
)
from sfumato.features.federated.tensor_service import Tensors
from sfumato.features.federated.training_plan import TrainPlan, plan_training
from sfumato.features.federated.training_progress import ProgressCache
from sfumato.features.federated.training_release import (
    TrainDoor,
    TrainOrder,
    can_train,
    price_of_training,
    training_part,
)
from sfumato.query.model import Query
from sfumato.release.permissions import check_not_frozen, listing_to_query, no_data_set, question_of
from sfumato.release.plan_cache import PlanCache
from sfumato.release.release_order import Asker
from sfumato.vault.card.data_card import Card
from sfumato.vault.card.secure_average_terms import GUARANTEE
from sfumato.vault.ports import Catalogue, Listing
from sfumato.vault.users import Caller


@dataclass(frozen=True)
class SiteService:
    """The service of a federated site: agreements, prices, secure sums and training rounds."""

    door: SumDependencies
    catalogue: Catalogue
    nonces: Callable[[], NonceStore]
    identity: Callable[[], Ed25519PrivateKey]  # created on first use
    trainer: TrainDoor | None = None  # None if the engine cannot train
    plans: PlanCache = field(default_factory=PlanCache)
    rounds: Rounds = field(default_factory=Rounds)
    tensors: Tensors = field(default_factory=Tensors)
    progress_cache: ProgressCache = field(default_factory=ProgressCache)

    # --- agreements ---------------------------------------------------------------------------

    def key(self) -> Json:
        """Return this site's public key, which other sites store in their agreement."""
        return {"key": self._public().hex()}

    def join(self, caller: Caller, data_set: str, shape: Mapping[str, object]) -> Json:
        """Store an agreement for a data set; owner only. Joining again changes nothing."""
        listing = self._own(caller, data_set)
        agreement = read_agreement(shape)
        if agreement.name_of(self._public()) is None:
            raise bad_federation("this site is not in it, or has another key there")
        standing = self._agreements(listing.card.name).get(agreement.name)
        if standing not in (None, agreement):
            raise bad_federation("another agreement has that name; leave it first")
        if standing is None:
            self._note(JOINED, listing.card, agreement, caller)
        return self._shown(agreement)

    def leave(self, caller: Caller, data_set: str, name: str) -> Json:
        """Leave a federation, so that the data set joins no further sums; owner only."""
        listing = self._own(caller, data_set)
        agreement = self._found(listing.card.name, name)
        self._note(LEFT, listing.card, agreement, caller)
        return self._shown(agreement)

    def all(self, caller: Caller, data_set: str) -> Json:
        """List the current agreements of a data set, for any caller who may query it."""
        listing, _ = self._listing(caller, data_set)
        found = self._agreements(listing.card.name)
        return {"federations": [self._shown(found[name]) for name in sorted(found)]}

    def lessons(self, caller: Caller, data_set: str) -> Json:
        """Return the progress of training runs: all for the owner, else the caller's own."""
        listing, _ = self._listing(caller, data_set)
        whose = None if caller.user == listing.owner else caller.user
        return self.progress_cache.lessons(self.door.ledger, listing.card.name, whose)

    # --- sums ---------------------------------------------------------------------------------

    def price(self, caller: Caller, asked: PriceSum) -> Json:
        """Return the price of a sum or training run at this site; spends and reads nothing."""
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

    def begin(self, caller: Caller, asked: JoinSum, invitation: bytes) -> Json:
        """Join a round: check its terms and the budget, then return this site's keys for it."""
        self._check_still(caller, asked.data_set)
        listing, asker = self._listing(caller, asked.data_set)
        before = self.rounds.begun(caller.user, invitation)
        if before is not None:  # a retry after a lost reply
            return before
        sum_, about = self._planned(listing.card, asked)
        participant = self._participant(sum_.agreement)
        keys = participant.join(invitation)
        terms = participant.terms
        sum_.agreement.check(terms)
        if (terms.about, terms.size) != (about, sum_.size) or terms.bits < sum_.bits:
            raise not_trusted(
                "the round does not have the question, the price and the data card of this site"
            )
        order = self._ordered(listing, sum_, asker, asked, terms.nonce)
        if not self.nonces().take(terms.nonce):
            raise not_trusted("this site already took part in a round with this nonce")
        nonce = terms.nonce.hex()
        reply: Json = {"round": nonce, "message": keys}
        made = Round(order, participant, JOIN, hash_of(invitation), reply)
        self.rounds.add(caller.user, nonce, made)
        return reply

    def go_on(self, caller: Caller, data_set: str, nonce: str, stage: str, said: bytes) -> Json:
        """Return this site's message for one stage of a round that it has joined."""
        listing, _ = self._listing(caller, data_set)
        found = self.rounds.find(caller.user, nonce)
        if found is None or found.order.card.name != listing.card.name:
            raise Refused(
                "sum-message-refused",
                "The site does not take part in this round: it did not join, the round is over, "
                "or the site was restarted.",
                "Begin another round of the secure sum.",
            )
        if stage == "mask":
            return found.once(stage, said, lambda: self._masked(caller, listing, found, said))
        act = getattr(found.participant, stage)
        return found.once(stage, said, lambda: {"message": act(said)})

    def answer(self, caller: Caller, asked: PriceSum, total: list[int], sites: int) -> Json:
        """Format a finished sum as a table; this is post-processing, and no row is read."""
        listing, _ = self._listing(caller, asked.data_set)
        sum_ = self._summed(listing.card, asked)
        reach = 1 << 62
        most = len(sum_.agreement.members)
        if len(total) != sum_.size or not all(abs(one) < reach for one in total):
            raise _malformed("the sum and the question have different numbers of values")
        if not sum_.agreement.floor <= sites <= most:
            raise _malformed("the number of sites does not fit the agreement or its floor")
        added = np.array(total, dtype=np.int64)
        if isinstance(sum_, AveragePlan):
            return averaged_answer(sum_, added)
        return summed_answer(sum_, added, sites)

    def table(self, caller: Caller, data_set: str, asked: TensorTable) -> bytes:
        """Declare a data set's public shape, from its card, to the caller's tensor process."""
        listing, _ = self._listing(caller, data_set)
        return self.tensors.declare(caller, listing.card, asked)

    # --- helpers ------------------------------------------------------------------------------

    def _masked(self, caller: Caller, listing: Listing, found: Round, delivery: bytes) -> Json:
        """Pay for the round, read the rows, and return the site's masked numbers and receipt.

        Refuse if the card or the agreement has changed since the round began.
        """
        order = found.order
        may_still = partial(self._check_still, caller, listing.card.name)
        may_still()
        if listing.card != order.card:
            raise not_trusted("the data set has changed since the round began")
        if self._found(listing.card.name, order.agreement.name) != order.agreement:
            raise not_trusted("the agreement has changed since the round began")
        found.participant.receive_shares(delivery)
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

    def _planned(self, card: Card, asked: JoinSum) -> tuple[SumPlan | AveragePlan | TrainPlan, str]:
        """Plan the sum or training round that is asked for; return the plan and its name.

        The name is a text that the round's terms contain, so all sites sign it.
        """
        if asked.lesson is None:
            sum_ = self._summed(card, asked)
            return sum_, sum_.about
        plan = self._training(card, asked)
        if not 1 <= asked.round_number <= plan.lesson.rounds:
            raise _malformed(f"the training task has rounds 1 to {plan.lesson.rounds}")
        unpacked(asked.model, plan.size)
        if dict(asked.payments).keys() - {member.name for member in plan.agreement.members}:
            raise _malformed("statements about payments must be of sites of the agreement")
        return plan, plan.about_round(asked.round_number, asked.model)

    def _ordered(
        self,
        listing: Listing,
        sum_: SumPlan | AveragePlan | TrainPlan,
        asker: Asker,
        asked: JoinSum,
        nonce: bytes,
    ) -> SumOrder | AverageOrder | TrainOrder:
        """Return the order for this site's part of a round; refuse a round that it cannot pay."""
        card, table = listing.card, listing.table
        if isinstance(sum_, AveragePlan):
            average = AverageOrder(card, table, sum_, asker, nonce)
            can_average(self.door, average)
            return average
        if isinstance(sum_, SumPlan):
            order = SumOrder(card, table, sum_, asker, nonce)
            can_pay(self.door, order)
            return order
        told = asked.measures, asked.payments
        lesson = TrainOrder(card, table, sum_, asker, asked.round_number, asked.model, *told)
        can_train(self._trainer(), lesson)
        return lesson

    def _summed(self, card: Card, asked: PriceSum) -> SumPlan | AveragePlan:
        if asked.guarantee is not None:
            return self._averaged(card, asked)
        agreement, epsilon, delta = self._terms(card, asked)
        return plan_sum(card, self._question(card, asked), agreement, epsilon, delta)

    def _averaged(self, card: Card, asked: PriceSum) -> AveragePlan:
        if asked.guarantee != GUARANTEE or (asked.epsilon, asked.delta) != (None, None):
            raise _malformed(f"a sum without noise has no price; ask for it as {GUARANTEE!r}")
        agreement = self._found(card.name, asked.federation)
        return plan_average(card, self._question(card, asked), agreement)

    def _training(self, card: Card, asked: PriceSum) -> TrainPlan:
        self._trainer()
        agreement, epsilon, delta = self._terms(card, asked)
        return plan_training(card, read_training_task(asked.lesson), agreement, epsilon, delta)

    def _terms(self, card: Card, asked: PriceSum) -> tuple[Agreement, Fraction, Fraction]:
        agreement = self._found(card.name, asked.federation)
        delta = card.delta_per_request if asked.delta is None else read_delta(asked.delta)
        return agreement, read_epsilon(asked.epsilon), delta

    def _trainer(self) -> TrainDoor:
        if self.trainer is None:
            raise Refused(
                "engine-unavailable",
                "Only sites on DuckDB can train models, and this site uses another engine.",
                "Ask it questions, or ask its owner for a vault without --engine.",
            )
        return self.trainer

    def _question(self, card: Card, asked: PriceSum) -> Query:
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
        if name is None:  # the site's key has changed
            raise not_trusted("this site is not in the cohort")
        return Participant(name, self.identity(), agreement.trust(), self.door.dice, set())

    def _agreements(self, data_set: str) -> dict[str, Agreement]:
        """Return the agreements that the ledger records as joined and not left since."""
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
                f"The owner has not joined a federation {name!r} for this data set.",
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
        """Refuse a caller who has lost access, and every caller while the data set is frozen."""
        listing, _ = self._listing(caller, data_set)
        check_not_frozen(self.catalogue, listing, caller.user)

    def _own(self, caller: Caller, data_set: str) -> Listing:
        found = self.catalogue.find(data_set) if caller.reaches(data_set) else None
        if found is None or found.owner != caller.user:
            raise no_data_set(data_set, caller.user)
        return found

    def _listing(self, caller: Caller, data_set: str) -> tuple[Listing, Asker]:
        """Return a data set that the caller owns or may query, and the caller as its asker.

        Refuse any other caller.
        """
        found, groups = listing_to_query(self.catalogue, caller, data_set)
        return found, Asker(caller.user, groups)


def _malformed(why: str) -> Refused:
    return Refused(
        "bad-request",
        f"The request is malformed: {why}.",
        "Send a request of the form that /openapi.json describes.",
    )
