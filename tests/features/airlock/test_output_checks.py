"""What the airlock's checks find, and which files are not let out whoever wants it."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import time
import tracemalloc
import zlib
from decimal import InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.refusal import Refused
from sfumato.features.airlock.differencing_check import compare_files, differences
from sfumato.features.airlock.file_types import KINDS, fault_of, joined, unpacked
from sfumato.features.airlock.output_checks import (
    STOPS,
    DeclaredFile,
    Earlier,
    Measured,
    checked,
    read_measured,
    stops,
)
from sfumato.features.airlock.sandbox_programs import PIECES, counting
from sfumato.vault.card.airlock_terms import AirlockTerms, read_airlock

TERMS = AirlockTerms(("rita", "rolf"))
ASKED = DeclaredFile("t.csv", ("site",), "n", "wage")
MANY: dict[tuple[str, ...], tuple[int, float, float, float]] = {
    ("a",): (40, 10.0, 10.0, 400.0),
    ("b",): (40, 10.0, 10.0, 400.0),
}
REAL = Measured(1000, {"t.csv": MANY})


def found(
    text: str,
    asked: DeclaredFile = ASKED,
    real: Measured | None = REAL,
    earlier: tuple[Earlier, ...] = (),
) -> set[str]:
    return {
        one.check for one in checked([asked], {asked.path: text.encode()}, TERMS, real, earlier)
    }


def table(*lines: str, head: str = "site,n,wage") -> str:
    return "\n".join([head, *lines]) + "\n"


GOOD = table("a,40,1200", "b,40,1300")


def test_a_table_of_many_rounded_people_has_nothing_to_find() -> None:
    assert found(GOOD) == set()


@pytest.mark.parametrize(
    ("line", "check"),
    [
        ("b,5,1300", "small-count"),
        ("b,41,1300", "unrounded"),
        ("b,40,1300.5", "unrounded"),
        ("b,many,1300", "uncounted"),
        ("c,40,1300", "undeclared"),
        ("b,40,A7f3kQ99zzt01bbX", "coded"),
    ],
)
def test_one_line_that_says_too_much_is_found(line: str, check: str) -> None:
    assert check in found(table("a,40,1200", line))


@pytest.mark.parametrize("count", range(1, 15))
def test_the_threshold_of_a_group_is_the_cards(count: int) -> None:
    real = Measured(1000, {"t.csv": {**MANY, ("b",): (count, 1.0, 1.0, 90.0)}})
    assert ("small-group" in found(GOOD, real=real)) == (count < TERMS.smallest)
    said = found(table("a,40,1200", f"b,{count},1300"))
    assert ("small-count" in said) == (count < TERMS.smallest)


@pytest.mark.parametrize(
    ("first", "second", "total", "is_found"),
    [
        (80.0, 10.0, 100.0, False),  # 90 percent, and the rest is an eighth of the largest
        (80.1, 10.0, 100.0, True),
        (50.0, 41.0, 100.0, True),
        (80.0, 12.0, 100.0, True),
        (60.0, 30.0, 96.0, True),  # 94 percent
        (0.0, 0.0, 0.0, False),
    ],
)
def test_one_or_two_people_who_are_most_of_a_sum_are_found(
    first: float, second: float, total: float, is_found: bool
) -> None:
    real = Measured(1000, {"t.csv": {**MANY, ("b",): (40, first, second, total)}})
    assert ("dominance" in found(GOOD, real=real)) == is_found


@pytest.mark.parametrize("said", [["nan"], ["inf"], ["-inf", "inf"], ["1e308", "1e308"]])
def test_a_value_that_is_no_number_does_not_hide_who_makes_up_a_sum(
    said: list[str], tmp_path: Path
) -> None:
    """What our own program counts of such rows is held against the table, as it came out."""
    lines = ["who\tsite\twage", *(f"p{n}\ta\t{100 if n else 90000}" for n in range(40))]
    lines += [f"q{n}\t{site}\t{one}" for n, one in enumerate(said) for site in ("a", "A")]
    (tmp_path / "participants.tsv").write_text("\n".join(lines) + "\n")
    script = tmp_path / "count.py"
    script.write_text(counting([ASKED]))
    subprocess.run([sys.executable, script, tmp_path, tmp_path], check=True)
    pieces = [tmp_path / piece for piece in PIECES]
    real = read_measured("".join(one.read_text() for one in pieces if one.exists()))
    assert "dominance" in found(table("a,40,1200"), real=real)


@pytest.mark.parametrize("more", [1, 9, 10, 20])
def test_a_difference_of_few_people_is_found_in_lines_sums_and_totals(more: int) -> None:
    old = Earlier("r0", ASKED, GOOD.encode())
    now = table(f"a,{40 + more},1200", "b,40,1300")
    assert ("difference" in found(now, earlier=(old,))) == (more < 10)
    # another table, by age: only the totals can be compared
    by_age = DeclaredFile("t.csv", ("age",), "n")
    ages = table("young,20,1", f"old,{60 + more},1", head="age,n,wage")
    said = found(ages, by_age, Measured(1000, {}), (old,))
    assert ("difference" in said) == (more < 10)
    # tables that say nothing of themselves: their lines
    plain = DeclaredFile("t.csv")
    said = found(now, plain, REAL, (Earlier("r0", plain, GOOD.encode()),))
    assert ("difference" in said) == (more < 10)


def test_groups_that_read_the_same_are_measured_by_the_worst_of_them() -> None:
    groups = [["A", 1, 5.0, 0.0, 5.0], ["a", 5000, 4.0, 3.0, 9999.0]]
    for order in (groups, groups[::-1]):
        lines = [[[name], *numbers] for name, *numbers in order]
        real = read_measured(json.dumps({"people": 10000, "tables": {"t.csv": lines}}))
        assert {"small-group", "dominance"} <= found(table("A,40,1200"), real=real)


def test_as_many_people_with_another_sum_may_be_one_more_or_less() -> None:
    old = Earlier("r0", ASKED, table("a,40,9280", "b,40,9280").encode())
    (got,) = checked(
        [ASKED], {"t.csv": table("a,40,2800", "b,40,9280").encode()}, TERMS, REAL, (old,)
    )
    assert (got.check, got.says.split()[0]) == ("difference", "1")
    assert found(table("a,40,9280", "b,40,9280.0"), earlier=(old,)) == set()
    apart = {"t.csv": {key: (60, *group[1:]) for key, group in MANY.items()}}
    other = table("a,60,2800", "b,60,9280")
    assert found(other, real=Measured(1000, apart), earlier=(old,)) == set()


def test_files_of_one_request_are_compared_with_each_other() -> None:
    asked = [DeclaredFile("t.csv", ("site",), "n"), DeclaredFile("u.csv", ("site",), "n")]
    for more, checks in ((1, ["unrounded", "difference"]), (20, [])):
        larger = {**MANY, ("b",): (40 + more, 10.0, 10.0, 400.0)}
        real = Measured(1000, {"t.csv": MANY, "u.csv": larger})
        files = {
            "t.csv": table("a,40", "b,40", head="site,n").encode(),
            "u.csv": table("a,40", f"b,{40 + more}", head="site,n").encode(),
        }
        got = checked(asked, files, TERMS, real, ())
        assert [(one.path, one.check) for one in got] == [("u.csv", check) for check in checks]


def test_an_earlier_file_that_can_no_more_be_read_stops_nothing() -> None:
    assert found(GOOD, earlier=(Earlier("r0", ASKED, b"a,b\n1\n"),)) == set()


def test_a_table_of_people_and_an_undeclared_one_are_found() -> None:
    people = table(*(f"p{n},40,1200" for n in range(101)))
    assert {"many-lines", "undeclared"} <= found(people)
    assert {"uncounted", "undeclared"} <= found(GOOD, DeclaredFile("t.csv"))
    assert "unmeasured" in found(GOOD, real=None)
    assert "undeclared" in found(table("a,40", head="place,n"))
    assert found("", DeclaredFile("u.csv")) == {"kind"}
    assert {one.check for one in checked([ASKED], {}, TERMS, REAL, ())} == {"missing"}


def test_numbers_are_looked_at_wherever_they_stand() -> None:
    exact = json.dumps({"m": 170.123456, "n": 40})
    assert found(exact, DeclaredFile("m.json")) == {"unrounded"}
    assert found("the mean is 171 of 3", DeclaredFile("m.txt")) == {"small-number"}
    file = io.BytesIO()
    np.save(file, np.array([1.23456789, 400.0]))
    got = checked([DeclaredFile("m.npy")], {"m.npy": file.getvalue()}, TERMS, REAL, ())
    assert [one.check for one in got] == ["unrounded"]


@pytest.mark.parametrize(
    ("cells", "check"),
    [
        ("3 %,1300", "small-number"),
        ("4%,1300", "small-share"),  # of 40 people: less than two
        ("0.95,1300", "small-share"),
        ('"<5",1300', "small-number"),
        ('"1,234,567",1300', "unrounded"),
        ("1.234.567,1300", "unrounded"),
        ("1 234 567,1300", "unrounded"),
        ("n=170.12345,1300", "unrounded"),
        ("7,1300", "small-number"),  # beside a count that is none of its own
        ("Ann of Mill Lane,1300", "words"),
    ],
)
def test_a_number_is_found_however_it_is_dressed(cells: str, check: str) -> None:
    assert check in found(table("a,40,60,1200", f"b,40,{cells}", head="site,n,m,wage"))
    assert found(table("a,40,60,1200", "b,40,60 %,1300", head="site,n,m,wage")) <= {"words"}


def test_a_table_that_lies_on_its_side_is_found() -> None:
    across = table("people,40,3", head="what,a,b")
    assert "small-number" in found(across, DeclaredFile("t.csv", ("site",), "n")) | found(
        across, DeclaredFile("t.csv")
    )
    assert "undeclared" in found(across)
    long = table("a,n,40", "b,n,3", head="site,what,value")
    assert "small-number" in found(long, DeclaredFile("t.csv", ("site",)))


@pytest.mark.parametrize(("count", "is_found"), [(36, False), (44, False), (45, True), (35, True)])
def test_a_count_is_held_beside_the_real_one(count: int, is_found: bool) -> None:
    assert ("miscounted" in found(table("a,40,1200", f"b,{count},1300"))) == is_found


def test_sums_that_are_not_declared_are_said_so() -> None:
    assert found(GOOD, DeclaredFile("t.csv", ("site",), "n")) == {"undeclared"}


def released(path: str, file: bytes) -> Earlier:
    return Earlier("r0", DeclaredFile(path), file)


def npy(*values: float) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(values))
    return file.getvalue()


@pytest.mark.parametrize(
    ("path", "now", "earlier", "is_found"),
    [
        ("n.json", b'{"north": {"n": 41}}', released("n.json", b'{"north": {"n": 40}}'), True),
        ("n.json", b'{"north": {"n": 60}}', released("n.json", b'{"north": {"n": 40}}'), False),
        ("n.json", b'{"north": {"n": 40}}', released("n.json", b'{"north": {"n": 40}}'), False),
        ("n.json", b'{"x": 1500, "north": {"n": 41}}', released("t.csv", GOOD.encode()), False),
        ("n.json", b'[{"site": "a", "n": 41}]', released("t.csv", GOOD.encode()), True),
        ("n.json", b'{"k": 41}', released("n.json", b'{"other": 40}'), True),  # renamed, one place
        ("n.json", b'{"m": 171.2}', released("n.json", b'{"m": 171.3, "o": 2}'), True),
        ("n.txt", b"people: 41\n", released("old.txt", b"people: 40\nand 7000\n"), True),
        ("n.txt", b"people of a, n: 41\n", released("t.csv", GOOD.encode()), False),
        ("n.txt", b"a n 41\n", released("t.csv", GOOD.encode()), True),
        ("n.npy", npy(41, 300), released("n.npy", npy(40, 500)), True),
        ("n.npy", npy(41, 300), released("n.npy", npy(60, 500)), False),
        ("n.npy", npy(41, 300), released("n.json", b"[40, 500]"), True),
        ("n.png", b"", released("m.svg", b"<svg/>"), True),
    ],
)
def test_files_of_every_kind_are_compared_with_what_was_released(
    path: str, now: bytes, earlier: Earlier, is_found: bool
) -> None:
    got = checked([DeclaredFile(path)], {path: now or PNG}, TERMS, REAL, (earlier,))
    assert not stops(got)
    assert ("difference" in {one.check for one in got}) == is_found


def test_too_many_numbers_to_be_compared_or_looked_at_are_said_so() -> None:
    many = " ".join(["4000"] * 10_001).encode()
    got = checked(
        [DeclaredFile("n.txt")], {"n.txt": many}, TERMS, REAL, (released("n.txt", b"40"),)
    )
    assert [one.check for one in got] == ["difference"]
    more = b" ".join([b"0"] * 200_001)
    got = checked([DeclaredFile("n.txt")], {"n.txt": more}, TERMS, REAL, ())
    assert [one.check for one in got] == ["many-lines"]


def test_a_cell_of_a_hundred_thousand_digits_is_looked_at_at_once() -> None:
    """A pattern that tries every place of them would hold the whole house for minutes."""
    began = time.process_time()
    assert fault_of("a.csv", b"a,b\n+" + b"1" * 100_000 + b"x,2\n") is not None
    assert fault_of("a.txt", b"1" * 100_000) is None
    found("7." * 50_000, DeclaredFile("t.txt"))
    assert time.process_time() - began < 20  # minutes, before


def letters(count: int) -> list[str]:
    """Return as many words as there are numbers, in letters alone."""
    return ["".join(chr(97 + int(digit)) for digit in str(number)) for number in range(count)]


WORDS, SEVENS = letters(10_000), ["7"] * 2000
HEADS = ",".join(f"c{place}" for place in range(12_000))
SPACE = b"s" * 20_000
ALIASES = b" ".join(b"p:a%d=''" % place for place in range(2000))


@pytest.mark.parametrize(
    ("path", "file"),
    [
        ("a.txt", " ".join(WORDS + SEVENS).encode()),
        ("a.csv", f"{HEADS}\n{','.join(WORDS + SEVENS)}\n".encode()),
        ("a.json", json.dumps({"t": " ".join(WORDS), "n": [7] * 2000}).encode()),
        ("a.svg", b"<svg xmlns:p='%s' %s/>" % (SPACE, ALIASES)),
        ("a.svg", b"<!DOCTYPE s [<!ENTITY a '%s'>]><svg>%s</svg>" % (b"x" * 999, b"&a;" * 60_000)),
    ],
    ids=["txt", "csv", "json", "names of a drawing", "what a drawing defines"],
)  # fmt: skip
def test_no_small_file_takes_much_memory_to_look_at(path: str, file: bytes) -> None:
    """Whoever hands it in would end the house: 100 kB took hundreds of megabytes."""
    tracemalloc.start()
    checked([DeclaredFile(path)], {path: file}, TERMS, REAL, ())
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 30_000_000


def test_a_hundred_thousand_columns_are_compared_each_once() -> None:
    """Looking for each column in a list of all of them took minutes; a file has 2 MB."""
    file = f"{','.join(f'c{place}' for place in range(100_000))}\n{','.join('1' * 100_000)}\n"
    began = time.process_time()
    wide = compare_files(DeclaredFile("a.csv"), file.encode(), "r0")
    assert not list(differences(wide, wide, TERMS))
    assert time.process_time() - began < 40


# --- kinds ----------------------------------------------------------------------------------------


def part(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


HEAD = part(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
PIXEL = part(b"IDAT", zlib.compress(b"\0\0"))
PNG = b"\x89PNG\r\n\x1a\n" + HEAD + PIXEL + part(b"IEND", b"")
SVG = b"<svg xmlns='http://www.w3.org/2000/svg'>%s</svg>"
COLOURS = part(b"PLTE", bytes(6))


def picture(
    packed: bytes, *, head: tuple[int, ...] = (1, 1, 8, 0, 0, 0, 0), more: bytes = b""
) -> bytes:
    first = part(b"IHDR", struct.pack(">IIBBBBB", *head))
    return PNG[:8] + first + more + part(b"IDAT", packed) + part(b"IEND", b"")


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def model(head: object, more: bytes = b"") -> bytes:
    said = json.dumps(head).encode()
    return struct.pack("<Q", len(said)) + said + more


def twice(more: bytes) -> bytes:
    said = json.dumps({"w": ENTRY}).encode().replace(b'{"dtype"', b"{" + more + b'"dtype"')
    return struct.pack("<Q", len(said)) + said + bytes(8)


def blank(more: bytes) -> bytes:
    said = json.dumps({"w": ENTRY}).encode().replace(b'": {', b'": ' + more + b"{")
    return struct.pack("<Q", len(said)) + said + bytes(8)


MODEL = model({"w": ENTRY}, bytes(8))


def array(values: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, values, allow_pickle=True)
    return file.getvalue()


def hidden_in_none() -> bytes:
    """Return an array of places without a number, which have bits for a row."""
    return array(np.array([0x7FF8_0000_0BAD_CAFE], dtype="<u8").view("<f8"))


def long_headed() -> bytes:
    """Return an array with rows behind the place where its header was once cut."""
    head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }"
    head = head.ljust(1023) + b"\n" + b"person,90000;" * 500
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(head)) + head + bytes(8)


@pytest.mark.parametrize(
    ("path", "file"),
    [
        ("a.png", PNG),
        ("a.png", picture(zlib.compress(bytes(4) * 3), head=(20, 3, 1, 3, 0, 0, 0), more=COLOURS)),
        ("a.png", picture(zlib.compress(bytes(2 + 2 + 3)), head=(2, 2, 8, 0, 0, 0, 1))),
        ("a.svg", SVG % b"<g><path d='M0 0' style='fill:url(#a)'/><use href='#a'/></g>"),
        ("a.svg", b"<?xml version='1.0'?><svg><text>40 of a://b</text></svg>"),
        ("a.csv", b"a,b\n1,-2\n+.5e-3, -2.\n-,-inf\n"),
        ("a.tsv", b"a\tb\n1\t2\n"),
        ("a.json", b'{"a": [1, 2.5]}'),
        ("a.txt", "Größe\n".encode()),
        ("a.npy", array(np.zeros((2, 3)))),
        ("a.npy", array(np.array([np.nan, -np.nan, np.inf], dtype="<f4"))),
        ("a.safetensors", MODEL),
        ("a.csv", b"a,b\n(-1.2; -0.3),2\n"),  # the ends of an interval
        ("a.tsv", b"a\tb\n[-1.2, -0.3]\t2\n"),
        ("a.csv", b"a;b\n1;-2\n"),
    ],
)
def test_a_file_that_is_what_it_says_has_no_fault(path: str, file: bytes) -> None:
    assert fault_of(path, file) is None


@pytest.mark.parametrize(
    ("path", "file"),
    [
        ("a.png", PNG + b"more"),
        ("a.png", PNG[:-12]),
        ("a.png", PNG.replace(PIXEL, part(b"tEXt", b"Comment\0name"))),
        ("a.png", PNG.replace(PIXEL, PIXEL[:-1] + b"\0")),
        ("a.png", SVG % b""),
        ("a.svg", SVG % b"<script>1</script>"),
        ("a.svg", SVG % b"<g onload='x()'/>"),
        ("a.svg", SVG % b"<foreignObject/>"),
        ("a.svg", SVG % b"<use href='https://elsewhere/x'/>"),
        ("a.svg", SVG % b"<g style='fill:url(http://elsewhere)'/>"),
        ("a.svg", SVG % b"<style>@import 'x';</style>"),
        ("a.svg", SVG % b"<style>a{b:u\\72l(x)}</style>"),
        ("a.svg", b"<!DOCTYPE svg [<!ENTITY a 'b'>]><svg>&a;</svg>"),
        ("a.svg", b"<?xml-stylesheet href='x'?><svg/>"),
        ("a.svg", b"<html/>"),
        ("a.svg", SVG % b"<!-- all the rows -->"),
        ("a.svg", SVG % b"" + b"<!-- all the rows -->"),
        ("a.svg", b"<!DOCTYPE svg><svg/>"),
        ("a.svg", b"<!DOCTYPE svg SYSTEM 'http://elsewhere/x.dtd'><svg/>"),
        ("a.svg", SVG % b"<style>a{background:image-set('http://elsewhere/x' 1x)}</style>"),
        ("a.svg", SVG % b"<style>a{background:image-set('//elsewhere/x' 1x)}</style>"),
        ("a.svg", SVG % b"<style>a{background:<![CDATA[x:/]]>/elsewhere}</style>"),
        ("a.svg", SVG % b"<g style=\"a:b('x://elsewhere')\"/>"),
        ("a.svg", b"<svg xmlns:p='%s'/>" % (b"row," * 20)),
        ("a.svg", SVG % b"<p:use p:href='https://elsewhere/x'/>"),
        ("a.svg", SVG % b"<p:script/>"),
        ("a.svg", SVG % b"<g p:onload='x()'/>"),
        ("a.json", b"[" * 40 + b"1" + b"]" * 40),
        ("a.svg", SVG % b"<g xml:base='//elsewhere'><use href='#a'/></g>"),
        ("a.png", PNG.replace(part(b"IEND", b""), part(b"IEND", b"all the rows"))),
        ("a.png", picture(zlib.compress(b"\0\0") + b"all the rows")),  # behind the pixels
        ("a.png", picture(zlib.compress(b"\0\0all the rows"))),  # as pixels that no line has
        ("a.png", picture(zlib.compress(b"\0"))),
        ("a.png", picture(zlib.compress(b"\7\0"))),  # a way of packing that there is not
        ("a.png", picture(b"all the rows")),
        ("a.png", picture(zlib.compress(b"\0\0"), more=part(b"PLTE", b"all the rows"))),
        ("a.png", picture(zlib.compress(b"\0\0"), more=part(b"gAMA", b"all the rows"))),
        ("a.png", picture(zlib.compress(b"\0\0"), more=part(b"sRGB", b"a") * 2)),
        ("a.png", picture(zlib.compress(b"\0\0"), head=(1, 1, 8, 0, 1, 0, 0))),
        ("a.png", picture(zlib.compress(b"\0\0"), head=(2**31 - 1, 2**31 - 1, 8, 0, 0, 0, 0))),
        ("a.png", PNG.replace(PIXEL, PIXEL + part(b"gAMA", bytes(4)))),
        ("a.csv", b"a,b\n+1+cmd|' /C calc'!A0,2\n"),
        ("a.csv", b"a,b\n-1+cmd|' /C calc'!A0,2\n"),
        ("a.csv", b"a,b\n =1+1,2\n"),
        ("a.csv", b"a,b\n1, +sum(a)\n"),
        ("a.csv", b'a,b\n"\t@x",2\n'),
        ("a.tsv", b"a\tb\n1\t -a\n"),
        ("a.csv", b"a,A \n1,2\n"),  # two columns of one name: only one would be looked at
        ("a.csv", b"a,b\n+" + b"1" * 61 + b",2\n"),
        ("a.csv", "a,b\u2028c,d\n".encode()),
        ("a.csv", "a,b\n1\u200b,2\n".encode()),  # letters that nobody sees
        ("a.txt", "no\ufe0fthing".encode()),
        ("a.txt", "no\u2009thing".encode()),
        ("a.json", b'{"a": "\\u200b"}'),
        ("a.json", b'{"a": 3, "a": 40}'),
        ("a.json", b'[{"\\u2060": 1}]'),
        ("a.svg", SVG % b"<g data-rows='all the rows'/>"),
        ("a.svg", SVG % b"<metadata>all the rows</metadata>"),
        ("a.svg", b"<?xml version='1.0' encoding='UTF-7'?><svg/>"),
        ("a.npy", hidden_in_none()),
        ("a.npy", array(np.zeros(2)).replace(b"NUMPY\1\0", b"NUMPY\1\7")),
        ("a.safetensors", model({"ann, 90000": {**ENTRY, "shape": [2]}}, bytes(8))),
        ("a.txt", "\x9b2J".encode()),
        ("a.txt", b"a\x7f"),
        ("a.txt", "\u202eabc".encode()),
        ("a.txt", "\u2067abc".encode()),
        ("a.json", '{"a": "\u202eabc"}'.encode()),
        ("a.npy", long_headed()),
        ("a.csv", b"a,b\n=cmd(),2\n"),
        ("a.csv", b"a,b\nx;=cmd(),2\n"),  # where a semicolon separates
        ("a.csv", b'a,b\nx; "=cmd()",2\n'),
        ("a.csv", b"a,b\nx\t-1+cmd|' /C calc'!A0,2\n"),
        ("a.tsv", b"a\tb\nx,@sum(a)\t2\n"),
        ("a.csv", b"a,b\n1\n"),
        ("a.csv", b"a,b\n1,\x1b[2J\n"),
        ("a.txt", b"\xff\xfe"),
        ("a.json", b'{"a": NaN}'),
        ("a.json", b"[" * 100_000),
        ("a.npy", array(np.array([{}], dtype=object))),
        ("a.npy", array(np.zeros(2)) + b"more"),
        ("a.safetensors", MODEL + b"more"),
        ("a.safetensors", MODEL[:-1]),
        ("a.safetensors", b"\xff" * 40),
        ("a.safetensors", model([])),
        ("a.safetensors", model("text")),
        ("a.safetensors", model({"w": 5})),
        ("a.safetensors", model({"w": "dtype shape data_offsets"})),
        ("a.safetensors", model({"w": ["dtype", "shape", "data_offsets"]})),
        ("a.safetensors", model({"w": {**ENTRY, "who": "all the rows"}}, bytes(8))),
        ("a.safetensors", model({"__metadata__": {"who": "all the rows"}})),
        ("a.safetensors", twice(b'"dtype":"all the rows",')),
        ("a.safetensors", blank(b" \t " * 40)),
        ("a.pkl", b"x"),
        ("a.txt", b""),
    ],
)
def test_a_file_that_is_not_what_it_says_is_stopped(path: str, file: bytes) -> None:
    assert fault_of(path, file) is not None
    got = checked([DeclaredFile(path)], {path: file}, TERMS, REAL, ())
    assert [one.weight for one in stops(got)] == [STOPS]


@pytest.mark.parametrize("count", ["1e50", "-1e50", "1e15", "9" * 50])
def test_a_number_that_nobody_could_count_is_no_count(count: str) -> None:
    assert "uncounted" in found(table(f"a,{count},1200", "b,40,1300"))
    old = Earlier("r0", ASKED, table(f"a,{count},1200", "b,40,1300").encode())
    assert "difference" not in found(GOOD, earlier=(old,))


@pytest.mark.parametrize(
    "error", [ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidOperation]
)
def test_a_file_on_which_a_check_stumbles_is_stopped_and_says_nothing(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(*_: object) -> None:
        raise error("a row")

    monkeypatch.setattr("sfumato.features.airlock.output_checks.digits_of", stumble)
    (got,) = checked([ASKED], {"t.csv": GOOD.encode()}, TERMS, REAL, ())
    assert (got.check, got.says, got.weight) == ("kind", "the checks cannot read this file", STOPS)


@given(file=st.binary(max_size=300), kind=st.sampled_from(KINDS))
@settings(max_examples=200, deadline=None)
def test_no_file_makes_a_check_fail(file: bytes, kind: str) -> None:
    for made in (file, PNG[:8] + file, MODEL[:8] + file, b"\x93NUMPY\x01\x00" + file):
        path = f"a.{kind}"
        checked([DeclaredFile(path, ("site",), "n")], {path: made}, TERMS, REAL, ())


@given(said=st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_whatever_a_program_says_it_only_leaves_files_that_were_asked_for(said: bytes) -> None:
    whole = joined(said, ("p0", "p1"))
    assert set(unpacked(whole + said, ("t.csv",))) <= {"t.csv"}
    assert read_measured(said.decode("latin-1")) is None or said


def test_files_come_whole_or_not_at_all() -> None:
    def one(path: str, file: bytes) -> bytes:
        return struct.pack("<HQ", len(path), len(file)) + path.encode() + file

    whole = one("a.csv", b"1") + one("x.csv", b"2") + one("a.csv", b"3") + one("b.csv", b"45")
    assert unpacked(whole, ("a.csv", "b.csv")) == {"a.csv": b"1", "b.csv": b"45"}
    assert unpacked(whole[:-1], ("a.csv", "b.csv")) == {"a.csv": b"1"}
    said = json.dumps({"p1": b"cd".hex(), "p0": b"ab".hex(), "more": "ff"}).encode()
    assert joined(said, ("p0", "p1")) == b"abcd"


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"reviewers": []},
        {"reviewers": ["a"], "needed": 1},
        {"reviewers": ["a"], "needed": 3},
        {"reviewers": ["a"], "smallest": 2},
        {"reviewers": ["a"], "dominance": 100},
        {"reviewers": ["a"], "allow": True},
        {"reviewers": "a"},
        {"reviewers": ["rita", "Rita "]},  # one person may have both names
    ],
    ids=str,
)
def test_a_card_that_names_too_few_reviewers_is_none(wrong: object) -> None:
    with pytest.raises(Refused) as refused:
        read_airlock(wrong)
    assert refused.value.code == "bad-card"
