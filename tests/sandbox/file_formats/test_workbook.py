"""A stranger's workbooks: cells are read by place and by name, and a bomb is the middle."""

from __future__ import annotations

import json
import tracemalloc
import zipfile

import pytest

from sfumato.dp.refusal import Refused
from sfumato.sandbox.file_formats.decompression import MOST
from sfumato.sandbox.file_formats.workbook import MAX_ELEMENTS, place_of, read_workbook
from sfumato.sandbox.program_outputs import Output, parsed_outputs, read_output, read_outputs
from support.workbooks import archive, frame, shared_xml, sheet_xml, workbook

MIDDLE = 50
SHEETS: dict[str, list[list[object]]] = {
    "Means": [["group", "mean", "sd"], ["A", 1.5, 12], ["B", 40, 7.5]],
    "It's 2!": [["n"], [33], [True], ["44"], ["x"], [1e300]],
}


def output(*at: object) -> Output:
    return read_outputs([{
        "name": "m", "lower": 0, "upper": 100, "step": 1, "path": "r.xlsx", "at": list(at),
    }])[0]  # fmt: skip


def steps(of: Output, found: bytes) -> int:
    (made,) = read_output(json.dumps({of.path: found.hex()}).encode(), (of,))
    return made


@pytest.mark.parametrize(("at", "expected"), [
    (("B3",), 40), (("C2",), 12), (("Means!C3",), 8), (("It's 2!!A2",), 33), ((1, "mean"), 40),
    ((0, "sd"), 12), ((1, 1), 2), (("It's 2!", 0, "n"), 33), ((1, 1, 0), 33), ((1, 0, "n"), 33),
    (("It's 2!!A4",), 44), (("It's 2!!A6",), 100),
])  # fmt: skip
def test_a_cell_is_read_by_its_place_and_by_its_names(
    at: tuple[object, ...], expected: int
) -> None:
    assert steps(output(*at), workbook(SHEETS)) == expected


@pytest.mark.parametrize("at", [
    ("A2",), ("D2",), ("B9",), ("XFD1048576",), ("Other!B3",), (9, 0, 0), ("Other", 0, 0),
    (0, "other"), ("It's 2!!A3",), ("It's 2!!A5",),
])  # fmt: skip
def test_a_cell_that_is_no_number_or_not_there_is_the_middle(at: tuple[object, ...]) -> None:
    assert steps(output(*at), workbook(SHEETS)) == MIDDLE


@pytest.mark.parametrize("at", [(), (1,), ("b3",), ("B0",), ("B",), ("A", "B"), (1, 2, 3, 4)])
def test_a_place_that_is_no_cell_is_refused(at: tuple[object, ...]) -> None:
    with pytest.raises(Refused, match="a cell such as B3"):
        output(*at)


def test_cells_are_counted_in_letters_and_from_one() -> None:
    found = [place_of(cell) for cell in ("A1", "Z2", "AA1", "XFD1048576")]
    assert found == [(0, 0), (1, 25), (0, 26), (1048575, 16383)]


def test_texts_may_stand_in_the_cell_in_parts_or_beside_a_formula() -> None:
    rows = (
        '<w:row><w:c t="inlineStr"><w:is><w:t>me</w:t><w:r><w:t>an</w:t></w:r></w:is></w:c></w:row>'
        '<w:row><w:c><w:f>SUM(A1)</w:f><w:v>7</w:v></w:c><w:c t="str"><w:v>9</w:v></w:c></w:row>'
    )
    sheet = f'<w:worksheet xmlns:w="m"><w:sheetData>{rows}</w:sheetData></w:worksheet>'
    made = archive({**frame(["S"]), "xl/worksheets/sheet1.xml": sheet}, zipfile.ZIP_STORED)
    assert read_workbook(made).sheet("S") == {0: {0: "mean"}, 1: {0: "7", 1: "9"}}
    assert steps(output(0, "mean"), made) == 7


