"""What every ledger store promises; each test runs on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.accounting.privacy_filter import Cap
from sfumato.dp.refusal import Bug, Refused
from sfumato.storage import sql_ledger
from sfumato.storage.sql_ledger import SqlLedger
from sfumato.vault.hash_chain import MAX_SUM, MOVED
from sfumato.vault.ledger_entries import (
    Account,
    AnchorMark,
    Charged,
    Debtor,
    Exceeded,
    Failed,
    LedgerHead,
    OperationState,
    Pending,
    Reused,
    ShapeFrozen,
)
from sfumato.vault.ports import LedgerStore
from support import ledger_stores
from support.ledger_stores import CAP, DEBT, Place, SetClock, asked

RACER = Path(__file__).parent / "racer.py"
NEVER = Cap(epsilon=5, delta=0, rho=5, rho_delta=0)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return a fresh place for a ledger of each kind."""
    kind: str = request.param
    server = request.getfixturevalue("server") if kind == "postgres" else None
    return ledger_stores.new_place(kind, tmp_path, server)


@pytest.fixture
def store(place: Place) -> Iterator[SqlLedger]:
    """Return a fresh ledger whose chain and sums must hold when the test is over."""
    made = place.create()
    yield made
    assert made.verify().fault is None
    made.close()


def _spent(store: LedgerStore, account: str) -> PrivacyCost:
    found = store.account(account)
    return found.spent if found is not None else PrivacyCost()


def _times(count: int) -> PrivacyCost:
    return PrivacyCost(count * DEBT.epsilon, count * DEBT.delta, count * DEBT.rho, 0)


def test_the_store_fits_the_port(store: SqlLedger) -> None:
    port: LedgerStore = store
    assert port.head().seq == 1


def test_a_charge_debits_every_account_once(store: SqlLedger) -> None:
    outcome = store.charge(asked("1"))
    assert isinstance(outcome, Charged)
    assert not outcome.paid_before
    assert outcome.accounts == (
        Account("people", CAP, DEBT),
        Account("user ann", CAP, DEBT),
    )
    assert store.accounts() == outcome.accounts


def test_a_charge_is_an_entry_that_says_what_was_debited(store: SqlLedger) -> None:
    outcome = store.charge(asked("1"))
    assert isinstance(outcome, Charged)
    entry = store.entry(outcome.seq)
    assert entry is not None
    assert entry.kind == "charged"
    assert outcome.head.hash == entry.hash
    assert '"debits":{"people":[10,10,10,0],"user ann":[10,10,10,0]}' in entry.body


def test_a_retry_before_the_answer_is_paid_already(store: SqlLedger) -> None:
    first = store.charge(asked("1"))
    again = store.charge(asked("1"))
    assert isinstance(first, Charged)
    assert isinstance(again, Charged)
    assert again.paid_before
    assert again.seq == first.seq
    assert _spent(store, "people") == DEBT


def test_a_retry_after_the_answer_gets_the_same_answer_and_pays_nothing(store: SqlLedger) -> None:
    store.charge(asked("1"))
    store.settle("ann", "1", "42")
    head = store.head()
    again = store.charge(asked("1"))
    assert isinstance(again, OperationState)
    assert (again.answer, again.debited) == ("42", ())
    assert store.head() == head
    assert _spent(store, "people") == DEBT


def test_a_retry_of_a_failed_operation_stays_failed_and_stays_paid(store: SqlLedger) -> None:
    store.charge(asked("1"))
    store.fail("ann", "1", "question-failed", None)
    again = store.charge(asked("1"))
    assert isinstance(again, Failed)
    assert again.code == "question-failed"
    assert _spent(store, "people") == DEBT


def test_an_operation_id_belongs_to_one_request_for_ever(store: SqlLedger) -> None:
    store.charge(asked("1"))
    assert store.charge(asked("1", "another")) == Reused("1")
    store.settle("ann", "1", "42")
    assert store.charge(asked("1", "another")) == Reused("1")
    assert _spent(store, "people") == DEBT


