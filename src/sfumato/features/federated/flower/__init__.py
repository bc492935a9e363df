"""Our clipping, noise and masks in a fleet that runs Flower already (docs/flower.md).

Flower wants an environment of its own; nothing of it is imported before the mod or the strategy is.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING

from sfumato.core.refusal import Refused
from sfumato.federated.flower.node import join_fleet, new_site, spent_at
from sfumato.federated.flower.schedule import schedule

if TYPE_CHECKING:
    from sfumato.federated.flower.mod import secure_mod
    from sfumato.federated.flower.strategy import SecureAverage

_WHERE = {"SecureAverage": "strategy", "secure_mod": "mod"}
__all__ = ["SecureAverage", "join_fleet", "new_site", "schedule", "secure_mod", "spent_at"]


def __getattr__(name: str) -> object:
    """Bring in Flower only when it is used, and say so where it is not installed."""
    if name not in _WHERE:
        raise AttributeError(f"module 'sfumato.federated.flower' has no attribute {name!r}")
    if importlib.util.find_spec("flwr") is None:
        raise Refused(
            "not-installed",
            "A fleet of Flower's needs the package flwr.",
            "Install it in an environment of its own: docs/flower.md.",
        )
    return getattr(importlib.import_module(f"sfumato.federated.flower.{_WHERE[name]}"), name)
