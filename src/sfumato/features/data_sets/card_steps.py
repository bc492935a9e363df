"""The three steps that make a data card: questions, defaults, explanations and checks.

The terminal (`sfumato add`) and the console's form ask the same questions and keep the answers as
texts by the same names. A filled answer becomes a key of the card, and an empty one becomes no key.
The answers of a column begin with `c`, its number and `-`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Final

from sfumato.dp.budget import decimal_of, read_delta, read_epsilon
from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.earlier_card import airlock_of, earlier_answers
from sfumato.features.data_sets.identifying_columns import person_columns
from sfumato.features.data_sets.missing_markers import found_answers
from sfumato.vault.card.cell_formats import (
    FALSE,
    PLAIN,
    TRUE,
    UTF8,
    read_file_format,
    read_number_format,
)
from sfumato.vault.card.columns import NUMERIC, TYPES, Column, read_columns
from sfumato.vault.card.data_card import NAME, NAMED, ROW, check_unit, read_card
from sfumato.vault.card.field_readers import as_count, as_text

Answers = Mapping[str, str]
Shape = Mapping[str, Any]  # Any: JSON of the wire
HIDDEN: Final = "hidden"
FILE: Final = ("encoding", "decimal", "thousands")  # the card's keys for a file's format
GROUPED: Final = "thousands"  # the answer that the point of 1.234 is no decimal mark
MAX_COLUMNS: Final = 300
QUESTIONS: Final = 10  # of the example that explains a budget
_LIST: Final = re.compile(r"[,\n]")


@dataclass(frozen=True)
class Question:
    """One question to the owner: its name, a short label, the question, and what it means."""

    name: str
    label: str
    text: str
    help: str
    mode: str = ""  # the keyboard that a telephone shows
    is_needed: bool = False
    types: tuple[str, ...] = ()  # of a column's question: the types that it is for


@dataclass(frozen=True)
class Step:
    """One of the three steps, with the questions that are always asked, and rarer ones."""

    name: str
    title: str
    lead: str
    questions: tuple[Question, ...] = ()
    more: tuple[Question, ...] = ()


NAME_: Final = Question(
    "name", "Name of the data set", "What is the data set called?",
    "Letters, digits, - and _; the first is a letter.", is_needed=True,
)  # fmt: skip
UNIT: Final = Question(
    "unit", "Privacy unit: one person is",
    'Which column names the person? Write "row" if each row is a different person.',
    "Answers hide whether any one person is in the table, with all their rows. So the column must "
    "be the same in all rows of a person: the number of a patient, not of a visit. You cannot "
    "change it later. Nobody sees this column.", is_needed=True,
)  # fmt: skip
PEOPLE: Final = Question(
    "people", "People",
    "Are all rows of these people in this table? Then press Enter. If another data set is about "
    "the same people, write what it calls them (people).",
    "Data sets about the same people share one budget, so they name the people alike. If all rows "
    "of these people are in this table, keep the name.", is_needed=True,
)  # fmt: skip
VERSION: Final = Question(
    "version", "Version", "What is this version called?",
    "New rows need a new version. The spent budget stays spent.", is_needed=True,
)  # fmt: skip
CONFIRMS: Final = Question(
    "different_people", "Who confirms that they are new", "Who confirms that they are new?",
    "Needed only if other owners have data sets here: another owner or an operator. The rows are "
    "read once this person approves.",
)  # fmt: skip
MAX_ROWS: Final = Question(
    "max_rows", "Max rows per person and group",
    "How many rows may one person have in each group?",
    "Contribution bound (max_rows). Further rows of a person are left out, and error bars do not "
    "show that. A larger number means more noise. A question can set its own.",
    "numeric",
)  # fmt: skip
MAX_GROUPS: Final = Question(
    "max_groups", "Max groups per person",
    "In how many groups of a GROUP BY may one person be?",
    "Contribution bound (max_groups). If a person has visits in three hospitals, they are in three "
    "groups of GROUP BY hospital. Further groups of a person are left out, and error bars do not "
    "show that. A larger number means more noise.",
    "numeric",
)  # fmt: skip
SIZE: Final = Question(
    "size", "Public size", "About how many people are in the table?",
    "Roughly, from what you know, and only if it is public: researchers see it. Leave it empty if "
    "the number must stay private.", "numeric",
)  # fmt: skip
EPSILON: Final = Question(
    "epsilon", "Budget ε", "How much may all answers together cost (privacy budget ε)?",
    "For all questions of all users, for ever. 1 is strict, 10 is loose. Choose the smallest that "
    "gives useful answers.", "decimal", is_needed=True,
)  # fmt: skip
DELTA: Final = Question(
    "delta", "Budget δ", "With which small chance may this promise fail (δ)?",
    "0 promises most. With a δ such as 1e-6, researchers can also group by texts that you do not "
    "list: they see the values that many people have.", "decimal",
)  # fmt: skip
WHO: Final = Question(
    "who", "Groups that may ask", "Which groups of users may ask?",
    "Separated by commas. If the field is empty, only you may ask.",
)  # fmt: skip
USER: Final = Question("user_epsilon", "ε of each user", "", "No cap if empty.", "decimal")
USER_DELTA: Final = Question(
    "user_delta",
    "δ of each user",
    "",
    "For users with a cap on ε. If empty: the budget's δ.",
    "decimal",
)
GROUP: Final = Question("group_epsilon", "ε of each group", "", "No cap if empty.", "decimal")
GROUP_DELTA: Final = Question(
    "group_delta",
    "δ of each group",
    "",
    "For groups with a cap on ε. If empty: the budget's δ.",
    "decimal",
)
DELTA_PER_REQUEST: Final = Question(
    "delta_per_request", "δ that a question may spend by default", "", "None if empty.", "decimal"
)
RELEASES: Final = Question(
    "average_releases", "Sums without noise, at most", "",
    "secure-average (not DP): sums over sites without noise protect nobody. None is released "
    "unless you allow a number of them.", "numeric",
)  # fmt: skip
SITES: Final = Question(
    "average_sites", "Minimum number of sites", "", "For sums without noise: 3 or more.", "numeric"
)  # fmt: skip
NULLS: Final = Question(
    "nulls", "Missing-value markers", "", "Cells that count as empty, besides empty cells."
)  # fmt: skip
FORMATS: Final = (
    Question("decimal", "Decimal mark", "", "If the field is empty: a point."),
    Question("thousands", "Mark between thousands", "", "If the field is empty: none."),
    Question(
        "encoding", "Encoding", "", "If the field is empty: utf-8. Others are cp1252, latin-1, …"
    ),
    Question(
        "accept_unreadable", "Columns that may be unreadable", "",
        "Names, separated by commas. Unreadable cells of these columns count as empty, however "
        "many there are.",
    ),
)  # fmt: skip
FOLDER: Final = (
    Question(
        "bids_people", "At most so many people", "",
        "A public bound. A run takes time for that many people, present or not.", "numeric",
        is_needed=True,
    ),
    Question(
        "bids_person_mb", "Megabytes per person, at most", "", "If the field is empty: 4.",
        "numeric",
    ),
)  # fmt: skip

STEPS: Final = (
    Step(
        "who", "Who is protected", "What the answers hide, whoever asks.",
        (NAME_, UNIT, PEOPLE), (VERSION, CONFIRMS),
    ),
    Step(
        "much", "How much may be learned", "How much one person may count, and the budget.",
        (MAX_ROWS, MAX_GROUPS, SIZE, EPSILON, DELTA),
        (WHO, USER, USER_DELTA, GROUP, GROUP_DELTA, DELTA_PER_REQUEST, RELEASES, SITES),
    ),
    Step(
        "columns", "What researchers see",
        "Take bounds and possible values from what you know, never from the rows. They are your "
        "decision, and public.",
        (), (NULLS, *FORMATS),
    ),
)  # fmt: skip

TYPE: Final = Question(
    "type", "Type", f"Type ({', '.join(TYPES)}), or hidden",
    "Nobody is told that a hidden column exists.",
)  # fmt: skip
POINT: Final = Question(
    "point", "A cell like 1.234 means",
    f'What does a cell like 1.234 mean? "decimal": about one; "{GROUPED}": 1,234',
    "All points of this column are followed by three digits, so the file does not tell.",
    types=NUMERIC,
)  # fmt: skip
LOWER: Final = Question(
    "lower", "Lowest possible value", "Lowest possible value",
    "From what you know, never from the rows: 0 to 110 for an age, whatever the age of the oldest "
    "person is. A value outside the bounds counts as the nearest bound. Without both bounds, there "
    "are no sums and averages.", types=(*NUMERIC, "date", "timestamp"),
)  # fmt: skip
UPPER: Final = Question(
    "upper", "Highest possible value", "Highest possible value", LOWER.help, types=LOWER.types
)
GRID: Final = Question(
    "step", "Step", "Step of the values, such as 1 or 0.01",
    "Values are multiples of it. If it is empty, it follows from the bounds.", types=("number",),
)  # fmt: skip
KEYS: Final = Question(
    "keys", "Possible values", "Possible values, separated by commas",
    "A public list, from what you know: never from the rows. Other values are left out of groups. "
    "Without a list, researchers see only values that many people have, and only if δ is above 0.",
    types=("text",),
)  # fmt: skip
FORMAT: Final = Question(
    "format", "How the file writes it", "How the file writes it, such as %d.%m.%Y",
    "ISO (2024-02-29) if it is empty.", types=("date", "timestamp"),
)  # fmt: skip
WORDS: Final = tuple(
    Question(
        name, f"Words for {name}", f"Words that mean {name}, separated by commas",
        f"Letter case does not matter. If it is empty: {', '.join(words)}.",
        types=("boolean",),
    )
    for name, words in (("true", TRUE), ("false", FALSE))
)  # fmt: skip
MARKERS: Final = Question(
    "nulls", "Missing-value markers", "Cells that count as empty, separated by commas",
    "Besides the markers of the whole file. Cells that count as empty are in no sum, average or "
    "group.", types=TYPES,
)  # fmt: skip
COLUMN_TYPES: Final = (*TYPES, HIDDEN)
OF_COLUMN: Final = (TYPE, POINT, LOWER, UPPER, GRID, KEYS, FORMAT, *WORDS, MARKERS)


def questions_of(step: Step, answers: Answers) -> tuple[Question, ...]:
    """Return the questions of a step that these answers need: a row has no rows of its own."""
    is_row = answers.get("unit") == ROW
    return tuple(q for q in step.questions if not (is_row and q in (MAX_ROWS, MAX_GROUPS)))


def column_questions(answers: Answers, number: int, kind: str) -> tuple[Question, ...]:
    """Return the further questions on a column of this type."""
    at = f"c{number}-"
    rare = {POINT: f"{at}point" in answers, MARKERS: bool(answers.get(f"{at}odd"))}
    return tuple(q for q in OF_COLUMN[1:] if kind in q.types and rare.get(q, True))


# --- defaults ---------------------------------------------------------------------------------


def proposed_answers(proposed: Shape, earlier: Shape | None = None) -> dict[str, str]:
    """Return the default answers for a proposed card: no bounds, and no lists of values.

    Args:
        proposed: The columns of the source and the proposed card.
        earlier: The data set's current card, if a new version is added.
    """
    card: Shape = proposed["card"]
    made = {"name": str(card["people"]), "epsilon": "1", "delta": "0", "two": "yes"}
    made |= {name: str(card[name]) for name in ("people", "unit", "version")}
    made |= {name: str(card.get(name, 1)) for name in ("max_rows", "max_groups")}
    made |= {"who": ", ".join(card["ask"]["who"]), "nulls": ", ".join(filter(None, card["nulls"]))}
    made |= _formats(card)
    if "bids" in card:
        made |= {"bids": "yes", "bids_files": "\n".join(card["bids"].get("files", []))}
    odd = {one["name"]: one["markers"] for one in proposed["columns"] if one.get("markers")}
    for number, (name, column) in enumerate(card["columns"].items()):
        made |= found_answers(number, _kind(column), odd.get(name, {}))
        made |= {f"c{number}-{key}": text for key, text in _column_answers(name, column).items()}
        made |= _odd_format(f"c{number}-", column, made)
    return made if earlier is None else made | earlier_answers(earlier)


def _formats(card: Shape) -> dict[str, str]:
    """Return the format of the file: its marks are those of the first column that has them."""
    columns = list(card["columns"].values())
    found = {name: next((str(c[name]) for c in columns if name in c), "") for name in FILE}
    return {**found, "encoding": str(card.get("encoding", ""))}


def _kind(column: Shape) -> str:
    return HIDDEN if column.get("hidden") else str(column.get("type", "text"))


def _column_answers(name: str, column: Shape) -> dict[str, str]:
    kind = _kind(column)
    is_unsure = column.get("decimal") == "." and "thousands" not in column
    made = {"name": name, "type": kind, "format": str(column.get("format", ""))}
    made |= {word.name: ", ".join(column[word.name]) for word in WORDS if word.name in column}
    return {**made, **({"point": "decimal"} if is_unsure else {})}


def _odd_format(at: str, column: Shape, made: Answers) -> dict[str, str]:
    """Return the marks of a column of numbers that are not those of the file."""
    own = {"decimal": column.get("decimal", "."), "thousands": column.get("thousands", "")}
    usual = {"decimal": made["decimal"] or ".", "thousands": made["thousands"]}
    is_odd = column.get("type") == "number" and own != usual
    return {f"{at}{name}": mark or "none" for name, mark in own.items()} if is_odd else {}


def unit_reason(answers: Answers) -> str:
    """Say why a column is proposed as the privacy unit, or why none is."""
    found = person_columns(columns_of(answers))
    if len(found) == 1:
        return f"{found[0]} is the only column that is named like a person or their number."
    if found:
        return f"Several columns are named like a person: {', '.join(found)}. Choose one."
    return "No column is named like a person, so sfumato proposes none."


def unit_meaning(answers: Answers) -> str:
    """Say what the answers protect with this privacy unit; "" if it is not known yet."""
    unit = answers.get("unit", "")
    if "unit" in faults(answers, "who"):
        return ""
    if unit == ROW:
        return "Answers hide whether any one row is in the table. Who has two rows is not hidden."
    return f"Answers hide whether any one person is in it: all rows with the same {unit}."


# --- the card ---------------------------------------------------------------------------------


def columns_of(answers: Answers) -> list[str]:
    """Return the names of the columns, in the order of the file."""
    found = []
    for number in range(MAX_COLUMNS):
        if not (name := answers.get(f"c{number}-name", "")):
            break
        found.append(name)
    return found


def card_of(answers: Answers) -> dict[str, object]:
    """Return the data card that the answers describe, as JSON; refuse an answer of another kind."""
    typed = {name: text.strip() for name, text in answers.items()}
    made: dict[str, object] = {
        "unit": answers.get("unit", ""),
        "people": typed.get("people", ""),
        "version": typed.get("version", ""),
        "budget": _numbers(typed, {"epsilon": "epsilon", "delta": "delta"}),
        "caps": _caps(typed),
        "ask": {"who": words_of(typed.get("who", ""))},
        "nulls": ["", *words_of(typed.get("nulls", ""))],
        "columns": {
            name: column_shape(answers, number) for number, name in enumerate(columns_of(answers))
        },
        "secure_average": _counts(typed, {"average_releases": "releases", "average_sites": "sites"})
        or None,
        "bids": _folder(typed),
        "window": typed.get("window"),
        "airlock": airlock_of(answers) or None,
        **_numbers(typed, {"delta_per_request": "delta_per_request"}),
    }
    made |= {name: " " if answers.get(name) == " " else typed.get(name, "") for name in FILE}
    made |= _counts(typed, {name: name for name in ("size", "max_groups", "max_rows")})
    if made["unit"] == ROW:
        made |= {"max_groups": None, "max_rows": None}
    # keep an empty unit so that it is refused later: without the key, the card would protect rows
    return {
        name: value for name, value in made.items() if value not in ("", None) or name == "unit"
    }


def words_of(text: str) -> list[str]:
    """Split a text at commas and line ends, and return the words."""
    return [word.strip() for word in _LIST.split(text) if word.strip()]


def column_shape(answers: Answers, number: int) -> dict[str, object]:
    """Return what the card says of a column. The column of the person is always hidden."""
    at = f"c{number}-"
    kind = answers.get(f"{at}type", "").strip()
    if kind == HIDDEN or is_unit(answers, number):
        return {"hidden": True}
    made: dict[str, object] = {"type": kind}
    made |= _marks(answers, at) if kind in NUMERIC else {}
    for name in ("lower", "upper", "step"):
        if typed := answers.get(at + name, "").strip():
            made[name] = number_or_text(typed)
    if kind in FORMAT.types and (written := answers.get(f"{at}format", "").strip()):
        made["format"] = written
    if markers := words_of(answers.get(f"{at}nulls", "")):
        made["nulls"] = markers
    for word in WORDS if kind == "boolean" else ():
        if words := words_of(answers.get(at + word.name, "")):
            made[word.name] = words
    if keys := words_of(answers.get(f"{at}keys", "")):
        made["keys"] = [number_or_text(key) for key in keys] if kind in NUMERIC else keys
    return made


def is_unit(answers: Answers, number: int) -> bool:
    """Return True if a column is the privacy unit: it names the person."""
    return answers[f"c{number}-name"].casefold() == answers.get("unit", "").casefold()


def _marks(answers: Answers, at: str) -> dict[str, object]:
    """Return the number format of a column, if it is not that of the file."""
    if answers.get(f"{at}point", "") == GROUPED:
        return {"decimal": ",", "thousands": "."}
    marks = {name: answers.get(at + name, "") for name in ("decimal", "thousands")}
    return {name: mark.replace("none", "") for name, mark in marks.items() if mark}


def number_or_text(typed: str) -> Decimal | str:
    """Return a typed number as an exact decimal, and any other text (such as a date) unchanged."""
    try:
        read = Decimal(typed)
    except InvalidOperation:
        return typed
    return read if read.is_finite() else typed


def _caps(typed: Answers) -> dict[str, object]:
    caps: dict[str, object] = {"raise": "two people"} if typed.get("two") else {}
    for of in ("user", "group"):
        if budget := _numbers(typed, {f"{of}_{name}": name for name in ("epsilon", "delta")}):
            caps[of] = budget
    return caps


def _folder(typed: Answers) -> dict[str, object] | None:
    """Return the card's terms for a folder with files of each person; None for a table."""
    counts = _counts(typed, {"bids_people": "people", "bids_person_mb": "person_mb"})
    if "people" not in counts:
        return None
    return {**counts, "files": words_of(typed.get("bids_files", ""))}


