"""Counts that are paid are read in one pass, and each is told what it would be told alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Refused
from sfumato.query.measure import Cells, Measure
from sfumato.release.release_order import PaidOrder
from sfumato.server.dispatch import Dispatcher
from sfumato.server.ipc.call_metrics import CallMetrics, to_nowhere
from sfumato.server.ipc.door_server import Call, DoorEnd
from sfumato.server.ipc.query_batches import begun, counted
from sfumato.vault.engine_port import EngineStopped
from sfumato.vault.sealed import Sealed
from sfumato.vault.users import Caller
from support.small_vaults import card, make_vault, write_csv

CARD = """
unit = "row"
version = "1"
budget = { epsilon = 50 }
[ask]
who = ["staff"]
[columns.age]
type = "integer"
lower = 0
upper = 99
[columns.paid]
type = "integer"
lower = 0
upper = 99
"""
ROWS = [(n % 97, n * 7 % 89) for n in range(500)]
USERS = ("ada", "bob", "eve")
OWNER = Caller("owner", frozenset({"read", "ask", "own", "operate", "audit"}))
PASSWORD = "soft edges, no outline"  # noqa: S105  # of nobody but these tests
ABOVE = (10, 40, 70)


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    """Return a vault of five hundred rows that three people may ask."""
    with sfumato.open(make_vault(tmp_path)) as opened:
        opened.add("visits", write_csv(tmp_path / "v.csv", ("age", "paid"), ROWS), card(CARD))
        for name in USERS:
            opened.enrol(name, "staff")
        yield opened
        assert opened.house.ledger.verified()["ok"]


@pytest.fixture
def tokens(vault: OpenVault) -> list[str]:
    """Return a token of each of them."""
    access = vault.house.desk.access
    found = []
    for name in USERS:
        invited = access.invite(OWNER, name, ["researcher"])
        found.append(str(access.take_up(str(invited["invitation"]), PASSWORD, name)["token"]))
    return found


def asking(above: int, **changes: object) -> dict[str, object]:
    sql = f"SELECT COUNT(*) AS n FROM visits WHERE age > {above} AND paid < 50"
    return {"data_set": "visits", "sql": sql, "epsilon": Decimal("0.5"), **changes}


def by_hand(above: int) -> int:
    return sum(age > above and paid < 50 for age, paid in ROWS)


def paid_for(desk: Dispatcher, tokens: Sequence[str]) -> list[PaidOrder]:
    """Return a count of each of them, charged, with no row read."""
    several = [(token, asking(above)) for token, above in zip(tokens, ABOVE, strict=True)]
    found = [one for one in begun(desk, several) if isinstance(one, PaidOrder)]
    assert len(found) == 3
    return found


def told(paid: PaidOrder, answer: Any) -> int:  # Any: JSON of the answer
    """Return what was counted: the answer without the noise that was drawn for it."""
    return int(answer["rows"][0][0]) - int(paid.noise[0][0])  # type: ignore[index]


def spent(vault: OpenVault, user: str) -> object:
    account = vault.house.ledger.store.account(f"user:visits/{user}")
    return None if account is None else account.spent


class Noting:
    """The real engine, which notes how many are counted at once, and what was spent by then."""

    def __init__(self, vault: OpenVault, stops: int | None = None, *, fails: bool = False) -> None:
        self.vault, self.stops, self.fails = vault, stops, fails
        self.engine: Any = vault.house.desk.queries.door.engine  # Any: of whatever kind it is
        self.passes: list[int] = []
        self.alone = 0
        self.spent: list[object] = []

    def measure(self, table: str, measure: Measure) -> Sealed[Cells]:
        self.alone += 1
        found: Sealed[Cells] = self.engine.measure(table, measure)
        return found

    def count_batch(
        self, wanted: Sequence[tuple[str, Measure]]
    ) -> list[Sealed[Cells] | EngineStopped]:
        self.passes.append(len(wanted))
        self.spent = [spent(self.vault, name) for name in USERS]
        if self.fails:
            raise KeyError("a cell of somebody's")
        found: list[Sealed[Cells] | EngineStopped] = self.engine.count_batch(wanted)
        return [EngineStopped() if n == self.stops else one for n, one in enumerate(found)]


def asked_of(vault: OpenVault, engine: object) -> Dispatcher:
    desk = vault.house.desk
    door = replace(desk.queries.door, engine=engine)  # type: ignore[arg-type]  # what is asked here
    return replace(desk, queries=replace(desk.queries, door=door))


def test_each_is_counted_in_one_pass_once_all_have_paid(
    vault: OpenVault, tokens: list[str]
) -> None:
    engine = Noting(vault)
    desk = asked_of(vault, engine)
    paid = paid_for(desk, tokens)
    assert all(one.is_batchable for one in paid)
    assert engine.passes == []
    answers = counted(desk, paid)
    assert (engine.passes, engine.alone) == ([3], 0)
    assert engine.spent == [spent(vault, name) for name in USERS]
    assert None not in engine.spent
    pairs = zip(paid, answers, strict=True)
    assert [told(*pair) for pair in pairs] == [by_hand(above) for above in ABOVE]
    for one, answer in zip(tokens, answers, strict=True):
        assert isinstance(answer, dict)
        assert not answer["receipt"]["free"]  # type: ignore[index]
        assert vault.house.ledger.has_receipt(dict(answer["receipt"]))  # type: ignore[call-overload]
        again = desk.done("ask", desk.admitted("ask", one), asking(ABOVE[tokens.index(one)]))
        assert again["rows"] == answer["rows"]


def test_one_that_is_stopped_is_its_askers_alone_and_stays_paid(
    vault: OpenVault, tokens: list[str]
) -> None:
    desk = asked_of(vault, Noting(vault, stops=1))
    paid = paid_for(desk, tokens)
    first, stopped, last = counted(desk, paid)
    assert [told(paid[0], first), told(paid[2], last)] == [by_hand(10), by_hand(70)]
    assert isinstance(stopped, Refused)
    assert stopped.code == "question-failed"
    assert stopped.__context__ is None
    assert spent(vault, "bob") is not None
    shape = paid[1].charge.shape
    assert vault.house.ledger.store.frozen_shapes() == (shape,)
    with pytest.raises(Refused) as refused:
        desk.done("ask", desk.admitted("ask", tokens[0]), asking(11))
    assert refused.value.code == "question-frozen"


def test_where_the_pass_fails_each_is_counted_by_itself(
    vault: OpenVault, tokens: list[str]
) -> None:
    engine = Noting(vault, fails=True)
    desk = asked_of(vault, engine)
    paid = paid_for(desk, tokens)
    gone = replace(paid[0], order=replace(paid[0].order, table="no_such_table"))
    failed, *answers = counted(desk, [gone, *paid[1:]])
    assert engine.alone == 3
    assert isinstance(failed, Refused)
    assert (failed.code, failed.__context__) == ("question-failed", None)
    assert [told(*pair) for pair in zip(paid[1:], answers, strict=True)] == [
        by_hand(40), by_hand(70),
    ]  # fmt: skip


def test_what_is_no_short_count_of_rows_is_read_alone(vault: OpenVault, tokens: list[str]) -> None:
    class Plain:
        """An engine that counts one at a time."""

        measure = None

    several = (
        asking(1, sql="SELECT SUM(age) AS s FROM visits WHERE paid < 9"),
        asking(1, sql="SELECT COUNT(*) AS n FROM visits"),
        asking(1, sql="SELECT FLOOR(age / 10) AS k, COUNT(*) AS n FROM visits GROUP BY k"),
        asking(1, sql="SELECT COUNT(*) AS n FROM visits WHERE " + " OR ".join(
            f"age = {n} AND paid = {n}" for n in range(60))),
    )  # fmt: skip
    paid = begun(vault.house.desk, [(tokens[0], body) for body in several])
    assert [isinstance(one, PaidOrder) and one.is_batchable for one in paid] == [False] * 4
    (plain,) = begun(asked_of(vault, Plain()), [(tokens[1], asking(3))])
    assert isinstance(plain, PaidOrder)
    assert not plain.is_batchable


def test_the_door_reads_what_waits_in_one_pass(vault: OpenVault, tokens: list[str]) -> None:
    engine = Noting(vault)
    end = DoorEnd(asked_of(vault, engine), quantum_s=0, tally=CallMetrics(to_nowhere))

    async def answers() -> list[str]:
        calls = [Call("ask", token, "here", {"data_set": "visits"}) for token in tokens]
        bodies = [
            json.dumps({"sql": asking(above)["sql"], "epsilon": 0.5}).encode() for above in ABOVE
        ]
        return list(await asyncio.gather(*map(end._asked, calls, USERS, bodies)))

    found = [json.loads(one) for one in asyncio.run(answers())]
    assert engine.alone == 0
    assert sum(engine.passes) == 3
    again = [
        vault.house.desk.done("ask", vault.house.desk.admitted("ask", tokens[0]), asking(above))
        for above in ABOVE
    ]
    assert [one["rows"] for one in found] == [one["rows"] for one in again]
