"""Ask a survey's questions in a terminal; the owner's text is marked, and answers are parsed."""

from __future__ import annotations

import shutil
import textwrap
from typing import Any, Final

import click

WRONG: Final = object()  # stands for a typed text that is no valid answer
_MARK: Final = "  | "
_NEEDED: Final = "It needs an answer. To stop here, press Ctrl-C: nothing has been sent."
_LONGEST: Final = 12  # the most digits of a number; no survey needs more


def theirs(*texts: str) -> list[str]:
    """Return the survey owner's text as lines for the terminal, each with a mark in front.

    The mark prevents the text from imitating our own output. The lines are wrapped here, because a
    line that the terminal wraps would lack the mark.
    """
    wide = max(20, shutil.get_terminal_size().columns - len(_MARK) - 1)
    lines = [line for text in texts for line in text.split("\n")]
    cut = [textwrap.wrap(line, _letters(line, wide)) or [""] for line in lines]
    return [f"{_MARK}{part}" for parts in cut for part in parts]


def ask(question: Any, number: int, of: int) -> Any:  # Any: a question, and its answer
    """Ask a survey question in the terminal until the answer is valid; keep it in memory only."""
    told = theirs(question.text, *_offered(question))
    click.echo("\n".join(["", f"Question {number} of {of}:", *told]), err=True)
    while True:
        typed = click.prompt(_wanted(question), default="", show_default=False, err=True)
        read = truth_of(question, typed.strip())
        if read is not WRONG:
            return read
        click.echo(
            _NEEDED if not typed.strip() else "That is not an answer to this question.", err=True
        )


def truth_of(question: Any, typed: str) -> Any:  # Any: as above
    """Parse a typed answer: return None for no answer, and the marker WRONG for an invalid one."""
    if not typed:
        return WRONG if question.is_required else None
    match question.kind:
        case "yes-no":
            return {"yes": True, "y": True, "no": False, "n": False}.get(typed.lower(), WRONG)
        case "number":
            digits = typed.removeprefix("-")
            is_number = digits.isdecimal() and len(digits) <= _LONGEST
            is_in = is_number and question.low <= int(typed) <= question.high
            return int(typed) if is_in else WRONG
        case "choice":
            named = _named(question, typed)
            return named if named in question.options else WRONG
    parts = [_named(question, part.strip()) for part in typed.split(",")]
    is_once = len({*parts}) == len(parts) and {*parts} <= {*question.options}
    is_whole = question.kind == "several" or len(parts) == len(question.options)
    return parts if is_once and is_whole else WRONG


def _named(question: Any, typed: str) -> str:  # Any: as above
    """Return the option whose number a respondent typed; other texts are returned unchanged."""
    if not _are_numbered(question) or not typed.isdecimal() or len(typed) > 2:
        return typed
    place = int(typed) - 1
    return str(question.options[place]) if 0 <= place < len(question.options) else typed


def _are_numbered(question: Any) -> bool:  # Any: as above
    """Return True if a typed number can mean an option: no option is a number itself."""
    return not any(option.isdecimal() for option in question.options)


def _offered(question: Any) -> list[str]:  # Any: as above
    if question.kind == "number":
        return [f"{question.low} to {question.high} {question.unit}".strip()]
    marks = [f"{place}." for place in range(1, len(question.options) + 1)]
    if not _are_numbered(question):
        marks = ["-"] * len(marks)
    return [f"{mark} {option}" for mark, option in zip(marks, question.options, strict=True)]


def _wanted(question: Any) -> str:  # Any: as above
    """Return the prompt for an answer, which says what the respondent may type."""
    how = " or its number" if _are_numbered(question) else ""
    return {
        "yes-no": "Your answer (yes, no)",
        "number": f"Your answer (a whole number, {question.low} to {question.high})",
        "choice": f"Your answer (one of these{how})",
        "several": f"Your answer (any of these{how}; several with commas)",
        "ranking": f"Your answer (all of these{how}, with commas, the first one first)",
    }[str(question.kind)]


def _letters(line: str, wide: int) -> int:
    """Return a number of letters of a line that surely fit into `wide` terminal columns.

    Outside ASCII, a letter can be two columns wide.
    """
    return wide if line.isascii() else max(10, wide // 2)
