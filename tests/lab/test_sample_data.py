"""The bundled data are synthetic, made again byte for byte, and described by cards that hold."""

from __future__ import annotations

import tomllib
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from sfumato.lab.generate import heights, medical, write
from sfumato.lab.sample_data import (
    HEIGHT_BOUNDS,
    HEIGHTS,
    HEIGHTS_CARD,
    MEDICAL,
    MEDICAL_CARD,
    medical_rows,
    read_lines,
    read_numbers,
)
from sfumato.vault.card.columns import Column
from sfumato.vault.card.data_card import Card, read_card

FILES = [(MEDICAL, medical), (HEIGHTS, heights)]


def card_at(path: Path) -> Card:
    """Return the card in the file, read as `sfumato add` reads it."""
    shape = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    return read_card(path.name.removesuffix(".card.toml"), shape)


def can_hold(column: Column, value: str) -> bool:
    """Say whether the card's column allows the value as it stands in the file."""
    if value == "n/a":
        return False
    if column.keys is not None:
        return value in {key.text for key in column.keys}
    lower, upper = column.bounds()
    steps = Fraction(value) / column.step
    return steps.denominator == 1 and lower <= steps <= upper


@pytest.mark.parametrize(("path", "made"), FILES)
def test_the_bundled_files_are_made_again_byte_for_byte(path: Path, made: object) -> None:
    assert callable(made)
    assert path.read_bytes() == made().encode()


def test_writing_makes_both_files(tmp_path: Path) -> None:
    write(tmp_path)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_bytes() for path, _ in FILES}


@pytest.mark.parametrize(("data", "card"), [(MEDICAL, MEDICAL_CARD), (HEIGHTS, HEIGHTS_CARD)])
def test_a_card_names_every_column_of_its_file(data: Path, card: Path) -> None:
    signed = card_at(card)
    named = {column.name for column in signed.columns} | set(signed.hidden)
    assert named == set(read_lines(data)[0])


def test_every_medical_value_is_as_the_card_says() -> None:
    card = card_at(MEDICAL_CARD)
    odd = [
        (name, value)
        for line in read_lines(MEDICAL)
        for name, value in line.items()
        if not can_hold(card.column(name), value)
    ]
    assert odd == []


def test_the_heights_hold_two_gaps_and_two_entry_errors_and_nothing_else_odd() -> None:
    card = card_at(HEIGHTS_CARD)
    odd = [
        (name, value)
        for line in read_lines(HEIGHTS)
        for name, value in line.items()
        if name not in card.hidden and not can_hold(card.column(name), value)
    ]
    swapped = [("Height", "58"), ("Weight", "172")]
    assert odd == [
        ("Height", "n/a"), *swapped, ("Height", "n/a"), ("Height", "1.65")
    ]  # fmt: skip


def test_the_declared_size_and_bounds_of_the_heights_are_those_the_demo_uses() -> None:
    card = card_at(HEIGHTS_CARD)
    height = card.column("Height")
    lower, upper = (float(bound * height.step) for bound in height.bounds())
    assert (card.size, (lower, upper)) == (len(read_lines(HEIGHTS)), HEIGHT_BOUNDS)


def test_the_owner_spends_no_delta_on_the_bundled_data() -> None:
    assert [card_at(path).budget.delta for path in (MEDICAL_CARD, HEIGHTS_CARD)] == [0, 0]


def test_a_person_of_the_heights_is_their_id_and_no_one_may_see_it() -> None:
    card = card_at(HEIGHTS_CARD)
    assert (card.unit, card.hidden) == ("participant_id", ("participant_id",))


def test_the_town_has_a_thousand_people_and_a_rare_disease() -> None:
    rows = medical_rows()
    sick = sum(row["has_rare_disease"] is True for row in rows)
    assert (len(rows), 20 <= sick <= 40) == (1000, True)


def test_a_file_with_windows_line_ends_reads_the_same(tmp_path: Path) -> None:
    copy = tmp_path / "heights.tsv"
    copy.write_bytes(HEIGHTS.read_bytes().replace(b"\n", b"\r\n"))
    assert read_numbers(copy, "Weight") == read_numbers(HEIGHTS, "Weight")
