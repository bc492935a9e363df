"""Ask the owner which well-known words and codes in the columns' cells are missing values.

The answers keep, of each column, the words that were found (`c0-odd`: "12 unbekannt, 3 -") and
those that count as empty (`c0-nulls`: "unbekannt").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SAMPLE: Final = 1000  # rows in which words are looked for
_NAMED: Final = 5  # columns that one question names
_HIDDEN: Final = "hidden"
Answers = Mapping[str, str]


@dataclass(frozen=True)
class MarkerQuestion:
    """One word that columns of texts, or of other types, have, and in how many of their cells."""

    word: str
    is_of_texts: bool
    cells: tuple[tuple[int, int], ...]  # the number of each column, and of its cells

    @property
    def total(self) -> int:
        """Return the number of cells of all columns."""
        return sum(count for _, count in self.cells)


def found_answers(number: int, kind: str, found: Mapping[str, int]) -> dict[str, str]:
    """Return the answers on the words found in a column.

    In a column of texts, a word such as none may be a value, so there it counts as empty only if
    the owner says so.
    """
    if not found or kind == _HIDDEN:
        return {}
    odd = {f"c{number}-odd": ", ".join(f"{count} {word}" for word, count in found.items())}
    return odd if kind == "text" else {**odd, f"c{number}-nulls": ", ".join(found)}


def found_words(answers: Answers, number: int) -> dict[str, int]:
    """Return the words that were found in a column, with their numbers of cells."""
    pairs = [one.partition(" ") for one in answers.get(f"c{number}-odd", "").split(", ")]
    return {word: int(count) for count, _, word in pairs if word and _is_count(count)}


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 9


def marker_questions(answers: Answers, columns: int) -> list[MarkerQuestion]:
    """Return one question for each word; the commonest is first. Hidden columns have none."""
    found: dict[tuple[str, bool], list[tuple[int, int]]] = {}
    for number in range(columns):
        kind = answers.get(f"c{number}-type", "")
        for word, count in found_words(answers, number).items() if kind != _HIDDEN else ():
            found.setdefault((word, kind == "text"), []).append((number, count))
    made = [MarkerQuestion(*of, tuple(cells)) for of, cells in found.items()]
    return sorted(made, key=lambda one: -one.total)


def question_text(asked: MarkerQuestion, names: list[str]) -> str:
    """Return the question, which names the columns and how many of their cells say the word."""
    parts = [f"{count} of {names[number]}" for number, count in asked.cells[:_NAMED]]
    if len(asked.cells) > _NAMED:
        parts.append(f"others of {len(asked.cells) - _NAMED} more columns")
    listed = parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
    cells = "cell says" if asked.total == 1 else "cells say"
    return (
        f"Among the first {SAMPLE:,} rows, {asked.total} {cells} “{asked.word}”: {listed}. "
        "Treat as missing? yes or no."
    )


def is_missing(answers: Answers, asked: MarkerQuestion) -> bool:
    """Return True if the word counts as empty in all columns of the question."""
    return all(asked.word in _words(answers, number) for number, _ in asked.cells)


def with_marker(answers: Answers, asked: MarkerQuestion, *, missing: bool) -> dict[str, str]:
    """Return the answers in which the word counts as empty, or does not, in these columns."""
    made = dict(answers)
    for number, _ in asked.cells:
        others = [word for word in _words(answers, number) if word != asked.word]
        made[f"c{number}-nulls"] = ", ".join([*others, asked.word] if missing else others)
    return made


def found_note(answers: Answers, number: int) -> str:
    """Say which words were found in a column, and which of them count as empty; "" if none."""
    found = found_words(answers, number)
    if not found:
        return ""
    missing = _words(answers, number)
    said = [
        f"“{word}” {'once' if count == 1 else f'{count} times'}"
        f" ({'missing' if word in missing else 'a value'})"
        for word, count in found.items()
    ]
    return f"Among the first {SAMPLE:,} rows: {', '.join(said)}."


def _words(answers: Answers, number: int) -> list[str]:
    typed = answers.get(f"c{number}-nulls", "").split(",")
    return [word.strip() for word in typed if word.strip()]
