"""Rows that can be recognised anywhere, and a search for them in whatever form."""

from __future__ import annotations

import base64
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from support.small_vaults import write_csv

NAMES: Final = [f"kanari{n:02d}vogel{n * 7919 % 997:03d}" for n in range(20)]
NUMBERS: Final = [31_415_927 + 1_234_577 * n for n in range(20)]
PEOPLE: Final = 10_007  # a prime, as the sums are
SUM: Final = 5_000_000_029
SOME: Final = 5_003  # who live in 10001
TOTALS: Final = [str(PEOPLE), str(SUM), str(SOME)]
CARD: Final = """
unit = "patient_id"
people = "canary-hospital"
version = "1"
budget = { epsilon = 3.0, delta = 1e-6 }
nulls = ["n/a", ""]
[caps]
user = { epsilon = 1.0 }
[ask]
who = ["researchers"]
[columns.note]
type = "text"
[columns.zip]
type = "text"
keys = ["10001", "10002"]
[columns.salary]
type = "number"
lower = 0
upper = 100000000
step = 1
[columns.name]
hidden = true
"""


def write_canaries(path: Path) -> Path:
    """Write the rows: twenty people with a name and a number that nobody else has."""
    rest = SUM - sum(NUMBERS)
    others = PEOPLE - len(NUMBERS)
    each, last = divmod(rest, others)
    rows = []
    for n in range(PEOPLE):
        known = n < len(NUMBERS)
        salary = NUMBERS[n] if known else each + (last if n == PEOPLE - 1 else 0)
        name = NAMES[n] if known else "nobody"
        rows.append((f"p{n}", name, name, "10001" if n < SOME else "10002", salary))
    return write_csv(path, ("patient_id", "name", "note", "zip", "salary"), rows)


def found_in(blob: bytes) -> set[str]:
    """Return every canary and true total that is in there, plain or in another form."""
    plain = b"\n".join([blob, *_unpacked(blob)])
    found = {word for word in [*NAMES, *map(str, NUMBERS), str(SUM)] if _is_in(word, plain)}
    short = {t for t in TOTALS for form in (t, f"{int(t):,}") if _stands_alone(form, plain)}
    numbers = {str(n) for n in (*NUMBERS, SUM) if _number_is_in(n, plain)}
    return found | short | numbers


def _stands_alone(number: str, blob: bytes) -> bool:
    return re.search(rb"(?<![\w.,-])%s(?![\w,])" % number.encode(), blob) is not None


def _is_in(word: str, blob: bytes) -> bool:
    text = word.encode()
    forms = [text, text[::-1], text.hex().encode(), text.hex().upper().encode(), *_base64(text)]
    forms += [word.encode("utf-16-le"), word.upper().encode()]
    return any(form in blob for form in forms)


def _number_is_in(number: int, blob: bytes) -> bool:
    """Look for a number in hexadecimal and with separators between thousands."""
    forms = [b"0x%x" % number, f"{number:,}".encode(), f"{number:_}".encode()]
    return any(form in blob for form in forms)


def _base64(text: bytes) -> Iterator[bytes]:
    """Yield what the text looks like in base64, wherever it begins."""
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + text)
        first = (0, 2, 3)[before]
        last = len(whole) - (0 if (before + len(text)) % 3 == 0 else 4)
        yield whole[first:last]


def _unpacked(blob: bytes) -> Iterator[bytes]:
    """Yield what every compressed stretch of it holds."""
    for begin in re.finditer(rb"\x1f\x8b\x08|\x78[\x01\x5e\x9c\xda]", blob):
        opened = zlib.decompressobj(47)
        try:
            yield opened.decompress(blob[begin.start() :], 1 << 24)
        except zlib.error:
            continue


def controls() -> Iterable[tuple[str, bytes]]:
    """Return a text for each form that the search must find, and which."""
    name, number = NAMES[3], str(NUMBERS[5])
    yield "plain", b"x" + name.encode() + b"y"
    yield "a number", b"=" + number.encode()
    yield "a total", b'{"n": 10007}'
    yield "a total on a page", b"<td>10,007</td>"
    yield "hexadecimal", name.encode().hex().encode()
    yield "a number in hexadecimal", b"%#x" % SUM
    yield "thousands", b"5,000,000,029"
    for before in range(3):
        yield f"base64 after {before}", base64.b64encode(b"a" * before + name.encode() + b"bcd")
    yield "gzip", b"head" + gzip.compress(b"... " + name.encode(), mtime=0)
    yield "zlib", b"head" + zlib.compress(number.encode())
    yield "wide", name.encode("utf-16-le")
