"""The guarded door: the only way a number leaves."""

from sfumato.door.accounts import (
    cap_json,
    data_set_account,
    debtors,
    left_json,
    people_account,
    spent_json,
)
from sfumato.door.ledger import Ledger
from sfumato.door.pool import NoisePool
from sfumato.door.release import Asker, Door, Order, Release, release

__all__ = [
    "Asker",
    "Door",
    "Ledger",
    "NoisePool",
    "Order",
    "Release",
    "cap_json",
    "data_set_account",
    "debtors",
    "left_json",
    "people_account",
    "release",
    "spent_json",
]
