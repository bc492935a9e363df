"""Recognise a column of yes and no, in the words of several languages.

The proposed card lists all words of a language and not only those that the rows have. So it says
nothing of the rows but the language.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

_Words = tuple[tuple[str, ...], tuple[str, ...]]
PLAIN: Final = frozenset({"true", "false"})  # how typed values are written: nothing is assumed
# the words for true, then those for false, in small letters. 0 and 1 stay numbers, and letters that
# may mean another pair (m and f, a and n) are not listed.
_LANGUAGES: Final[tuple[_Words, ...]] = (
    (("yes", "y"), ("no", "n")),
    (("true", "t"), ("false", "f")),
    (("yes", "y", "true", "t"), ("no", "n", "false", "f")),
    (("ja", "j"), ("nein", "n")),  # German
    (("wahr",), ("falsch",)),
    (("ja", "j"), ("nee", "n")),  # Dutch
    (("ja", "j"), ("nej", "nei", "n")),  # Danish, Norwegian, Swedish
    (("oui", "o"), ("non", "n")),  # French
    (("vrai", "v"), ("faux", "f")),
    (("sí", "sì", "si", "s"), ("no", "n")),  # Spanish, Italian
    (("verdadero", "verdadeiro", "vero", "v"), ("falso", "f")),
    (("sim", "s"), ("não", "nao", "n")),  # Portuguese
    (("tak",), ("nie",)),  # Polish
    (("ano",), ("ne",)),  # Czech
    (("да",), ("нет",)),  # Russian
    (("evet",), ("hayır", "hayir")),  # Turkish
)


def boolean_words(texts: Iterable[str]) -> _Words | None:
    """Return the words for true and false of a column whose cells are all of one language's.

    Return None if the cells are none. A column of a single letter is none: `n` may mean anything.

    Args:
        texts: The column's cells that are not empty.
    """
    found = {text.casefold() for text in texts}
    if not found or (len(found) == 1 and len(min(found)) == 1):
        return None
    fitting = [one for one in _LANGUAGES if found <= {*one[0], *one[1]}]
    return fitting[0] if fitting else None


def boolean_format(texts: Sequence[str]) -> dict[str, list[str]] | None:
    """Return the card's settings of a column of yes and no, or None if it is no such column.

    They are empty if the cells are `true` and `false` alone, about which nothing is assumed.
    """
    words = boolean_words(texts)
    if words is None:
        return None
    if all(text.casefold() in PLAIN for text in texts):
        return {}
    true, false = words
    return {"true": list(true), "false": list(false)}
