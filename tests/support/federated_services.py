"""Sites as real services, in processes of their own, some of which a test may kill."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sfumato
from sfumato.app.federation import FederatedVault, new_convener
from support.federated_sites import NAMES, rows_of, site_card, write_rows
from support.served_vault import Service, served
from support.small_vaults import make_vault


@dataclass
class Federation:
    """Services, whose owners have agreed, and a researcher's way to each."""

    services: dict[str, Service]
    ways: dict[str, Any]
    agreement: dict[str, Any]
    key: Path

    def together(self, **instead: Any) -> FederatedVault:
        heard = instead.pop("heard", lambda _: None)
        ways = {**self.ways, **instead}
        return sfumato.federation(self.agreement, key=self.key, sites=ways, heard=heard)

    def kill_door(self, name: str) -> None:
        """Kill the process that holds the site's rounds; its keeper starts another."""
        keeper = self.services[name].process.pid
        (door,) = (child for child in _children(keeper) if _is_door(child))
        os.kill(door, signal.SIGKILL)
        until = time.monotonic() + 60
        while door in _children(keeper):  # until the keeper has seen it
            assert time.monotonic() < until, "".join(self.services[name].said)
            time.sleep(0.02)

    def wait_for(self, name: str) -> None:
        until = time.monotonic() + 60
        while (
            self.services[name].call("GET", "/v1/me", token=self.services[name].owner())[0] != 200
        ):
            assert time.monotonic() < until, "".join(self.services[name].said)
            time.sleep(0.1)

    def ledgers(self) -> dict[str, Any]:
        """What an auditor of each site finds."""
        return {
            name: service.call("GET", "/v1/ledger/verify", token=service.user("vera", "auditor"))[1]
            for name, service in self.services.items()
        }


def _children(process: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def _is_door(process: int) -> bool:
    return Path(f"/proc/{process}/cmdline").read_bytes().endswith(b"\0door\0")


@contextmanager
def several_services(
    folder: Path, names: Sequence[str] = NAMES, **terms: Any
) -> Iterator[Federation]:
    """Four services, or others by name, that have agreed, until the block ends."""
    with ExitStack() as held:
        services = {}
        for place, name in enumerate(names):
            (folder / name).mkdir()
            vault = make_vault(folder / name)
            with sfumato.open(vault) as opened:
                rows = write_rows(folder / name / "patients.csv", rows_of(place))
                opened.add("patients", rows, site_card(name, "secure_average = { releases = 9 }"))
                opened.enrol("ada", "researchers")
            services[name] = held.enter_context(served(vault))
        keys = {
            n: s.call("GET", "/v1/site", token=s.owner())[1]["key"] for n, s in services.items()
        }
        agreement = {
            "name": "clinics", "convener": new_convener(folder / "key"), "sites": keys,
            "floor": 3, "colluders": 1, **terms,
        }  # fmt: skip
        for service in services.values():
            path = "/v1/data-sets/patients/federations"
            assert service.call("POST", path, agreement, token=service.owner())[0] == 200
        ways = {
            name: held.enter_context(
                sfumato.connect(service.url, token=service.user("ada", "researcher"))
            )
            for name, service in services.items()
        }
        yield Federation(services, ways, agreement, folder / "key")
