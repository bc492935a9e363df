"""Attacks that once worked, each as the attacker did it, and that must never work again."""

from __future__ import annotations

import shutil
from pathlib import Path
from threading import Thread

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Refused
from sfumato.engines.duckdb.engine import DuckDBEngine, Limits
from support.small_vaults import card, make_vault, open_with, write_csv

CARD = """
unit = "row"
people = "city"
version = "1"
budget = { epsilon = 1, delta = 0 }
[ask]
who = ["researchers"]
[columns.age]
type = "integer"
lower = 0
upper = 110
[columns.salary]
type = "integer"
lower = 0
upper = 200000
"""
SWAPPED = """
unit = "row"
people = "city"
version = "1"
budget = { epsilon = 1, delta = 0 }
[columns.salary]
type = "integer"
lower = 0
upper = 200000
[columns.age]
type = "integer"
lower = 0
upper = 110
"""


def version(text: str, name: str) -> str:
    return text.replace('version = "1"', f'version = "{name}"')


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rows = [(n % 90, 1000 + 7 * n) for n in range(300)]
    return write_csv(tmp_path / "town.csv", ("age", "salary"), rows)


def code_of(act: object) -> str:
    with pytest.raises(Refused) as refused:
        act()  # type: ignore[operator]  # a lambda
    return refused.value.code


def test_acknowledging_an_old_ledger_renews_no_account_that_is_newer(
    tmp_path: Path, source: Path
) -> None:
    vault = make_vault(tmp_path)
    old = tmp_path / "old.sqlite"
    shutil.copy(vault / "ledger.sqlite", old)
    with sfumato.open(vault) as fresh:
        fresh.add("town", source, card(CARD))
        fresh["town"].count().ask(epsilon=1)
    for rest in vault.glob("ledger.sqlite*"):
        rest.unlink()
    shutil.copy(old, vault / "ledger.sqlite")
    with sfumato.open(vault) as rolled:
        assert code_of(lambda: rolled["town"].count().ask(epsilon=0.5)) == "ledger-frozen"
        rolled.owner.data_sets.acknowledge("restored by hand")
        assert rolled["town"].budget["spent"]["epsilon"] == 1  # exactly what was lost
        assert code_of(lambda: rolled["town"].count().ask(epsilon=0.5)) == "budget-exceeded"
        more = card(CARD.replace('"city"', '"suburb"'))
        assert code_of(lambda: rolled.add("more", source, more)) == "same-people"  # by their rows


def test_a_lost_ledger_that_nobody_can_measure_renews_no_account_that_is_newer(
    tmp_path: Path, source: Path
) -> None:
    vault = make_vault(tmp_path)
    old = tmp_path / "old.sqlite"
    shutil.copy(vault / "ledger.sqlite", old)
    with sfumato.open(vault) as fresh:
        fresh.add("town", source, card(CARD))
        fresh["town"].count().ask(epsilon=1)
    for rest in vault.glob("ledger.sqlite*"):
        rest.unlink()
    shutil.copy(old, vault / "ledger.sqlite")
    (tmp_path / "anchors" / "anchor").unlink()
    with sfumato.open(vault) as rolled:
        assert code_of(lambda: rolled["town"].count().ask(epsilon=0.5)) == "anchor-missing"
        rolled.owner.data_sets.acknowledge("restored by hand")
        assert code_of(lambda: rolled["town"].count().ask(epsilon=0.5)) == "budget-exceeded"
        more = card(CARD.replace('"city"', '"suburb"'))
        assert code_of(lambda: rolled.add("more", source, more)) == "same-people"


def test_a_version_never_comes_back(tmp_path: Path, source: Path) -> None:
    with open_with(tmp_path, "town", source, CARD) as vault:
        vault.add("town", source, card(version(SWAPPED, "2")))
        assert code_of(lambda: vault.add("town", source, card(SWAPPED))) == "data-set-exists"


