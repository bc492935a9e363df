"""What a text can say by letters that nobody looks at is found; what programs write is not."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from sfumato.features.airlock.file_types import fault_of
from sfumato.features.airlock.output_checks import DeclaredFile, checked
from sfumato.features.airlock.unseen_text import unseen_text
from sfumato.vault.card.airlock_terms import AirlockTerms

SECRET = "".join(f"{ord(letter):08b}" for letter in "person 17 is ill")
HIDDEN = SECRET.replace("0", " ").replace("1", "\t")
SPACES = "\n".join("ok" + " " * (bit == "1") for bit in SECRET)
ROWS = [
    ["site", "n", "mean, of", "note"],
    ["a", "40", "1200", 'said "x"'],
    ["b", "40", "NA", "two words"],
    ["c", "", "-3.5", "x,y"],
    ["", "50", "1e3", ""],
]
SHAPE = {"a": [1, 2.5, {"b": None, "c": []}, [[1, 2], [3]]], "é": "km/h", "e": {}, "f": [{"x": 1}]}


def written(**how: Any) -> str:
    made = io.StringIO()
    csv.writer(made, **how).writerows(ROWS)
    return made.getvalue()


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.txt", f"all is well{HIDDEN}\n"),
        ("a.txt", SPACES),
        ("a.txt", f"n{HIDDEN}40\n"),
        ("a.txt", "one\ntwo\r\nthree\n"),
        ("a.json", f'{{"n":{HIDDEN}100}}'),
        ("a.json", json.dumps({"n": 100}) + HIDDEN),
        ("a.json", '{"n": 100,"m": 200,  "k": 300}'),
        ("a.json", '{"n": "\\u0061bc"}'),
        ("a.json", '{"n": "km\\/h", "m": "km/h"}'),
        ("t.csv", f"site,n\na,40{HIDDEN}\nb,40\n"),
        ("t.csv", "site,n\na ,40\nb,40\n"),
        ("t.csv", 'site,n\n"a",40\nb,40\n'),
        ("t.csv", "site,n\na,40\r\nb,40\n"),
        ("t.tsv", 'site\tn\na"b\t40\nb\t40\n'),
    ],
)
def test_what_nobody_looks_at_is_found(path: str, text: str) -> None:
    file = text.encode()
    assert fault_of(path, file) is None
    found = checked([DeclaredFile(path)], {path: file}, AirlockTerms(("a", "b")), None, ())
    assert "blanks" in {one.check for one in found}


@pytest.mark.parametrize("delimiter", [",", "\t"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_table_as_programs_write_it_has_nothing_to_find(
    delimiter: str, quoting: int, end: str
) -> None:
    path = "t.csv" if delimiter == "," else "t.tsv"
    text = written(delimiter=delimiter, quoting=quoting, lineterminator=end)
    assert unseen_text(path, text.encode()) == 0
    assert unseen_text(path, text.removesuffix(end).encode()) == 0


@pytest.mark.parametrize(
    "how",
    [{}, {"indent": 2}, {"indent": "\t"}, {"separators": (",", ":")}, {"ensure_ascii": False}],
    ids=str,
)
def test_a_json_as_programs_write_it_has_nothing_to_find(how: dict[str, Any]) -> None:
    text = json.dumps(SHAPE, **how)
    assert unseen_text("a.json", text.encode()) == 0
    assert unseen_text("a.json", (text.replace("/", "\\/") + "\n").encode()) == 0


def test_a_text_with_aligned_numbers_has_nothing_to_find() -> None:
    assert unseen_text("a.txt", b"A model\n=====\n  n       40\n  mean  1200\n\n\nnotes: ok\n") == 0


@pytest.mark.parametrize(
    "inside",
    ["<text>ok\u200b</text>", '<g id="a\u200bb"/>', "<style>g {} \u2060</style>"],
)
def test_letters_that_nobody_sees_stop_a_drawing(inside: str) -> None:
    drawing = '<svg xmlns="http://www.w3.org/2000/svg">{}</svg>'
    seen = inside.replace("\u200b", "x").replace("\u2060", "x")
    assert fault_of("a.svg", drawing.format(seen).encode()) is None
    assert fault_of("a.svg", drawing.format(inside).encode()) is not None
