"""A table with named cells, from the command to the answer: declared, run, shown."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.client.answer import Answer
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines import cli as pipelines_cli
from sfumato.features.pipelines.client import outputs_body
from sfumato.features.pipelines.program_plan import MEDIAN, Program, Run
from sfumato.features.pipelines.program_warnings import answer_warnings
from sfumato.features.pipelines.release import answer_of
from sfumato.sandbox.ports import SandboxLimits
from sfumato.sandbox.program_outputs import read_outputs
from support.sandbox_blocks import needs_bubbles
from support.small_vaults import card, make_vault, run, run_hurried, write_csv

PAIRS = [
    ("m:0:9", {"name": "m", "lower": "0", "upper": "9"}),
    ("m:0:9:0.5@r.txt", {"name": "m", "lower": "0", "upper": "9", "step": "0.5", "path": "r.txt",
                         "at": []}),
    ("m:0:9@r.tsv#0,mean", {"name": "m", "lower": "0", "upper": "9", "path": "r.tsv",
                            "at": [0, "mean"]}),
    ("i[2,3]:0:1@i.npy", {"name": "i", "lower": "0", "upper": "1", "path": "i.npy", "at": [],
                          "shape": [2, 3]}),
    ("m:0:9@r.xlsx#Sheet1!B3", {"name": "m", "lower": "0", "upper": "9", "path": "r.xlsx",
                                "at": ["Sheet1!B3"]}),
    ("m:0:9@r.json#x=y", {"name": "m", "lower": "0", "upper": "9", "path": "r.json",
                          "at": ["x=y"]}),
    ("t:0:100@r.tsv#rows=A,B;columns=mean,sd", {
        "name": "t", "lower": "0", "upper": "100", "path": "r.tsv", "at": [], "rows": ["A", "B"],
        "columns": ["mean", "sd"]}),
    ("t:0:1@r.xlsx#rows=A;columns=n;key=who;at=Results", {
        "name": "t", "lower": "0", "upper": "1", "path": "r.xlsx", "at": ["Results"],
        "rows": ["A"], "columns": ["n"], "key": "who"}),
    ("t:0:1@r.json#rows=2020,2021;columns=n;at=tables,1", {
        "name": "t", "lower": "0", "upper": "1", "path": "r.json", "at": ["tables", 1],
        "rows": ["2020", "2021"], "columns": ["n"]}),
]  # fmt: skip
RECEIPT = {
    "epsilon": 1, "free": False, "left": {"next_epsilon": 2}, "bounding": "one block a person",
}  # fmt: skip


@pytest.mark.parametrize("case", range(len(PAIRS)))
def test_the_text_of_an_output_declares_it(case: int) -> None:
    text, expected = PAIRS[case]
    assert pipelines_cli._output(text) == expected
    assert read_outputs([expected])[0].name == expected["name"]


@pytest.mark.parametrize("place", ["rows=A,B", "rows=A;column=n", "columns=n", "key=who"])
def test_half_of_a_table_is_refused_and_no_place(place: str) -> None:
    with pytest.raises(Refused, match="rows=A,B;columns=C,D"):
        pipelines_cli._output(f"t:0:1@r.tsv#{place}")


def terms(take: str = "mean") -> Run:
    made = read_outputs([
        {"name": "t", "lower": 0, "upper": 100, "step": 1, "path": "r.tsv", "rows": ["A", "B"],
         "columns": ["mean", "sd"]},
        {"name": "n", "lower": 0, "upper": 9, "step": 1, "path": "n.txt"},
    ])  # fmt: skip
    program = Program("d", "program", "pass", "group", ("height",), made)
    return Run(program, 10, 0, Fraction(5), SandboxLimits(), take)


def answered(asked: Run, stored: list[int]) -> Answer:
    return Answer.of({**answer_of(asked, stored), "receipt": RECEIPT})


def test_an_answer_has_the_names_of_its_cells() -> None:
    found = answered(terms(), [120, 45, 300, 61, 70])
    table: Any = found.arrays["t"]
    assert (table["rows"], table["columns"]) == (["A", "B"], ["mean", "sd"])
    assert table["values"] == [[12, 4.5], [30, 6.1]]
    frame = found.table("t")
    assert frame.loc["B", "mean"] == 30
    assert list(frame.columns) == ["mean", "sd"]
    with pytest.raises(Refused, match="no table 'n'"):
        found.table("n")


def test_a_table_is_printed_with_its_names_and_errors() -> None:
    shown = repr(answered(terms(), [120, 45, 300, 61, 70])).splitlines()
    assert [line.split() for line in shown if line[:3] in ("t  ", "A  ", "B  ")] == [
        ["t", "mean", "sd"], ["A", "12", "[0", "to", "42]", "4", "[0", "to", "34]"],
        ["B", "30", "±", "30", "6", "[0", "to", "36]"],
    ]  # fmt: skip
    said = "t is a table: every number ± 30 at 95 %, cut to the declared range. In Python: "
    assert f"{said}.table('t')." in shown
    page = answered(terms(), [120, 45, 300, 61, 70])._repr_html_()
    assert "<th>sd</th>" in page
    medians = repr(answered(terms(MEDIAN), [12, 4, 30, 6, 7]))
    assert "A    12   4" in medians


@pytest.mark.parametrize("take", ["mean", MEDIAN])
def test_an_array_without_names_shows_its_first_numbers_with_their_indexes(take: str) -> None:
    made = read_outputs([
        {"name": "hist", "lower": 0, "upper": 1000, "step": 1, "path": "r.npy", "shape": [5, 6]},
    ])  # fmt: skip
    program = Program("d", "program", "pass", "group", ("height",), made)
    asked = Run(program, 10, 0, Fraction(5), SandboxLimits(), take)
    scale = 1 if take == MEDIAN else 10
    found = answered(asked, [(400 + place) * scale for place in range(30)])
    shown = repr(found).splitlines()
    assert shown[0].split() == ["index", "hist"]
    numbers = shown[2:22]
    assert [line.split()[:3] for line in (numbers[0], numbers[6], numbers[19])] == (
        [["0,", "0", "400"], ["1,", "0", "406"], ["3,", "1", "419"]]
    )
    assert all(("±" in line or "[" in line) == (take == "mean") for line in numbers)
    assert not any("420" in line for line in shown)
    last = next(line for line in shown if line.startswith("hist is an array of 30 numbers: "))
    assert last.endswith("The first 20 are shown; `--json` prints all. In Python: .arrays['hist'].")
    assert "<th>index</th><th>hist</th>" in found._repr_html_()


def test_the_interval_of_each_cell_is_cut_to_the_declared_range() -> None:
    table: Any = answered(terms(), [1000, 45, 300, 0, 70]).arrays["t"]
    assert table["values"] == [[100, 4.5], [30, 0]]
    by = table["margin"]
    assert table["interval"]["lower"] == [[100 - by, 0], [0, 0]]
    assert table["interval"]["upper"] == [[100, 4.5 + by], [30 + by, by]]
    medians: Any = answered(terms(MEDIAN), [12, 4, 30, 6, 7]).arrays["t"]
    assert medians["interval"] is None


def test_cells_near_the_middle_are_named_like_numbers() -> None:
    """A cell's margin is 30 and the middle is 50, so 30 and 52 may be blocks without a number."""
    answer = answer_of(terms(), [0, 520, 300, 900, 0])
    (near,) = answer_warnings(terms(), None, answer)
    assert near.startswith("t (A, sd); t (B, mean) differ from 50 by no more than their noise.")
    assert answer_warnings(terms(), ("t", "n"), answer) == []
    many = read_outputs([{"name": "x", "lower": 0, "upper": 1, "path": "x.npy", "shape": [9]}])
    asked = replace(terms(), program=replace(terms().program, outputs=many), epsilon=Fraction(900))
    (near,) = answer_warnings(asked, None, answer_of(asked, [50_000] * 9))
    assert near.startswith("x (0); x (1); x (2); x (3); x (4); x (5) and 3 more differ from 0.5 ")


