"""The data card's airlock terms: reviewers and limits of output checking.

A card without these terms lets no file out without noise.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.vault.card.field_readers import as_count, as_table, as_texts, bad_card

MIN_NEEDED: Final = 2
MAX_DAYS: Final = 365
_KEYS: Final = {"reviewers", "needed", "smallest", "digits", "round_to", "dominance", "days"}


@dataclass(frozen=True)
class AirlockTerms:
    """Reviewers of files that leave without noise, and limits of the automatic output checks."""

    reviewers: tuple[str, ...]  # users who review, besides the owner
    needed: int = MIN_NEEDED
    smallest: int = 10  # fewest people in a group that may be shown
    digits: int = 4  # most digits of a number
    round_to: int = 5  # counts of people are multiples of this
    dominance: int = 90  # largest share of a sum, in percent, that two people together may have
    days: int = 30  # days for which a request stays open

    def as_json(self) -> Json:
        """Return the airlock terms as JSON, with the keys of the data card."""
        return {**asdict(self), "reviewers": list(self.reviewers)}


def read_airlock(shape: object) -> AirlockTerms:
    """Read the airlock terms of a data card; refuse a card that needs fewer than two reviewers."""
    body = as_table(shape, "airlock", _KEYS)
    reviewers = as_texts(body.get("reviewers", []), "airlock.reviewers")
    if not all(0 < len(name) <= 100 and name.isprintable() for name in reviewers):
        raise bad_card("airlock.reviewers must be names of users")
    if len({name.strip().casefold() for name in reviewers}) < len(reviewers):
        raise bad_card(
            "airlock.reviewers must be different people, each with the full name of a user"
        )
    numbers = {
        key: as_count(body[key], f"airlock.{key}")
        for key in sorted(_KEYS & set(body))
        if key != "reviewers"
    }
    terms = AirlockTerms(reviewers, **numbers)
    if terms.needed < MIN_NEEDED:
        raise bad_card(f"airlock.needed must be {MIN_NEEDED} or more")
    if len(terms.reviewers) + 1 < terms.needed:
        raise bad_card("airlock.reviewers and the owner are fewer than airlock.needed")
    if terms.smallest < 3 or terms.digits > 15 or terms.dominance >= 100 or terms.days > MAX_DAYS:
        raise bad_card(
            "airlock.smallest must be 3 or more, digits at most 15, dominance at most 99"
        )
    return terms
