"""The verbs (API operations) of twins (synthetic data): make and price them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from sfumato.features.synthetic.schema import (
    DpTwinOrder,
    DpTwinPrice,
    DpTwinTerms,
    SchemaTwinRequest,
    Twin,
)
from sfumato.wire.query_json import Json
from sfumato.wire.verb import Verbs

if TYPE_CHECKING:
    from sfumato.features.synthetic.private_service import PrivateTwins
    from sfumato.features.synthetic.service import Twins
    from sfumato.vault.users import Caller

TWIN_VERBS: Final = Verbs()
_PAID: Final = (
    "bad-budget", "not-in-language", "twin-not-possible", "unknown-column", "unknown-data-set",
)  # fmt: skip


class Services(Protocol):
    """The interface of the services that the verbs of twins use."""

    @property
    def twins(self) -> Twins:
        """Return the service of schema twins (synthetic data from the card alone)."""
        ...

    @property
    def private_twins(self) -> PrivateTwins:
        """Return the service of DP twins (synthetic data from private counts)."""
        ...


@TWIN_VERBS.verb(
    "twin", "POST", "/v1/data-sets/{data_set}/twin", "read", SchemaTwinRequest, Twin,
    refusals=(
        "bad-sql", "keys-needed", "no-aggregate", "no-bounds", "noise-out-of-range",
        "not-in-language", "numbers-too-large", "question-too-large", "twin-not-possible",
        "type-mismatch", "unknown-column", "unknown-data-set",
    ),
)  # fmt: skip
def schema_twin(services: Services, caller: Caller, asked: SchemaTwinRequest) -> Json:
    """Make synthetic data from the data card alone; it is free, and no row is read."""
    return services.twins.schema(caller, asked)


@TWIN_VERBS.verb(
    "dp-twin-price", "POST", "/v1/data-sets/{data_set}/dp-twin/price", "read", DpTwinTerms,
    DpTwinPrice,
    refusals=_PAID,
)  # fmt: skip
def price_dp_twin(services: Services, caller: Caller, asked: DpTwinTerms) -> Json:
    """Return the price of a synthetic DP twin and what it would measure; nothing is spent."""
    return services.private_twins.price(caller, asked)


@TWIN_VERBS.verb(
    "dp-twin", "POST", "/v1/data-sets/{data_set}/dp-twin", "ask", DpTwinOrder, Twin,
    refusals=(
        *_PAID, "anchor-missing", "budget-exceeded", "ledger-frozen", "op-reused",
        "question-failed", "question-frozen", "data-set-frozen", "noise-out-of-range",
        "question-too-large",
    ),
    is_long=True,
)  # fmt: skip
def make_dp_twin(services: Services, caller: Caller, asked: DpTwinOrder) -> Json:
    """Make synthetic data (a DP twin) from privately measured marginals.

    Each measurement is charged before rows are read; a retry with the same op is free.
    """
    return services.private_twins.make(caller, asked)