def test_swapped_columns_are_another_question(tmp_path: Path, source: Path) -> None:
    with open_with(tmp_path, "town", source, CARD) as vault:
        vault["town"].where(age=(65, None)).count().ask(epsilon=0.4)
        vault.add("town", source, card(version(SWAPPED, "2")))
        answer = vault["town"].where(salary=(65, None)).count().ask(epsilon=0.4)
        assert answer.receipt["free"] is False


def test_one_people_has_one_unit(tmp_path: Path, source: Path) -> None:
    with open_with(tmp_path, "town", source, CARD) as vault:
        person = (
            version(CARD, "2").replace('"row"', '"age"').replace("[columns.age]", "[columns.x]")
        )
        assert code_of(lambda: vault.add("town", source, card(person))) == "bad-card"
        assert code_of(lambda: vault.add("other", source, card(person))) == "bad-card"


def test_letter_case_makes_no_second_data_set(tmp_path: Path, source: Path) -> None:
    with open_with(tmp_path, "town", source, CARD) as vault:
        again = card(version(CARD, "2"))
        assert code_of(lambda: vault.add("Town", source, again)) == "data-set-exists"
        assert vault["TOWN"].count().price(epsilon=1)["fits"]


def test_a_lowered_cap_of_users_holds_for_those_who_asked_before(
    tmp_path: Path, source: Path
) -> None:
    with open_with(tmp_path, "town", source, CARD) as vault:
        vault["town"].count().ask(epsilon=0.1)
        vault.add("town", source, card(version(CARD, "2") + "[caps]\nuser = { epsilon = 0.2 }"))
        assert code_of(lambda: vault["town"].count().ask(epsilon=0.5)) == "budget-exceeded"


def test_a_sum_that_an_integer_cannot_hold_is_shown_whole(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "big.csv", ("x",), [(10**15,)] * 4000)
    text = CARD.replace("upper = 200000", f"upper = {10**15}\nstep = 1000").replace("salary", "x")
    text = text.replace('[columns.age]\ntype = "integer"\nlower = 0\nupper = 110\n', "")
    with open_with(
        tmp_path,
        "big",
        source,
        text.replace("epsilon = 1", "epsilon = 500") + "[limits]\nrows = 5000\n",
    ) as vault:
        answer = vault["big"].sum("x").ask(epsilon=500)
        assert float(str(answer.value)) == pytest.approx(4e18, rel=1e-3)


def test_a_bound_beyond_what_can_be_shown_is_refused(tmp_path: Path, source: Path) -> None:
    text = CARD.replace(
        "upper = 200000", "upper = 1000000000000000000000\nstep = 100000000000000000"
    )
    assert code_of(lambda: open_with(tmp_path, "town", source, text)) == "bad-card"


def test_a_missing_anchor_stops_charges_until_it_is_back(tmp_path: Path, source: Path) -> None:
    with open_with(tmp_path, "town", source, CARD) as vault:
        anchor = tmp_path / "anchors" / "anchor"
        away = anchor.rename(tmp_path / "away")
        assert code_of(lambda: vault["town"].count().ask(epsilon=0.5)) == "anchor-missing"
        assert code_of(lambda: vault["town"].budget) == "anchor-missing"  # nobody knows it
        away.rename(anchor)
        assert vault["town"].budget["spent"]["epsilon"] == 0
        vault["town"].count().ask(epsilon=0.5)


@pytest.mark.parametrize("code", ["ledger-frozen", "anchor-missing"])
def test_no_owners_acts_hide_that_a_ledger_was_rolled_back(
    tmp_path: Path, source: Path, code: str
) -> None:
    with open_with(tmp_path, "town", source, CARD) as vault:
        shutil.copytree(tmp_path / "vault", tmp_path / "backup")
        vault["town"].count().ask(epsilon=1)
    shutil.rmtree(tmp_path / "vault")
    (tmp_path / "backup").rename(tmp_path / "vault")
    if code == "anchor-missing":
        (tmp_path / "anchors" / "anchor").unlink()
    with sfumato.open(tmp_path / "vault") as vault:
        acts = [lambda: vault.enrol("ada", "researchers")] * 6  # more than were lost
        assert [code_of(act) for act in acts] == [code] * 6
        assert code_of(lambda: vault["town"].count().ask(epsilon=1)) == code