def test_a_reading_aid_is_no_part_of_a_text() -> None:
    texts = '<sst><si><t>m</t><rPh sb="0" eb="1"><t>aid</t></rPh></si></sst>'
    parts = {**frame(["S"]), "xl/worksheets/sheet1.xml": sheet_xml([["?"], [5]], [])}
    assert steps(output(0, "m"), archive({**parts, "xl/sharedStrings.xml": texts})) == 5


def test_a_long_shared_text_is_kept_by_no_cell() -> None:
    """A cell's text is stripped each time it is read, so a long one would take long."""
    parts = {**frame(["S"]), "xl/worksheets/sheet1.xml": sheet_xml([["?"]], [])}
    for text, kept in ((f" {5:>200} ", "5"), ("\u3000" * 55_000, ""), ("7" * 257, "")):
        made = archive({**parts, "xl/sharedStrings.xml": f"<sst><si><t>{text}</t></si></sst>"})
        assert read_workbook(made).sheet("S")[0][0] == kept


def one_sheet(sheet: str, **how: int) -> bytes:
    return archive({**frame(["S"]), "xl/worksheets/sheet1.xml": sheet}, **how)


GOOD = sheet_xml([[7]], [])
ENTITY = '<!DOCTYPE w [<!ENTITY a "7"><!ENTITY b "&a;&a;">]>'
BOMBS = {
    "an entity": one_sheet(f'{ENTITY}<w><row><c r="A1"><v>7</v></c></row><v>&b;</v></w>'),
    "a document type": one_sheet('<!DOCTYPE w><w><row><c r="A1"><v>7</v></c></row></w>'),
    "many bytes": one_sheet(GOOD + " " * MOST),
    "many elements": one_sheet(GOOD.replace("<sheetData>", "<x/>" * MAX_ELEMENTS + "<sheetData>")),
    "many sheets": archive({
        **frame(["S"] * 9),
        **{f"xl/worksheets/sheet{n}.xml": GOOD + " " * (MOST // 8) for n in range(1, 10)},
    }),
    "many names of sheets": archive({**frame(["S"] * 65), "xl/worksheets/sheet1.xml": GOOD}),
    "many files": archive({**frame(["S"]), "xl/worksheets/sheet1.xml": GOOD,
                           **{f"x{n}": "" for n in range(400)}}),
    "lzma": one_sheet(GOOD, how=zipfile.ZIP_LZMA),
    "bzip2": one_sheet(GOOD, how=zipfile.ZIP_BZIP2),
    "a text that is not there": archive({
        **frame(["S"]), "xl/sharedStrings.xml": shared_xml([]),
        "xl/worksheets/sheet1.xml": '<w><row><c r="A1" t="s"><v>3</v></c></row></w>',
    }),
    "a sheet that is not there": archive(frame(["S"])),
    "a row of a million digits": one_sheet('<w><row r="99999999"><c><v>7</v></c></row></w>'),
    "a cut end": one_sheet(GOOD)[:-1],
    "a comment behind it": one_sheet(GOOD) + b"x",
    "a list for over 4 GB": one_sheet(GOOD)[:-22] + b"PK\x06\x07" + b"\0" * 16
    + one_sheet(GOOD)[-22:],
    "nothing": b"",
}  # fmt: skip


def test_the_same_workbook_without_the_bomb_is_read() -> None:
    assert steps(output("A1"), one_sheet(GOOD)) == 7


@pytest.mark.parametrize("what", BOMBS)
def test_a_bomb_is_the_middle(what: str) -> None:
    assert steps(output("A1"), BOMBS[what]) == MIDDLE
    shown = parsed_outputs(json.dumps({"r.xlsx": BOMBS[what].hex()}).encode(), (output("A1"),))
    assert shown[0].says == "no number: r.xlsx cannot be read as xlsx"


def test_a_sheet_as_long_as_a_message_can_hold_takes_little_memory() -> None:
    bomb = one_sheet(GOOD + " " * 30_000_000)
    assert len(bomb) < 65_536 // 2
    tracemalloc.start()
    assert steps(output("A1"), bomb) == MIDDLE
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000
