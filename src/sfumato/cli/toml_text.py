"""Write values as TOML: a draft data card has the fields of JSON files as its owner reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Final

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def toml_key(name: str) -> str:
    """Return a key of a TOML table, in quotation marks if it needs them."""
    return name if _BARE.fullmatch(name) else quoted(name)


def quoted(text: str) -> str:
    """Return a text as a TOML string on one line."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_lines(text: str) -> str:
    """Return a text as a TOML string that shows its lines."""
    made = text.replace("\\", "\\\\").replace("\x7f", "\\u007f")
    made = re.sub(
        r'"(?="|\Z)', r'\\"', made
    )  # no two quotation marks side by side, none at the end
    return f'"""\n{made}"""'


def has_null(value: object) -> bool:
    """Say whether a JSON value has a null anywhere, which TOML does not have."""
    match value:
        case Mapping():
            return any(map(has_null, value.values()))
        case list():
            return any(map(has_null, value))
        case _:
            return value is None


def toml_value(value: object) -> str:
    """Return a JSON value without nulls, a day or an exact number as TOML, on one line."""
    match value:
        case Mapping():
            pairs = (f"{toml_key(name)} = {toml_value(inner)}" for name, inner in value.items())
            return "{ " + ", ".join(pairs) + " }" if value else "{}"
        case list():
            return "[" + ", ".join(map(toml_value, value)) + "]"
        case bool():
            return "true" if value else "false"
        case str():
            return quoted(value)
        case date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case _:
            return repr(value)
