"""The data card's terms for sums over sites without noise (`secure_average`).

A card without these terms allows no such sums.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.vault.card.field_readers import as_count, as_table, bad_card

GUARANTEE: Final = "secure-average (not DP)"
MIN_SITES: Final = 3
MAX_RELEASES: Final = 1000
STOPPED: Final = "secure-average-stopped"  # kind of ledger entry: the question shape is blocked
HIDES: Final = (
    "each site's own numbers, from the convener and from as many sites as may talk to it; nobody's "
    "part in the sum"
)


@dataclass(frozen=True)
class AverageTerms:
    """Limits of sums without noise over these people's rows: most sums, and fewest sites."""

    releases: int  # in total, over all data sets of the people
    sites: int = MIN_SITES  # fewest sites of a sum

    def as_json(self) -> Json:
        """Return the terms of sums without noise as JSON, with the keys of the data card."""
        return asdict(self)


def read_averages(shape: object) -> AverageTerms:
    """Read the terms of sums without noise from a data card; refuse fewer than three sites."""
    body = as_table(shape, "secure_average", {"releases", "sites"})
    terms = AverageTerms(
        as_count(body.get("releases"), "secure_average.releases"),
        as_count(body.get("sites", MIN_SITES), "secure_average.sites"),
    )
    if terms.sites < MIN_SITES or terms.releases > MAX_RELEASES:
        raise bad_card(
            f"secure_average.sites must be {MIN_SITES} or more, and its releases "
            f"{MAX_RELEASES} at most"
        )
    return terms


def not_without_noise(why: str) -> Refused:
    """Return the refusal to release a sum over sites without noise, for this reason."""
    return Refused(
        "average-not-allowed",
        f"The sum cannot leave without noise: {why}.",
        "Ask for it with an epsilon, or ask the owners what their cards allow.",
    )
