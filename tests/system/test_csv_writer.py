"""Rows as text are the same rows wherever they are read, whatever letters are in their cells."""

from __future__ import annotations

import csv
import io
import tomllib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sfumato.features.synthetic.schema_twin import TwinTable
from sfumato.features.synthetic.twin_files import Stamp, twin_json
from sfumato.system.csv_writer import write_rows
from sfumato.vault.card.data_card import read_card

CARD = """
unit = "participant_id"
people = "town"
budget = { epsilon = 1 }
[columns.place]
type = "text"
"""
STAMP = Stamp("schema-twin", "town", "1", "schema-only", "made up", {})
ODD = ("a\rb", "a\nb", "a\r\nb", "\r", 'a"b', "a,b", "a\tb", "")


def read(text: str, separator: str = ",") -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))


@pytest.mark.parametrize("separator", [",", "\t"], ids=["comma", "tab"])
@given(cell=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
@example(cell="a\rb")
def test_a_row_is_read_as_it_was_written(separator: str, cell: str) -> None:
    file = io.StringIO(newline="")
    write_rows(file, [("who", "place"), ("p", cell)], separator)
    assert read(file.getvalue(), separator) == [["who", "place"], ["p", cell]]


@pytest.mark.parametrize("folder", [False, True], ids=["table", "bids"])
def test_a_twin_has_no_row_that_breaks_in_two(folder: bool) -> None:
    more = '[bids]\npeople = 9\nfiles = ["anat/{sub}_T1w.nii.gz"]\n' if folder else ""
    made = read_card("town", tomllib.loads(CARD + more))
    rows = tuple((f"sub-{place}", text) for place, text in enumerate(ODD))
    twin = twin_json(made, STAMP, [TwinTable("town", ("participant_id", "place"), rows)])
    name = "participants.tsv" if folder else "town.schema-twin.csv"
    files: Any = twin["files"]
    text = str(files[name])
    assert read(text, "\t" if folder else ",") == [["participant_id", "place"], *map(list, rows)]
