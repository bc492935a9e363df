"""A Flower client whose rows are the update that it will make; see test_flower_fleet.py."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from sfumato.features.federated.flower import secure_mod

app = ClientApp()
NOISY = "train.noisy"


def learn(message: Message, context: Context) -> Message:
    """Move the model by what lies in the node's folder, unless something else is due there."""
    rows = Path(str(context.node_config["rows"]))
    is_noisy = message.metadata.message_type == NOISY
    if (rows / "fail").exists() and is_noisy:
        raise ValueError("row 41 is 17")
    if (rows / "hold").exists() and not is_noisy:
        (rows / "held").touch()
        time.sleep(600)  # the test ends this process before
    update = np.load(rows / "update.npy")
    arrays, moved = message.content["arrays"], {}
    for name, array in arrays.items():
        old = array.numpy()
        moved[name] = Array(old + update[: old.size].reshape(old.shape).astype(old.dtype))
        update = update[old.size :]
    found = {"arrays": ArrayRecord(moved), "metrics": MetricRecord({"num-examples": 41})}
    return Message(RecordDict(found), reply_to=message)


app.train(mods=[secure_mod()])(learn)
app.train("noisy", mods=[secure_mod("noisy-site")])(learn)
