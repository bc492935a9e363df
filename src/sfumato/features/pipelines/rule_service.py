"""The approval rule service: approve matching programs, and limit the epsilon of their runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.approval_rule import (
    HandedIn,
    Rule,
    RuleStore,
    Spending,
    bad_rule,
    beyond,
    misfit,
    read_rule,
)
from sfumato.features.pipelines.model import APPROVED, Submitted
from sfumato.features.pipelines.program_plan import Program, Run
from sfumato.features.pipelines.release import RunOrder
from sfumato.query.expression import canonical_json
from sfumato.release.ledger_guard import Ledger
from sfumato.release.release_order import Asker
from sfumato.vault.card.data_card import Card
from sfumato.vault.ports import Clock, Listing
from sfumato.vault.users import Caller

MAX_RULES: Final = 100  # the most rules of one data set
_BY: Final = "rule:"  # prefix of a rule's id in `decided_by`
_UNPAID: Final = (  # codes of refusals that come before a charge
    "budget-exceeded", "sandbox-missing", "ledger-busy", "data-set-frozen", "unknown-data-set",
    "pipeline-waits", "pipeline-unknown", "bad-pipeline",
)  # fmt: skip


@dataclass(frozen=True)
class PipelineRules:
    """The service for the approval rules of one vault."""

    ledger: Ledger
    store: RuleStore
    clock: Clock
    dice: RandomSource

    def set(self, caller: Caller, card: Card, shape: object) -> Json:
        """Create an approval rule for future submissions; the ledger notes it before it applies."""
        if sum(not one.is_over for one in self.store.of(card.name)) >= MAX_RULES:
            raise bad_rule(f"a data set may have {MAX_RULES} rules at most; end some")
        made = self.dice.draw(8).hex(), caller.user, self.clock.now()
        rule = read_rule(card, shape, made)
        self.ledger.note("pipeline-rule", rule.as_json())
        self.store.add(rule)
        return self._shown(rule)

    def end(self, caller: Caller, card: Card, rule: str) -> Json:
        """End an approval rule: it approves nothing more, and programs can't run by it."""
        found = self.store.find(card.name, rule)
        if found is None or found.is_over:
            raise _unknown()
        ended = replace(found, ended_at=self.clock.now())
        self.store.end(ended)  # stored first, so that no run is charged after the reply
        self.ledger.note(
            "pipeline-rule-ended", {"rule": rule, "data_set": card.name, "by": caller.user}
        )
        return self._shown(ended)

    def all(self, caller: Caller, listing: Listing, asker: Asker) -> Json:
        """Return a data set's approval rules: all for its owner, else those that name the asker."""
        found = [
            one
            for one in self.store.of(listing.card.name)
            if caller.user == listing.owner or _names(one, asker)
        ]
        return {"rules": [self._shown(one) for one in found]}

    def fitting(self, program: Program, asker: Asker) -> Rule | None:
        """Return the oldest approval rule that the program matches, or None.

        Rules do not cover environments, so a program with its own environment matches no rule.
        """
        if program.own_environment:
            return None
        one = _handed_in(program, asker)
        rules = self.store.of(program.data_set)
        return next((rule for rule in rules if misfit(rule, one) is None), None)

    @contextmanager
    def taken(self, found: Submitted, order: RunOrder) -> Iterator[RunOrder]:
        """Reserve a run's epsilon under its approval rule while the `with` block runs.

        After the run, the reserved epsilon is spent, or cancelled if nothing was charged.

        Refuse a run outside the rule's limits, and an asker whom the rule does not name. A run that
        was charged and failed stays spent; the next try is charged and counted again. A program
        that its owner approved needs no reservation.
        """
        if not is_by_rule(found):
            yield order
            return
        self.check(found, order.run, order.asker)
        rule, run = self._rule_of(found), order.run
        spending = Spending(
            rule.id, _run_key(run, order.card.version), run.epsilon, _short(order.asker.user)
        )
        is_new = self.store.reserve(spending, rule.most_total)
        if is_new is None:
            raise _used_up(rule)
        try:
            yield replace(order, rule=rule.id)
        except Refused as stopped:
            if is_new and stopped.code in _UNPAID:
                self.store.cancel(spending)
            if stopped.code == "question-failed":
                self.store.spend(spending, f"{spending.reservation_key}:{_short(order.op)}")
            raise
        self.store.spend(spending, spending.run)

    def check(self, found: Submitted, run: Run, asker: Asker) -> None:
        """Refuse an asker or a run that the program's approval rule does not allow at present."""
        if not is_by_rule(found):
            return
        rule = self._rule_of(found)
        if not _names(rule, asker):
            raise _others(rule)
        refused = beyond(rule, run.epsilon, run.spent_delta)
        if refused is not None:
            raise refused

    def _rule_of(self, found: Submitted) -> Rule:
        rule = self.store.find(found.data_set, found.decided_by.removeprefix(_BY))
        if rule is None:
            raise _unknown()
        return rule

    def _shown(self, rule: Rule) -> Json:
        return {**rule.as_json(), "spent": str(self.store.spent(rule.id))}


def by_rule(rule: Rule) -> str:
    """Return what is stored as `decided_by` for a program that this approval rule approved."""
    return _BY + rule.id


def is_by_rule(found: Submitted) -> bool:
    """Return True if a rule approved the program, and not its owner."""
    return found.state == APPROVED and found.decided_by.startswith(_BY)


def _handed_in(program: Program, asker: Asker) -> HandedIn:
    text, columns, outputs = program.text_digest, program.columns, program.outputs
    return HandedIn(asker.user, asker.groups, text, columns, outputs, program.is_study)


def _names(rule: Rule, asker: Asker) -> bool:
    return asker.user in rule.users or bool(set(asker.groups) & set(rule.groups))


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _run_key(run: Run, version: str) -> str:
    """Return the key of a run for its rule: a hash of the run's terms and the data version.

    Equal runs have equal keys, so they count once.
    """
    said = json.loads(canonical_json(run.as_json()))
    return hashlib.sha256(canonical_json({"run": said, "version": version}).encode()).hexdigest()


def _others(rule: Rule) -> Refused:
    return Refused(
        "pipeline-waits",
        f"The program was approved by the rule {rule.id}, which does not name you, so you cannot "
        "run it.",
        "Ask the owner to approve the program directly.",
    )


def _used_up(rule: Rule) -> Refused:
    return Refused(
        "pipeline-waits",
        f"All runs under rule {rule.id} together may cost epsilon {float(rule.most_total):g}, "
        "and less than this run's epsilon is left.",
        "Choose a smaller epsilon, or ask the owner to approve the program directly.",
    )


def _unknown() -> Refused:
    return Refused(
        "pipeline-unknown",
        "The data set has no approval rule with this id.",
        "See `sfumato pipeline rules`.",
    )