def test_an_answer_that_another_is_reading_is_waited_for_and_not_paid_twice(
    store: SqlLedger,
) -> None:
    waiting = replace(asked("2", user="bob"), wait_limit_s=60)
    first = store.charge(replace(asked("1"), wait_limit_s=60))
    assert isinstance(first, Charged)
    assert store.charge(waiting) == Pending(first.seq, "ann", "1")
    assert _spent(store, "people") == DEBT
    store.settle("ann", "1", "42")
    then = store.charge(waiting)
    assert isinstance(then, OperationState)
    assert (then.answer, then.debited) == ("42", ("user bob",))


def test_nobody_waits_for_a_reader_that_failed_or_for_another_question(store: SqlLedger) -> None:
    store.charge(asked("1"))
    other = replace(asked("2", "r", user="bob"), wait_limit_s=60)
    assert isinstance(store.charge(other), Charged)
    store.fail("ann", "1", "question-failed", None)
    assert isinstance(store.charge(replace(asked("3", user="bob"), wait_limit_s=60)), Charged)


def test_nobody_waits_longer_than_their_patience(place: Place) -> None:
    clock = SetClock("2026-11-21T10:00:00Z")
    store = place.create()
    store._clock = clock
    store.charge(asked("1"))
    waiting = replace(asked("2", user="bob"), wait_limit_s=60)
    clock.at = "2026-11-21T09:00:00Z"  # set back: nobody waits for a moment that is to come
    assert isinstance(store.charge(replace(waiting, op="3", user="eve")), Charged)
    clock.at = "2026-11-21T10:00:59Z"
    assert isinstance(store.charge(waiting), Pending)
    clock.at = "2026-11-21T10:01:00Z"  # whoever was reading is gone: their charge stays
    assert isinstance(store.charge(waiting), Charged)
    assert _spent(store, "people") == _times(3)
    store.close()


def test_an_operations_answer_is_found_by_its_asker_alone(store: SqlLedger) -> None:
    store.charge(asked("1"))
    assert store.answer_of("ann", "1") is None
    store.settle("ann", "1", "42")
    assert store.answer_of("ann", "1") == "42"
    assert store.answer_of("bob", "1") is None


def test_two_users_may_have_the_same_operation_id(store: SqlLedger) -> None:
    store.charge(asked("1"))
    assert isinstance(store.charge(asked("1", "another", user="bob")), Charged)


def test_the_same_question_again_is_free_for_who_has_paid(store: SqlLedger) -> None:
    store.charge(asked("1"))
    store.settle("ann", "1", "42")
    again = store.charge(asked("2"))
    assert isinstance(again, OperationState)
    assert (again.answer, again.debited) == ("42", ())
    assert _spent(store, "user ann") == DEBT


def test_a_second_user_pays_from_their_own_account_alone(store: SqlLedger) -> None:
    store.charge(asked("1"))
    store.settle("ann", "1", "42")
    other = store.charge(asked("1", user="bob"))
    assert isinstance(other, OperationState)
    assert (other.answer, other.debited) == ("42", ("user bob",))
    assert _spent(store, "people") == DEBT
    assert _spent(store, "user bob") == DEBT


def test_a_second_user_pays_once_for_the_same_answer(store: SqlLedger) -> None:
    store.charge(asked("1"))
    store.settle("ann", "1", "42")
    store.charge(asked("1", user="bob"))
    again = store.charge(asked("2", user="bob"))
    assert isinstance(again, OperationState)
    assert again.debited == ()
    assert _spent(store, "user bob") == DEBT


def test_an_answer_is_paid_by_those_who_paid_for_it_and_by_nobody_else(store: SqlLedger) -> None:
    one, ann, bob = asked("1"), ("people", "user ann"), ("people", "user bob")
    assert not store.is_paid_by(one.answer_key, ann)
    store.charge(one)
    assert not store.is_paid_by(one.answer_key, ann)  # it is not answered yet
    names = tuple(debtor.account for debtor in one.debtors)
    store.settle("ann", "1", "42", names)
    head = store.head()
    assert store.is_paid_by(one.answer_key, names)
    assert not store.is_paid_by(one.answer_key, bob)
    assert not store.is_paid_by("another", names)
    assert store.head() == head
    store.charge(asked("1", user="bob"))
    assert store.is_paid_by(one.answer_key, bob)


