"""What of a card may change while its rows stay as they were prepared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.vault.card.data_card import Card, read_card

# Neither is read when rows are prepared, but for the two bounds, which a question may change too.
FIELDS: Final = (
    "version", "who", "user_cap", "group_cap", "raised_by_two", "delta_per_request", "size",
    "max_groups", "max_rows", "averages", "description",
)  # fmt: skip


def amended(current: Card, shape: Json, changes: Mapping[str, object]) -> tuple[Card, Json]:
    """Return the card with the changes, and its shape; or refuse what needs its rows again.

    A key that is null is taken off the card.
    """
    merged = {**shape, **changes}
    made = {key: value for key, value in merged.items() if value is not None}
    card = read_card(current.name, made)
    same = replace(card, **{name: getattr(current, name) for name in FIELDS})
    if same != current:
        raise Refused(
            "bad-card",
            "Only a version's name, who may ask, caps, delta_per_request, size, max_groups, "
            "max_rows and secure_average can be amended: the rows were prepared by all the rest.",
            "Upload the rows again and add them as a new version of the data set.",
        )
    return card, made


def check_in_force(card: Card, version: str | None) -> None:
    """Refuse to amend another version than the one that was looked at."""
    if version is not None and version != card.version:
        raise Refused(
            "data-set-exists",
            f"Version {card.version!r} of the card is in force by now, not {version!r}.",
            "Look at it, and amend it anew.",
        )
