"""Workers for tests: in this process, and at a real site that `sfumato site` serves over TLS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sfumato
from support.served_vault import Service, sited
from support.small_vaults import card, make_vault, write_csv
from support.tls_certificates import write_certificate

if TYPE_CHECKING:
    from sfumato.app.vault import OpenVault
    from sfumato.features.federated.tensors.site_client import Site
    from sfumato.features.federated.tensors.worker import Worker

Make = Callable[[str], "Worker"]
AGES = ((41.0, 7.0), (58.0, 3.0))
CARD = """
unit = "person"
budget = { epsilon = 100.0, delta = 1e-4 }
limits = { rows = 2 }
[ask]
who = ["researchers"]
[columns.age]
type = "integer"
lower = 0
upper = 100
[columns.sons]
type = "integer"
lower = 0
upper = 10
[columns.town]
type = "text"
keys = ["here", "there"]
"""


@dataclass
class RealSite:
    """A site that is served, and workers there, each with a token of its own."""

    service: Service
    workers: list[Site] = field(default_factory=list)

    def token(self, user: str) -> str:
        """Return a further token of the user's."""
        token = self.service.tokens[user]
        made = self.service.call("POST", "/v1/tokens", {"label": "tensors"}, token=token)[1]
        return str(made["token"])

    def fresh(self) -> Make:
        """Return what gives the workers in turn, emptied."""
        given = iter(self.workers)

        def make(name: str) -> Worker:
            worker = next(given)
            worker.id = name
            return worker.clear_objects()

        return make


def write_ages(folder: Path) -> tuple[Path, Path]:
    """Write the rows of the site's one data set, and its card."""
    rows = [(f"p{n}", int(age), int(sons), "here") for n, (age, sons) in enumerate(AGES)]
    card = folder / "ages.toml"
    card.write_text(CARD)
    return write_csv(folder / "ages.csv", ("person", "age", "sons", "town"), rows), card


@contextmanager
def make_plain_vault(folder: Path) -> Iterator[OpenVault]:
    """Open a vault with the same rows that is no site."""
    rows, card_file = write_ages(folder)
    with sfumato.open(make_vault(folder)) as vault:
        vault.add("ages", rows, card(card_file.read_text()))
        yield vault


@contextmanager
def real_site(folder: Path, workers: int = 3, *options: str) -> Iterator[RealSite]:
    """Serve a vault as a site, with researchers who have tokens there, until the block ends."""
    from sfumato.features.federated import Site

    kept, secret = write_certificate(folder / "tls")
    rows, card_file = write_ages(folder)
    vault = make_vault(folder)
    how = ("--data", f"ages={rows}", "--card", str(card_file), "--quantum", "0", *options)
    with ExitStack() as held:
        held.enter_context(pytest.MonkeyPatch.context()).setenv("SSL_CERT_FILE", str(kept))
        tls = ("--tls-cert", str(kept), "--tls-key", str(secret))
        site = RealSite(held.enter_context(sited(vault, *how, *tls)))
        for user in ("ada", "eve"):
            site.service.user(user, "researcher")
            grant = {"group": "researchers"}
            path = f"/v1/data-sets/ages/grants/{user}"
            assert site.service.call("PUT", path, grant, token=site.service.owner())[0] == 200
        for place in range(workers):
            token = site.token(("ada", "eve")[place % 2])
            site.workers.append(Site(site.service.url, token=token))
            held.callback(site.workers[-1].close)
        yield site
