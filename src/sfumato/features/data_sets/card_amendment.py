"""Amend a data card without preparing its rows again: which fields may change, and checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.vault.card.data_card import Card, read_card

# None of these is used to prepare rows, except the contribution bounds max_groups and max_rows,
# which a query may change too.
FIELDS: Final = (
    "version", "who", "user_cap", "group_cap", "raised_by_two", "delta_per_request", "size",
    "max_groups", "max_rows", "averages", "description", "metadata",
    "appended",
)  # fmt: skip


def amended(current: Card, shape: Json, changes: Mapping[str, object]) -> tuple[Card, Json]:
    """Return the amended data card and its JSON.

    Refuse a change of any field by which the rows were prepared. A change to null removes the key
    from the card.
    """
    merged = {**shape, **changes}
    made = {key: value for key, value in merged.items() if value is not None}
    card = read_card(current.name, made)
    same = replace(card, **{name: getattr(current, name) for name in FIELDS})
    if same != current:
        raise Refused(
            "bad-card",
            "Only the version, [ask] who, caps, delta_per_request, size, max_groups, max_rows, "
            "secure_average, and the description, texts and sidecars under [bids] of a data card "
            "can be amended. The rows were prepared with its other values.",
            "Upload the rows again and add them as a new version of the data set.",
        )
    return card, made


def check_in_force(card: Card, version: str | None) -> None:
    """Refuse to amend a data card if its current version is not the one that the caller saw."""
    if version is not None and version != card.version:
        raise Refused(
            "data-set-exists",
            f"The data card was amended meanwhile: its version is now {card.version!r}, not "
            f"{version!r}.",
            "Look at the current card, and repeat your change on it.",
        )
