"""Clipping, noise and secure aggregation for an existing Flower fleet (docs/how-to/flower.md).

Flower needs an environment of its own. It is imported only when the mod or the strategy is used.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING

from sfumato.dp.refusal import Refused
from sfumato.features.federated.flower.fleet_node import join_fleet, new_site, spent_at
from sfumato.features.federated.flower.fleet_schedule import schedule

if TYPE_CHECKING:
    from sfumato.features.federated.flower.client_mod import secure_mod
    from sfumato.features.federated.flower.server_strategy import SecureAverage

_WHERE = {"SecureAverage": "server_strategy", "secure_mod": "client_mod"}
__all__ = ["SecureAverage", "join_fleet", "new_site", "schedule", "secure_mod", "spent_at"]


def __getattr__(name: str) -> object:
    """Import Flower only on first use; refuse with install instructions if it is missing."""
    if name not in _WHERE:
        raise AttributeError(
            f"module 'sfumato.features.federated.flower' has no attribute {name!r}"
        )
    if importlib.util.find_spec("flwr") is None:
        raise Refused(
            "not-installed",
            "Sums over Flower nodes need the package flwr, which is not installed.",
            "Install it in an environment of its own, as docs/how-to/flower.md shows.",
        )
    return getattr(
        importlib.import_module(f"sfumato.features.federated.flower.{_WHERE[name]}"), name
    )
