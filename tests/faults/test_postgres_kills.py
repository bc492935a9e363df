"""A PostgreSQL ledger loses clients, backends and answers on the way, and never charges twice."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial

import psycopg
import pytest

from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.accounting.privacy_filter import Cap
from sfumato.dp.refusal import Bug, Refused
from sfumato.storage.database import Fault
from sfumato.storage.postgres_ledger import PostgresLink
from sfumato.storage.sql_ledger import SqlLedger
from sfumato.vault.ledger_entries import Account, Charged, OperationState
from support import ledger_stores, postgres_server
from support.ledger_stores import DEBT, Place, asked

Act = Callable[[PostgresLink], None]
Rows = psycopg.Cursor[tuple[object, ...]]
STATEMENTS = 27  # more than a charge and a settlement take together


@pytest.fixture
def place(server: postgres_server.Server) -> Place:
    """Return a fresh schema with a ledger in it."""
    made = Place("postgres", server.fresh_url())
    made.create().close()
    return made


class CutLink(PostgresLink):
    """A connection to which something happens before or after one of its statements."""

    def __init__(self, link: PostgresLink, when: int, act: Act) -> None:
        self.__dict__.update(link.__dict__)
        self.left = when
        self.act = act

    def _run(self, sql: str, values: Sequence[object]) -> Rows:
        self.left -= 1
        if self.left == 0:
            self.act(self)
        return super()._run(sql, values)


class DeafLink(CutLink):
    """A connection that loses the answer to one of its statements, though it was carried out."""

    def _run(self, sql: str, values: Sequence[object]) -> Rows:
        self.left -= 1
        found = PostgresLink._run(self, sql, values)
        if self.left == 0:
            self.close()
            raise Fault("lost")
        return found


def _ask(ledger: SqlLedger, op: str) -> str:
    outcome = ledger.charge(asked(op, f"q{op}"))
    if isinstance(outcome, OperationState):
        return outcome.answer
    assert isinstance(outcome, Charged)
    return ledger.settle("ann", op, f"{op}.{random.random()}").answer


def _ask_until_answered(place: Place, op: str) -> str:
    """Retry with the same operation id, as a client would."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            ledger = place.open()
            answer = _ask(ledger, op)
            ledger.close()
        except (Bug, Refused):
            time.sleep(0.05)
        else:
            return answer
    raise TimeoutError


def _check(place: Place, operations: int) -> None:
    ledger = place.open()
    assert ledger.verify().fault is None
    people = ledger.account("people")
    assert isinstance(people, Account)
    parts = (DEBT.epsilon, DEBT.delta, DEBT.rho, 0)
    assert people.spent == PrivacyCost(*(part * operations for part in parts))
    ledger.close()


def _with_link(place: Place, kind: type[CutLink], when: int, act: Act) -> SqlLedger:
    ledger = place.open()
    link = ledger._writing.connected()
    assert isinstance(link, PostgresLink)
    ledger._writing.link = kind(link, when, act)
    return ledger


def test_a_backend_cut_before_any_statement_costs_no_second_charge(
    server: postgres_server.Server, place: Place
) -> None:
    def cut(link: PostgresLink) -> None:
        pid = PostgresLink._run(link, "SELECT pg_backend_pid()", ()).fetchall()[0][0]
        server.run(f"SELECT pg_terminate_backend({pid}, 5000)")

    for when in range(1, STATEMENTS + 1):
        _one_cut(place, CutLink, when, cut)
    _check(place, STATEMENTS)


def test_an_answer_lost_after_any_statement_costs_no_second_charge(place: Place) -> None:
    for when in range(1, STATEMENTS + 1):
        _one_cut(place, DeafLink, when, lambda _link: None)
    _check(place, STATEMENTS)


def _one_cut(place: Place, kind: type[CutLink], when: int, act: Act) -> None:
    ledger = _with_link(place, kind, when, act)
    before = None
    with contextlib.suppress(Bug, Refused):
        before = _ask(ledger, str(when))
    ledger.close()
    after = _ask_until_answered(place, str(when))
    assert before in (None, after)


def test_a_worker_killed_before_any_statement_costs_no_second_charge(place: Place) -> None:
    for when in range(1, STATEMENTS + 1):
        ledger_stores.exit_code(ledger_stores.start_child(partial(_ask_and_die, place, when)))
        _ask_until_answered(place, str(when))
    _check(place, STATEMENTS)


def _ask_and_die(place: Place, when: int) -> None:
    _ask(_with_link(place, CutLink, when, _die), str(when))


def _die(_link: PostgresLink) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _crash_while_asking(server: postgres_server.Server, place: Place, rounds: int) -> None:
    dice, killed = random.Random(11), 0
    for number in range(rounds):
        worker = ledger_stores.start_child(partial(_ask_many, place, str(number)))
        time.sleep(dice.uniform(0.05, 0.3))
        while not (is_killed := _kill_a_backend(server)) and not ledger_stores.has_ended(worker):
            time.sleep(0.01)  # on a busy machine it has not begun yet
        killed += is_killed
        assert ledger_stores.exit_code(worker) == 0
    assert killed > 0
    _check(place, rounds * 20)


def _ask_many(place: Place, name: str) -> None:
    for part in range(20):
        _ask_until_answered(place, f"{name}.{part}")


def _kill_a_backend(server: postgres_server.Server) -> bool:
    """Kill -9 a backend, if one is there: the whole server falls and recovers from its log."""
    found = server.run(
        "SELECT pid FROM pg_stat_activity"
        " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )
    return any(isinstance(pid, int) and server.kill(pid) for (pid,) in found)


def test_a_server_that_falls_costs_no_second_charge(
    server: postgres_server.Server, place: Place
) -> None:
    _crash_while_asking(server, place, 2)


@pytest.mark.slow
def test_a_server_that_falls_a_dozen_times_costs_no_second_charge(
    server: postgres_server.Server, place: Place
) -> None:
    ledger = place.open()
    for account in ("people", "user ann"):
        ledger.open_account(account, Cap(10**6, 10**6, 10**6, 10**6))
    ledger.close()
    _crash_while_asking(server, place, 12)
