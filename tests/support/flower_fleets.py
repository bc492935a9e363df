"""Sites of a fleet in folders, whose clients are new objects at every stage, as Flower's are."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from sfumato.dp.secure_aggregation.collector import Collector
from sfumato.features.federated.agreement import Agreement, read_agreement
from sfumato.features.federated.flower import join_fleet, new_site
from sfumato.features.federated.flower.fleet_node import Node
from sfumato.features.federated.flower.fleet_schedule import Plan, Schedule, schedule, task_digest
from sfumato.features.federated.flower.round_stages import STAGES, Part
from sfumato.system.randomness import SystemRandomSource

NAMES = ("east", "north", "south", "west")
CONVENER = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
MODEL: dict[str, NDArray[Any]] = {"deep": np.zeros((3, 2), np.float32), "bias": np.zeros(1)}
SIZE = 7
SETTINGS = {"rate": 0.5, "raw": b"\x00"}
Update = Callable[[], NDArray[np.float64] | None]


def plain(rounds: int = 2, name: str = "plain") -> Schedule:
    return schedule(name, size=SIZE, clip=64, rounds=rounds, epsilon=None, delta=None)


def priced(epsilon: float = 1, rounds: int = 2) -> Schedule:
    return schedule("noisy", size=SIZE, clip=64, rounds=rounds, epsilon=epsilon, delta="1e-6")


def made_sites(
    folder: Path,
    names: Collection[str] = NAMES,
    neighbours: int | None = None,
    **rules: Any,
) -> Agreement:
    """Make the sites' folders and the agreement of them all."""
    said: dict[str, Any] = {"epsilon": 2, "delta": "1e-5", "lets_average": True} | rules
    keys = {name: new_site(folder / name, name, **said) for name in names}
    words: dict[str, Any] = {
        "name": "fleet",
        "convener": CONVENER.public_key().public_bytes_raw().hex(),
        "sites": keys,
        "floor": 3,
        "colluders": 1,
        "neighbours": neighbours,
    }
    for name in names:
        join_fleet(folder / name, words)
    (folder / "agreement.json").write_text(json.dumps(words), "utf-8")
    return read_agreement(words)


def own_update(at: int) -> NDArray[np.float64]:
    """Multiples of a step, so that nothing is rounded."""
    return np.asarray((np.arange(SIZE) - at) / 16.0)


class Fleet:
    """Four sites and a collector of one round at a time; what sites say is kept."""

    def __init__(self, folder: Path, **rules: Any) -> None:
        self.folder = folder
        self.agreement = made_sites(folder, **rules)
        self.keys = {name: SystemRandomSource().draw(32) for name in NAMES}
        self.updates: dict[str, Update] = {
            name: partial(own_update, at) for at, name in enumerate(NAMES)
        }
        self.task = task_digest(MODEL, SETTINGS)
        self.said: list[tuple[str, str, bytes]] = []

    def begin(self, wanted: Schedule, number: int = 1) -> Collector:
        plan = Plan(self.agreement, wanted)
        terms = plan.terms(SystemRandomSource().draw(32), number, self.task)
        self.wanted, self.collector = wanted, Collector(terms, CONVENER)
        self.box: Mapping[str, bytes] = dict.fromkeys(NAMES, self.collector.invitation())
        return self.collector

    def part(self, name: str) -> Part:
        return Part(Node(self.folder / name), self.keys[name], SystemRandomSource())

    def say(self, name: str, stage: str, message: bytes) -> bytes:
        nonce, part = self.collector.terms.nonce, self.part(name)
        if stage == "join":
            return part.join(message, self.wanted.spelled())
        if stage == "mask":
            return part.mask(nonce, message, self.task, self.updates[name])
        return part.go_on(stage, nonce, message)

    def stage(self, stage: str, gone: Collection[str] = ()) -> None:
        for name, message in self.box.items():
            if name not in gone:
                said = self.say(name, stage, message)
                self.said.append((name, stage, said))
                self.collector.take(said)
        self.box = self.collector.close()

    def up_to(self, stage: str, wanted: Schedule, number: int = 1) -> None:
        self.begin(wanted, number)
        for earlier in STAGES[: STAGES.index(stage)]:
            self.stage(earlier)

    def play(self, wanted: Schedule, number: int = 1, gone: Mapping[str, str] | None = None) -> Any:
        """The whole round; return the sum as numbers."""
        self.begin(wanted, number)
        for stage in STAGES:
            self.stage(stage, [n for n, s in (gone or {}).items() if s == stage])
        return Plan(self.agreement, wanted).grid.numbers(self.collector.total())

    def pooled(self, names: Collection[str] = NAMES) -> Any:
        return sum(self.updates[name]() for name in names)
