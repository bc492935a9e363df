"""Measure how long a secure sum takes, with all sites and the server in one process.

The sites compute one after the other. `site_s` is the time of the slowest site over all stages, in
seconds; real sites compute at the same time. `server_s` is the time of the server alone.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfumato.dp.secure_aggregation.collector import Collector
from sfumato.dp.secure_aggregation.participant import Participant
from sfumato.dp.secure_aggregation.round_terms import Member, Trust, terms_for
from sfumato.system.randomness import SystemRandomSource

STAGES = ("join", "share", "mask", "agree", "reveal")
TARGET_S = 3.0  # for ten sites and a million parameters


def run() -> list[dict[str, object]]:
    """Return one row per cohort."""
    return [
        cohort("10 sites, a million parameters", 10, 10**6, gone=0, target_s=TARGET_S),
        cohort("the same, three dropped out", 10, 10**6, gone=3, target_s=TARGET_S),
        cohort("the same, modulo 2**64", 10, 10**6, gone=0, bits=64),
        cohort("60 sites, 12 neighbours each", 60, 10**5, gone=3, neighbours=12, colluders=2),
    ]


def cohort(
    name: str, sites: int, size: int, *, gone: int, target_s: float | None = None, **terms: Any
) -> dict[str, object]:
    """Return the line of one round of so many sites and numbers."""
    identities = {f"s{i:03}": Ed25519PrivateKey.generate() for i in range(sites)}
    convener, dice = Ed25519PrivateKey.generate(), SystemRandomSource()
    known = {name: key.public_key().public_bytes_raw() for name, key in identities.items()}
    agreed = terms_for(
        [Member(name, key) for name, key in known.items()],
        nonce=dice.draw(32),
        size=size,
        **{"bits": 32, **terms},
    )
    trust = Trust(convener.public_key().public_bytes_raw(), known, agreed.floor, agreed.colluders)
    values = np.arange(size, dtype=np.int64) % 1000 - 500
    collector = Collector(agreed, convener)
    players = {n: Participant(n, key, trust, dice, set()) for n, key in identities.items()}
    spent: Counter[str] = Counter()
    server = 0.0
    lost = set(list(players)[:gone])
    start = time.perf_counter()
    box = dict.fromkeys(players, collector.invitation())
    for stage in STAGES:
        for player, message in box.items():
            if stage == "mask" and player in lost:
                continue
            begun = time.perf_counter()
            more = (values,) if stage == "mask" else ()
            said = getattr(players[player], stage)(message, *more)
            spent[player] += time.perf_counter() - begun  # type: ignore[assignment]  # seconds
            begun = time.perf_counter()
            collector.take(said)
            server += time.perf_counter() - begun
        begun = time.perf_counter()
        box = dict(collector.close())
        server += time.perf_counter() - begun
    whole = time.perf_counter() - start
    assert (collector.total() == values * (sites - gone)).all()
    return {
        "name": name,
        "seconds": whole,
        "site_s": max(spent.values()),
        "server_s": server,
        "target_s": target_s if target_s is not None else "",
    }
