"""Read the data dictionary of a REDCap project: which columns a field has, and their card."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.features.data_sets.ready_made.ready_made_card import Terms

# the column titles of a dictionary, as the web page and as the API write them
TITLES: Final[Mapping[str, tuple[str, ...]]] = {
    "name": ("variable / field name", "field_name"),
    "form": ("form name", "form_name"),
    "kind": ("field type", "field_type"),
    "choices": (
        "choices, calculations, or slider labels",
        "choices or calculations",
        "select_choices_or_calculations",
    ),
    "validation": (
        "text validation type or show slider number",
        "text_validation_type_or_show_slider_number",
    ),
    "low": ("text validation min", "text_validation_min"),
    "high": ("text validation max", "text_validation_max"),
    "identifier": ("identifier?", "identifier"),
}
# missing data codes that REDCap proposes to a project
MISSING: Final = frozenset(
    {
        "NI", "INV", "UNK", "NASK", "ASKU", "NAV", "MSK", "NA", "NAVU", "NP", "QS", "QI", "TRC",
        "UNC", "DER", "PINF", "NINF", "OTH",
    }
)  # fmt: skip
_ORDERS: Final = {
    "ymd": (0, 1, 2),
    "dmy": (2, 1, 0),
    "mdy": (2, 0, 1),
}  # where year, month, day are
_LABEL: Final = 200
_INTEGER: Final = re.compile(r"-?(0|[1-9]\d{0,14})")
_NUMBER: Final = re.compile(r"number(_(\d)dp)?(_comma_decimal)?")
_FLAG: Final[Json] = {"type": "integer", "lower": 0, "upper": 1, "keys": [0, 1]}
Spell = Callable[[str], str]


@dataclass(frozen=True)
class Field:
    """One line of a data dictionary."""

    name: str
    form: str
    kind: str
    choices: str = ""
    validation: str = ""
    low: str = ""
    high: str = ""
    is_identifier: bool = False


@dataclass(frozen=True)
class Made:
    """One column for the vault: its card, the column of the records it is made of, and how."""

    name: str
    body: Json
    source: str
    spell: Spell = str
    comment: str = ""
    is_data: bool = True  # False for what is there although nobody filled in the form


def columns_of(one: Field, terms: Terms) -> tuple[list[Made], str]:
    """Return the columns of a field, or none and the reason why it is not taken."""
    if one.is_identifier:
        return [], "identifier"
    match one.kind:
        case "radio" | "dropdown":
            return _choices(one, terms), ""
        case "yesno" | "truefalse":
            spell = _code_of(
                {"0": "0", "1": "1"}, {"no": "0", "yes": "1", "false": "0", "true": "1"}
            )
            return [Made(one.name, _FLAG, one.name, spell)], ""
        case "checkbox":
            return list(_checkboxes(one, terms)), ""
        case "slider":
            low, high = _whole(one.low) or "0", _whole(one.high) or "100"
            body: Json = {"type": "integer", "lower": int(low), "upper": int(high)}
            return [Made(one.name, body, one.name, _number_of(is_comma=False))], ""
        case "calc":
            return [_number(one, "0.01")], ""
        case "text":
            return _text(one, terms)
        case "notes":
            return [], "free text"
        case kind:
            return [], kind or "no type"


def status_of(form: str) -> Made:
    """Return the column that says how far a form was filled in."""
    body: Json = {"type": "integer", "lower": 0, "upper": 2, "keys": [0, 1, 2]}
    name, labels = f"{form}_complete", {"incomplete": "0", "unverified": "1", "complete": "2"}
    spell = _code_of({code: code for code in "012"}, labels)
    comment = "0 = incomplete, 1 = unverified, 2 = complete"
    return Made(name, body, name, spell, comment, is_data=False)


def choices_of(text: str) -> dict[str, str]:
    """Parse `1, Male | 2, Female` into a mapping from code to label, without HTML."""
    found = {}
    for choice in text.split("|"):
        code, _, label = choice.partition(",")
        plain = " ".join(re.sub(r"<[^>]*>", " ", label).split())
        if code.strip():
            found[code.strip()] = plain[:_LABEL] or code.strip()
    return found


def _choices(one: Field, terms: Terms) -> list[Made]:
    """Return a column of codes, and one of labels if they say more."""
    choices = choices_of(one.choices)
    kept = {code: label for code, label in choices.items() if code not in terms.missing}
    if not kept:
        return []
    labels = _distinct(kept)
    by_label = {label.casefold(): code for code, label in labels.items()}
    code_of = _code_of({code: code for code in kept}, by_label)
    comment = ", ".join(f"{code} = {label}" for code, label in labels.items())
    made = [Made(one.name, _keyed(list(kept)), one.name, code_of, comment)]
    if any(code != label for code, label in labels.items()):
        body: Json = {"type": "text", "keys": list(labels.values())}
        made.append(
            Made(f"{one.name}_label", body, one.name, lambda cell: labels.get(code_of(cell), ""))
        )
    return made


def _distinct(choices: Mapping[str, str]) -> dict[str, str]:
    """Return labels that differ: two equal ones get their codes."""
    labels = [label.casefold() for label in choices.values()]
    return {
        code: label if labels.count(label.casefold()) == 1 else f"{label[: _LABEL - 20]} ({code})"
        for code, label in choices.items()
    }


def _keyed(codes: list[str]) -> Json:
    """Return the card of codes: whole numbers with bounds if all are, else texts."""
    if not all(_INTEGER.fullmatch(code) for code in codes):
        return {"type": "text", "keys": codes}
    numbers = [int(code) for code in codes]
    body: Json = {"type": "integer", "keys": numbers}
    if len(numbers) > 1:
        body |= {"lower": min(numbers), "upper": max(numbers)}
    return body


def _checkboxes(one: Field, terms: Terms) -> Iterator[Made]:
    for code, label in choices_of(one.choices).items():
        if code in terms.missing:
            continue
        name = f"{one.name}___{re.sub(r'[^a-z0-9_]', '_', code.casefold())}"
        spell = _code_of({"0": "0", "1": "1"}, {"unchecked": "0", "checked": "1"})
        yield Made(name, _FLAG, name, spell, label, is_data=False)


def _code_of(codes: Mapping[str, str], labels: Mapping[str, str]) -> Spell:
    """Return a function from a cell to its code; an export of labels is understood too."""

    def spell(cell: str) -> str:
        return codes.get(cell) or labels.get(cell.casefold(), "")

    return spell


# --- texts with a validation ----------------------------------------------------------------------


def _text(one: Field, terms: Terms) -> tuple[list[Made], str]:
    kind = one.validation
    if not kind:
        return [], "free text"
    if kind in ("integer", "int"):
        return [_number(one, "1")], ""
    found = _NUMBER.fullmatch(kind) or (kind == "float" and _NUMBER.fullmatch("number"))
    if found:
        places = int(found[2]) if found[2] else 2
        return [_number(one, str(Decimal(1).scaleb(-places)))], ""
    order = next((order for end, order in _ORDERS.items() if kind.endswith(f"_{end}")), None)
    if order is None or not kind.startswith("date"):
        return [], kind
    first, last = terms.years
    ends = {"lower": date(first, 1, 1), "upper": date(last, 12, 31), **_days(one, order)}
    body = {**terms.day(), **ends} if ends["lower"] < ends["upper"] else terms.day()
    if kind.startswith("datetime"):
        body["type"] = "timestamp"
    return [Made(one.name, body, one.name, _day_of(order, has_time="time" in kind))], ""


def _number(one: Field, step: str) -> Made:
    """Return a column of numbers; without both bounds in the dictionary, it has none."""
    is_comma = one.validation.endswith("_comma_decimal")
    spell = _number_of(is_comma=is_comma)
    low, high = _decimal(one.low, is_comma=is_comma), _decimal(one.high, is_comma=is_comma)
    unit = Decimal(step)
    kind = "integer" if unit == 1 else "number"
    body: Json = {"type": kind} if unit == 1 else {"type": kind, "step": unit}
    if low is not None and high is not None and low < high:
        finest = min(unit, *(Decimal(1).scaleb(_exponent(end)) for end in (low, high)))
        if finest != 1:
            body = {"type": "number", "step": finest}
        body |= {"lower": _plain(low), "upper": _plain(high)}
    return Made(one.name, body, one.name, spell)


def _exponent(number: Decimal) -> int:
    found = number.normalize().as_tuple().exponent
    return min(0, found) if isinstance(found, int) else 0


def _plain(number: Decimal) -> int | Decimal:
    return int(number) if number == number.to_integral_value() else number


def _decimal(text: str, *, is_comma: bool) -> Decimal | None:
    """Return a bound of the dictionary; None if it is missing, or another field."""
    try:
        number = Decimal(text.strip().replace(",", ".") if is_comma else text.strip())
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _whole(text: str) -> str | None:
    return text.strip() if _INTEGER.fullmatch(text.strip()) else None


def _number_of(*, is_comma: bool) -> Spell:
    def spell(cell: str) -> str:
        if cell in MISSING:
            return ""
        return cell.replace(",", ".") if is_comma else cell

    return spell


def _days(one: Field, order: tuple[int, int, int]) -> dict[str, date]:
    """Return the bounds of a date that the dictionary has, as days."""
    ends = {"lower": one.low, "upper": one.high}
    found = {end: _iso(text.strip().partition(" ")[0], order) for end, text in ends.items()}
    return {end: date.fromisoformat(day) for end, day in found.items() if day}


def _day_of(order: tuple[int, int, int], *, has_time: bool) -> Spell:
    """Return a function from a date to ISO 8601; raw exports have that, re-saved ones may not."""

    def spell(cell: str) -> str:
        if cell in MISSING:
            return ""
        day, _, rest = cell.replace("T", " ").partition(" ")
        iso = _iso(day, order)
        if not iso:
            return cell  # the vault counts it as a cell that cannot be read
        if not has_time:
            return iso
        return f"{iso} {rest if rest.count(':') else '00:00'}"

    return spell


def _iso(text: str, order: tuple[int, int, int]) -> str:
    """Return a day as ISO 8601; "" if the text is no day."""
    parts = re.split(r"[-/.]", text)
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
        return ""
    where = _ORDERS["ymd"] if len(parts[0]) == 4 else order
    year, month, day = (int(parts[place]) for place in where)
    if len(parts[where[0]]) != 4:
        return ""
    try:
        return date(year, month, day).isoformat()
    except ValueError:
        return ""
