"""JSON schemas of requests and answers, for the OpenAPI document; services check the meaning."""

from __future__ import annotations

from typing import Final

Schema = dict[str, object]


def text(longest: int = 200, **more: object) -> Schema:
    """Return the schema of a string."""
    return {"type": "string", "maxLength": longest, **more}


def listed(items: Schema, **more: object) -> Schema:
    """Return the schema of an array."""
    return {"type": "array", "items": items, **more}


def shape(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """Return the schema of an object without further keys."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": sorted(required),
        "additionalProperties": False,
    }


def opened(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """Return the schema of an object that may have more keys in newer versions."""
    properties = {**required, **(optional or {})}
    return {"type": "object", "properties": properties, "required": sorted(required)}


def pairs(of: Schema) -> Schema:
    """Return the schema of an object whose keys are arbitrary names."""
    return {"type": "object", "additionalProperties": of}


NUMBER: Final[Schema] = {
    "anyOf": [{"type": "number"}, text(200, pattern="^[0-9]{1,90}/[1-9][0-9]{0,90}$")],
    "description": "A number; a fraction that is no decimal is written as a text, '1/3'.",
}
COUNT: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": 10**10}
FLAG: Final[Schema] = {"type": "boolean"}
ANY: Final[Schema] = {}
OBJECT: Final[Schema] = {"type": "object"}
BUDGET: Final = opened({"epsilon": {"type": "number"}, "delta": {"type": "number"}})
ACCOUNT: Final = opened({"cap": BUDGET, "spent": BUDGET, "left": BUDGET})

PRICE_TERMS: Final[dict[str, Schema]] = {
    "sql": text(16_384, description="The question in SQL; or give `question`."),
    "question": {**OBJECT, "description": "The question as a shape, as the client builds it."},
    "epsilon": {**NUMBER, "description": "The whole price of the whole request."},
    "error": {**pairs(NUMBER), "description": "Wanted instead: column -> +- at 95 %."},
    "delta": NUMBER,
    "people": COUNT,
    "max_groups": COUNT,
    "max_rows": COUNT,
    "top_up": text(100),
    "split": pairs(NUMBER),
    "fresh": FLAG,
}
ASK_TERMS: Final[dict[str, Schema]] = {
    **PRICE_TERMS,
    "op": text(100, description="Your id of this request: a retry with it pays once."),
}

ANSWER: Final = opened(
    {
        "columns": listed({"type": "string"}),
        "rows": listed({"type": "array"}),
        "std": listed({"type": "array"}),
        "interval": {
            **listed({"type": "array"}),
            "description": "Two ends at 95 %; null beside a key, or where open_intervals has it.",
        },
        "guarantee": {"type": "string"},
        "receipt": OBJECT,
    },
    {
        "open_intervals": {
            **listed(OBJECT),
            "description": "Those without an end: row and column from 0, low and high, null open.",
        },
    },
)
CARD: Final = opened({"name": text(), "version": text(), "people": text(), "columns": listed(ANY)})
PRICE: Final = opened(
    {"epsilon": {"type": "number"}, "error": OBJECT, "says": text(10_000), "fits": FLAG}
)
REFUSAL: Final = opened(
    {"refused": opened({"code": text(), "cause": text(10_000), "next": text(10_000)})}
)
TOKEN: Final = opened(
    {
        "id": text(),
        "kind": text(),
        "label": text(),
        "actions": listed(text()),
        "created": text(),
        "expires": text(),
    }
)
USER: Final = opened({"user": text(), "roles": listed(text()), "blocked": FLAG})
