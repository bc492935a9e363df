"""Data types of the catalogue: data sets with their data cards, and grants to users; no rows."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.vault.card.data_card import Card


@dataclass(frozen=True)
class Listing:
    """A data set of the vault: its signed data card, its prepared table's path, and its owner."""

    card: Card
    table: str
    owner: str = "owner"


@dataclass(frozen=True)
class Opened:
    """A data set as one user sees it: the user's groups, and whether queries are blocked."""

    listing: Listing
    groups: tuple[str, ...]
    is_frozen: bool


@dataclass(frozen=True)
class Grant:
    """A user's membership in a group, for one data set."""

    data_set: str
    user: str
    group: str
    by: str
    at: str
