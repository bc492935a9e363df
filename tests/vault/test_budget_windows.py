"""A budget per window renews when its window is over, and never by a clock that was set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.accounting.privacy_filter import Cap
from sfumato.dp.refusal import Refused
from sfumato.storage import sql_ledger
from sfumato.storage.sql_ledger import SqlLedger
from sfumato.vault.budget_windows import (
    UNBOUNDED,
    UNITS,
    in_window,
    label_of,
    parts_of,
    trusted_day,
)
from sfumato.vault.ledger_entries import Charged, Debtor
from support.ledger_stores import SetClock, asked
from support.small_vaults import PATIENTS_CARD, card, make_vault, run, write_patients

MONTHLY = PATIENTS_CARD.replace(
    "budget = { epsilon = 3.0", 'window = "month"\nbudget = { epsilon = 2.0'
)
PEOPLE = "people:city-hospital-patients"


class Vault:
    """A vault whose clock, and the time that its process counts, are set."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.counted, self.asked = folder, 0.0, 0
        self.clock = SetClock("2026-11-26T10:00:00+00:00")
        monkeypatch.setattr(sql_ledger, "time", self)
        self.open: OpenVault = sfumato.open(make_vault(folder))
        self._set()
        source = write_patients(folder / "patients.csv")
        self.open.add("clinic", source, card(MONTHLY))

    def monotonic(self) -> float:
        return self.counted

    def _set(self) -> None:
        store = self.open.house.ledger.store
        assert isinstance(store, SqlLedger)
        store._clock = self.clock

    def restart(self) -> None:
        self.open.close()
        self.open = sfumato.open(self.folder / "vault")
        self._set()

    def at(self, day: str, *, counted_days: float = 0) -> None:
        self.clock.at = f"{day}T10:00:00+00:00"
        self.counted += counted_days * 86400

    def ask(self, epsilon: float = 0.75) -> dict[str, object]:
        self.asked += 1
        return (
            self.open["clinic"].where(age=(self.asked, None)).count().ask(epsilon=epsilon).receipt
        )

    def left(self) -> float:
        found = self.open["clinic"].budget["next_epsilon"]
        assert isinstance(found, float)
        return found

    def lifetime(self) -> float:
        return float(self.open["clinic"].budget["window"]["lifetime"]["epsilon"])


@pytest.fixture
def vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Vault]:
    made = Vault(tmp_path, monkeypatch)
    yield made
    assert made.open.house.ledger.verified()["ok"] is True
    made.open.close()


def test_a_window_has_its_own_budget_and_the_sum_goes_on(vault: Vault) -> None:
    first = vault.ask()
    assert first["window"] == {
        "per": "month",
        "now": "2026-11",
        "lifetime": {"epsilon": 0.75, "delta": 0.0, "rho": pytest.approx(0.28125)},
        "says": "epsilon per month: the budget covers the charges of one month (UTC; now 2026-11). "
        "It renews, so the lifetime total grows: epsilon 0.75, delta 0 so far.",
    }
    assert vault.left() == 0.25  # of the user's 1 in this month
    with pytest.raises(Refused, match="2026-11"):
        vault.ask()
    vault.at("2026-11-27")
    vault.ask(0.125)
    for day in range(28, 31):
        vault.at(f"2026-11-{day}")
        vault.ask(0.01)
    vault.at("2026-12-01")
    assert vault.left() == 1.0
    second = vault.ask()
    assert second["window"]["now"] == "2026-12"  # type: ignore[index]  # JSON
    assert vault.lifetime() == pytest.approx(0.75 + 0.125 + 0.03 + 0.75)
    assert "1.655" in str(second["window"])
    assert "84" in str(second["odds"])  # of all that was ever asked, not of the window


def test_the_budget_shows_the_window_and_the_sum_of_all(vault: Vault) -> None:
    vault.ask()
    shown = vault.open["clinic"].budget
    assert shown["cap"]["epsilon"] == 2.0
    assert shown["spent"]["epsilon"] == 0.75
    assert "epsilon per month" in repr(shown)
    assert vault.open["clinic"].card["window"] == "month"
    accounts = vault.open.call("spending", {"data_set": "clinic"})["accounts"]
    assert [one["cap"]["epsilon"] for one in accounts] == [2.0, 2.0, 1.0]  # type: ignore[attr-defined]  # JSON
    policies = vault.open.call("policies", {})["accounts"]
    assert isinstance(policies, list)
    people = next(one for one in policies if one["account"] == PEOPLE)
    assert (people["cap"]["epsilon"], people["window"]["lifetime"]["epsilon"]) == (2.0, 0.75)
    assert not any(one["account"].startswith(("window:", "clock:")) for one in policies)


