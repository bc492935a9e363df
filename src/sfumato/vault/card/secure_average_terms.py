"""What a card says of sums over sites without noise; a card that says nothing allows none."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.vault.card.field_readers import as_count, as_table, bad_card

GUARANTEE: Final = "secure-average (not DP)"
LEAST_SITES: Final = 3
MOST_RELEASES: Final = 1000
STOPPED: Final = "secure-average-stopped"  # the kind of a ledger entry: its shape waits
HIDES: Final = (
    "each site's own numbers, from the convener and from as many sites as may talk to it; nobody's "
    "part in the sum"
)


@dataclass(frozen=True)
class AverageTerms:
    """How many sums without noise these people's rows may be in, and over how many sites."""

    releases: int  # in all, of all data sets of the people
    sites: int = LEAST_SITES  # that a sum is over at least

    def as_json(self) -> Json:
        """Return it as it stands on the card."""
        return asdict(self)


def read_averages(shape: object) -> AverageTerms:
    """Return the terms that the owner wrote, or refuse: three sites are the fewest."""
    body = as_table(shape, "secure_average", {"releases", "sites"})
    terms = AverageTerms(
        as_count(body.get("releases"), "secure_average.releases"),
        as_count(body.get("sites", LEAST_SITES), "secure_average.sites"),
    )
    if terms.sites < LEAST_SITES or terms.releases > MOST_RELEASES:
        raise bad_card(
            f"secure_average.sites is {LEAST_SITES} or more, its releases {MOST_RELEASES} at most"
        )
    return terms


def not_without_noise(why: str) -> Refused:
    """Return the refusal of a sum that would leave without noise."""
    return Refused(
        "average-not-allowed",
        f"The sum does not leave without noise: {why}.",
        "Ask it with an epsilon, or ask the owners what their cards allow.",
    )