def _numbers(typed: Answers, names: Answers) -> dict[str, object]:
    return {key: decimal_of(typed[name], name) for name, key in names.items() if typed.get(name)}


def _counts(typed: Answers, names: Answers) -> dict[str, object]:
    return {key: _count(typed[name]) for name, key in names.items() if typed.get(name)}


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 15):
        raise Refused("bad-request", "It must be a whole number.", "Write it like 10.")
    return as_count(int(text), "It")


# --- checks -----------------------------------------------------------------------------------


def faults(answers: Answers, step: str) -> dict[str, str]:
    """Return what is wrong with the answers of a step, by the name of the answer."""
    if step == "columns":
        return _column_faults(answers) | _format_faults(answers)
    checks = _CHECKS[step]
    found = {name: _fault(check, answers) for name, check in checks.items()}
    return {name: fault for name, fault in found.items() if fault}


def card_fault(answers: Answers) -> Refused | None:
    """Return the refusal of the whole card; None if it is valid."""
    try:
        card = card_of(answers)
        check_unit(card)
        read_card(answers.get("name", "").strip(), card)
    except Refused as refused:
        return refused
    return None


def _fault(check: Callable[[Answers], object], answers: Answers) -> str:
    try:
        check(answers)
    except Refused as refused:
        return refused.cause
    return ""


