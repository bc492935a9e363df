"""How text files are cut into cells: separators, encodings, and first lines that are no header."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sfumato.dp.refusal import Refused
from sfumato.engines.ingest.csv_layout import check_header, guessed_encoding, in_utf8, text_layout
from sfumato.vault.card.cell_formats import UTF8, FileFormat

# First lines that are somebody's: their cells would be public names of columns.
ROWS: dict[str, tuple[Sequence[str], Sequence[Sequence[str]]]] = {
    "numbers": (["34", "1.75"], [["51", "1.80"], ["7", "1.02"]]),
    "name and age": (["Alice Moor", "34"], [["Bob Tarn", "51"]]),
    "decimal commas": (["34", "70,5"], [["51", "80,1"]]),
    "a birthday": (["Alice Moor", "01.02.1980"], [["Bob Tarn", "03.04.1991"]]),
    "iso days": (["x1", "1980-02-01"], [["x2", "1991-04-03"]]),
    "a truth": (["Alice", "yes"], [["Bob", "no"], ["Carl", "yes"]]),
    "a sex": (["Alice", "F"], [["Bob", "M"], ["Carla", "F"]]),
    "an address": (["Alice", "alice@example.org"], [["Bob", "none"]]),
    "a gap": (["", "34"], [["Bob", "51"]]),
    "no value in the first": (["n/a", "34"], [["5", "51"], ["6", "7"]]),
    "no value later": (["34", "70"], [["n/a", "51"], ["6", "k.A."]]),
    "thousands": (["1.250,50"], [["2.300,00"], ["1.100,10"]]),
    "one line alone": (["Alice", "34"], []),
    "moments": (["2024-01-02 10:00", "a"], [["2024-01-03 11:30", "b"]]),
    "the header again": (["id", "age"], [["1", "34"], ["id", "age"], ["2", "51"]]),
}
HEADERS: dict[str, tuple[Sequence[str], Sequence[Sequence[str]]]] = {
    "plain": (["id", "age", "sex"], [["1", "34", "F"], ["2", "51", "M"]]),
    "texts only": (["name", "town"], [["Alice", "Ulm"], ["Bob", "Bonn"]]),
    "a year among names": (["country", "code", "2019"], [["Chad", "7", "1.5"], ["Mali", "8", "2"]]),
    "pandas index": (["", "age"], [["0", "34"], ["1", "51"]]),
    "nothing yet": (["id", "age"], []),
    "all empty": (["id", "age"], [["", ""], ["", ""]]),
    "a word that is no value": (["na", "x"], [["na", "1"], ["5", "2"]]),
    "days for names": (["Country", "1/22/20"], [["Chad", "7"], ["Mali", "8"]]),
    "units": (["weight (kg)", "height [cm]"], [["70.5", "180"]]),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_first_line_that_is_a_row_is_refused(name: str) -> None:
    first, rows = ROWS[name]
    with pytest.raises(Refused) as refused:
        check_header(first, rows)
    assert refused.value.code == "no-header"
    for cell in first:
        assert len(cell) < 4 or cell not in str(refused.value)


@pytest.mark.parametrize("name", HEADERS)
def test_names_of_columns_are_a_header(name: str) -> None:
    check_header(*HEADERS[name])


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_is_what_cuts_every_line_alike(tmp_path: Path, separator: str) -> None:
    lines = [separator.join(('"weight, kg; net"', "note")), *(f'1,5 {n}{separator}"a;b,c"'
             for n in range(9))]  # fmt: skip
    if separator == ",":
        lines = [line.replace("1,5", "15") for line in lines]
    source = tmp_path / "s.csv"
    source.write_text("\n".join(lines))
    found = text_layout(str(source), UTF8)
    assert found.separator == separator
    assert found.names == ("weight, kg; net", "note")


def test_commas_in_quoted_names_are_no_separators(tmp_path: Path) -> None:
    source = tmp_path / "s.csv"
    source.write_text('"a, x";"b, y";"c, z"\n1;2;3\n4;5;6\n')
    assert text_layout(str(source), UTF8).names == ("a, x", "b, y", "c, z")


def test_a_header_may_go_over_lines(tmp_path: Path) -> None:
    source = tmp_path / "s.csv"
    source.write_text('"Age\n(years)",sex\n34,F\n51,M\n')
    assert text_layout(str(source), UTF8).names == ("Age\n(years)", "sex")


def test_a_header_that_the_card_is_sure_of_stands(tmp_path: Path) -> None:
    source = tmp_path / "s.csv"
    source.write_text("0,1,2\n5,6,7\n")
    with pytest.raises(Refused, match="no-header"):
        text_layout(str(source), UTF8)
    assert text_layout(str(source), FileFormat(is_header_sure=True)).names == ("0", "1", "2")
    named = text_layout(str(source), FileFormat(names=("a", "b", "c")))
    assert (named.names, named.has_header) == (("a", "b", "c"), False)
    with pytest.raises(Refused, match="another number"):
        text_layout(str(source), FileFormat(names=("a", "b")))


def test_a_text_in_another_encoding_is_copied_into_utf8(tmp_path: Path) -> None:
    source, copy = tmp_path / "s.csv", tmp_path / "copy.csv"
    text = "größe\n1,5 €\n"
    for name in ("cp1252", "iso8859-15", "utf-16"):
        source.write_bytes(text.encode(name))
        assert in_utf8(str(source), FileFormat(name), copy) == str(copy)
        assert copy.read_bytes().decode("utf-8") == text
        with pytest.raises(Refused, match="not UTF-8"):
            in_utf8(str(source), UTF8, copy)
    assert guessed_encoding(str(source)) == "utf-16"


def test_a_text_that_is_not_in_the_cards_encoding_is_refused(tmp_path: Path) -> None:
    source, copy = tmp_path / "s.csv", tmp_path / "copy.csv"
    source.write_bytes("größe\n1\n".encode())
    with pytest.raises(Refused, match="the file is UTF-8"):
        in_utf8(str(source), FileFormat("cp1252"), copy)
    source.write_bytes(b"gr\x81\n1\n")  # none of cp1252
    with pytest.raises(Refused, match="declares the encoding cp1252, but the file has another"):
        in_utf8(str(source), FileFormat("cp1252"), copy)
    source.write_text("size\n1\n")
    assert in_utf8(str(source), FileFormat("cp1252"), copy) == str(source)
    source.write_bytes(b"a" * (1 << 20) + "ü".encode()[:1])  # cut off at the very end
    with pytest.raises(Refused, match="not UTF-8"):
        in_utf8(str(source), UTF8, copy)


@pytest.mark.parametrize("before", ["Export of 2024-04-03\n", "# a comment\n", "A\n\nB\n"])
def test_lines_before_the_header_are_refused(tmp_path: Path, before: str) -> None:
    source = tmp_path / "s.csv"
    source.write_text(before + "a;b;c\n" + "1;2;x\n" * 9)
    with pytest.raises(Refused, match="no-header"):
        text_layout(str(source), UTF8)


def test_one_column_of_decimal_commas_is_one_column(tmp_path: Path) -> None:
    source = tmp_path / "s.csv"
    source.write_text("weight\n" + "".join(f"{n},5\n" for n in range(9)))
    assert text_layout(str(source), UTF8).names == ("weight",)
    assert text_layout(str(source), UTF8).rows[0] == ("0,5",)
