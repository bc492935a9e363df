"""Load the lab's attacks by name: one file per attack, run with an outsider's knowledge."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.lab.attack import Attack

# name -> the module of this folder whose ATTACK it is; imported on demand
FILES: Final[Mapping[str, str]] = {
    "attribute": "attribute_inference",
    "averaging": "averaging",
    "crowd": "k_anonymity",
    "differencing": "differencing",
    "floats": "floating_point",
    "gradients": "gradient_inversion",
    "linkage": "linkage_report",
    "loo": "leave_one_out_report",
    "membership": "membership_in_counts",
    "membership-models": "membership_in_models",
    "ratings": "rating_linkage_report",
    "reconstruction": "reconstruction",
    "synthetic": "synthetic_rows_report",
}


def attack(name: str) -> Attack:
    """Load the lab's attack of that name; refuse an unknown name."""
    if name not in FILES:
        known = ", ".join(sorted(FILES))
        raise Refused(
            "bad-request", f"The lab has no attack {name[:40]!r}.", f"Its attacks are: {known}."
        )
    found: Attack = import_module(f"{__name__}.{FILES[name]}").ATTACK
    return found


def attacks() -> tuple[Attack, ...]:
    """Load all attacks of the lab."""
    return tuple(attack(name) for name in FILES)