def test_a_sheet_says_the_window_and_what_was_spent_in_all(vault: Vault) -> None:
    receipt = vault.ask()
    sheet = vault.open.house.desk.audit.sheet(int(str(receipt["seq"])))
    assert sheet["window"] == {"per": "month", "in": "2026-11"}
    assert sheet["spent_since"]["epsilon"] == 0.75  # type: ignore[index]  # JSON


def test_an_answer_that_was_paid_in_one_window_is_free_in_the_next(vault: Vault) -> None:
    asked = vault.open["clinic"].count()
    first = asked.ask(epsilon=0.5)
    for day in ("2026-11-27", "2026-11-28", "2026-11-29", "2026-11-30", "2026-12-01"):
        vault.at(day)
        vault.ask(0.001)
    again = asked.ask(epsilon=0.5)
    assert again.rows == first.rows
    assert again.receipt["free"] is True
    assert again.receipt["left"]["epsilon"] == pytest.approx(1.999)  # type: ignore[index]  # JSON


@pytest.mark.parametrize("day", ["2025-11-26", "2026-10-26", "2026-11-25", "1970-01-01"])
def test_a_clock_that_was_set_back_gives_no_earlier_window(vault: Vault, day: str) -> None:
    vault.ask()
    vault.at(day)
    assert vault.left() == 0.25
    with pytest.raises(Refused, match="left in 2026-11"):
        vault.ask()
    assert vault.ask(0.25)["window"]["now"] == "2026-11"  # type: ignore[index]  # JSON


@pytest.mark.parametrize("day", ["2026-12-01", "2036-11-26", "2027-01-01", "9999-12-31"])
@pytest.mark.parametrize("is_new", [False, True])
def test_a_clock_that_was_set_ahead_opens_no_window(vault: Vault, day: str, is_new: bool) -> None:
    vault.ask()
    vault.at(day)
    if is_new:
        vault.restart()
    assert vault.left() == 0.25
    with pytest.raises(Refused):
        vault.ask()
    vault.open.enrol("ada", "researchers")  # an entry with the wrong time proves nothing
    with pytest.raises(Refused):
        vault.ask()
    vault.at("2026-11-27")
    assert vault.ask(0.25)["window"]["now"] == "2026-11"  # type: ignore[index]  # JSON


def test_a_process_that_has_counted_the_time_vouches_for_it(vault: Vault) -> None:
    vault.ask()
    vault.at("2026-12-03", counted_days=7)
    assert vault.left() == 1.0
    assert vault.ask()["window"]["now"] == "2026-12"  # type: ignore[index]  # JSON


def test_after_a_long_rest_the_owner_says_that_the_clock_is_right(vault: Vault) -> None:
    vault.ask()
    vault.at("2027-01-05")
    vault.restart()
    assert vault.left() == 0.25
    vault.open.owner.data_sets.confirm_clock("looked at three clocks")
    assert vault.left() == 1.0
    assert vault.ask()["window"]["now"] == "2027-01"  # type: ignore[index]  # JSON
    vault.at("2026-11-26")
    with pytest.raises(Refused, match="earlier day"):
        vault.open.owner.data_sets.confirm_clock("it is November")


def test_a_restored_ledger_lacks_nothing_of_its_window(vault: Vault, tmp_path: Path) -> None:
    import shutil

    vault.open.close()
    shutil.copytree(tmp_path / "vault", tmp_path / "backup")
    vault.restart()
    vault.ask()
    vault.open.close()
    shutil.rmtree(tmp_path / "vault")
    (tmp_path / "backup").rename(tmp_path / "vault")
    vault.restart()
    vault.open.owner.data_sets.acknowledge("restored")
    assert (vault.left(), vault.lifetime()) == (0.25, 0.75)
    with pytest.raises(Refused):
        vault.ask()