def test_no_cap_is_set_and_nothing_thawed_in_a_ledger_that_was_rolled_back(
    tmp_path: Path, source: Path
) -> None:
    with open_with(tmp_path, "town", source, CARD) as vault:
        shutil.copytree(tmp_path / "vault", tmp_path / "backup")
        vault["town"].count().ask(epsilon=1)
    shutil.rmtree(tmp_path / "vault")
    (tmp_path / "backup").rename(tmp_path / "vault")
    lower = {"data_set": "town", "of": "data-set", "epsilon": 0.5}
    with sfumato.open(tmp_path / "vault") as vault:
        store = vault.house.ledger.store
        before, head = store.accounts(), store.head()
        assert code_of(lambda: vault.owner.data_sets.thaw("x")) == "ledger-frozen"
        assert code_of(lambda: vault.call("set-cap", lower)) == "ledger-frozen"
        assert store.accounts() == before
        assert store.head() == head
        assert store.frozen() is not None


def test_a_cap_is_raised_by_two_and_what_was_spent_stays_spent(
    tmp_path: Path, source: Path
) -> None:
    with open_with(tmp_path, "town", source, CARD) as vault:
        vault["town"].count().ask(epsilon=1)
        vault.owner.data_sets.raise_cap("city", 3, 0, why="a decision", approver="the board")
        left = vault["town"].budget["people"]["left"]["epsilon"]
        assert left == pytest.approx(2)


OWNERS_ACTS = [
    lambda vault: vault.enrol("bob", "researchers"),
    lambda vault: vault.add("x", "nowhere.csv", card(CARD)),
    lambda vault: vault.owner.data_sets.thaw("x"),
    lambda vault: vault.owner.data_sets.acknowledge("x"),
]


@pytest.mark.parametrize("act", OWNERS_ACTS)
def test_a_user_who_is_not_the_owner_may_not_act_as_one(tmp_path: Path, act: object) -> None:
    make_vault(tmp_path)
    with sfumato.open(tmp_path / "vault", user="bob") as vault:
        assert code_of(lambda: act(vault)) == "not-allowed"  # type: ignore[operator]  # a lambda


def test_an_operation_keeps_its_answer_when_the_owner_adds_a_version(
    tmp_path: Path, source: Path
) -> None:
    with open_with(tmp_path, "town", source, CARD) as vault:
        first = vault["town"].count().ask(epsilon=0.5, op="x")
        vault.add("town", source, card(version(CARD, "2")))
        again = vault["town"].count().ask(epsilon=0.5, op="x")
        assert again.rows == first.rows
        assert again.receipt["free"] is True
        assert again.receipt["version"] == "1"


def test_an_operation_keeps_its_answer_when_a_new_version_drops_its_column(
    tmp_path: Path, source: Path
) -> None:
    with open_with(tmp_path, "town", source, CARD) as vault:
        first = vault["town"].sum("salary").ask(epsilon=0.5, op="x")
        shape = card(version(CARD, "2"))
        del shape["columns"]["salary"]
        vault.add("town", source, shape)
        again = vault["town"].sum("salary").ask(epsilon=0.5, op="x")
        assert again.rows == first.rows
        assert code_of(lambda: vault["town"].sum("salary").ask(epsilon=0.5)) == "unknown-column"


def test_an_interrupted_question_is_paid_once_however_it_is_asked_again(
    tmp_path: Path, source: Path
) -> None:
    with open_with(tmp_path, "town", source, CARD) as vault:

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        engine = vault.house.engine
        real, engine.measure = engine.measure, interrupted  # type: ignore[method-assign,assignment]
        with pytest.raises(KeyboardInterrupt):
            vault["town"].count().ask(epsilon=0.25)
        engine.measure = real  # type: ignore[method-assign]
        assert len(vault["town"].count().ask(epsilon=0.25)) == 1
        assert spent(vault) == 0.25


