"""Parse refusals, numbers and data cards from JSON; services check their meaning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from sfumato.dp.refusal import CODES, Refused

Json = dict[str, object]
_RATIO = re.compile(r"([0-9]{1,90})/([1-9][0-9]{0,90})")


def refusal_shape(refused: Refused) -> Json:
    """Return a refusal as a JSON object: code, cause, next step and facts."""
    return {
        "refused": {
            "code": refused.code,
            "cause": refused.cause,
            "next": refused.next_step,
            **refused.facts,
        }
    }


def read_refusal(body: Mapping[str, object]) -> Refused | None:
    """Return the refusal that a reply contains, or None."""
    shape = body.get("refused")
    if not isinstance(shape, dict):
        return None
    facts = {str(k): v for k, v in shape.items() if k not in ("code", "cause", "next")}
    code = str(shape.get("code"))
    known = code if code in CODES else "not-in-language"
    return Refused(known, str(shape.get("cause")), str(shape.get("next")), **facts)


def read_number(value: object) -> object:
    """Return the exact fraction for a ratio such as "1/3". Return any other value unchanged."""
    ratio = _RATIO.fullmatch(value) if isinstance(value, str) else None
    return value if ratio is None else Fraction(int(ratio[1]), int(ratio[2]))


def read_card_shape(value: object) -> Json:
    """Parse a data card with exact fractions; the card reader checks its meaning."""
    if not isinstance(value, dict):
        raise malformed_query(
            "card is an object", "Give what its file says: `tomllib.loads(text)`."
        )
    return {str(key): _exact(part) if key in _EXACT else part for key, part in value.items()}


_EXACT = {"budget", "caps", "delta_per_request", "columns", "tables"}
# keys of a card whose texts are never parsed as ratios
_PLAIN = {"keys", "type", "unit", "key", "raise"}


def _exact(value: object) -> object:
    if isinstance(value, dict):
        return {key: part if key in _PLAIN else _exact(part) for key, part in value.items()}
    return read_number(value)


def malformed_query(what: str, instead: str = "See `/openapi.json` for what there is.") -> Refused:
    """Return the refusal of a malformed query or data card."""
    return Refused("not-in-language", f"The request is malformed: {what}.", instead)
