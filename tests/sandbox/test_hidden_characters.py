"""What a reviewer reads of a program is what runs: hidden characters and other encodings."""

from __future__ import annotations

import unicodedata

import pytest

from sfumato.sandbox.hidden_characters import (
    SHOWN,
    declared_encoding,
    hidden_character,
    is_hidden,
    look_alikes,
)

READABLE = """# José – ± Σ 身長 Größe наука 😀 e\u0301
\tx = "half ½"\r
"""


@pytest.mark.parametrize(
    ("letter", "name"),
    [
        ("\x00", "U+0000 NULL"),
        ("\x0c", "U+000C FORM FEED"),
        ("\r", "U+000D CARRIAGE RETURN"),  # alone: a terminal writes over the line
        ("\x1b", "U+001B ESCAPE"),
        ("\x85", "U+0085 NEXT LINE"),
        ("\xa0", "U+00A0 NO-BREAK SPACE"),
        ("\xad", "U+00AD SOFT HYPHEN"),
        ("\u115f", "U+115F HANGUL CHOSEONG FILLER"),
        ("\u200b", "U+200B ZERO WIDTH SPACE"),
        ("\u200f", "U+200F RIGHT-TO-LEFT MARK"),
        ("\u2028", "U+2028 LINE SEPARATOR"),
        ("\u202e", "U+202E RIGHT-TO-LEFT OVERRIDE"),
        ("\u2066", "U+2066 LEFT-TO-RIGHT ISOLATE"),
        ("\ufe0f", "U+FE0F VARIATION SELECTOR-16"),
        ("\ufeff", "U+FEFF ZERO WIDTH NO-BREAK SPACE"),
        ("\ufffd", "U+FFFD REPLACEMENT CHARACTER"),  # a browser's, for what is not UTF-8
        ("\ue000", "U+E000"),
        ("\udce9", "U+DCE9"),  # a byte that is not UTF-8, as Python keeps it
        ("\U000e0041", "U+E0041 TAG LATIN CAPITAL LETTER A"),
    ],
)
def test_a_hidden_character_is_named_with_its_line(letter: str, name: str) -> None:
    assert hidden_character(f"first\r\n\tsecond {letter}b\n") == f"line 2 has {name}"


def test_letters_and_signs_of_any_language_are_not_hidden() -> None:
    assert hidden_character(READABLE) == ""
    assert hidden_character("") == ""


def test_every_character_that_changes_the_direction_is_hidden() -> None:
    kinds = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    found = [one for one in map(chr, range(0x110000)) if unicodedata.bidirectional(one) in kinds]
    assert len(found) == len(kinds)
    assert all(map(is_hidden, found))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("# -*- coding: utf-7 -*-\n# +AAo-import os", "utf-7"),
        ("#!/usr/bin/env python3\n# vim: set fileencoding=unicode_escape :\n", "unicode_escape"),
        ("# coding: latin-1\n# é", "latin-1"),
        ("# coding: latin-1\n# e", ""),
        ("# -*- coding: UTF-8 -*-\n# é", ""),
        ("# -*- coding: utf-8-unix -*-\n# é", ""),
        ("x = 1\ny = 2\n# coding: utf-7", ""),  # Python reads it in the first two lines alone
        ("encoding = 'utf-7'", ""),
    ],
)
def test_a_text_by_which_python_reads_other_text_is_found(text: str, name: str) -> None:
    assert declared_encoding(text) == name


def test_characters_that_look_like_others_are_named_once_with_their_place() -> None:
    (said,) = look_alikes([("", "x = 1\n\u0430 = 2\n\u0430 = é")])
    assert "\u0430 is U+0430 CYRILLIC SMALL LETTER A (line 2)" in said
    assert said.count("U+0430") == 1
    assert "é is U+00E9 LATIN SMALL LETTER E WITH ACUTE (line 3)" in said
    many = "".join(map(chr, range(0x3B1, 0x3B1 + SHOWN + 2)))
    assert look_alikes([("a.py", many)])[0].endswith(" and 2 more.")
    assert look_alikes([("a.py", "x = 1")]) == []
    assert len(look_alikes([("", "# \u05d0")])) == 2
