"""The layers that sites train: as words that travel, how long a person's gradient of one is, and
the sum over people of such gradients, each scaled.

None of it makes a person's gradient where that can be done without. For a linear layer, and for an
embedding of one token, the gradient is an outer product, whose norm is a product of norms. Where a
layer is used at several places of a row (convolutions; linear layers and embeddings of sequences)
the squared norm is the sum over pairs of places of two products: what came in at both, and what
came back to both. These are the ghost norms of Li et al. (2022). Where there are so many places
that a person's gradient is the smaller thing, that is made and measured (Bu, Mao, Xu 2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from sfumato.federated.frames import malformed

Linear, Conv2d, Embedding = torch.nn.Linear, torch.nn.Conv2d, torch.nn.Embedding
LEARNT: Final = (Linear, Conv2d, Embedding)
PLAIN: Final = {
    "relu": torch.nn.ReLU,
    "tanh": torch.nn.Tanh,
    "sigmoid": torch.nn.Sigmoid,
    "flatten": torch.nn.Flatten,
}
POOLS: Final = {"maxpool": torch.nn.MaxPool2d, "avgpool": torch.nn.AvgPool2d}
KINDS: Final = (*LEARNT, *PLAIN.values(), *POOLS.values())
MOST_SIDE: Final = 64  # of what a convolution or a pool looks at
MOST_NUMBERS: Final = 1 << 26  # of one layer


def words_of(layer: Any) -> tuple[Any, ...]:
    """Return the layer as words, or refuse: one that is not of the list, or not as plain."""
    words = _words(layer)
    if words:
        with torch.device("meta"):  # no numbers are drawn for it
            plain = made_of(words)
        if repr(plain) == repr(layer).replace("inplace=True", ""):
            return words
    raise malformed(f"sites do not train a layer of type {type(layer).__name__}")


def _words(layer: Any) -> tuple[Any, ...]:
    """Return what of the layer goes into words; none for one that is not of the list."""
    match layer:
        case torch.nn.Linear():
            return ("linear", layer.in_features, layer.out_features)
        case torch.nn.Embedding():
            return ("embedding", layer.num_embeddings, layer.embedding_dim)
        case torch.nn.Conv2d() if isinstance(layer.padding, tuple):
            sides = (layer.kernel_size, layer.stride, layer.padding)
            return ("conv", layer.in_channels, layer.out_channels, *(one[0] for one in sides))
    for name, kind in PLAIN.items():
        if isinstance(layer, kind):
            return (name,)
    for name, kind in POOLS.items():
        if isinstance(layer, kind):
            return (name, layer.kernel_size)
    return ()


def made_of(words: Sequence[Any]) -> torch.nn.Module:
    """Return the layer that the words say, or refuse."""
    match tuple(words):
        case ("linear", int(ins), int(outs)) if 0 < ins * outs < MOST_NUMBERS:
            return Linear(ins, outs)
        case ("embedding", int(count), int(outs)) if 0 < count * outs < MOST_NUMBERS:
            return Embedding(count, outs)
        case ("conv", int(ins), int(outs), int(side), int(stride), int(edge)) if (
            0 < ins * outs * side * side < MOST_NUMBERS
            and 0 < side <= MOST_SIDE
            and 0 < stride <= MOST_SIDE
            and 0 <= edge <= MOST_SIDE
        ):
            return Conv2d(ins, outs, side, stride, edge)
        case ("maxpool" | "avgpool" as name, int(side)) if 0 < side <= MOST_SIDE:
            return POOLS[name](side)
        case ("relu" | "tanh" | "sigmoid" | "flatten" as name,):
            return PLAIN[name]()
    raise malformed("a layer is not one that it knows")


def check(model: Any) -> list[Any]:
    """Return the layers that learn, in their order, or refuse what would mix rows or hide a part.

    A layer that is used twice has one gradient, of which each use would measure a part alone.
    """
    learnt: list[Any] = []
    for layer in model:
        if not any(_is(layer, kind) for kind in KINDS) or getattr(layer, "inplace", False):
            raise malformed(f"sites do not train a layer of type {type(layer).__name__}")
        if isinstance(layer, Embedding) and (learnt or layer.max_norm is not None):
            raise malformed("an embedding comes first, and keeps its rows as they are")
        if isinstance(layer, torch.nn.Flatten) and (layer.start_dim, layer.end_dim) != (1, -1):
            raise malformed("rows are flattened one by one")
        if isinstance(layer, Conv2d) and (layer.groups != 1 or layer.padding_mode != "zeros"):
            raise malformed("a convolution is of one group, with zeros around")
        learnt += [layer] if isinstance(layer, LEARNT) else []
    held = [id(parameter) for layer in learnt for parameter in layer.parameters()]
    if len(held) != len(set(held)):
        raise malformed("a layer or a weight is used twice")
    return learnt


def _is(layer: Any, kind: Any) -> bool:
    """Say whether it computes as that kind does; a layer that can be sent is of a class below."""
    return isinstance(layer, kind) and type(layer).forward is kind.forward


def entered(layer: Any, value: Any) -> Any:
    """Return what goes into a layer: itself, or tokens, of which one that is none is the nearest.

    To fail would tell of the row. Three sides would be taken for one picture, its rows for colours.
    """
    if isinstance(layer, (Conv2d, *POOLS.values())) and value.dim() != 4:
        raise malformed("pictures are rows of colours, heights and widths")
    if not isinstance(layer, Embedding):
        return value
    return torch.nan_to_num(value).clamp(0, layer.num_embeddings - 1).long()


def squared_norms(layer: Any, into: Any, back: Any) -> Any:
    """Return, for each row, the squared norm of its gradient of the layer's weights and bias."""
    if isinstance(layer, Embedding):
        return _embedded(layer, into, back)
    places, backs = _places(layer, into, back)
    weight = _pairs(places, backs)
    if layer.bias is None:
        return weight
    return weight + backs.sum(1).square().sum(1)