def test_a_second_user_who_cannot_pay_sees_nothing(store: SqlLedger) -> None:
    store.charge(asked("1"))
    store.settle("ann", "1", "42")
    head = store.head()
    poor = asked("1", user="bob", debtors=(Debtor("people", CAP), Debtor("user bob", NEVER)))
    assert store.charge(poor) == Exceeded(Account("user bob", NEVER, PrivacyCost()))
    assert store.head() == head
    assert store.account("user bob") is None


def test_every_operation_that_was_charged_makes_its_accounts_payers(store: SqlLedger) -> None:
    store.charge(asked("1"))
    store.charge(asked("1", user="bob"))
    store.settle("ann", "1", "42")
    store.settle("bob", "1", "43")
    again = store.charge(asked("2", user="bob"))
    assert isinstance(again, OperationState)
    assert (again.answer, again.debited) == ("42", ())


def test_the_first_answer_under_a_key_stands_for_ever(store: SqlLedger) -> None:
    store.charge(asked("1"))
    store.charge(asked("1", user="bob"))
    assert store.settle("bob", "1", "first").answer == "first"
    assert store.settle("ann", "1", "second").answer == "first"
    assert store.settle("bob", "1", "third").answer == "first"
    found = store.charge(asked("1"))
    assert isinstance(found, OperationState)
    assert found.answer == "first"


def test_settling_again_changes_nothing(store: SqlLedger) -> None:
    store.charge(asked("1"))
    first = store.settle("ann", "1", "42")
    assert store.settle("ann", "1", "42") == first


def test_failing_again_changes_nothing(store: SqlLedger) -> None:
    store.charge(asked("1"))
    first = store.fail("ann", "1", "question-failed", "shape q")
    store.thaw_shape("shape q")
    second = store.fail("ann", "1", "question-failed", "shape q")
    assert (first.seq, first.answer) == (second.seq, second.answer)
    assert store.frozen_shapes() == ()


def test_a_failed_operation_cannot_be_settled(store: SqlLedger) -> None:
    store.charge(asked("1"))
    store.fail("ann", "1", "question-failed", None)
    with pytest.raises(Bug, match="failed operation"):
        store.settle("ann", "1", "42")


def test_what_was_never_charged_cannot_be_settled(store: SqlLedger) -> None:
    with pytest.raises(Bug, match="never charged"):
        store.settle("ann", "1", "42")


def test_what_was_never_charged_cannot_fail(store: SqlLedger) -> None:
    with pytest.raises(Bug, match="never charged"):
        store.fail("ann", "1", "question-failed", None)


def test_an_answer_that_was_given_stands_though_another_worker_failed(store: SqlLedger) -> None:
    store.charge(asked("1"))
    store.settle("ann", "1", "42")
    assert store.fail("ann", "1", "question-failed", "shape q").answer == "42"
    assert store.frozen_shapes() == ("shape q",)


def test_a_frozen_shape_is_frozen_for_everyone_until_it_is_thawed(store: SqlLedger) -> None:
    store.charge(asked("1"))
    store.fail("ann", "1", "question-failed", "shape q")
    assert store.charge(asked("2", user="bob")) == ShapeFrozen("shape q")
    assert _spent(store, "user bob") == PrivacyCost()
    store.thaw_shape("shape q")
    assert isinstance(store.charge(asked("2", user="bob")), Charged)


def test_an_account_that_cannot_pay_stops_the_whole_charge(store: SqlLedger) -> None:
    head = store.head()
    debtors = (Debtor("people", CAP), Debtor("group", CAP), Debtor("user ann", NEVER))
    outcome = store.charge(asked("1", debtors=debtors))
    assert outcome == Exceeded(Account("user ann", NEVER, PrivacyCost()))
    assert store.head() == head
    assert store.accounts() == ()


def test_the_first_account_that_cannot_pay_is_named(store: SqlLedger) -> None:
    debtors = (Debtor("people", CAP), Debtor("group", NEVER), Debtor("user ann", NEVER))
    outcome = store.charge(asked("1", debtors=debtors))
    assert isinstance(outcome, Exceeded)
    assert outcome.account.name == "group"


