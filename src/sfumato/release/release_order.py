"""Who asks, what is asked, what a release needs, and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sfumato.dp.json_values import Json
from sfumato.query.price import Priced
from sfumato.query.request import Request
from sfumato.release.ledger_guard import Ledger
from sfumato.release.locks.central_dp import Drawn
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
    """Who asks, and with whom they share a cap."""

    user: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Door:
    """What a release needs: the ledger to charge, the engine to read, the noise to add."""

    ledger: Ledger
    engine: Engine
    pool: NoisePool
    code: str = ""  # SHA-256 (hex) of the package that answers
    plans: PlanCache = field(default_factory=PlanCache)


@dataclass(frozen=True)
class Order:
    """A question at a price, on one version of one data set, by one asker, as one operation."""

    card: Card
    table: str
    request: Request
    asker: Asker
    op: str
    earlier: Callable[[str], Card | None]  # another version's card, for an answer given before
    fresh: bool = False
    may_still: Callable[[], None] = lambda: None  # refuses whoever may not ask any more


@dataclass(frozen=True)
class Release:
    """What may be seen: the answer as the asker named it, and its receipt."""

    answer: Json
    receipt: Json


@dataclass(frozen=True)
class Begun:
    """A question that is paid, and no row of it read; its answer may stand already."""

    order: Order
    priced: Priced
    noise: list[Drawn]
    charge: Charge
    outcome: Charged | OperationState
    is_look: bool = False  # a count that is read with others', in one pass over the rows
