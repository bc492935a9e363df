"""Read and write hierarchy rules as JSON, TOML and taxonomy CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from typing import Any

from sfumato.dp.anonymity.coded_table import is_number
from sfumato.dp.anonymity.generalization_hierarchy import ANYTHING
from sfumato.dp.anonymity.hierarchy_rules import (
    EVERYTHING,
    UNITS,
    Dates,
    Intervals,
    Prefixes,
    Rule,
    Taxonomy,
)
from sfumato.dp.refusal import Refused

Json = dict[str, Any]  # Any: any JSON value


def rule_json(rule: Rule) -> Json:
    """Convert the hierarchy rule of one column to a JSON object."""
    match rule:
        case Intervals(widths, start):
            return {"kind": "intervals", "widths": list(widths), "start": start}
        case Prefixes(keep):
            return {"kind": "prefixes", "keep": list(keep)}
        case Dates(units):
            return {"kind": "dates", "units": list(units)}
        case Taxonomy(groups):
            if rule == EVERYTHING:
                return {"kind": "all-or-nothing"}
            return {"kind": "taxonomy", "groups": {v: list(path) for v, path in groups.items()}}


def rules_toml(rules: Mapping[str, Rule]) -> str:
    """Return the hierarchy rules of several columns as TOML text, one section per column."""
    sections = []
    for name, rule in rules.items():
        shape = rule_json(rule)
        groups = shape.pop("groups", None)
        lines = [f"[{_text(name)}]", *(f"{key} = {_toml(value)}" for key, value in shape.items())]
        if groups is not None:
            lines.append(f"[{_text(name)}.groups]")
            lines += [f"{_text(value)} = {_toml(path)}" for value, path in groups.items()]
        sections.append("\n".join(lines))
    return "\n\n".join(sections) + "\n"


def read_rules(shape: Mapping[str, object]) -> dict[str, Rule]:
    """Read hierarchy rules, one per column, from a parsed TOML or JSON file.

    Invalid rules are refused.
    """
    return {name: read_rule(name, rule) for name, rule in shape.items()}


def read_rule(name: str, shape: object) -> Rule:
    """Read the hierarchy rule of one column from parsed TOML or JSON; refuse an invalid rule."""
    try:
        if isinstance(shape, Mapping):
            return _read(shape)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        pass
    raise Refused(
        "bad-request",
        f"The hierarchy of {name!r} cannot be read.",
        "Its kind must be intervals, prefixes, dates, taxonomy or all-or-nothing. `sfumato "
        "anonymity hierarchies TABLE` writes some to start from.",
        column=name,
    )


def read_taxonomy(text: str) -> Taxonomy:
    """Read a taxonomy from a CSV without header: value, its group, the group's group, and so on.

    This is also the format of other anonymisation tools: fields may be separated by `;`, and
    trailing `*` fields are dropped.
    """
    separator = ";" if text.count(";") > text.count(",") else ","
    groups: dict[str, tuple[str, ...]] = {}
    for line in _lines(text, separator):
        value, *path = (part.strip() for part in line)
        while path and path[-1] == ANYTHING:
            path.pop()
        if groups.setdefault(value, tuple(path)) != tuple(path):
            raise Refused(
                "bad-request",
                "The taxonomy has two different lines for the same value.",
                "Keep one of them.",
            )
    return Taxonomy(groups)


def _lines(text: str, separator: str) -> list[list[str]]:
    lines = None
    try:
        lines = [line for line in csv.reader(io.StringIO(text), delimiter=separator) if line]
    except csv.Error:
        lines = None
    if lines:
        return lines
    raise Refused(
        "bad-request", "The taxonomy cannot be read.", "Write a value and its groups on each line."
    )


def _read(shape: Mapping[str, Any]) -> Rule:
    match shape["kind"]:
        case "intervals":
            widths = tuple(_number(width) for width in _list(shape["widths"]))
            return Intervals(widths, _number(shape.get("start", 0)))
        case "prefixes":
            return Prefixes(tuple(_whole(count) for count in _list(shape["keep"])))
        case "dates":
            units = tuple(str(unit) for unit in _list(shape["units"]))
            if set(units) <= set(UNITS):
                return Dates(units)
        case "taxonomy":
            groups = shape["groups"].items()
            return Taxonomy({str(v): tuple(map(str, _list(path))) for v, path in groups})
        case "all-or-nothing":
            return EVERYTHING
    raise ValueError("no such kind")


def _list(value: object) -> list[Any]:
    if isinstance(value, list):
        return value
    raise TypeError("no list")


def _number(value: object) -> float:
    if is_number(value):  # type: ignore[arg-type]  # whatever JSON holds
        return float(value)  # type: ignore[arg-type]  # is_number said so
    raise TypeError("no number")


def _whole(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeError("no whole number")


def _toml(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return _text(value) if isinstance(value, str) else repr(value)


def _text(value: str) -> str:
    """Quote a TOML string; the escapes of JSON are valid in TOML."""
    return json.dumps(value, ensure_ascii=True)
