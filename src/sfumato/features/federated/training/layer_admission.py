"""Checks of layers and input shapes before rows pass through a model.

No check depends on a row's values or on the number of rows. What fits one row fits any number of
rows, and none.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.nn import Conv1d, Conv2d, Embedding, GroupNorm, LayerNorm, TransformerEncoderLayer

from sfumato.features.federated.tensors.tensor_messages import malformed
from sfumato.features.federated.training.layers import (
    KINDS,
    LEARNT,
    POOLS,
    flat,
    is_eps,
    is_kind,
    refused,
    words_alone,
)

PICTURES: Final = (Conv2d, *(POOLS[name] for name in ("adaptivepool", "avgpool", "maxpool")))
SEQUENCES: Final = (Conv1d, POOLS["avgpool1d"], POOLS["maxpool1d"])


def check(model: Any) -> list[Any]:
    """Return all layers of a model in order; refuse a layer that sites may not train.

    For example, a layer that mixes rows or overwrites its input is refused.
    """
    layers = list(flat(model))
    for place, layer in enumerate(layers):
        if not any(is_kind(layer, kind) for kind in KINDS) or getattr(layer, "inplace", False):
            raise refused(layer)
        if isinstance(layer, Embedding):
            _check_embedding(layer, layers[:place])
        if isinstance(layer, torch.nn.Flatten) and (layer.start_dim, layer.end_dim) != (1, -1):
            raise malformed("rows must be flattened one by one")
        if isinstance(layer, (LayerNorm, GroupNorm)) and not is_eps(layer.eps):
            raise refused(layer)
        if isinstance(layer, TransformerEncoderLayer):
            words_alone(layer)  # it has many submodules; all must have default settings
    return layers


def _check_embedding(layer: Embedding, before: list[Any]) -> None:
    as_is = layer.max_norm is None and not layer.scale_grad_by_freq and not layer.sparse
    if not as_is or any(isinstance(one, LEARNT) for one in before):
        raise malformed("an embedding must come first, and keep its rows apart")


def entered(layer: Any, value: Any) -> Any:
    """Check the shape of a layer's input, and return the input.

    Invalid embedding tokens become the nearest valid token. A failure that depends on values or on
    the number of rows would leak. So a shape that the layer would read differently (places,
    channels, normalised sides) is refused for any number of rows.
    """
    if isinstance(layer, Embedding):
        return torch.nan_to_num(value).clamp(0, layer.num_embeddings - 1).long()
    if isinstance(layer, PICTURES) and value.dim() != 4:
        raise malformed("images must be rows of colours, heights and widths")
    if isinstance(layer, (*SEQUENCES, TransformerEncoderLayer)) and value.dim() != 3:
        raise malformed(
            "a sequence must have two sides a row: channels and places, or places and width"
        )
    if value.dim() <= _sides_of_a_row(layer):
        raise malformed("a row has fewer sides than the layer needs")
    if isinstance(layer, GroupNorm) and value[0].numel() <= layer.num_groups:
        raise malformed("a group must have two numbers or more")
    return value


def _sides_of_a_row(layer: Any) -> int:
    """Return the fewest dimensions that a row of the layer's input must have, besides the batch."""
    if isinstance(layer, LayerNorm):
        return len(layer.normalized_shape)
    if isinstance(layer, (torch.nn.Softmax, torch.nn.LogSoftmax)):
        if layer.dim is None or layer.dim == 0 or layer.dim < -1:
            raise refused(layer)
        return max(layer.dim, 1)
    return 1
