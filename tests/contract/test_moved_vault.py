"""A vault's folder may be moved or copied, as who restores a backup does: it pays for nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import sfumato
from sfumato import Refused
from support.small_vaults import PATIENTS_CARD, card, patients_vault, write_patients

SQL = "SELECT COUNT(*) AS n FROM patients"
Place = Callable[[str, str], object]


@pytest.mark.parametrize("place", [shutil.move, shutil.copytree], ids=["moved", "copied"])
def test_its_tables_are_found_where_it_is_now(tmp_path: Path, place: Place) -> None:
    vault, anchor = patients_vault(tmp_path, "ada"), tmp_path / "anchors" / "anchor"
    with sfumato.open(vault, user="ada") as opened:
        before = opened["patients"].ask(SQL, epsilon=0.25)
    there = tmp_path / "elsewhere" / "vault"
    place(str(vault), str(there))
    assert json.loads((there / "vault.json").read_text())["anchor"] == str(anchor)
    with sfumato.open(there, user="ada") as opened:
        again = opened["patients"].ask(SQL, epsilon=0.25)
        assert (again.receipt["free"], again.rows) == (True, before.rows)
        new = opened["patients"].ask(SQL, epsilon=0.75)
        assert abs(int(str(new.value)) - 200) < 60
        listing = opened.house.catalogue.find("patients")
        assert listing is not None
        assert Path(listing.table).parent == there / "tables"
    with sfumato.open(there) as owner:  # whose people are whose is known here, too
        others = card(PATIENTS_CARD.replace("city-hospital-patients", "others"))
        with pytest.raises(Refused, match="same-people"):
            owner.add("others", write_patients(tmp_path / "others.csv"), others)


def test_of_two_copies_with_one_anchor_only_one_spends(tmp_path: Path) -> None:
    vault = patients_vault(tmp_path, "ada")
    shutil.copytree(vault, tmp_path / "copy")
    with sfumato.open(tmp_path / "copy", user="ada") as opened:
        assert not opened["patients"].ask(SQL, epsilon=0.75).receipt["free"]
    with pytest.raises(Refused, match="ledger-frozen"), sfumato.open(vault, user="ada") as opened:
        opened["patients"].ask("SELECT SUM(age) AS n FROM patients", epsilon=0.75)