def summed(layer: Any, into: Any, back: Any) -> list[Any]:
    """Return the sum over rows of the gradients of the layer's parameters, in their order."""
    if isinstance(layer, Embedding):
        total = torch.zeros_like(layer.weight)
        total.index_add_(0, into.reshape(-1), _unpadded(layer, into, back).flatten(0, -2))
        return [total]
    places, backs = _places(layer, into, back)
    flat = backs.flatten(0, 1)
    whole = (flat.T @ places.flatten(0, 1)).reshape(layer.weight.shape)
    return [whole] if layer.bias is None else [whole, flat.sum(0)]


def _places(layer: Any, into: Any, back: Any) -> tuple[Any, Any]:
    """Return what came in and what came back as rows x places x numbers."""
    if isinstance(layer, Conv2d):
        unfolded = torch.nn.functional.unfold(
            into, layer.kernel_size, layer.dilation, layer.padding, layer.stride
        )
        return unfolded.transpose(1, 2), back.flatten(2).transpose(1, 2)
    rows = len(into)
    return into.reshape(rows, -1, into.shape[-1]), back.reshape(rows, -1, back.shape[-1])


def _pairs(places: Any, backs: Any) -> Any:
    """Return the squared norms of the sums over places of outer products."""
    count, ins, outs = places.shape[1], places.shape[2], backs.shape[2]
    if count == 1:
        return places.square().sum((1, 2)) * backs.square().sum((1, 2))
    if count * (ins + outs) <= ins * outs:
        return ((places @ places.transpose(1, 2)) * (backs @ backs.transpose(1, 2))).sum((1, 2))
    return (backs.transpose(1, 2) @ places).square().sum((1, 2))


def _embedded(layer: Any, tokens: Any, back: Any) -> Any:
    rows = len(tokens)
    backs = _unpadded(layer, tokens, back).reshape(rows, -1, back.shape[-1])
    said = tokens.reshape(rows, -1)
    if said.shape[1] == 1:
        return backs.square().sum((1, 2))
    same = (said[:, :, None] == said[:, None, :]).to(backs.dtype)
    return (same * (backs @ backs.transpose(1, 2))).sum((1, 2))


def _unpadded(layer: Any, tokens: Any, back: Any) -> Any:
    if layer.padding_idx is None:
        return back
    return torch.where((tokens == layer.padding_idx)[..., None], 0, back)
