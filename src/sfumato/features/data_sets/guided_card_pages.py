"""The console's form for a new data card: the three steps, of which one is open at a time.

The form keeps nothing on the server. The answers of the other steps are hidden fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.card_preview import ColumnPreview, column_previews
from sfumato.features.data_sets.card_steps import (
    COLUMN_TYPES,
    FOLDER,
    FORMATS,
    NULLS,
    OF_COLUMN,
    STEPS,
    WORDS,
    Answers,
    Question,
    Step,
    budget_meaning,
    columns_of,
    faults,
    is_unit,
    proposed_answers,
    questions_of,
    unit_meaning,
    unit_reason,
)
from sfumato.features.data_sets.earlier_card import EARLIER, airlock_of, kept_terms
from sfumato.server.console.forms import Form

PLACES: Final = ("connection", "table", "inner_table")  # where the rows are, besides an upload
_OF_FORM: Final = ("csrf", "step", "do")
# which step holds the answer that a refusal is about; for any other, it is the last step
_STEP_OF_CODE: Final[Mapping[str, str]] = {
    "data-set-exists": "who", "same-people": "who", "second-person-needed": "who",
    "bad-budget": "much",
}  # fmt: skip


@dataclass(frozen=True)
class Field:
    """A field of the form: its question, the value in it, and what is wrong with that."""

    question: Question
    name: str
    value: str
    fault: str = ""


@dataclass(frozen=True)
class ColumnRow:
    """A column's row of the table: what researchers see, and the fields that change it."""

    at: str
    seen: ColumnPreview
    fields: tuple[Field, ...]


def first_answers(proposed: Mapping[str, Any]) -> dict[str, str]:  # Any: JSON of the wire
    """Return the answers of a form that nobody has filled in yet."""
    where = {name: str(proposed[name]) for name in PLACES if proposed.get(name)}
    return {**proposed_answers(proposed), "source": str(proposed["name"]), **where}


def answers_of(form: Form) -> dict[str, str]:
    """Return the answers that a form sends: of its open step, and of the others."""
    return {name: form.raw(name) for name in form.fields if name not in _OF_FORM}


def step_called(name: str) -> Step:
    """Return the step of this name; the first if there is none."""
    return next((step for step in STEPS if step.name == name), STEPS[0])


def neighbour(step: Step, by: int) -> Step:
    """Return the next step, or the one before; at an end, the step itself."""
    return STEPS[min(max(STEPS.index(step) + by, 0), len(STEPS) - 1)]


def step_with_fault(answers: Answers) -> Step | None:
    """Return the first step that has an answer that is not possible."""
    return next((step for step in STEPS if faults(answers, step.name)), None)


def step_of_refusal(refused: Refused) -> Step:
    """Return the step in which the owner can act on a refusal."""
    return step_called(_STEP_OF_CODE.get(refused.code, STEPS[-1].name))


def refusal_of_faults(found: Mapping[str, str]) -> Refused | None:
    """Return the refusal above a form with faults, which are shown beside their fields."""
    if not found:
        return None
    count = "One answer is" if len(found) == 1 else f"{len(found)} answers are"
    return Refused("bad-card", f"{count} not possible.", "The reason is beside the field.")


def page_values(answers: Answers, step: Step, found: Mapping[str, str]) -> dict[str, object]:
    """Return what the page shows of a step, with the faults to be shown."""
    is_file = "connection" not in answers
    rows = _rows(answers, is_file) if step.name == "columns" else []
    fields = [_field(one, answers, found) for one in questions_of(step, answers)]
    more = [_field(one, answers, found) for one in _more(step, is_file)]
    folder = [_field(one, answers, found) for one in FOLDER] if _has_folder(step, answers) else []
    own = {one.name for one in (*fields, *more, *folder)} | _names_of(rows)
    own |= {"two", "airlock"} if step.name == "much" else set()
    own |= {"bids_files"} if folder else set()
    return {
        "answers": answers,
        "steps": STEPS,
        "step": step,
        "number": STEPS.index(step) + 1,
        "fields": fields,
        "more": more,
        "opens_more": any(field.fault for field in more),
        "earlier": answers.get(EARLIER, ""),
        "kept": kept_terms(answers),
        "airlock": airlock_of(answers),
        "folder": folder,
        "rows": rows,
        "columns": columns_of(answers),
        "types": COLUMN_TYPES,
        "reason": unit_reason(answers),
        "meaning": _meaning(answers, step),
        "carried": [(name, text) for name, text in answers.items() if name not in own and text],
    }


def _meaning(answers: Answers, step: Step) -> list[str]:
    if step.name == "who":
        return [one for one in [unit_meaning(answers)] if one]
    return budget_meaning(answers) if step.name == "much" else []


def _more(step: Step, is_file: bool) -> Sequence[Question]:
    """Return the rarer questions of a step; the format of a file only if there is one."""
    return [one for one in step.more if is_file or one not in FORMATS or one is NULLS]


def _has_folder(step: Step, answers: Answers) -> bool:
    return step.name == "columns" and bool(answers.get("bids"))


def _field(question: Question, answers: Answers, found: Mapping[str, str]) -> Field:
    name = question.name
    return Field(question, name, answers.get(name, ""), found.get(name, ""))


def _rows(answers: Answers, is_file: bool) -> list[ColumnRow]:
    return [
        ColumnRow(f"c{number}-", seen, _column_fields(answers, number, is_file))
        for number, seen in enumerate(column_previews(answers))
    ]


def _column_fields(answers: Answers, number: int, is_file: bool) -> tuple[Field, ...]:
    at = f"c{number}-"
    if is_unit(answers, number):
        return ()
    wanted = [q for q in OF_COLUMN if q.name != "point" or f"{at}point" in answers]
    wanted = [q for q in wanted if q.name != "format" or is_file]
    wanted = [q for q in wanted if q not in WORDS or answers.get(f"{at}type") == "boolean"]
    return tuple(Field(q, at + q.name, answers.get(at + q.name, "")) for q in wanted)


def _names_of(rows: Sequence[ColumnRow]) -> set[str]:
    found = {field.name for row in rows for field in row.fields}
    return found | {f"{row.at}name" for row in rows}
