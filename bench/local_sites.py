"""Real sites for a bench: vaults served in processes of their own, which have agreed."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import duckdb

from sfumato.app.federation import FederatedVault, federation, new_convener
from sfumato.app.site_demo import LocalSite
from sfumato.client import remote_vault
from sfumato.system.randomness import SystemRandomSource


def parquet(path: Path, lines: Iterable[Sequence[object]]) -> Path:
    """Write a table whose numbers are read as what they are: texts of 785 columns take minutes."""
    text = path.with_suffix(".csv")
    with text.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(lines)
    with duckdb.connect() as connection:
        connection.execute(f"COPY (FROM read_csv('{text}')) TO '{path}' (FORMAT parquet)")
    return path


def federated(
    held: ExitStack, root: Path, sites: Sequence[LocalSite], data_sets: Sequence[str]
) -> FederatedVault:
    """Let every owner join with these data sets, and one researcher in at every site."""
    owners = {site.name: _taken_up(held, site.url, site.invitation) for site in sites}
    agreement = {
        "name": "pictures",
        "convener": new_convener(root / "convener.key"),
        "sites": {name: owner.call("site-key", {})["key"] for name, owner in owners.items()},
        "floor": max(len(sites) - 2, len(sites) // 2 + 1),
        "colluders": 1,
    }
    ways = {}
    for site in sites:
        owner = owners[site.name]
        invited = owner.call("invite", {"user": "ada", "roles": ["researcher"]})
        for data_set in data_sets:
            owner.call("join-federation", {"data_set": data_set, **agreement})
            owner.call("grant", {"data_set": data_set, "user": "ada", "group": "researchers"})
        ways[site.name] = _taken_up(held, site.url, str(invited["invitation"]))
    return federation(agreement, key=root / "convener.key", sites=ways)


def _taken_up(held: ExitStack, url: str, invitation: str) -> remote_vault.RemoteVault:
    draw = SystemRandomSource().draw
    nobody = held.enter_context(remote_vault.connect(url, token="", draw=draw))
    made = nobody.call("take-up", {"invitation": invitation, "password": draw(16).hex()})
    return held.enter_context(remote_vault.connect(url, token=str(made["token"]), draw=draw))
