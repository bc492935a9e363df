"""Data classes of a release: the asker, the order, its context, and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sfumato.dp.json_values import Json
from sfumato.query.price import Priced
from sfumato.query.request import Request
from sfumato.release.guarantees.central_dp import NoiseOrMechanism
from sfumato.release.ledger_guard import Ledger
from sfumato.release.noise_pool import NoisePool
from sfumato.release.plan_cache import PlanCache
from sfumato.vault.card.data_card import Card
from sfumato.vault.engine_port import Engine
from sfumato.vault.ledger_entries import (
    Charge,
    Charged,
    OperationState,
)


@dataclass(frozen=True)
class Asker:
    """The user who asks, and the groups whose caps the user shares."""

    user: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReleaseContext:
    """What every release needs: a ledger to charge, an engine that reads rows, and a noise pool."""

    ledger: Ledger
    engine: Engine
    pool: NoisePool
    code: str = ""  # SHA-256 (hex) of the installed package, for the ledger
    plans: PlanCache = field(default_factory=PlanCache)


@dataclass(frozen=True)
class Order:
    """One request to release: a question at a price, by one asker, on one version of a data set."""

    card: Card
    table: str
    request: Request
    asker: Asker
    op: str
    # returns the card of another version, for a stored answer
    card_of_version: Callable[[str], Card | None]
    fresh: bool = False
    # refuses if the asker has lost the right to ask
    check_access: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Release:
    """A released answer, with the asker's column names, and its receipt."""

    answer: Json
    receipt: Json

    def as_json(self) -> Json:
        """Return the answer with its receipt, as the API replies."""
        return {**self.answer, "receipt": self.receipt}


@dataclass(frozen=True)
class PaidOrder:
    """A paid question whose rows are not read yet; the ledger may already have its answer."""

    order: Order
    priced: Priced
    noise: list[NoiseOrMechanism]
    charge: Charge
    outcome: Charged | OperationState
    is_batchable: bool = False  # whether it is a count that can share one scan of the rows
