"""Data sets as the catalogue lists them, and who was let ask them; no rows."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.vault.card.data_card import Card


@dataclass(frozen=True)
class Listing:
    """A data set of the vault: its signed card, where its prepared table lies, whose it is."""

    card: Card
    table: str
    owner: str = "owner"


@dataclass(frozen=True)
class Opened:
    """A data set as one user finds it: their groups there, and whether it is asked nothing."""

    listing: Listing
    groups: tuple[str, ...]
    is_frozen: bool


@dataclass(frozen=True)
class Grant:
    """A user was put into a group for one data set."""

    data_set: str
    user: str
    group: str
    by: str
    at: str
