"""Convert the guided form of a data card to the card's JSON, which its owner signs.

A filled field becomes a key of the card, and an empty field becomes no key. The card's reader
validates the result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from sfumato.features.data_sets.amend_pages import averages_of
from sfumato.server.console.forms import Form

TYPES: Final = ("integer", "number", "text", "boolean", "date", "timestamp")
HIDDEN: Final = "hidden"
NUMERIC: Final = ("integer", "number")
FILE: Final = ("encoding", "decimal", "thousands")  # the card's keys for a file's format
MAX_COLUMNS: Final = 300
_LIST: Final = re.compile(r"[,\n]")


def card_of(form: Form) -> dict[str, object]:
    """Return the data card that the guided form describes, as JSON."""
    made: dict[str, object] = {
        "unit": form.raw("unit"),
        "people": form.text("people"),
        "version": form.text("version"),
        "budget": _budget(form, ""),
        "caps": _caps(form),
        "ask": {"who": words_of(form.text("who"))},
        "nulls": _nulls(form),
        "columns": dict(_columns(form)),
        "secure_average": averages_of(form),
    }
    made["bids"] = _folder(form)
    made |= {name: form.raw(name) if form.raw(name) == " " else form.text(name) for name in FILE}
    counts = {name: form.count(name) for name in ("size", "max_groups", "max_rows")}
    made |= {name: count for name, count in counts.items() if count is not None}
    # keep an empty unit so that it is refused later: without the key, the card would protect rows
    return {
        name: value for name, value in made.items() if value not in ("", None) or name == "unit"
    }


def _folder(form: Form) -> dict[str, object] | None:
    """Return the card's terms for a folder with files of each person; None for a table."""
    people = form.count("bids_people")
    if people is None:
        return None
    made: dict[str, object] = {"people": people, "files": words_of(form.text("bids_files"))}
    megabytes = form.count("bids_person_mb")
    return made if megabytes is None else {**made, "person_mb": megabytes}


def words_of(text: str) -> list[str]:
    """Split a text at commas and line ends, and return the words."""
    return [word.strip() for word in _LIST.split(text) if word.strip()]


def _nulls(form: Form) -> list[str]:
    """Return the form's missing-value markers; an empty cell is always one of them."""
    return ["", *words_of(form.text("nulls"))]


def _budget(form: Form, of: str) -> dict[str, object]:
    pairs = {name: form.number(f"{of}{name}") for name in ("epsilon", "delta")}
    return {name: value for name, value in pairs.items() if value is not None}


def _caps(form: Form) -> dict[str, object]:
    caps: dict[str, object] = {"raise": "two people"} if form.has("two") else {}
    for of in ("user", "group"):
        if budget := _budget(form, f"{of}_"):
            caps[of] = budget
    return caps


def _columns(form: Form) -> list[tuple[str, dict[str, object]]]:
    found = []
    for number in range(MAX_COLUMNS):
        name = form.raw(f"c{number}-name")
        if not name:
            break
        found.append((name, _column(form, f"c{number}-")))
    return found


def _column(form: Form, at: str) -> dict[str, object]:
    kind = form.text(f"{at}type")
    if kind == HIDDEN:
        return {"hidden": True}
    made: dict[str, object] = {"type": kind}
    for name in ("lower", "upper", "step"):
        if typed := form.text(at + name):
            made[name] = number_or_text(typed)
    if kind in ("date", "timestamp") and (written := form.text(f"{at}format")):
        made["format"] = written
    if keys := words_of(form.text(f"{at}keys")):
        made["keys"] = [number_or_text(key) for key in keys] if kind in NUMERIC else keys
    return made


def number_or_text(typed: str) -> Decimal | str:
    """Return a typed number as an exact decimal, and any other text (such as a date) unchanged."""
    try:
        read = Decimal(typed)
    except InvalidOperation:
        return typed
    return read if read.is_finite() else typed


def fields_of(proposed: Mapping[str, Any], form: Form) -> list[dict[str, str]]:
    """Return the form's values for each column of the card: what was typed, else the proposal."""
    columns: Mapping[str, Any] = proposed["card"]["columns"]  # Any: JSON of the wire
    return [_field(number, name, columns[name], form) for number, name in enumerate(columns)]


def _field(number: int, name: str, column: Mapping[str, Any], form: Form) -> dict[str, str]:
    at = f"c{number}-"
    kind = HIDDEN if column.get("hidden") else str(column.get("type", "text"))
    typed = {part: form.text(at + part) for part in ("lower", "upper", "step", "keys")}
    written = form.text(f"{at}format") or str(column.get("format", ""))
    kind = form.text(f"{at}type") or kind
    return {"at": at, "name": name, "type": kind, "format": written, **typed}


def file_of(proposed: Mapping[str, Any]) -> dict[str, str]:
    """Return the proposed file format: encoding, decimal mark and thousands separator.

    The marks come from the first column that has them.
    """
    card: Mapping[str, Any] = proposed["card"]  # Any: JSON of the wire
    columns = list(card["columns"].values())
    found = {name: next((c[name] for c in columns if name in c), "") for name in FILE}
    return {**found, "encoding": str(card.get("encoding", ""))}