@pytest.mark.parametrize(
    ("cap", "is_accepted"),
    [
        (Cap(10, 10, 0, 0), True),
        (Cap(0, 0, 10, 7), True),
        (Cap(10, 9, 10, 6), False),
        (Cap(9, 10, 9, 7), False),
        (Cap(9, 10, 10, 7), True),
        (Cap(10, 10, 9, 6), True),
        (Cap(9, 99, 99, 6), False),
    ],
)
def test_a_charge_needs_one_of_the_two_tests(store: SqlLedger, cap: Cap, is_accepted: bool) -> None:
    debt = PrivacyCost(epsilon=10, delta=10, rho=10, rho_delta=7)
    outcome = store.charge(asked("1", debtors=(Debtor("people", cap),), debt=debt))
    assert isinstance(outcome, Charged) == is_accepted


def test_a_cap_is_reached_and_not_passed(store: SqlLedger) -> None:
    paid = [isinstance(store.charge(asked(f"{n}", f"q{n}")), Charged) for n in range(103)]
    assert paid == [True] * 100 + [False] * 3
    assert _spent(store, "people") == _times(100)


def test_a_sum_too_large_to_count_stays_at_the_most(store: SqlLedger) -> None:
    debtors = (Debtor("people", Cap(1000, 1000, 0, 0)),)
    huge = PrivacyCost(epsilon=1, delta=1, rho=MAX_SUM * 3, rho_delta=0)
    for number in range(3):
        outcome = store.charge(asked(f"{number}", f"q{number}", debtors=debtors, debt=huge))
        assert isinstance(outcome, Charged)
    assert _spent(store, "people") == PrivacyCost(3, 3, MAX_SUM, 0)


@pytest.mark.parametrize(
    "debt",
    [
        PrivacyCost(),
        PrivacyCost(epsilon=5),
        PrivacyCost(rho=5),
        PrivacyCost(-1, 1, 1, 0),
        PrivacyCost(5, 0, 5, -1),
    ],
)
def test_a_debt_that_would_leave_one_test_free_is_a_bug(debt: PrivacyCost) -> None:
    with pytest.raises(Bug):
        asked("1", debt=debt)


def test_a_debtor_pays_once_and_somebody_pays() -> None:
    with pytest.raises(Bug):
        asked("1", debtors=(Debtor("people", CAP), Debtor("people", CAP)))
    with pytest.raises(Bug):
        asked("1", debtors=())


def test_a_name_that_cannot_be_stored_is_a_bug() -> None:
    for name in ("", "a\0b", "\ud800", "x" * 401):
        with pytest.raises(Bug):
            asked(name)


def test_names_are_data_and_never_sql(store: SqlLedger) -> None:
    name = "o'); DROP TABLE ledger_entries; --%s ? $1"
    assert isinstance(store.charge(asked(name, user=name)), Charged)
    assert store.settle(name, name, name + "äß漢").answer == name + "äß漢"


def test_opening_an_account_never_changes_its_cap(store: SqlLedger) -> None:
    store.open_account("people", CAP)
    assert store.open_account("people", NEVER).cap == CAP
    store.charge(asked("1", debtors=(Debtor("people", NEVER),)))
    assert _spent(store, "people") == DEBT


def test_a_cap_outside_what_can_be_counted_is_a_bug(store: SqlLedger) -> None:
    with pytest.raises(Bug):
        store.open_account("people", Cap(MAX_SUM, 0, 0, 0))
    with pytest.raises(Bug):
        store.open_account("people", Cap(-1, 0, 0, 0))


def test_a_cap_below_what_is_spent_stops_the_account_and_forgets_nothing(store: SqlLedger) -> None:
    store.charge(asked("1"))
    assert store.set_cap("people", NEVER) == Account("people", NEVER, DEBT)
    assert isinstance(store.charge(asked("2", "r")), Exceeded)
    assert store.verify().fault is None
    store.set_cap("people", CAP)
    assert isinstance(store.charge(asked("3", "s")), Charged)


def test_an_unknown_account_has_no_cap_to_set(store: SqlLedger) -> None:
    with pytest.raises(Bug):
        store.set_cap("nobody", CAP)


