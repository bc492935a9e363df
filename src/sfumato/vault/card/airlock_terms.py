"""What a card says of the airlock; a card that says nothing has none."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.vault.card.field_readers import as_count, as_table, as_texts, bad_card

LEAST_NEEDED: Final = 2
MOST_DAYS: Final = 365
_KEYS: Final = {"reviewers", "needed", "smallest", "digits", "round_to", "dominance", "days"}


@dataclass(frozen=True)
class AirlockTerms:
    """Who may look at what is to leave without noise, and what the checks look for."""

    reviewers: tuple[str, ...]  # besides the owner
    needed: int = LEAST_NEEDED
    smallest: int = 10  # people in a group that may be shown
    digits: int = 4  # that a number may have
    round_to: int = 5  # what counts of people are multiples of
    dominance: int = 90  # percent of a sum that two people may be at most
    days: int = 30  # that a request stays open

    def as_json(self) -> Json:
        """Return it as it stands on the card."""
        return {**asdict(self), "reviewers": list(self.reviewers)}


def read_airlock(shape: object) -> AirlockTerms:
    """Return the terms that the owner wrote, or refuse: two reviewers are the fewest."""
    body = as_table(shape, "airlock", _KEYS)
    reviewers = as_texts(body.get("reviewers", []), "airlock.reviewers")
    if not all(0 < len(name) <= 100 and name.isprintable() for name in reviewers):
        raise bad_card("airlock.reviewers are names of users")
    if len({name.strip().casefold() for name in reviewers}) < len(reviewers):
        raise bad_card("airlock.reviewers are different people, and their names read so")
    numbers = {
        key: as_count(body[key], f"airlock.{key}")
        for key in sorted(_KEYS & set(body))
        if key != "reviewers"
    }
    terms = AirlockTerms(reviewers, **numbers)
    if terms.needed < LEAST_NEEDED:
        raise bad_card(f"airlock.needed is {LEAST_NEEDED} or more")
    if len(terms.reviewers) + 1 < terms.needed:
        raise bad_card("airlock.reviewers are, with the owner, fewer than are needed")
    if terms.smallest < 3 or terms.digits > 15 or terms.dominance >= 100 or terms.days > MOST_DAYS:
        raise bad_card(
            "an airlock's smallest is 3 or more, its digits 15, its dominance 99 at most"
        )
    return terms
