"""What a ready-made card may show, and what one person's rows may change in the tables."""

from __future__ import annotations

import csv
import importlib
import json
import tomllib
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from sfumato.client.ready_made import Terms, read_export, ready_made_card
from sfumato.vault.card.data_card import read_card
from support.exports.fhir_export import write_fhir
from support.exports.redcap_export import write_redcap

STANDARDS = ("omop", "fhir", "redcap", "bids")
TERMS = Terms((Decimal(1), Decimal("1e-6")), (2015, 2023))
# what is in the raw files about people, and in no name of a column
SECRETS = (
    "Miller", "Main Street", "MRN", "House", "mail.example", "Anna", "cats", "stairs",
    "ward 3", "one daily", "pixie", "told by", "L-77", "I21.9",
)  # fmt: skip


def write(standard: str, folder: Path, people: int, seed: int) -> Path:
    module = importlib.import_module(f"support.exports.{standard}_export")
    made: Path = getattr(module, f"write_{standard}")(folder, people, seed)
    return made


def tables_of(standard: str, folder: Path) -> dict[str, Counter[tuple[str, ...]]]:
    """Return the rows of each table that is written anew, as they are given to the vault."""
    found = {}
    with read_export(standard, str(folder), TERMS) as export:
        for table in export.tables:
            if table.key is None and table.file.endswith(".tsv"):
                with open(table.file, encoding="utf-8", newline="") as file:
                    names, *rows = csv.reader(file, delimiter="\t")
                assert names[0] == export.unit
                found[table.name] = Counter(map(tuple, rows))
    return found


@pytest.mark.parametrize("standard", STANDARDS)
def test_the_card_is_the_same_whoever_is_in_the_export(standard: str, tmp_path: Path) -> None:
    cards = []
    for seed, people in ((5, 40), (6, 90)):
        folder = write(standard, tmp_path / str(seed), people, seed)
        with read_export(standard, str(folder), TERMS) as export:
            cards.append(ready_made_card("cohort", export, TERMS))
    assert cards[0] == cards[1]
    read_card("cohort", cards[0])


@pytest.mark.parametrize("standard", STANDARDS)
def test_no_free_text_and_no_identifier_is_in_a_column_of_the_card(
    standard: str, tmp_path: Path
) -> None:
    folder = write(standard, tmp_path / "export", 60, 1)
    with read_export(standard, str(folder), TERMS) as export:
        card = json.dumps(ready_made_card("cohort", export, TERMS), default=str)
        assert not [secret for secret in SECRETS if secret in card]
        said = " ".join((*export.assumed, *export.left_out))
        assert not [secret for secret in SECRETS if secret in said]
    if standard in ("fhir", "redcap"):  # these are written anew, without what is not taken
        rows = tables_of(standard, folder)
        cells = "\n".join(cell for table in rows.values() for row in table for cell in row)
        assert not [secret for secret in SECRETS if secret in cells]


def test_a_record_that_is_absent_changes_no_row_of_another(tmp_path: Path) -> None:
    folder = write_redcap(tmp_path / "all", 30)
    before = tables_of("redcap", folder)
    path = next(folder.glob("*_DATA_*.csv"))
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    kept = [row for row in rows if row["record_id"] != "R-000004"]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(kept)
    after = tables_of("redcap", folder)
    assert_only("R-000004", before, after)


def test_a_patient_who_is_absent_changes_no_row_of_another(tmp_path: Path) -> None:
    folder = write_fhir(tmp_path / "all", 30)
    before = tables_of("fhir", folder)
    for path in folder.glob("[EMCO]*.ndjson"):
        lines = path.read_text().splitlines()
        kept = [line for line in lines if not _is_about(json.loads(line), "p4")]
        path.write_text("\n".join(kept) + "\n")
    assert_only("p4", before, tables_of("fhir", folder))


def _is_about(resource: dict[str, Any], patient: str) -> bool:
    said = resource.get("subject", {}).get("reference", "").replace(":", "/").split("/")
    return patient in said


def assert_only(
    person: str,
    before: dict[str, Counter[tuple[str, ...]]],
    after: dict[str, Counter[tuple[str, ...]]],
) -> None:
    """Assert that nothing but rows of this person has gone, and that some have."""
    assert before.keys() == after.keys()
    gone = [row for name in before for row in (before[name] - after[name])]
    new = [row for name in before for row in (after[name] - before[name])]
    assert {row[0] for row in gone} == {person}
    assert new == []


def test_a_drafted_card_is_toml_of_the_same_card(tmp_path: Path) -> None:
    from sfumato.cli.export_card import draft_text

    for standard in STANDARDS:
        folder = write(standard, tmp_path / standard, 20, 1)
        with read_export(standard, str(folder), TERMS) as export:
            made = ready_made_card("cohort", export, TERMS)
            read = tomllib.loads(draft_text("cohort", export, made), parse_float=Decimal)
        assert read_card("cohort", read) == read_card("cohort", made)
