"""Parse questions, refusals, numbers and cards from JSON; services check their meaning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from sfumato.dp.refusal import CODES, Refused

Json = dict[str, object]
_RATIO = re.compile(r"([0-9]{1,90})/([1-9][0-9]{0,90})")
_ASK = {
    "data_set", "sql", "question", "epsilon", "error", "delta", "people", "max_groups", "max_rows",
    "op", "fresh", "top_up", "split",
}  # fmt: skip


@dataclass(frozen=True)
class AskShape:
    """A parsed ask or price request; numbers are unconverted, to be read exactly."""

    data_set: str
    sql: str | None
    question: object
    epsilon: object
    error: Mapping[str, object] | None
    delta: object
    people: int | None
    max_groups: int | None
    max_rows: int | None
    op: str | None
    fresh: bool
    top_up: str | None
    split: Mapping[str, object] | None


def read_ask_shape(body: Mapping[str, object]) -> AskShape:
    """Parse an ask or price request, or refuse it."""
    unknown = sorted(set(body) - _ASK)
    if unknown:
        raise _malformed(f"{unknown[0]!r} is not known")
    data_set, sql = _text(body, "data_set"), _text(body, "sql")
    if data_set is None or (sql is None) == (body.get("question") is None):
        raise _malformed("a data set and one of sql and question are needed")
    fresh = body.get("fresh", False)
    error, split = _numbers(body, "error"), _numbers(body, "split")
    if not isinstance(fresh, bool):
        raise _malformed("fresh is true or false")
    return AskShape(
        data_set=data_set,
        sql=sql,
        question=body.get("question"),
        epsilon=read_number(body.get("epsilon")),
        error=error,
        delta=read_number(body.get("delta")),
        people=_count(body, "people"),
        max_groups=_count(body, "max_groups"),
        max_rows=_count(body, "max_rows"),
        op=_text(body, "op"),
        fresh=fresh,
        top_up=_text(body, "top_up"),
        split=split,
    )


def refusal_shape(refused: Refused) -> Json:
    """Return a refusal as JSON: code, cause, next step and facts."""
    return {
        "refused": {
            "code": refused.code,
            "cause": refused.cause,
            "next": refused.next_step,
            **refused.facts,
        }
    }


def read_refusal(body: Mapping[str, object]) -> Refused | None:
    """Return the refusal in a reply, or None."""
    shape = body.get("refused")
    if not isinstance(shape, dict):
        return None
    facts = {str(k): v for k, v in shape.items() if k not in ("code", "cause", "next")}
    code = str(shape.get("code"))
    known = code if code in CODES else "not-in-language"
    return Refused(known, str(shape.get("cause")), str(shape.get("next")), **facts)


def _text(body: Mapping[str, object], key: str) -> str | None:
    value = body.get(key)
    if value is not None and not isinstance(value, str):
        raise _malformed(f"{key} is a text")
    return value


def read_number(value: object) -> object:
    """Convert a ratio such as "1/3" to a fraction; return other values unchanged."""
    ratio = _RATIO.fullmatch(value) if isinstance(value, str) else None
    return value if ratio is None else Fraction(int(ratio[1]), int(ratio[2]))


def _numbers(body: Mapping[str, object], key: str) -> Mapping[str, object] | None:
    pairs = body.get(key)
    if not isinstance(pairs, dict | None):
        raise _malformed(f"{key} is an object")
    return None if pairs is None else {name: read_number(value) for name, value in pairs.items()}


_MOST: Final = 10**10  # people, groups or rows


def _count(body: Mapping[str, object], key: str) -> int | None:
    value = body.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
        raise _malformed(f"{key} is a whole number from 1 to {_MOST:,}", f"Say {key} so.")
    return value


def read_card_shape(value: object) -> Json:
    """Parse a card with exact fractions; the card reader checks its meaning."""
    if not isinstance(value, dict):
        raise _malformed("card is an object", "Give what its file says: `tomllib.loads(text)`.")
    return {str(key): _exact(part) if key in _EXACT else part for key, part in value.items()}


_EXACT = {"budget", "caps", "delta_per_request", "columns", "tables"}
_PLAIN = {"keys", "type", "unit", "key", "raise"}  # their texts are never parsed as ratios


def _exact(value: object) -> object:
    if isinstance(value, dict):
        return {key: part if key in _PLAIN else _exact(part) for key, part in value.items()}
    return read_number(value)


def _malformed(what: str, instead: str = "See `/openapi.json` for what there is.") -> Refused:
    return Refused("not-in-language", f"The request is malformed: {what}.", instead)