def test_a_python_table_is_declared_by_any_sequence() -> None:
    given = {"t": {"lower": 0, "upper": 1, "rows": ("A", "B"), "columns": ("n",)}}
    (made,) = read_outputs(outputs_body(given))
    assert (made.path, made.rows, made.columns, made.shape) == ("t.npy", ("A", "B"), ("n",), (2, 1))
    assert replace(made, rows=(), columns=()).as_json() == {
        key: value for key, value in made.as_json().items() if key not in ("rows", "columns")
    }


CARD = """
unit = "participant_id"
people = "cohort"
budget = { epsilon = 1000 }
[columns.sex]
type = "text"
keys = ["f", "m"]
[columns.height]
type = "number"
lower = 100
upper = 220
step = 1
"""
PROGRAM = """
import csv, sys
with open(sys.argv[1] + "/participants.tsv") as file:
    people = list(csv.DictReader(file, delimiter="\\t"))
with open(sys.argv[2] + "/r.csv", "w") as file:
    file.write('"sex","mean","n"\\n')
    for sex in "mf":
        found = [float(one["height"]) for one in people if one["sex"] == sex]
        file.write(f'"{sex}",{sum(found) / len(found)},{len(found)}\\n')
"""


@needs_bubbles
def test_a_table_goes_from_a_program_to_a_printed_table(tmp_path: Path) -> None:
    rows = [(f"s{n:02d}", "fm"[n % 2], 150 + 30 * (n % 2)) for n in range(80)]
    source = write_csv(tmp_path / "t.csv", ("participant_id", "sex", "height"), rows)
    vault = make_vault(tmp_path)
    with sfumato.open(vault) as opened:
        opened.add("cohort", source, card(CARD))
    (tmp_path / "p.py").write_text(PROGRAM)
    made = run(
        vault, "pipeline", "submit", "cohort", str(tmp_path / "p.py"), "--json",
        "--output", "heights:100:220:1@r.csv#rows=f,m;columns=mean,no",
    )  # fmt: skip
    digest = json.loads(made.stdout)["digest"]
    terms = (digest, "--epsilon", "900", "--blocks", "4", "--cpu", "3")
    answer = json.loads(run_hurried(vault, "pipeline", "run", "cohort", *terms, "--json").stdout)
    values = answer["arrays"]["heights"]["values"]
    assert values == [pytest.approx([150, 160], abs=2), pytest.approx([180, 160], abs=2)]
    ends = answer["arrays"]["heights"]["interval"]
    assert ends["lower"] <= values <= ends["upper"]
    again = run_hurried(vault, "pipeline", "run", "cohort", *terms).stdout
    said = [line for line in again.splitlines() if not line.startswith("Read first: ")]
    assert said[0].split() == ["heights", "mean", "no"]
    op = said[-1].partition("sfumato answer ")[2].split()[0]
    assert run(vault, "answer", op).stdout.splitlines()[:6] == again.splitlines()[:6]