def test_people_keep_their_window_and_no_card_gives_more(vault: Vault, tmp_path: Path) -> None:
    source = tmp_path / "patients.csv"
    again = MONTHLY.replace('version = "2026-11"', 'version = "2"')
    for other in (
        again.replace('window = "month"\n', ""),
        again.replace('"month"', '"day"'),
        again.replace("epsilon = 2.0", "epsilon = 2.5"),
    ):
        with pytest.raises(Refused, match=r"for each month|a smaller budget in each month"):
            vault.open.add("clinic", source, card(other))
    vault.open.add("clinic", source, card(again.replace("epsilon = 2.0", "epsilon = 1.5")))
    with pytest.raises(Refused, match="renewed in time windows"):
        vault.open.owner.data_sets.raise_cap(
            "city-hospital-patients", 9, 0, why="more", approver="the board"
        )
    with pytest.raises(Refused, match="renewed in time windows"):
        vault.open.call(
            "set-cap", {"data_set": "clinic", "of": "people", "epsilon": 9.0, "why": "x"}
        )


def test_a_window_is_one_of_five(tmp_path: Path) -> None:
    with sfumato.open(make_vault(tmp_path)) as opened:
        source = write_patients(tmp_path / "patients.csv")
        with pytest.raises(Refused, match="Window must be one of"):
            opened.add("clinic", source, card(MONTHLY.replace('"month"', '"fortnight"')))


def test_the_shell_shows_it(tmp_path: Path) -> None:
    folder = make_vault(tmp_path)
    source = write_patients(tmp_path / "patients.csv")
    (tmp_path / "card.toml").write_text(MONTHLY)
    assert (
        run(folder, "add", "clinic", str(source), "--card", str(tmp_path / "card.toml")).returncode
        == 0
    )
    assert "epsilon per month" in run(folder, "budget", "clinic").stdout
    said = run(folder, "ledger", "clock", "--why", "it is right", "--json")
    assert json.loads(said.stdout)["confirmed"] is True


DAYS = st.dates(min_value=date(1990, 1, 1), max_value=date(2100, 1, 1))


@given(one=DAYS, other=DAYS, unit=st.sampled_from(UNITS))
def test_later_windows_sort_behind_earlier(one: date, other: date, unit: str) -> None:
    first, last = sorted((one, other))
    assert label_of(unit, first) <= label_of(unit, last)


@given(days=st.lists(DAYS, max_size=20))
def test_a_clock_alone_opens_no_day_that_was_not_next(days: list[date]) -> None:
    seen: date | None = None
    for today in days:
        before, seen = seen, trusted_day(seen, today, is_vouched=False)
        assert before is None or 0 <= (seen - before).days <= 1


def test_a_window_is_paid_beside_the_account_that_it_is_of() -> None:
    cap = Cap(1, 2, 3, 4)
    endless = Debtor("people:a:b", UNBOUNDED, "quarter", cap)
    both = in_window((endless, Debtor("plain", cap)), date(2026, 11, 26))
    assert [one.account for one in both] == [
        "people:a:b", "plain", "window:quarter:2026-Q4:people:a:b",
    ]  # fmt: skip
    assert both[2].cap == cap
    assert parts_of(both[2].account) == ("quarter", "2026-Q4", "people:a:b")


def test_a_retry_in_the_next_window_shows_that_windows_budget(vault: Vault) -> None:
    cap = Cap(10**9, 10**9, 10**12, 10**9)
    debtor = Debtor("people:city", UNBOUNDED, "month", cap)
    charge = asked("1", debtors=(debtor,), debt=PrivacyCost(5, 0, 5, 0))
    ledger = vault.open.house.ledger
    paid = ledger.charge(charge)
    assert isinstance(paid, Charged)
    assert [(a.name, a.spent, a.cap) for a in paid.accounts] == [
        ("people:city", PrivacyCost(5, 0, 5, 0), cap)
    ]
    vault.at("2026-12-03", counted_days=7)  # it was killed before it read, and is tried again
    again = ledger.charge(charge)
    assert isinstance(again, Charged)
    assert again.paid_before
    (account,) = again.accounts
    assert (account.spent, account.cap, account.lifetime) == (
        PrivacyCost(),
        cap,
        PrivacyCost(5, 0, 5, 0),
    )
    assert account.window == "window:month:2026-12:people:city"
