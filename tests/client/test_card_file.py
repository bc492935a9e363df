"""A card is given as a table or as its file, in a folder and at a service."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato import Refused
from sfumato.client.card_file import card_of
from support.small_vaults import PATIENTS_CARD, card, make_vault, write_patients


@pytest.mark.parametrize("form", [str, Path])
def test_a_vault_reads_the_file_that_a_card_stands_in(tmp_path: Path, form: type) -> None:
    file = tmp_path / "patients.card.toml"
    file.write_text(PATIENTS_CARD)
    rows = write_patients(tmp_path / "rows.csv")
    with sfumato.open(make_vault(tmp_path)) as vault:
        added = vault.add("patients", rows, form(file))
        again = sfumato.open(make_vault(tmp_path / "other"))
        assert again.add("patients", rows, card(PATIENTS_CARD)) == added
        again.close()


def test_numbers_of_a_file_are_those_that_were_typed(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("x = 0.1000000000000000055511151231257827")
    assert card_of(file)["x"] == Decimal("0.1000000000000000055511151231257827")


@pytest.mark.parametrize("text", [b"x = ", b"\xff", b"x = 1e999999999999999999999", b"", None])
def test_a_file_that_is_no_card_is_refused_by_name(tmp_path: Path, text: bytes | None) -> None:
    file = tmp_path / "mine.toml"
    if text is not None:
        file.write_bytes(text)
    if text == b"":
        assert card_of(file) == {}
        return
    with pytest.raises(Refused) as refused:
        card_of(str(file))
    assert refused.value.code == "bad-card"
    assert "mine.toml" in refused.value.cause


@pytest.mark.parametrize("given", [None, 1, ["unit"], b"unit", "a\0b", "unit = 'row'"])
def test_what_is_neither_a_table_nor_a_file_is_refused(given: Any) -> None:
    with pytest.raises(Refused) as refused:
        card_of(given)
    assert refused.value.code == "bad-card"
