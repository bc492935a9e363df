"""The sum over people of gradients, each clipped, without making any person's gradient.

A first pass gives what comes back to each layer, from which each person's norm follows
(`layers.py`); a second product of matrices adds up the gradients, each scaled. That is about the
work of one ordinary gradient (`tests/federated/test_gradients.py` holds it against gradients made
one by one).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sfumato.federated.frames import malformed
from sfumato.federated.layers import LEARNT, check, entered, squared_norms, summed


def clipped_sum(model: Any, data: Any, target: Any, loss: str, clip: float) -> np.ndarray:
    """Return the sum of the rows' gradients, each clipped to that norm; a row is a person.

    In doubles, so that one person moves the others' part by less than half a step of the grid.
    """
    parts = clipped_parts(model.double(), data.double(), target, loss, clip)
    return np.asarray(torch.cat([part.reshape(-1) for part in parts]).numpy())


def clipped_parts(model: Any, data: Any, target: Any, loss: str, clip: float) -> list[Any]:
    """Return the same for each parameter, in the numbers that the model has.

    The model is a sequence of layers of a closed list (`layers.py`). Rows with numbers that are not
    finite add nothing; nothing here fails because of what a row holds.
    """
    layers = check(model)
    ins, backs = _passed(model, data, target, loss)
    triples = list(zip(layers, ins, backs, strict=True))
    squares = sum(squared_norms(layer, into, back) for layer, into, back in triples)
    norms = torch.sqrt(torch.as_tensor(squares))
    whole = torch.isfinite(norms)
    scale = torch.where(norms > clip, clip / norms, torch.ones_like(norms))
    is_spoilt = not bool(whole.all())
    parts: list[Any] = []
    for layer, into, back in triples:
        scaled = back * _beside(scale, back)
        if is_spoilt:
            scaled = torch.where(_beside(whole, back), scaled, 0)
            into = torch.where(_beside(whole, into), into, 0)  # noqa: PLW2901  # 0 times NaN is NaN
        parts += summed(layer, into, scaled)
    return parts


def _passed(model: Any, data: Any, target: Any, loss: str) -> tuple[list[Any], list[Any]]:
    """Return what goes into each layer that learns, and what comes back to it."""
    ins: list[Any] = []
    outs: list[Any] = []
    value = data
    for layer in model:
        value = entered(layer, value)
        if isinstance(layer, LEARNT):
            ins.append(value.detach())
        value = layer(value)
        if isinstance(layer, LEARNT):
            outs.append(value)
    return ins, list(torch.autograd.grad(_loss(value, target, loss), outs))


def _beside(one_each: Any, many: Any) -> Any:
    """Return one number of each row in the shape in which it meets all of the row's."""
    return one_each.reshape(-1, *[1] * (many.dim() - 1))


def _loss(said: Any, target: Any, loss: str) -> Any:
    """Return the sum of the rows' losses; a row has one of its own, whatever the others hold."""
    if said.dim() != 2:
        raise malformed("a model gives one row of numbers for each row")
    if loss == "mse":
        if target.shape != said.shape:
            raise malformed("the target has another shape than what the model gives")
        return (said - target.to(said.dtype)).square().sum()
    if target.shape != said.shape[:1]:
        raise malformed("the target is not one class for each row")
    # a class that is none is taken for the nearest: to fail would tell of the row
    classes = torch.nan_to_num(target.double()).clamp(0, said.shape[1] - 1).long()
    return torch.nn.functional.cross_entropy(said, classes, reduction="sum")
