"""What a secure sum costs: every site and the server in one process, one after the other.

`site_s` is the time of the slowest site over all stages, which real sites spend at once. The rows
about training are ratios: of clipped gradients to plain ones, and of a worker's loop to a loop
here (`beside` is what they are compared with, in seconds).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfumato.core.secure import Collector, Member, Participant, Trust, terms_for
from sfumato.dice import SystemDice

STAGES = ("join", "share", "mask", "agree", "reveal")
TARGET_S = 3.0  # for ten sites and a million parameters


def run() -> list[dict[str, object]]:
    """Return one row per cohort."""
    return [
        _row("10 sites, a million parameters", 10, 10**6, gone=0, target_s=TARGET_S),
        _row("the same, three dropped out", 10, 10**6, gone=3, target_s=TARGET_S),
        _row("the same, modulo 2**64", 10, 10**6, gone=0, bits=64),
        _row("60 sites, 12 neighbours each", 60, 10**5, gone=3, neighbours=12, colluders=2),
        *_training(),
    ]


def _training() -> list[dict[str, object]]:
    """Return what clipping and what a worker cost beside plain PyTorch; nothing without it."""
    try:
        import torch
    except ImportError:
        return []
    from sfumato.federated import VirtualWorker, nn, tensor
    from sfumato.federated.gradients import clipped_sum

    torch.manual_seed(0)
    torch.set_num_threads(1)  # or other work on the machine decides the ratio
    rows, classes = torch.rand(256, 784, dtype=torch.float64), torch.randint(0, 10, (256,))
    net = torch.nn.Sequential(
        torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128), torch.nn.ReLU(),
        torch.nn.Linear(128, 10),
    ).double()  # fmt: skip

    def plain() -> None:
        net.zero_grad()
        torch.nn.functional.cross_entropy(net(rows), classes).backward()

    def loop(model: Any, data: Any, target: Any) -> None:
        steps = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(10):
            steps.zero_grad()
            torch.nn.functional.mse_loss(model(data), target).backward()
            steps.step()

    bob = VirtualWorker(id="bob")
    here, there = torch.nn.Linear(784, 64), nn.Linear(784, 64).send(bob)
    data, target = torch.rand(2000, 784), torch.rand(2000, 64)
    sent = [tensor(part.numpy()).send(bob) for part in (data, target)]
    pairs: list[tuple[str, Callable[[], object], Callable[[], object]]] = [
        (
            "clipped gradients, 784-256-128-10, batch 256, doubles",
            lambda: clipped_sum(net, rows, classes, "cross_entropy", 1.0),
            plain,
        ),
        ("ten steps at a worker in this process", lambda: loop(there, *sent),
         lambda: loop(here, data, target)),
    ]  # fmt: skip
    return [_ratio(*pair) for pair in pairs]


def _ratio(
    name: str, ours: Callable[[], object], theirs: Callable[[], object]
) -> dict[str, object]:
    mine, other = (min(_seconds(act) for _ in range(9)) for act in (ours, theirs))
    return {"name": name, "seconds": mine, "beside": other, "ratio": mine / other}


def _seconds(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def _row(
    name: str, sites: int, size: int, *, gone: int, target_s: float | None = None, **terms: Any
) -> dict[str, object]:
    identities = {f"s{i:03}": Ed25519PrivateKey.generate() for i in range(sites)}
    convener, dice = Ed25519PrivateKey.generate(), SystemDice()
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
            collector.take(said)
        box = dict(collector.close())
    whole = time.perf_counter() - start
    assert (collector.total() == values * (sites - gone)).all()
    return {
        "name": name,
        "seconds": whole,
        "site_s": max(spent.values()),
        "target_s": target_s if target_s is not None else "",
    }