def _wrong(what: str) -> Refused:
    return Refused("bad-card", what, "Correct the answer.")


def _check_name(answers: Answers) -> None:
    if not NAME.fullmatch(answers.get("name", "").strip()):
        raise _wrong(f"A data set's {NAMED}.")


def _check_unit(answers: Answers) -> None:
    unit = answers.get("unit", "")
    if not unit:
        raise _wrong("Choose the column that names the person, or say that one person is one row.")
    if unit != ROW and unit not in columns_of(answers):
        raise _wrong(f"There is no column {unit!r}. Write its name as in the file, or its number.")


def _needed_text(name: str) -> Callable[[Answers], object]:
    return lambda answers: as_text(answers.get(name, "").strip(), "It")


def _optional(name: str, read: Callable[[str], object]) -> Callable[[Answers], object]:
    """Return a check that reads an answer if there is one."""

    def check(answers: Answers) -> None:
        if typed := answers.get(name, "").strip():
            read(typed)

    return check


def _epsilon(text: str) -> object:
    return read_epsilon(decimal_of(text, "ε"), "ε")


def _needed_epsilon(answers: Answers) -> object:
    return _epsilon(answers.get("epsilon", ""))


def _delta(text: str) -> object:
    return read_delta(decimal_of(text, "δ"), "δ")


