"""One attack, one file. Each plays by an outsider's rules and says in plain words what it found."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from sfumato.core.refusal import Refused
from sfumato.lab.attack import Attack

# name -> the file of this folder that holds it as ATTACK; read when it is asked for
FILES: Final[Mapping[str, str]] = {
    "attribute": "attribute",
    "averaging": "averaging",
    "crowd": "crowd",
    "differencing": "differencing",
    "floats": "floats",
    "gradients": "gradients",
    "linkage": "linkage_report",
    "loo": "loo_report",
    "membership": "membership",
    "membership-models": "membership_models",
    "ratings": "ratings_report",
    "reconstruction": "reconstruction",
    "synthetic": "synthetic",
}


def attack(name: str) -> Attack:
    """Return the attack of that name, or refuse."""
    if name not in FILES:
        known = ", ".join(sorted(FILES))
        raise Refused("bad-request", f"There is no attack {name[:40]!r}.", f"There are: {known}.")
    found: Attack = import_module(f"{__name__}.{FILES[name]}").ATTACK
    return found


def attacks() -> tuple[Attack, ...]:
    """Return all of them."""
    return tuple(attack(name) for name in FILES)
