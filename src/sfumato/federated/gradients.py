"""The sum over people of gradients, each clipped, without making any person's gradient.

For a linear layer a person's gradient is the outer product of what comes back to the layer and
what went in, so its norm is the product of two norms, and the clipped sum is one matrix product:
no more work than the ordinary gradient (closed form; `tests/federated/test_gradients.py` holds it
against gradients made one by one). In doubles, so that one person moves the others' part by less
than half a step of the grid.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sfumato.federated.frames import malformed


def clipped_sum(model: Any, data: Any, target: Any, loss: str, clip: float) -> np.ndarray:
    """Return the sum of the rows' gradients, each clipped to that norm; a row is a person.

    The model is a sequence of linear layers and of functions of each row alone. Rows with numbers
    that are not finite add nothing; nothing here fails because of what a row holds.
    """
    model = model.double()
    layers = [layer for layer in model if isinstance(layer, torch.nn.Linear)]
    outs: list[Any] = []
    ins: list[Any] = []
    value = data.double()
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            ins.append(value.detach())
        value = layer(value)
        if isinstance(layer, torch.nn.Linear):
            outs.append(value)
    backs = torch.autograd.grad(_loss(value, target, loss), outs)
    squares = sum(
        back.square().sum(1) * (into.square().sum(1) + 1)  # the 1 is the bias
        for into, back in zip(ins, backs, strict=True)
    )
    norms = torch.sqrt(squares)
    scale = torch.where(norms > clip, clip / norms, torch.ones_like(norms))
    whole = torch.isfinite(norms)
    parts = []
    for into, back, layer in zip(ins, backs, layers, strict=True):
        scaled = torch.where(whole[:, None], back * scale[:, None], 0)
        kept = torch.where(whole[:, None], into, 0)
        parts += [(scaled.T @ kept).reshape(-1), scaled.sum(0)]
        if layer.bias is None:
            raise malformed("a linear layer has no bias")
    return np.asarray(torch.cat(parts).numpy())


def _loss(said: Any, target: Any, loss: str) -> Any:
    """Return the sum of the rows' losses; a row has one of its own, whatever the others hold."""
    if said.dim() != 2:
        raise malformed("a model gives one row of numbers for each row")
    if loss == "mse":
        if target.shape != said.shape:
            raise malformed("the target has another shape than what the model gives")
        return (said - target.double()).square().sum()
    if target.shape != said.shape[:1]:
        raise malformed("the target is not one class for each row")
    # a class that is none is taken for the nearest: to fail would tell of the row
    classes = torch.nan_to_num(target.double()).clamp(0, said.shape[1] - 1).long()
    return torch.nn.functional.cross_entropy(said, classes, reduction="sum")
