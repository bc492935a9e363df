"""Whatever is asked in whatever order, a store does what sixty lines of plain Python do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.accounting.privacy_filter import Cap, fits_under_cap
from sfumato.dp.refusal import Refused
from sfumato.vault.ledger_entries import (
    Charge,
    Charged,
    Debtor,
    Exceeded,
    Failed,
    OperationState,
    Outcome,
    Pending,
    Reused,
    ShapeFrozen,
)
from support import ledger_stores
from support.ledger_stores import Place, asked

USERS = st.sampled_from(["ann", "bob"])
OPS = st.sampled_from(["1", "2", "3", "4", "5"])
QUESTIONS = st.sampled_from(["p", "q", "r", "s"])
ACCOUNTS = st.sampled_from(["people", "user ann", "user bob"])
CAPS = st.builds(Cap, *[st.integers(0, 60)] * 4)
DEBTS = {
    "p": PrivacyCost(10, 0, 3, 0),
    "q": PrivacyCost(4, 4, 9, 0),
    "r": PrivacyCost(5, 5, 2, 5),
    "s": PrivacyCost(20, 1, 20, 1),
}


@dataclass
class Model:
    """What a ledger should do, without a chain, a file or a second process."""

    caps: dict[str, Cap] = field(default_factory=dict)
    spent: dict[str, PrivacyCost] = field(default_factory=dict)
    ops: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)  # request, state
    answers: dict[str, str] = field(default_factory=dict)
    payers: dict[str, set[str]] = field(default_factory=dict)
    shapes: set[str] = field(default_factory=set)
    frozen: bool = False
    epoch: int = 1

    def charge(self, asked: Charge) -> tuple[type[Outcome] | None, object]:
        """Return the kind of the outcome and what is special about it."""
        if self.frozen:
            return None, None
        known = self.ops.get((asked.user, asked.op))
        if known is not None:
            return self._again(asked, *known)
        if asked.shape in self.shapes:
            return ShapeFrozen, asked.shape
        names = [debtor.account for debtor in asked.debtors]
        answer = self.answers.get(asked.answer_key)
        owing = [n for n in names if answer is None or n not in self.payers[asked.answer_key]]
        caps = {d.account: self.caps.get(d.account, d.cap) for d in asked.debtors}
        for name in owing:
            if not fits_under_cap(caps[name], self.spent.get(name, PrivacyCost()), asked.debt):
                return Exceeded, name
        for name in owing:
            self.caps[name] = caps[name]
            self.spent[name] = self.spent.get(name, PrivacyCost()) + asked.debt
        self.ops[asked.user, asked.op] = (asked.request, "answered" if answer else "charged")
        if answer is None:
            return Charged, False
        self.payers[asked.answer_key].update(owing)
        return OperationState, (answer, tuple(owing))

    def _again(self, asked: Charge, request: str, state: str) -> tuple[type[Outcome], object]:
        if request != asked.request:
            return Reused, asked.op
        if state == "failed":
            return Failed, "stopped"
        if state == "charged" and asked.shape in self.shapes:
            return ShapeFrozen, asked.shape
        if state == "charged":
            return Charged, True
        return OperationState, (self.answers[asked.answer_key], ())

    def settle(self, asked: Charge, answer: str) -> str:
        """Return the answer that stands."""
        standing = self.answers.setdefault(asked.answer_key, answer)
        if self.ops[asked.user, asked.op][1] == "charged":
            names = {debtor.account for debtor in asked.debtors}
            self.payers.setdefault(asked.answer_key, set()).update(names)
            self.ops[asked.user, asked.op] = (asked.request, "answered")
        return standing

    def acknowledge(self, name: str, amounts: list[int]) -> None:
        """Add the amounts, each up to its cap."""
        cap, spent = vars(self.caps[name]), vars(self.spent[name])
        sums = zip(cap.values(), spent.values(), amounts, strict=True)
        self.spent[name] = PrivacyCost(
            *(max(gone, min(most, gone + more)) for most, gone, more in sums)
        )
        self.frozen, self.epoch = False, self.epoch + 1


def _special(outcome: Outcome) -> object:
    match outcome:
        case Charged(paid_before=before):
            return before
        case OperationState(answer=answer, debited=debited):
            return answer, debited
        case Failed(code=code):
            return code
        case Exceeded(account=account):
            return account.name
        case Reused(op=op):
            return op
        case ShapeFrozen(shape=shape):
            return shape
        case Pending(seq=seq):
            return seq


class LedgerMachine(RuleBasedStateMachine):
    """Ask a real store and the model the same, and compare."""

    new_place: ClassVar[Callable[[], Place]]

    def __init__(self) -> None:
        super().__init__()
        self.place = type(self).new_place()
        self.store = self.place.create()
        self.model = Model()
        self.charged: dict[tuple[str, str], Charge] = {}

    def _asked(self, user: str, op: str, question: str) -> Charge:
        debtors = (Debtor("people", Cap(50, 9, 30, 5)), Debtor(f"user {user}", Cap(25, 9, 15, 9)))
        return replace(asked(op, question, user), debtors=debtors, debt=DEBTS[question])

    @rule(user=USERS, op=OPS, question=QUESTIONS)
    def charge(self, user: str, op: str, question: str) -> None:
        charge = self._asked(user, op, question)
        kind, special = self.model.charge(charge)
        if kind is None:
            with pytest.raises(Refused):
                self.store.charge(charge)
            return
        outcome = self.store.charge(charge)
        assert (type(outcome), _special(outcome)) == (kind, special)
        if isinstance(outcome, Charged | OperationState):
            self.charged[user, op] = charge

    @rule(user=USERS, op=OPS, number=st.integers(0, 99))
    def settle(self, user: str, op: str, number: int) -> None:
        charge = self.charged.get((user, op))
        if charge is not None and self.model.ops[user, op][1] != "failed":
            settled = self.store.settle(user, op, f"answer {number}")
            assert settled.answer == self.model.settle(charge, f"answer {number}")

    @rule(user=USERS, op=OPS, freezes=st.booleans())
    def fail(self, user: str, op: str, freezes: bool) -> None:
        charge = self.charged.get((user, op))
        if charge is None:
            return
        self.store.fail(user, op, "stopped", charge.shape if freezes else None)
        request, state = self.model.ops[user, op]
        if freezes and state != "failed":
            self.model.shapes.add(charge.shape)
        if state == "charged":
            self.model.ops[user, op] = (request, "failed")

    @rule(question=QUESTIONS)
    def thaw(self, question: str) -> None:
        self.store.thaw_shape(f"shape {question}")
        self.model.shapes.discard(f"shape {question}")

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.place.open()

    @rule()
    def freeze(self) -> None:
        self.store.freeze("a test says so")
        self.model.frozen = True

    @rule(account=ACCOUNTS, amounts=st.lists(st.integers(0, 70), min_size=4, max_size=4))
    def acknowledge(self, account: str, amounts: list[int]) -> None:
        if account in self.model.caps:
            self.store.acknowledge({account: (*amounts,)}, "a test says so")  # type: ignore[dict-item]  # four of them
            self.model.acknowledge(account, amounts)

    @rule(account=ACCOUNTS, cap=CAPS)
    def set_cap(self, account: str, cap: Cap) -> None:
        if account in self.model.caps:
            self.store.set_cap(account, cap)
            self.model.caps[account] = cap

    @invariant()
    def the_accounts_are_the_model_s(self) -> None:
        found = {account.name: account for account in self.store.accounts()}
        assert {name: account.spent for name, account in found.items()} == self.model.spent
        assert {name: account.cap for name, account in found.items()} == self.model.caps
        assert set(self.store.frozen_shapes()) == self.model.shapes
        assert (self.store.frozen() is not None) == self.model.frozen
        assert self.store.head().epoch == self.model.epoch

    def teardown(self) -> None:
        fault = self.store.verify().fault
        self.store.close()
        assert fault is None


def _run(kind: str, request: pytest.FixtureRequest, examples: int) -> None:
    server = request.getfixturevalue("server") if kind == "postgres" else None
    with TemporaryDirectory() as folder:

        def new_place() -> Place:
            made = Path(folder) / str(len(list(Path(folder).iterdir())))
            made.mkdir()
            return ledger_stores.new_place(kind, made, server)

        plan = settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        machine = type("Machine", (LedgerMachine,), {"new_place": staticmethod(new_place)})
        run_state_machine_as_test(machine, settings=plan)


@pytest.mark.parametrize(("kind", "examples"), [("sqlite", 60), ("postgres", 20)])
def test_a_store_does_what_the_model_does(
    kind: str, examples: int, request: pytest.FixtureRequest
) -> None:
    _run(kind, request, examples)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "examples"), [("sqlite", 1500), ("postgres", 300)])
def test_a_store_does_what_the_model_does_for_long(
    kind: str, examples: int, request: pytest.FixtureRequest
) -> None:
    _run(kind, request, examples)