def test_an_operation_of_another_data_set_is_reused_and_no_fault(
    tmp_path: Path, source: Path
) -> None:
    with open_with(tmp_path, "town", source, CARD) as vault:
        rows = [(i, i) for i in range(40)]
        other = write_csv(tmp_path / "other.csv", ("age", "salary"), rows)
        vault.add("city", other, card(version(CARD, "other")))
        vault["city"].count().ask(epsilon=0.1, op="x")
        assert code_of(lambda: vault["town"].count().ask(epsilon=0.1, op="x")) == "op-reused"


def test_a_built_question_takes_the_bounds_of_its_terms(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "visits.csv", ("who", "age"), [("a", 1), ("b", 2)])
    text = 'unit = "who"\nbudget = { epsilon = 9 }\nmax_rows = 5\n[columns.age]\ntype = "integer"\n'
    with open_with(tmp_path, "visits", source, text) as vault:
        price = vault["visits"].count().price(epsilon=1, max_rows=2)
        assert price["split"][0]["sensitivity"] == 2


def test_what_is_left_is_the_least_of_all_who_pay(tmp_path: Path, source: Path) -> None:
    text = CARD.replace("epsilon = 1", "epsilon = 3") + "[caps]\nuser = { epsilon = 1 }\n"
    with open_with(tmp_path, "town", source, text) as vault:
        answer = vault["town"].count().ask(epsilon=0.75)
        assert answer.receipt["left"]["next_epsilon"] == pytest.approx(0.25)  # type: ignore[index]
        assert vault["town"].budget["next_epsilon"] == pytest.approx(0.25)


def test_noise_that_cannot_be_drawn_is_refused_at_its_price_and_at_once(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "fine.csv", ("x",), [(1,)])
    text = (
        'unit = "row"\nbudget = { epsilon = 9 }\n[limits]\nrows = 100\n'
        '[columns.x]\ntype = "number"\nlower = 0\nupper = 4500\nstep = 1e-12\n'
    )
    with open_with(tmp_path, "fine", source, text) as vault:
        for epsilon in (1, 0.000001):
            asked = vault["fine"].sum("x")
            assert code_of(lambda e=epsilon, a=asked: a.price(epsilon=e)) == "noise-out-of-range"


def test_half_a_letter_is_refused_before_it_is_paid(tmp_path: Path, source: Path) -> None:
    text = CARD + '[columns.name]\ntype = "text"\n'
    named = write_csv(tmp_path / "named.csv", ("age", "salary", "name"), [(1, 2, "x")])
    with open_with(tmp_path, "town", named, text) as vault:
        for wrong in ("\ud800", "a\x00b", float("nan")):
            refused = code_of(lambda w=wrong: vault["town"].where(name=w).count().ask(epsilon=0.1))
            assert refused == "not-in-language"
        assert vault["town"].budget["spent"]["epsilon"] == 0


def spent(vault: OpenVault) -> float:
    return float(vault["town"].budget["spent"]["epsilon"])


def test_a_stopped_shape_is_stopped_whatever_its_constants_are(
    tmp_path: Path, source: Path
) -> None:
    with open_with(tmp_path, "town", source, CARD) as vault:
        engine = vault.house.engine
        assert isinstance(engine, DuckDBEngine)
        engine._limits = Limits(deadline_s=0.0)
        first = vault["town"].where(age=(1, None)).count()
        assert code_of(lambda: first.ask(epsilon=0.1)) == "question-failed"
        other = vault["town"].where(age=(2, 50)).count()
        assert code_of(lambda: other.ask(epsilon=0.1)) == "question-frozen"
        (waiting,) = vault.owner.data_sets.frozen_questions()
        assert waiting["says"] == "the number of rows, where age >= 1"


def test_a_paid_operation_is_not_answered_on_another_version(tmp_path: Path, source: Path) -> None:
    with open_with(tmp_path, "town", source, CARD) as vault:

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        engine = vault.house.engine
        real, engine.measure = engine.measure, interrupted  # type: ignore[method-assign,assignment]
        with pytest.raises(KeyboardInterrupt):
            vault["town"].count().ask(epsilon=0.25, op="x")
        engine.measure = real  # type: ignore[method-assign]
        vault.add("town", source, card(version(CARD, "2")))
        assert code_of(lambda: vault["town"].count().ask(epsilon=0.25, op="x")) == "op-reused"
        assert spent(vault) == 0.25


