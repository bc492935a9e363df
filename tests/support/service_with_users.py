"""A real service with somebody of every role, for tests that attack it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import sfumato
from support.served_vault import Service, served
from support.small_vaults import PATIENTS_CARD, card, write_patients

# Nobody has no token; the others are users by these names.
ROLES: Final = {
    "owner": ("owner", "operator"),
    "otto": ("operator",),
    "ada": ("researcher",),
    "vera": ("auditor",),
}
WIDE: Final = (  # caps that no test of ours reaches
    PATIENTS_CARD.replace("epsilon = 3.0, delta = 1e-6", "epsilon = 1000, delta = 0.01").replace(
        "user = { epsilon = 1.0 }", "user = { epsilon = 900 }"
    )
)


def peopled_vault(
    folder: Path, *, ledger: str | None = None, text: str = WIDE, source: Path | None = None
) -> Path:
    """Return a new vault whose patients ada may ask."""
    vault = folder / "vault"
    sfumato.create(vault, anchor=folder / "anchors" / "anchor", ledger=ledger)
    with sfumato.open(vault) as opened:
        opened.add("patients", source or write_patients(folder / "patients.csv"), card(text))
        opened.enrol("ada", "researchers")
    return vault


def invite_all(service: Service) -> None:
    """Let somebody of every role come in."""
    service.owner()
    for name, roles in ROLES.items():
        if name != "owner":
            service.user(name, *roles)


@contextmanager
def peopled(folder: Path, *options: str) -> Iterator[Service]:
    """Serve a new vault in which somebody of every role has come in."""
    with served(peopled_vault(folder), *options) as service:
        invite_all(service)
        yield service


def strays(service: Service) -> list[str]:
    """Return what the processes wrote that nobody meant to write."""
    known = ("sfumato serves ", "First owner: ", "{", "the door process ended", "the edge process")
    return [line for line in service.said if not line.startswith(known)]