_CHECKS: Final[Mapping[str, Mapping[str, Callable[[Answers], object]]]] = {
    "who": {
        "name": _check_name,
        "unit": _check_unit,
        **{name: _needed_text(name) for name in ("people", "version")},
    },
    "much": {
        "epsilon": _needed_epsilon,
        "delta": _optional("delta", _delta),
        **{name: _optional(name, _epsilon) for name in ("user_epsilon", "group_epsilon")},
        **{
            name: _optional(name, _delta)
            for name in ("user_delta", "group_delta", "delta_per_request")
        },
        **{
            name: _optional(name, _count)
            for name in ("max_rows", "max_groups", "size", "average_releases", "average_sites")
        },
    },
}


def read_column(answers: Answers, number: int) -> Column | None:
    """Return a column as the card declares it, or None if it is hidden; refuse an invalid one."""
    shape = column_shape(answers, number)
    marks = _file_marks(answers)
    own = {name: value for name, value in shape.items() if name not in FILE[1:]}
    name = answers[f"c{number}-name"]
    if _fault_of_marks(marks):
        columns, _ = read_columns({name: own})
    else:
        columns, _ = read_columns({name: shape}, read_number_format(marks, "the file", PLAIN))
    return columns[0] if columns else None


def _file_marks(answers: Answers) -> dict[str, str]:
    """Return the marks of the whole file, as the owner typed them."""
    typed = {name: answers.get(name, "") for name in FILE[1:]}
    return {name: mark if mark == " " else mark.strip() for name, mark in typed.items() if mark}


