"""Validate the replies of untrusted sites, and take the majority of the valid replies."""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final, cast

from sfumato.dp.refusal import Refused
from sfumato.dp.secure_aggregation.round_terms import MAX_BITS, MAX_SIZE, MIN_BITS
from sfumato.vault.card.secure_average_terms import GUARANTEE

Json = dict[str, Any]  # Any: JSON
DEEPEST: Final = 300  # the most levels of objects and lists in a reply; no query is so deep


def majority_reply(said: Mapping[str, Json], one: str) -> Json:
    """Return, key by key, the value that most replies have; ties go to the reply of site `one`.

    So one lying site cannot change a value on which two or more other sites agree.
    """
    found: Json = {}
    for word in sorted({str(word) for words in said.values() for word in words}):
        told = {n: _told(w, word) for n, w in said.items()}
        counts = Counter(told.values())
        chosen = max(said, key=lambda name: (counts[told[name]], name == one))
        if word in said[chosen]:
            found[word] = said[chosen][word]
    return found


def _told(words: Json, word: str) -> str:
    """Return a key's value in a reply as JSON text, so that replies can be compared.

    The text is empty if the key is missing.
    """
    return json.dumps(words[word], sort_keys=True, default=str) if word in words else ""


def is_reply(said: object) -> bool:
    """Return True if a site's reply is a JSON object that is not nested too deeply."""
    level: list[object] = [said]
    for _ in range(DEEPEST):
        level = [part for one in level for part in _parts(one)]
    return isinstance(said, dict) and not level


def _parts(one: object) -> Iterable[object]:
    match one:
        case dict():
            return one.values()
        case list() | tuple():
            return one
    return ()


def is_price(said: Json) -> bool:
    """Return True if an untrusted site's reply has all fields of a price, within their limits."""
    return (
        _is_within(said.get("bits"), MIN_BITS, MAX_BITS)
        and _is_within(said.get("size"), 1, MAX_SIZE)
        and isinstance(said.get("about"), str)
        and isinstance(said.get("fits"), bool)
        and _is_left(said.get("left"))
    )


def _is_within(said: object, least: int, most: int) -> bool:
    return type(said) is int and least <= said <= most


def is_budget(said: Json) -> bool:
    """Return True if a reply has the account fields that `Convener.budget` reads."""
    spent = said.get("spent")
    return (
        isinstance(spent, dict)
        and is_number(spent.get("epsilon"))
        and isinstance(said.get("yours"), dict)
        and {"cap", "left", "people"} <= said.keys()
    )


def is_answer(said: Json) -> bool:
    """Return True if a site's reply to `show-sum` has a receipt."""
    return isinstance(said.get("receipt"), dict)


def is_receipt(said: object, guarantee: object) -> bool:
    """Return True if an untrusted site's receipt has the fields that an answer shows.

    A receipt of a sum with noise must have an epsilon.
    """
    if not isinstance(said, dict) or not _is_left(said.get("left")):
        return False
    return guarantee == GUARANTEE or is_number(said.get("epsilon"))


def _is_left(said: object) -> bool:
    return isinstance(said, dict) and is_number(said.get("next_epsilon"))


def is_number(said: object) -> bool:
    """Return True for a finite number that fits a float, in an untrusted reply."""
    if isinstance(said, bool) or not isinstance(said, int | float | Decimal):
        return False
    with contextlib.suppress(OverflowError):
        return math.isfinite(cast("float", said))
    return False


def malformed() -> Refused:
    """Return the refusal of a site's reply that does not follow the secure-sum protocol."""
    return Refused(
        "sum-message-refused",
        "The site's reply does not follow this protocol.",
        "Ask the site's owner whether it runs sfumato, and which version.",
    )
