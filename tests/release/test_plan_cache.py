"""What was read and priced before is remembered for the very same question, card and price."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato import Refused
from sfumato.features.queries.schema import Ask
from sfumato.query import join, lru_cache
from sfumato.query.lru_cache import SHARE, LruCache
from sfumato.query.request import Request, priced_request
from sfumato.query.sql.select import read_sql
from sfumato.release.plan_cache import PlanCache
from sfumato.vault.card.data_card import Card, read_card
from sfumato.vault.users import Caller
from support import small_vaults

SQL = "SELECT COUNT(*) AS n, SUM(age) AS years FROM patients WHERE age > 30"
TENTH = Fraction(1, 10)


@pytest.fixture
def card() -> Card:
    """Return the patients' card, whose ages reach to 100."""
    return _card(100)


def _card(oldest: int) -> Card:
    columns = {"age": {"type": "integer", "lower": 0, "upper": oldest}}
    shape = {"unit": "who", "budget": {"epsilon": 10}, "max_rows": 2, "columns": columns}
    return read_card("patients", shape)


def _asked(**changes: object) -> Request:
    asked = Request(read_sql(SQL, "patients"), TENTH, {}, None)
    return replace(asked, **changes)  # type: ignore[arg-type]  # named as the fields are


def _sum_scale(plans: PlanCache, card: Card) -> Fraction:
    noises = plans.priced(card, _asked()).noises
    return max(Fraction(str(noise.as_json()["scale"])) for noise in noises)


def test_the_same_question_is_read_and_priced_once(card: Card) -> None:
    plans = PlanCache()
    assert plans.question(SQL, "patients", None, None) is plans.question(
        SQL, "patients", None, None
    )
    assert plans.priced(card, _asked()) is plans.priced(card, _asked())
    assert plans.priced(card, _asked()) == priced_request(card, _asked())


def test_an_amended_card_is_planned_anew(card: Card) -> None:
    plans = PlanCache()
    before = _sum_scale(plans, card)
    assert _sum_scale(plans, _card(50)) == before / 2
    assert _sum_scale(plans, card) == before


def test_a_card_that_takes_anothers_place_in_memory_finds_nothing_of_it(card: Card) -> None:
    plans, other = PlanCache(), _card(50)
    plans.priced(card, _asked())
    ((key, offer),) = plans.offers._held.items()
    assert isinstance(key.key, tuple)
    plans.offers._held[type(key)((id(other), *key.key[1:]))] = offer
    assert plans.priced(other, _asked()) == priced_request(other, _asked())


@pytest.mark.parametrize(
    "other",
    [
        _asked(epsilon=Fraction(1, 5)),
        _asked(delta=Fraction(1, 10)),
        _asked(epsilon=None, margins={"n": Fraction(100)}),
        _asked(epsilon=None, margins={"n": Fraction(200)}),
        _asked(split={"n": Fraction(1), "years": Fraction(3)}),
        _asked(question=read_sql(SQL.replace("30", "31"), "patients")),
        _asked(question=read_sql(SQL, "patients", max_rows=1)),
    ],
)
def test_another_price_or_question_is_priced_by_itself(card: Card, other: Request) -> None:
    plans = PlanCache()
    first = plans.priced(card, _asked())
    assert plans.priced(card, other) == priced_request(card, other) != first


def test_a_text_is_another_question_of_another_data_set_or_bound() -> None:
    plans = PlanCache()
    first = plans.question("SELECT COUNT(*) FROM a", "a", None, None)
    assert plans.question("SELECT COUNT(*) FROM a", "A", None, None) != first
    assert plans.question("SELECT COUNT(*) FROM a", "a", 3, None).max_groups == 3
    assert plans.question("SELECT COUNT(*) FROM a", "a", None, 3).max_rows == 3


def test_a_refusal_is_not_remembered(card: Card) -> None:
    plans = PlanCache()
    for _ in range(2):
        with pytest.raises(Refused):
            plans.question("SELECT * FROM patients", "patients", None, None)
        with pytest.raises(Refused):
            plans.priced(card, _asked(epsilon=None))
    assert plans.texts.size() == plans.offers.size() == 0


def _letters(count: int) -> Callable[[], str]:
    return lambda: "x" * count


def test_no_more_is_remembered_than_fits_and_the_oldest_goes() -> None:
    held: LruCache[str] = LruCache(100 * SHARE)
    for key in range(2 * SHARE):
        held.made(key, _letters(100), len)
        held.find(0)
    assert held.size() == 100 * SHARE
    assert held.find(0) is not None  # used all the time
    assert held.find(1) is None
    assert held.find(2 * SHARE - 1) is not None


