"""Well-known words and codes for missing values, of which the owner is told before a card."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfumato.engines.ingest.column_types import text_columns
from sfumato.engines.ingest.missing_words import missing_words


@pytest.mark.parametrize(
    ("cells", "kind", "found"),
    [
        (["1", "2", "unbekannt", "unbekannt", "K.A."], "integer", {"unbekannt": 2, "K.A.": 1}),
        (["31", "199", "999", "-9"], "integer", {"999": 1, "-9": 1}),
        (["31", "200", "999"], "integer", {}),  # 999 may be a value
        (["-2", "5", "-9"], "integer", {}),
        (["1", "4", "99", "7", "8", "9"], "integer", {"99": 1}),
        (["70,5", "61", "999", "-99,0"], "number", {"999": 1}),
        (["70.5", "-99.0"], "number", {"-99.0": 1}),
        (["999", "999"], "integer", {}),
        (["red", "none", "999", "-99", "NA", "n/a"], "text", {"none": 1}),
        (["P. Unknown", "Meier"], "text", {}),
    ],
)
def test_only_what_is_likely_to_mean_nothing_is_found(
    cells: list[str], kind: str, found: dict[str, int]
) -> None:
    assert missing_words(cells, kind) == found


def test_the_words_of_each_column_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "klinik.csv"
    file.write_text("Nr,Alter,Ort\n1,40,Ulm\n2,unbekannt,-\n3,unbekannt,Ulm\n4,NA,?\n")
    found = text_columns(str(file))
    assert found["markers"] == [["Alter", {"unbekannt": 2}], ["Ort", {"-": 1, "?": 1}]]
