"""Columns of yes and no, in the words of several languages, in a proposed card."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfumato.engines.ingest.boolean_words import boolean_format, boolean_words
from sfumato.engines.ingest.column_types import text_columns


@pytest.mark.parametrize(
    ("cells", "true", "false"),
    [
        (["Ja", "NEIN"], ["ja", "j"], ["nein", "n"]),
        (["j", "n"], ["ja", "j"], ["nein", "n"]),
        (["wahr", "falsch"], ["wahr"], ["falsch"]),
        (["Y", "N"], ["yes", "y"], ["no", "n"]),
        (["yes", "no"], ["yes", "y"], ["no", "n"]),
        (["t", "f"], ["true", "t"], ["false", "f"]),
        (["yes", "false"], ["yes", "y", "true", "t"], ["no", "n", "false", "f"]),
        (["Oui", "Non"], ["oui", "o"], ["non", "n"]),
        (["Sí", "No"], ["sí", "sì", "si", "s"], ["no", "n"]),
        (["si", "no"], ["sí", "sì", "si", "s"], ["no", "n"]),
        (["não", "sim"], ["sim", "s"], ["não", "nao", "n"]),
    ],
)
def test_a_pair_is_recognised(cells: list[str], true: list[str], false: list[str]) -> None:
    assert boolean_format(cells) == {"true": true, "false": false}


def test_of_true_and_false_nothing_is_assumed() -> None:
    assert boolean_format(["TRUE", "false"]) == {}


@pytest.mark.parametrize(
    "cells",
    [[], ["0", "1"], ["n"], ["f", "F"], ["m", "f"], ["ja", "nein", "vielleicht"], ["ja", "no"],
     ["ja", "0"], ["o", "a"]],
)  # fmt: skip
def test_what_may_mean_something_else_stays_as_it_is(cells: list[str]) -> None:
    assert boolean_words(cells) is None


def test_the_proposal_lists_all_words_of_the_language_and_not_those_of_the_rows(
    tmp_path: Path,
) -> None:
    file = tmp_path / "klinik.csv"
    file.write_text("Nr;raucht;diabetes;stufe;geschlecht\n1;ja;NA;0;f\n2;ja;J;1;f\n3;;n;1;f\n")
    columns = text_columns(str(file))["columns"]
    words = {"true": ["ja", "j"], "false": ["nein", "n"]}
    assert columns == [
        ["Nr", "integer", {}], ["raucht", "boolean", words], ["diabetes", "boolean", words],
        ["stufe", "integer", {}], ["geschlecht", "text", {}],
    ]  # fmt: skip
