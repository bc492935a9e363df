"""A Flower server that keeps every byte it is sent; see test_flower_fleet.py."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message
from flwr.serverapp import Grid, ServerApp

from sfumato.features.federated.agreement import read_agreement
from sfumato.features.federated.flower import SecureAverage, schedule

app = ServerApp()


@app.main()  # type: ignore[untyped-decorator]  # Flower is not looked into
def main(grid: Grid, context: Context) -> None:
    """Do a noisy round, then two without noise; write down what came of them."""
    fleet = Path(str(context.run_config["fleet"]))
    heard = listening(grid)
    size = int(json.loads((fleet / "size.json").read_text()))
    model = {"deep": np.zeros((size // 2, 2), np.float32), "bias": np.zeros(size % 2, np.float64)}
    for name, rounds, price in (("noisy", 1, ("8", "1e-5")), ("plain", 2, (None, None))):
        for number in range(1, rounds + 1):
            strategy = SecureAverage(
                read_agreement(json.loads((fleet / f"{name}.json").read_text())),
                schedule(name, size=size, clip=64, rounds=2, epsilon=price[0], delta=price[1]),
                Ed25519PrivateKey.from_private_bytes((fleet / "convener.key").read_bytes()),
                first=number,
                action="train.noisy" if name == "noisy" else "train",
                wait_s=float(context.run_config["wait"]),
            )
            result = strategy.start(
                grid,
                ArrayRecord({key: Array(array) for key, array in model.items()}),
                num_rounds=1,
                timeout=float(context.run_config["wait"]),
                train_config=ConfigRecord({"rate": 0.5, "names": ["a", "b"], "raw": b"\x00"}),
            )
            moved = {key: array.numpy() for key, array in result.arrays.items()}
            np.savez(fleet / f"{name}-{number}.npz", **moved)
            said = {"card": strategy.card(), "rounds": [vars(one) for one in strategy.rounds]}
            (fleet / f"{name}-{number}.said.json").write_text(json.dumps(said))
            (fleet / f"{name}-{number}.heard.json").write_text(json.dumps(heard))
            heard.clear()
            (fleet / f"{name}-{number}.done").touch()


def spelled(record: Any) -> dict[str, str]:
    return {k: held.hex() if isinstance(held, bytes) else repr(held) for k, held in record.items()}


def listening(grid: Grid) -> list[Any]:
    """Return a list in which whatever the server is sent is written, bytes in hex."""
    heard: list[Any] = []
    pull = grid.pull_messages

    def pulled(ids: Iterable[str]) -> list[Message]:
        found = list(pull(ids))
        for reply in found:
            if reply.has_content():
                records = {key: spelled(record) for key, record in reply.content.items()}
                heard.append(records)
            else:
                heard.append({"error": reply.error.reason})
        return found

    grid.pull_messages = pulled
    return heard