def test_what_is_too_large_is_made_and_not_kept() -> None:
    held: LruCache[str] = LruCache(100 * SHARE)
    assert held.made("large", _letters(101), len) == "x" * 101
    assert held.find("large") is None
    assert held.size() == 0


def test_a_question_after_the_card_was_amended_has_the_new_bounds(tmp_path: Path) -> None:
    source = small_vaults.write_csv(tmp_path / "rows.csv", ["age"], [[n % 60] for n in range(300)])
    shape = {"unit": "row", "budget": {"epsilon": 10}}
    with sfumato.open(small_vaults.make_vault(tmp_path)) as vault:
        for oldest in (100, 50):
            columns = {"age": {"type": "integer", "lower": 0, "upper": oldest}}
            card = {**shape, "version": str(oldest), "columns": columns}
            vault.add("rows", source, card)
            answer = vault["rows"].ask("SELECT SUM(age) AS years FROM rows", epsilon=1)
            assert answer.receipt["version"] == str(oldest)
            split: Any = answer.receipt["split"]
            assert split[0]["sensitivity"] == oldest


def test_an_answer_of_an_earlier_version_is_planned_once_however_often_it_is_fetched(
    tmp_path: Path,
) -> None:
    """What is kept of a card holds it: made anew for every retry, they would fill the memory."""
    source = small_vaults.write_csv(tmp_path / "rows.csv", ["age"], [[n % 60] for n in range(300)])
    columns = {"age": {"type": "integer", "lower": 0, "upper": 100}}
    budget, ask = {"epsilon": 10}, {"who": ["staff"]}
    shape = {"unit": "row", "budget": budget, "columns": columns, "ask": ask}
    asked = Ask(data_set="rows", sql="SELECT SUM(age) AS years FROM rows", epsilon=1, op="once")
    with sfumato.open(small_vaults.make_vault(tmp_path)) as vault:
        queries, ann = vault.house.desk.queries, Caller("ann", frozenset({"ask", "read"}))
        vault.enrol("ann", "staff")
        vault.add("rows", source, {**shape, "version": "1"})
        given = queries.ask(ann, asked)
        vault.add("rows", source, {**shape, "version": "2"})
        for fetched in range(3):
            assert queries.ask(ann, asked).answer == given.answer
            if not fetched:
                kept = queries.door.plans.offers.size(), join._VIEWS._made.size()
        assert (queries.door.plans.offers.size(), join._VIEWS._made.size()) == kept


WAIT_S = 60.0


class _Slow:
    """A value that takes its time to be made, and may be refused; it counts how often."""

    def __init__(self, *, is_refused: bool = False) -> None:
        self.begun = 0
        self.gate = threading.Event()
        self.is_refused = is_refused

    def made(self) -> str:
        self.begun += 1
        assert self.gate.wait(WAIT_S)
        if self.is_refused:
            raise Refused("not-in-language", "It is none.", "Ask otherwise.")
        return "made"


def _until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.001)


def _waits(held: LruCache[str]) -> bool:
    """Say whether somebody waits for what another makes."""
    return any(making.waiting for making in list(held._making.values()))


def test_of_two_who_ask_at_once_one_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lru_cache, "PATIENCE_S", WAIT_S)
    held: LruCache[str] = LruCache(1000 * SHARE)
    slow = _Slow()
    with ThreadPoolExecutor(2) as pool:
        told = [pool.submit(held.made, "key", slow.made, len) for _ in range(2)]
        _until(lambda: slow.begun > 1 or _waits(held))
        slow.gate.set()
        assert [one.result(WAIT_S) for one in told] == ["made", "made"]
    assert slow.begun == 1
    assert held._making == {}


def test_who_waited_for_what_was_refused_is_refused_by_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lru_cache, "PATIENCE_S", WAIT_S)
    held: LruCache[str] = LruCache(1000 * SHARE)
    slow = _Slow(is_refused=True)
    with ThreadPoolExecutor(2) as pool:
        told = [pool.submit(held.made, "key", slow.made, len) for _ in range(2)]
        _until(lambda: slow.begun > 1 or _waits(held))
        slow.gate.set()
        assert [getattr(one.exception(WAIT_S), "code", None) for one in told] == [
            "not-in-language"
        ] * 2
    assert slow.begun == 2
    assert held._making == {}


def test_nobody_waits_for_long_for_what_another_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lru_cache, "PATIENCE_S", 0.01)
    held: LruCache[str] = LruCache(1000 * SHARE)
    slow = _Slow()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(held.made, "key", slow.made, len)  # which could be in another process
        _until(lambda: slow.begun == 1)
        assert held.made("key", lambda: "mine", len) == "mine"
        slow.gate.set()
        assert first.result(WAIT_S) == "made"
    assert held._making == {}