def test_a_frozen_ledger_takes_no_charge_and_gives_no_answer(store: SqlLedger) -> None:
    store.charge(asked("1"))
    store.settle("ann", "1", "42")
    store.freeze("rolled back")
    store.freeze("another reason")
    assert store.frozen() == "rolled back"
    for charge in (asked("1"), asked("2"), asked("3", "r")):
        with pytest.raises(Refused, match="rolled back") as refusal:
            store.charge(charge)
        assert refusal.value.code == "ledger-frozen"
    assert _spent(store, "people") == DEBT


def test_an_acknowledgement_opens_an_epoch_and_spends_up_to_the_cap(store: SqlLedger) -> None:
    store.charge(asked("1"))
    store.freeze("rolled back")
    head = store.acknowledge({"people": (MAX_SUM, MAX_SUM, MAX_SUM, MAX_SUM)}, "restored a backup")
    assert (head.epoch, store.frozen()) == (2, None)
    assert _spent(store, "people") == PrivacyCost(1000, 1000, 1000, 1000)
    assert _spent(store, "user ann") == DEBT
    assert isinstance(store.charge(asked("2", "r")), Exceeded)
    assert isinstance(store.charge(asked("1")), Charged)


def test_an_acknowledgement_debits_what_it_names(store: SqlLedger) -> None:
    store.charge(asked("1"))
    store.acknowledge({"people": (5, 6, 7, 8)}, "one receipt was found")
    assert _spent(store, "people") == PrivacyCost(15, 16, 17, 8)


def test_an_acknowledgement_leaves_an_account_over_its_cap_as_it_is(store: SqlLedger) -> None:
    store.charge(asked("1"))
    store.set_cap("people", NEVER)
    store.acknowledge({"people": (MAX_SUM, MAX_SUM, MAX_SUM, MAX_SUM)}, "restored a backup")
    assert _spent(store, "people") == DEBT


def test_a_note_joins_the_chain_and_cannot_pass_for_a_charge(store: SqlLedger) -> None:
    head = store.note("card-signed", {"card": "trips", "version": 1})
    entry = store.entry(head.seq)
    assert entry is not None
    assert (entry.kind, entry.body) == ("card-signed", '{"card":"trips","version":1}')
    with pytest.raises(Bug):
        store.note("charged", {})
    with pytest.raises(Bug, match="plain JSON"):
        store.note("card-signed", {"half": float("nan")})


def test_entries_of_one_kind_come_in_order_and_from_where_one_asks(store: SqlLedger) -> None:
    for number in range(3):
        store.note("handed-out", {"n": number})
        store.note("other", {"n": number})
    found = store.notes("handed-out")
    assert [json.loads(entry.body)["n"] for entry in found] == [0, 1, 2]
    assert store.notes("handed-out", found[1].seq) == found[2:]
    assert store.notes("nothing of the kind") == ()


def test_entries_come_in_order_and_from_where_one_asks(
    store: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_ledger, "_PAGE", 100)  # that are read at once
    for number in range(210):
        store.note("note", {"number": number})
        if number == 5:
            assert [entry.seq for entry in store.entries(after=3)] == [4, 5, 6, 7]
    assert [entry.seq for entry in store.entries()] == list(range(1, 212))
    assert store.entry(212) is None


def test_a_ledger_is_the_same_when_it_is_opened_again(place: Place, store: SqlLedger) -> None:
    store.charge(asked("1"))
    store.settle("ann", "1", "42")
    other = place.open()
    assert (other.head(), other.accounts()) == (store.head(), store.accounts())
    assert isinstance(other.charge(asked("1")), OperationState)
    other.close()


def test_a_ledger_is_made_once(place: Place, store: SqlLedger) -> None:
    with pytest.raises(Refused) as refusal:
        place.create()
    assert refusal.value.code == "vault-exists"


def test_a_missing_ledger_is_refused_and_never_made_anew(place: Place) -> None:
    for _ in range(2):
        with pytest.raises(Refused) as refusal:
            place.open()
        assert refusal.value.code == "vault-missing"