def test_a_lost_catalogue_is_noticed(tmp_path: Path, source: Path) -> None:
    open_with(tmp_path, "town", source, CARD).close()
    for rest in (tmp_path / "vault").glob("catalogue.sqlite*"):
        rest.unlink()
    assert code_of(lambda: sfumato.open(tmp_path / "vault")) == "vault-missing"


def test_an_older_catalogue_is_noticed_before_anything_is_added(
    tmp_path: Path, source: Path
) -> None:
    folder = make_vault(tmp_path)
    old = (folder / "catalogue.sqlite").read_bytes()
    with sfumato.open(folder) as vault:
        vault.add("town", source, card(CARD))
    for rest in folder.glob("catalogue.sqlite*"):
        rest.unlink()
    (folder / "catalogue.sqlite").write_bytes(old)
    with sfumato.open(folder) as vault:
        other = card(CARD.replace('"city"', '"B"'))
        assert code_of(lambda: vault.add("other", source, other)) == "vault-missing"


def test_after_a_lost_ledger_no_cap_is_raised(tmp_path: Path, source: Path) -> None:
    with open_with(tmp_path, "town", source, CARD) as vault:
        vault.house.ledger.store.freeze("a test")
        data_sets = vault.owner.data_sets
        data_sets.acknowledge("a test")
        raised = code_of(
            lambda: data_sets.raise_cap("city", 3, 0, why="more", approver="the board")
        )
        assert raised == "not-allowed"


@pytest.mark.parametrize("nobody", ["", " ", "owner", "Owner", "\n"])
def test_a_second_person_is_somebody_else(tmp_path: Path, source: Path, nobody: str) -> None:
    with open_with(tmp_path, "town", source, CARD) as vault:
        other = card(CARD.replace('"city"', '"B"'))
        added = code_of(lambda: vault.add("b", source, other, different_people=nobody))
        assert added == "not-allowed"


def test_people_have_one_spelling(tmp_path: Path, source: Path) -> None:
    with open_with(tmp_path, "town", source, CARD) as vault:
        other = card(CARD.replace('"city"', '"City"'))
        assert code_of(lambda: vault.add("b", source, other)) == "same-people"


def test_an_old_receipt_does_not_freeze_what_was_acknowledged(tmp_path: Path, source: Path) -> None:
    with open_with(tmp_path, "town", source, CARD) as vault:
        receipt = vault["town"].count().ask(epsilon=0.5).receipt
        vault.house.ledger.store.freeze("a test")
        vault.owner.data_sets.acknowledge("a test")
        was = receipt["signed"]
        assert isinstance(was, dict)
        signed: dict[str, object] = {**was, "head": "0" * 64}
        lost = vault.house.ledger.sign(signed)
        assert vault.house.ledger.has_receipt(lost) is False
        assert vault.house.ledger.store.frozen() is None


def test_an_add_that_fails_leaves_no_rows_and_no_budget_behind(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("disk full")

    with sfumato.open(make_vault(tmp_path)) as vault:
        with monkeypatch.context() as patched:
            patched.setattr(vault.house.catalogue, "put", full)
            with pytest.raises(OSError, match="disk full"):
                vault.add("town", source, card(CARD.replace("epsilon = 1", "epsilon = 100")))
        left = [p for part in ("tables", "people") for p in (tmp_path / "vault" / part).iterdir()]
        assert left == []
        vault.add("town", source, card(CARD))
        assert vault["town"].budget["people"]["cap"]["epsilon"] == 1


def test_two_adds_at_once_cannot_both_be_the_same_people(tmp_path: Path, source: Path) -> None:
    folder, outcomes = make_vault(tmp_path), []

    def add(people: str) -> None:
        with sfumato.open(folder) as vault:
            try:
                vault.add(people, source, card(CARD.replace('"city"', f'"{people}"')))
                outcomes.append("added")
            except Refused as refused:
                outcomes.append(refused.code)

    threads = [Thread(target=add, args=(people,)) for people in ("north", "south")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["added", "same-people"]
