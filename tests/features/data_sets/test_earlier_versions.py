"""Rows of an earlier version lie on until the owner has them removed, and then they are gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import sfumato
from sfumato import Refused
from sfumato.app.vault import OpenVault
from support.small_vaults import card, make_vault, run, write_csv

CARD = """
unit = "who"
people = "town"
version = "%s"
budget = { epsilon = 50, delta = 0 }
[columns.age]
type = "integer"
lower = 0
upper = 99
"""
FIRST, SECOND = (12, 100), (60, 60)  # the first person's number, and how many
COUNT = "SELECT COUNT(*) AS n FROM clinic"


def people(place: Path, first: int, count: int) -> Path:
    rows = [(f"person {n}", n % 90) for n in range(first, first + count)]
    return write_csv(place, ("who", "age"), rows)


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    """Return a vault with two versions of one data set, and one of another."""
    with sfumato.open(make_vault(tmp_path)) as opened:
        opened.add("clinic", people(tmp_path / "1.csv", *FIRST), card(CARD % "1"))
        opened.add("beside", people(tmp_path / "b.csv", *FIRST), card(CARD % "1"))
        opened["clinic"].ask(COUNT, epsilon=1, op="before")
        opened.add("clinic", people(tmp_path / "2.csv", *SECOND), card(CARD % "2"))
        yield opened


def tables(vault: OpenVault) -> set[str]:
    """Return the tables that files lie of."""
    return {path.name.partition(".")[0] for path in (vault.house.folder / "tables").iterdir()}


def current(vault: OpenVault) -> set[str]:
    listings = map(vault.house.catalogue.find, ("clinic", "beside"))
    return {Path(one.table).stem for one in listings if one is not None}


def test_they_are_gone_and_what_is_asked_is_not(vault: OpenVault) -> None:
    before = vault["clinic"].ask(COUNT, epsilon=1, op="before").rows
    old = tables(vault) - current(vault)
    assert len(old) == 1
    assert vault.owner.data_sets.forget_earlier() == 1
    assert tables(vault) == current(vault)
    assert vault["clinic"].ask(COUNT, epsilon=1, op="before").rows == before
    assert len(vault["clinic"].ask(COUNT, epsilon=1).rows) == 1
    assert len(vault["beside"].ask(COUNT.replace("clinic", "beside"), epsilon=1).rows) == 1
    notes = vault.house.ledger.store.notes("earlier-rows-removed")
    assert [json.loads(note.body)["tables"] for note in notes] == [sorted(old)]
    assert vault.owner.data_sets.forget_earlier() == 0
    assert len(vault.house.ledger.store.notes("earlier-rows-removed")) == 1


def test_rows_that_an_amended_card_goes_on_with_stay(vault: OpenVault) -> None:
    vault.call("amend", {"data_set": "clinic", "card": {"version": "3", "size": 70}})
    assert vault.owner.data_sets.forget_earlier() == 1
    assert tables(vault) == current(vault)
    assert len(vault["clinic"].ask(COUNT, epsilon=1).rows) == 1


def test_who_was_in_them_is_known_again(vault: OpenVault, tmp_path: Path) -> None:
    """Else whoever removes and adds would have a budget anew."""
    vault.owner.data_sets.forget_earlier()
    renewed = card((CARD % "1").replace("town", "others"))
    with pytest.raises(Refused) as refused:
        vault.add("renewed", people(tmp_path / "3.csv", 12, 40), renewed)
    assert refused.value.code == "same-people"


def test_what_was_removed_by_half_is_removed_whole(vault: OpenVault) -> None:
    (old,) = tables(vault) - current(vault)
    (vault.house.folder / "tables" / f"{old}.duckdb").unlink()  # and was killed then
    assert old in tables(vault)
    assert vault.owner.data_sets.forget_earlier() == 0
    assert tables(vault) == current(vault)


def test_nothing_is_removed_that_the_ledger_does_not_tell(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tables(vault)

    def refuse(*_: object) -> None:
        raise Refused("ledger-unavailable", "no space", "make some")

    monkeypatch.setattr(type(vault.house.ledger), "note", refuse)
    with pytest.raises(Refused):
        vault.owner.data_sets.forget_earlier()
    assert tables(vault) == there


def test_an_owner_does_it_from_a_shell(vault: OpenVault) -> None:
    place = vault.house.folder
    vault.close()
    ran = run(place, "forget-earlier", "--json")
    assert (ran.returncode, json.loads(ran.stdout)) == (0, {"removed": 1})
    assert run(place, "forget-earlier").stdout.endswith("earlier versions: 0.\n")