def bound_fault(question: Question, kind: str, typed: str) -> str:
    """Return why a typed bound or step does not fit the type of its column; "" if it does."""
    if question not in (LOWER, UPPER, GRID) or not typed:
        return ""
    if kind in NUMERIC:
        is_number = isinstance(number_or_text(typed), Decimal)
        return "" if is_number else "It must be a number, such as 110 or 0.5, or none."
    try:
        date.fromisoformat(typed)
    except ValueError:
        return "It must be a day, such as 2026-11-21, or none."
    return ""


def _fault_of_marks(marks: Answers) -> str:
    return _fault(lambda found: read_number_format(found, "the file", PLAIN), marks)


def _column_faults(answers: Answers) -> dict[str, str]:
    found = {
        f"c{number}": _fault(partial(read_column, number=number), answers)
        for number in range(len(columns_of(answers)))
    }
    return {name: fault for name, fault in found.items() if fault}


def _format_faults(answers: Answers) -> dict[str, str]:
    marks = _file_marks(answers)
    encoding = {"encoding": answers["encoding"].strip()} if answers.get("encoding") else {}
    found = {
        "decimal": _fault_of_marks(marks),
        "encoding": _fault(lambda given: read_file_format(given, UTF8), encoding),
    }
    if answers.get("bids"):
        found["bids_people"] = _fault(
            lambda given: _count(given.get("bids_people", "").strip()), answers
        )
        found["bids_person_mb"] = _fault(_optional("bids_person_mb", _count), answers)
    return {name: fault for name, fault in found.items() if fault}


