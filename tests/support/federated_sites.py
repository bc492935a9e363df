"""Several sites for tests: vaults of one card each, on rows that the test can pool itself."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato import Refused
from sfumato.app.federation import FederatedVault, new_convener
from sfumato.app.vault import OpenVault
from sfumato.features.federated.agreement import Agreement, read_agreement
from support.small_vaults import card, make_vault, write_csv

NAMES = ("east", "north", "south", "west")
ASK: Mapping[str, Any] = {"epsilon": 1, "delta": 1e-6}
CARD = """
unit = "patient_id"
people = "patients-of-{name}"
budget = { epsilon = 900.0, delta = 1e-2 }
{more}
[ask]
who = ["researchers"]
[columns.age]
type = "integer"
lower = 0
upper = 110
[columns.zip]
type = "text"
keys = ["10001", "10002"]
[columns.salary]
type = "number"
lower = 0
upper = 200000
step = 1
[columns.ill]
type = "boolean"
"""
Rows = list[tuple[str, int, str, int, str]]


def rows_of(place: int) -> Rows:
    """The patients of one site: id, age, zip, salary, and whether they are ill."""
    return [_row(place, n) for n in range(60 + 40 * place)]


def _row(place: int, n: int) -> tuple[str, int, str, int, str]:
    age = 20 + (7 * n + place) % 60
    odds = 1 / (1 + math.exp((50 - age) / 10))
    ill = (613 * n + 31 * place) % 1000 < 1000 * odds
    zip_ = ("10001", "10002")[n % 3 == 0]
    return f"s{place}p{n:04d}", age, zip_, 20_000 + 97 * n + 500 * place, str(ill).lower()


def pooled() -> Rows:
    """The patients of all sites."""
    return [row for place in range(len(NAMES)) for row in rows_of(place)]


def site_card(name: str, more: str = "", **changed: str) -> dict[str, Any]:
    """The card of a site; `changed` replaces words of it."""
    text = CARD.replace("{name}", name).replace("{more}", more)
    for before, after in changed.items():
        text = text.replace(before, after)
    return card(text)


def write_rows(path: Path, rows: Rows) -> Path:
    return write_csv(path, ("patient_id", "age", "zip", "salary", "ill"), rows)


@dataclass
class Sites:
    """Vaults in this process, their agreement, and the convener's key."""

    folder: Path
    vaults: dict[str, OpenVault]
    agreement: dict[str, Any]
    heard: list[Any] = field(default_factory=list)

    @property
    def terms(self) -> Agreement:
        return read_agreement(self.agreement)

    def together(self, ways: Mapping[str, Any] | None = None) -> FederatedVault:
        """The sites as one; `ways` stand in the place of vaults."""
        return sfumato.federation(
            self.agreement,
            key=self.folder / "convener.key",
            sites={**self.vaults, **(ways or {})},
            heard=self.heard.append,
        )

    def spent(self) -> dict[str, float]:
        return self.together().spent("patients")

    def again(self, name: str) -> OpenVault:
        """The site, closed and opened anew, as after a restart."""
        self.vaults[name].close()
        self.vaults[name] = sfumato.open(self.folder / name / "vault")
        return self.vaults[name]


@contextmanager
def several(
    folder: Path,
    *,
    floor: int = 3,
    colluders: int = 1,
    cards: Mapping[str, Mapping[str, Any]] | None = None,
    names: Sequence[str] = NAMES,
    **more: Any,
) -> Iterator[Sites]:
    """Four sites, or others by name, that have agreed, until the block ends."""
    vaults: dict[str, OpenVault] = {}
    sites = Sites(folder, vaults, {})
    try:
        for place, name in enumerate(names):
            (folder / name).mkdir()
            vaults[name] = sfumato.open(make_vault(folder / name))
            source = write_rows(folder / name / "patients.csv", rows_of(place))
            vaults[name].add("patients", source, dict((cards or {}).get(name, site_card(name))))
        sites.agreement |= {
            "name": "clinics",
            "convener": new_convener(folder / "convener.key"),
            "sites": {name: vault.call("site-key", {})["key"] for name, vault in vaults.items()},
            "floor": floor,
            "colluders": colluders,
            **more,
        }
        for vault in vaults.values():
            vault.call("join-federation", {"data_set": "patients", **sites.agreement})
        yield sites
    finally:
        with ExitStack() as held:
            for vault in vaults.values():
                held.callback(vault.close)


@dataclass
class Between:
    """The way to one site, on which a test may listen, change what is said, or cut the line."""

    vault: Any  # whatever answers verbs
    sent: list[tuple[str, dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    change: Callable[[str, dict[str, Any]], dict[str, Any]] = lambda _verb, reply: reply

    def call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        reply = self.change(verb, self.vault.call(verb, body))
        self.sent.append((verb, dict(body), reply))
        return reply

    def of(
        self, verb: str, stage: str | None = None
    ) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """What was asked and answered by that verb, at that stage."""
        return [
            (body, reply)
            for said, body, reply in self.sent
            if said == verb and stage in (None, body.get("stage"))
        ]


def read_rows(path: Path) -> Sequence[Mapping[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def refused(code: str) -> Any:
    """A block in which that refusal is raised."""
    return pytest.raises(Refused, match=f"^{code}:")
