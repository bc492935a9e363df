"""Find characters of a program's text that a reviewer would not see as the program runs.

Invisible characters and characters that change the writing direction can make a line look like
another line (Boucher and Anderson, "Trojan Source", 2021). So can a line that declares another
encoding of a Python file: in UTF-7, a comment can hold code. Each name is as Unicode calls it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

# Unicode categories that nobody sees: control, format (such as the writing direction), surrogate,
# private and unassigned characters, and line and paragraph separators
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_SPACE: Final = "Zs"  # spaces that look like the usual one
# further characters that fonts draw as nothing or as a blank
_BLANK: Final = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\ufe00-\ufe0f"
    r"\U000e0100-\U000e01ef]"
)
# control characters have no name in Unicode's table, but everybody calls these so
_CONTROLS: Final = {
    0x00: "NULL", 0x07: "BELL", 0x08: "BACKSPACE", 0x0B: "VERTICAL TAB", 0x0C: "FORM FEED",
    0x0D: "CARRIAGE RETURN", 0x1A: "SUBSTITUTE", 0x1B: "ESCAPE", 0x7F: "DELETE", 0x85: "NEXT LINE",
}  # fmt: skip
_CODING: Final = re.compile(r"[ \t\f]*#.*?coding[:=][ \t]*([-_.a-zA-Z0-9]+)")  # PEP 263
_UTF_8: Final = re.compile(r"(utf[-_]?8([-_].*)?|(us[-_])?ascii)", re.I)
_ASCII_TOO: Final = re.compile(r"(latin[-_]?1|iso[-_]8859[-_]1?\d|(cp|windows[-_])125\d)", re.I)
_UNREADABLE: Final = "\ufffd"  # what a browser writes for bytes of a file that are not UTF-8
_RIGHT_TO_LEFT: Final = frozenset({"R", "AL", "AN"})
SHOWN: Final = 8  # the most characters that a warning names


def hidden_character(text: str) -> str:
    """Return the line and the name of the first character that a reader would not see, or ""."""
    plain = text.replace("\r\n", "\n")
    if plain.isascii() and plain.replace("\n", "").replace("\t", "").isprintable():
        return ""
    for place, letter in enumerate(plain):
        if letter == _UNREADABLE or is_hidden(letter):
            return f"line {plain.count(chr(10), 0, place) + 1} has {_name(letter)}"
    return ""


def is_hidden(letter: str) -> bool:
    """Return True if fonts draw a character as nothing, as a space, or in another order."""
    if letter in " \t\n":
        return False
    kind = unicodedata.category(letter)
    return kind in _UNSEEN or kind == _SPACE or _BLANK.match(letter) is not None


def declared_encoding(text: str) -> str:
    """Return the encoding that a Python text declares, if Python would read other text by it."""
    for line in text.split("\n")[:2]:
        found = _CODING.match(line)
        if found is None:
            continue
        name = found.group(1)
        if _UTF_8.fullmatch(name) or (text.isascii() and _ASCII_TOO.fullmatch(name)):
            return ""
        return name
    return ""


def look_alikes(texts: Sequence[tuple[str, str]]) -> list[str]:
    """Return warnings on the characters beyond ASCII, which can look like other characters.

    Args:
        texts: The path and the text of each file of a program.
    """
    named, seen = [], set()
    for path, letter, line in _beyond_ascii(texts):
        if letter not in seen:
            seen.add(letter)
            where = f"line {line}" if not path else f"{path}, line {line}"
            named.append(f"{letter} is {_name(letter)} ({where})")
    if not named:
        return []
    more = f" and {len(named) - SHOWN:,} more" if len(named) > SHOWN else ""
    said = [
        "The text has characters beyond ASCII, and some look like other letters: "
        f"{'; '.join(named[:SHOWN])}{more}."
    ]
    if any(unicodedata.bidirectional(letter) in _RIGHT_TO_LEFT for letter in seen):
        said.append(
            "Some letters are written from right to left. A terminal may show the rest of their "
            "lines in another order than the program has it. The console shows the program's order."
        )
    return said


def _beyond_ascii(texts: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, int]]:
    for path, text in texts:
        for number, line in enumerate(() if text.isascii() else text.split("\n"), 1):
            yield from ((path, one, number) for one in line if not one.isascii())


def _name(letter: str) -> str:
    code = ord(letter)
    name = unicodedata.name(letter, "") or _CONTROLS.get(code, "")
    return f"U+{code:04X} {name}".rstrip()