# --- what a budget means ----------------------------------------------------------------------


def budget_meaning(answers: Answers) -> list[str]:
    """Explain the budget in sentences, for ten questions that share it; [] if it is invalid."""
    if faults(answers, "much"):
        return []
    is_row = answers.get("unit") == ROW
    one, many = ("row", "rows") if is_row else ("person", "people")
    epsilon, delta = (float(answers.get(name) or 0) for name in ("epsilon", "delta"))
    except_for = f", except with chance {answers['delta'].strip()}" if delta else ""
    each = epsilon / QUESTIONS
    margin = _margin_95(1, each)
    size = int(answers.get("size") or 0)
    lines = [
        f"Someone who is 50 % sure of a fact about a {one} is at most {_sure(epsilon)} % sure "
        f"after all answers together{except_for}.",
        f"For example, {QUESTIONS} questions at ε {each:g} each. “How many {many}?” is then off by "
        f"at most {margin:,} in 95 of 100 cases"
        + (f": {_percent(margin / size)} of {size:,} {many}." if size else "."),
    ]
    rows, groups = (int(answers.get(name) or 1) for name in ("max_rows", "max_groups"))
    if not is_row and rows * groups > 1:
        lines.append(
            "A number of rows in each group (GROUP BY) is off by at most "
            f"{_margin_95(rows * groups, each):,}, because a person may have {rows} in each of "
            f"{groups} groups."
        )
    return lines


def _sure(epsilon: float) -> str:
    sure = 100 / (1 + math.exp(-epsilon))
    return f"{math.ceil(sure)}" if sure < 99 else f"{math.ceil(sure * 100) / 100:.2f}"


def _margin_95(sensitivity: int, epsilon: float) -> int:
    """Return the least t with P(|X| <= t) >= 0.95, for discrete Laplace noise X."""
    rate = epsilon / sensitivity
    base = math.log(2 / (0.05 * (1 + math.exp(-rate))))
    return max(0, math.ceil(base / rate - 1 - 1e-9))


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else "less than 1 %"
