"""The guarded door: the only way a number leaves."""

from sfumato.door.accounts import (
    cap_json,
    data_set_account,
    debtors,
    group_account,
    left_json,
    people_account,
    smallest_next,
    spent_json,
    user_account,
)
from sfumato.door.ledger import Ledger
from sfumato.door.pool import NoisePool
from sfumato.door.release import Asker, Door, Order, Release, release
from sfumato.door.top_up import priced_for, top_up_json

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
    "group_account",
    "left_json",
    "people_account",
    "priced_for",
    "release",
    "smallest_next",
    "spent_json",
    "top_up_json",
    "user_account",
]