def test_sixteen_processes_share_the_last_hundred_debits(place: Place, store: SqlLedger) -> None:
    command = [sys.executable, str(RACER), place.kind, place.where]
    racers = [
        subprocess.Popen([*command, str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for n in range(16)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == b"ready\n"
    paid = [int(racer.communicate(b"go\n", timeout=120)[0]) for racer in racers]
    assert sum(paid) == 100
    assert _spent(store, "people") == _times(100)


def test_threads_share_one_ledger(store: SqlLedger) -> None:
    def ask(worker: int) -> None:
        for number in range(20):
            store.charge(asked(f"{worker}.{number}", f"q{worker}.{number}", user=f"u{worker}"))

    workers = [threading.Thread(target=ask, args=(worker,)) for worker in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert _spent(store, "people") == _times(100)


def test_the_same_operation_in_two_places_at_once_pays_once(place: Place, store: SqlLedger) -> None:
    others = [place.open() for _ in range(4)]
    for number in range(10):
        charge = asked(f"{number}", f"q{number}")
        workers = [threading.Thread(target=other.charge, args=(charge,)) for other in others]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert _spent(store, "people") == _times(10)
    for other in others:
        other.close()


def test_a_forked_child_makes_its_own_connection(store: SqlLedger) -> None:
    store.charge(asked("parent 1", "p1"))
    with store._transaction() as work:
        link = work.link

    def ask() -> None:
        assert isinstance(store.charge(asked("child", "c")), Charged)
        assert store._writing.link is not link

    assert ledger_stores.exit_code(ledger_stores.start_child(ask)) == 0
    store.charge(asked("parent 2", "p2"))
    assert _spent(store, "people") == _times(3)


def test_a_ledger_held_by_another_is_busy(place: Place, store: SqlLedger) -> None:
    hasty = place.open(wait_s=0.2)
    with store._transaction(), pytest.raises(Refused) as refusal:
        hasty.charge(asked("1"))
    assert refusal.value.code == "ledger-busy"
    assert isinstance(hasty.charge(asked("1")), Charged)
    hasty.close()


def test_a_database_error_leaves_as_a_code_alone(place: Place, store: SqlLedger) -> None:
    hasty = place.open(wait_s=0.2)
    with store._transaction(), pytest.raises(Refused) as refusal:
        hasty.charge(asked("1"))
    assert _modules(refusal.value) <= {"sfumato.dp.refusal", "sfumato.storage.database"}
    hasty.close()
    with pytest.raises(Bug) as fault:
        store.settle("ann", "1\ud800", "42")
    assert _modules(fault.value) <= {"sfumato.dp.refusal", "sfumato.storage.database"}


def _modules(error: BaseException | None) -> set[str]:
    found = set()
    while error is not None:
        found.add(type(error).__module__)
        error = error.__context__
    return found


def _open_twice(store: SqlLedger) -> None:
    with store._transaction() as work:
        work.open_account("people", CAP)
        work.open_account("people", CAP)


@pytest.mark.parametrize("table", ["ledger_entries", "ledger_answers", "ledger_payers"])
def test_entries_and_answers_can_only_be_added(store: SqlLedger, table: str) -> None:
    store.charge(asked("1"))
    store.settle("ann", "1", "42")
    for sql in (f"UPDATE {table} SET seq = seq + 100", f"DELETE FROM {table}"):
        with pytest.raises(Bug), store._transaction() as work:
            work.link.change(sql)
    assert len(list(store.entries())) == 5


def test_no_statement_can_push_an_account_past_both_tests(store: SqlLedger) -> None:
    store.charge(asked("1"))
    sql = "UPDATE ledger_accounts SET spent_epsilon = 1001, spent_rho = 1001, lowered = 0"
    with pytest.raises(Bug), store._transaction() as work:
        work.link.change(sql)
    with pytest.raises(Bug), store._transaction() as work:
        work.link.change("UPDATE ledger_accounts SET spent_epsilon = -1")
    assert _spent(store, "people") == DEBT


def test_a_lowered_account_is_held_to_its_cap_by_the_table_too(store: SqlLedger) -> None:
    store.charge(asked("1"))
    store.set_cap("people", NEVER)
    sql = "UPDATE ledger_accounts SET spent_epsilon = 11, lowered = 0 WHERE name = 'people'"
    with pytest.raises(Bug), store._transaction() as work:
        work.link.change(sql)
    assert _spent(store, "people") == DEBT


def test_an_error_inside_a_transaction_undoes_all_of_it(store: SqlLedger) -> None:
    head = store.head()
    with pytest.raises(Bug):
        _open_twice(store)
    assert (store.head(), store.accounts()) == (head, ())


def mark_of(head: LedgerHead) -> AnchorMark:
    return AnchorMark(head.ledger, head.epoch, head.seq, head.hash)


def _moved(place: Place, store: SqlLedger) -> SqlLedger:
    """Open the ledger as if it lay in another database now."""
    with store._transaction() as work:
        work.link.change("UPDATE ledger_head SET origin = 'another'")
    return place.open()


def test_a_ledger_in_another_database_takes_nothing_that_no_anchor_vouches_for(
    place: Place, store: SqlLedger
) -> None:
    moved = _moved(place, store)
    assert moved.is_moved()
    with pytest.raises(Refused, match="not the one"):
        moved.charge(asked("1"))
    assert moved.frozen() == MOVED
    moved.acknowledge({}, "it is a copy that we made")
    moved.close()
    again = place.open()
    assert isinstance(again.charge(asked("1")), Charged)
    again.close()


def test_a_ledger_in_another_database_goes_on_where_the_mark_is_its_head(
    place: Place, store: SqlLedger
) -> None:
    store.charge(asked("1"))
    moved = _moved(place, store)
    assert isinstance(moved.charge(asked("2", "other"), mark_of(moved.head())), Charged)
    assert not moved.is_moved()
    assert moved.frozen() is None
    kinds = [entry.kind for entry in moved.entries()]
    assert kinds[-2:] == ["moved", "charged"]
    moved.close()


def test_a_ledger_in_another_database_is_frozen_where_the_mark_is_not_its_head(
    place: Place, store: SqlLedger
) -> None:
    store.charge(asked("1"))
    moved = _moved(place, store)
    earlier = store.entry(2)
    assert earlier is not None
    mark = AnchorMark(moved.head().ledger, 1, earlier.seq, earlier.hash)
    with pytest.raises(Refused, match="not the one"):
        moved.charge(asked("2", "other"), mark)
    assert moved.frozen() == MOVED
    moved.acknowledge({}, "it is whole")
    moved.close()


def test_a_ledger_that_loses_entries_under_a_running_process_is_frozen(
    place: Place, store: SqlLedger
) -> None:
    other = place.open()
    other.note("note", {})
    other._seen = replace(other.head(), seq=99)
    with pytest.raises(Refused, match="lost entries"):
        other.charge(asked("1"))
    assert store.frozen() is not None
    other.close()


def test_a_users_past_is_their_own_and_the_newest_comes_first(store: SqlLedger) -> None:
    for op in ("a", "b", "c"):
        store.charge(asked(user="ada", op=op, answer_key=f"key-{op}"))
    store.charge(asked(user="bob", op="a", answer_key="key-d"))
    store.settle("ada", "b", "answer")
    newest, *rest = store.past("ada", 2**60, 2)
    assert [newest.op, *(one.op for one in rest)] == ["c", "b"]
    assert (newest.state, newest.ended) == ("charged", None)
    assert rest[0].ended is not None
    assert rest[0].ended.kind == "released"
    assert [one.op for one in store.past("ada", rest[0].entry.seq, 9)] == ["a"]
    assert store.past_of("bob", "b") is None


def test_charges_are_found_by_people_and_by_data_set_exactly(store: SqlLedger) -> None:
    bodies = [
        {"people": "p_1", "data_set": "visits"},
        {"people": "pX1", "data_set": "visits"},
        {"people": "other", "data_set": 'says "people":"p_1"'},
    ]
    for number, body in enumerate(bodies):
        store.charge(asked(op=f"op-{number}", answer_key=f"key-{number}", body=body))
    found = store.charges(2**60, 9, people="p_1")
    assert [json.loads(entry.body)["op"] for entry in found] == ["op-0"]
    both = store.charges(2**60, 9, data_set="visits")
    assert [json.loads(entry.body)["op"] for entry in both] == ["op-1", "op-0"]
    assert len(store.charges(2**60, 1)) == 1
