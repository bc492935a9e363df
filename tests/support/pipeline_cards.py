"""Data cards of small data sets for tests of programs."""

from __future__ import annotations

AGES = """
unit = "participant_id"
budget = { epsilon = 1 }
[columns.age]
type = "integer"
lower = 0
upper = 90
"""


def town_card(people: int, *, epsilon: int = 1000, delta: str = "0") -> str:
    """Return the card of a town whose people have a height, and whom researchers may ask about."""
    return f"""
unit = "who"
people = "town"
size = {people}
budget = {{ epsilon = {epsilon}, delta = {delta} }}
[ask]
who = ["researchers"]
[columns.height]
type = "number"
lower = 100
upper = 220
step = 0.5
"""
