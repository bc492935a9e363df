"""Tables with named cells: names come from the declaration, and a missing cell is the middle."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest

from sfumato.dp.refusal import Refused
from sfumato.sandbox.program_outputs import Output, parsed_outputs, read_output, read_outputs
from support.workbooks import workbook

A_B = {"rows": ["A", "B"], "columns": ["mean", "sd"]}


def table(path: str, **more: object) -> Output:
    shape = {"name": "t", "lower": 0, "upper": 100, "step": 1, "path": path, **A_B, **more}
    return read_outputs([shape])[0]


def steps(of: Output, found: bytes) -> list[int]:
    return read_output(json.dumps({of.path: found.hex()}).encode(), (of,))


def says(of: Output, found: bytes) -> str:
    return parsed_outputs(json.dumps({of.path: found.hex()}).encode(), (of,))[0].says


def npy(values: object) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(values, dtype=np.float64))
    return file.getvalue()


WHOLE = [1, 2, 3, 4]
READ = [
    (table("r.tsv"), b"g\tmean\tsd\nA\t1\t2\nB\t3\t4\n", WHOLE),
    (table("r.tsv"), b"g\tsd\tn\tmean\nB\t4\t9\t3\nC\t8\t9\t8\nA\t2\t9\t1\n", WHOLE),
    (table("r.csv"), b'"","mean","sd"\n"A",1,2\n"B",3,4\n', WHOLE),
    (table("r.csv"), b"\xef\xbb\xbfmean,sd,who\n1,2,A\n3,4,B\n", [50] * 4),
    (table("r.csv", key="who"), b"\xef\xbb\xbfmean,sd,who\n1,2,A\n3,4,B\n", WHOLE),
    (table("r.csv"), b'g,mean,sd\n"A",1,"2"\n"B",3,"4"\n', WHOLE),
    (table("r.tsv"), b"g\tmean\nA\t1\nB\t3\n", [1, 50, 3, 50]),
    (table("r.tsv"), b"g\tmean\tsd\nA\t1\t2\n", [1, 2, 50, 50]),
    (table("r.tsv"), b"g\tmean\tsd\nA\t1\nB\tn/a\t-4\n", [1, 50, 50, 0]),
    (table("r.tsv"), b"g\tmean\tsd\nA\tnan\tinf\nB\t1e400\t1e300\n", [50, 50, 50, 100]),
    (table("r.tsv"), b"A\t1\t2\nB\t3\t4\n", [50] * 4),
    (table("r.tsv"), b"g\tmean\tsd\nA\t1\t2\nA\t7\t7\nB\t3\t4\n", WHOLE),
    (table("r.json"), b'{"A": {"mean": 1, "sd": 2}, "B": {"sd": 4, "mean": 3}}', WHOLE),
    (table("r.json"), b'{"A": {"mean": 1}, "B": 7}', [1, 50, 50, 50]),
    (table("r.json"), b'{"A": {"mean": true, "sd": "2"}, "B": {"mean": NaN, "sd": 1e999}}',
     [50, 50, 50, 50]),
    (table("r.json", at=["x", 1]), b'{"x": [0, {"A": {"mean": 1, "sd": 2}}]}', [1, 2, 50, 50]),
    (table("r.json"), b'[{"g": "A", "mean": 1, "sd": 2}, {"g": "B", "mean": 3, "sd": 4}]', WHOLE),
    (table("r.json", key="g"), b'[{"mean": 3, "sd": 4, "g": "B"}]', [50, 50, 3, 4]),
    (table("r.json", rows=["2020"], columns=["n"]), b'[{"year": 2020, "n": 8}]', [8]),
    (table("r.json"), b'[{"g": "A", "mean": 1}, 7]', [50] * 4),
    (table("r.json"), b"[1, 2, 3, 4]", [50] * 4),
    (table("r.json"), b'[{"g": "A", "mean": 1, "sd": 2}' + b', {"g": 0}' * 999 + b"]",
     [1, 2, 50, 50]),
    (table("r.json"), b'[{"g": "A", "mean": 1, "sd": 2}' + b', {"g": 0}' * 1000 + b"]", [50] * 4),
    (table("r.json"), b"null", [50] * 4),
    (table("r.npy"), npy([[1, 2], [3, 4]]), WHOLE),
    (table("r.npy"), npy([1, 2, 3, 4]), [50] * 4),
    (table("r.xlsx"), workbook({"S": [["g", "mean", "sd"], ["B", 3, 4], ["A", 1, 2]]}), WHOLE),
    (table("r.xlsx", at=["T"]), workbook({"S": [[1]], "T": [["g", "sd"], ["A", 2], ["B", None]]}),
     [50, 2, 50, 50]),
    (table("r.xlsx", at=[1]), workbook({"S": [[1]], "T": [["mean", "g"], [3, "B"]]}), [50] * 4),
    (table("r.xlsx", at=[1], key="g"), workbook({"S": [[1]], "T": [["mean", "g"], [3, "B"]]}),
     [50, 50, 3, 50]),
    (table("r.tsv"), b"", [50] * 4),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(READ)))
def test_a_table_is_read_by_the_declared_names(case: int) -> None:
    of, found, expected = READ[case]
    assert steps(of, found) == expected


@pytest.mark.parametrize("case", range(len(READ)))
def test_a_table_that_cannot_be_read_leaves_what_is_beside_it(case: int) -> None:
    of, found, expected = READ[case]
    beside = read_outputs([{"name": "n", "lower": 0, "upper": 9, "step": 1, "path": "n.txt"}])
    sent = json.dumps({of.path: found.hex(), "n.txt": b"7".hex()}).encode()
    assert read_output(sent, (of, *beside)) == [*expected, 7]


def test_a_trial_says_how_many_cells_are_numbers() -> None:
    of = table("r.tsv")
    half = "a table, of which 2 of 4 cells are numbers; the first that is none is A, sd"
    assert says(of, b"g\tmean\nA\t1\nB\t3\n") == half
    none = (
        "no number: a table, of which 0 of 4 cells are numbers; the first that is none is A, mean; "
        "its first line is x, y"
    )
    assert says(of, b"x\ty\n1\t2\n") == none
    key = "no number: r.tsv has nothing; its first line is g, mean"
    assert says(table("r.tsv", key="no"), b"g\tmean\nA\t1\n") == key


def test_names_reach_the_ledger_and_are_read_back() -> None:
    made = table("r.csv", key="who")
    assert (made.shape, made.count, made.rows, made.columns) == ((2, 2), 4, ("A", "B"), (
        "mean", "sd",
    ))  # fmt: skip
    assert read_outputs([made.as_json()]) == (made,)
    assert "rows" not in read_outputs([{"name": "n", "lower": 0, "upper": 1}])[0].as_json()


@pytest.mark.parametrize("wrong", [
    {"rows": []}, {"rows": ["A", "A"]}, {"rows": ["A", 1]}, {"rows": [" A"]}, {"rows": "AB"},
    {"rows": None}, {"columns": None}, {"columns": [""]}, {"rows": ["\x1b"]}, {"key": 1},
    {"path": "r.txt"}, {"at": ["x"]}, {"shape": [4]}, {"rows": [f"r{n}" for n in range(2001)]},
    {"path": "r.xlsx", "at": [0, 1]}, {"path": "r.npy", "at": [0]},
])  # fmt: skip
def test_a_table_that_is_not_well_declared_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(Refused) as refused:
        table(**{"path": "r.tsv", **wrong})  # type: ignore[arg-type]  # what is wrong
    assert refused.value.code == "bad-pipeline"


def test_a_file_has_few_tables_with_one_key_so_that_reading_it_takes_little_time() -> None:
    some: list[dict[str, object]] = [
        {"name": f"t{n}", "lower": 0, "upper": 1, "path": "r.csv", **A_B} for n in range(9)
    ]
    assert len(read_outputs(some[:8])) == 8
    for wrong in (some, [some[0], {**some[1], "key": "who"}]):
        with pytest.raises(Refused, match="at most 8 tables"):
            read_outputs(wrong)


@pytest.mark.parametrize("path", ["plot.png", "out/figure.SVG", "a.pdf"])
def test_a_picture_is_sent_to_output_checking(path: str) -> None:
    with pytest.raises(Refused, match="picture") as refused:
        read_outputs([{"name": "p", "lower": 0, "upper": 1, "path": path}])
    assert "sfumato airlock submit" in refused.value.next_step
