"""How long each person's gradient of a layer is, and the sum of such gradients, each scaled.

A person's gradient is not made where that can be done without. For a linear layer, and for an
embedding of one token, it is an outer product, whose norm is a product of norms. Where a layer is
used at several places of a row (convolutions; linear layers and embeddings of sequences) the
squared norm is the sum over pairs of places of two products: what came in at both, and what came
back to both. These are the ghost norms of Li et al. (2022). Where there are so many places that a
person's gradient is the smaller thing, that is made and measured (Bu, Mao, Xu 2022).

Sums over places can cancel: then rounding would make a norm too short by any factor, whoever chose
the weights having chosen them so. So what the rounding of such sums can come to is added to each
norm: a squared norm here is never less than the true one. Nor is what a square loses that is too
small for a double (`LEAST`): beside it, what comes back may be as large as a double holds.

Of layers that normalise, gradients are made in closed form: there are few numbers of them. Of all
others they are made by PyTorch's own `torch.func`, a row at a time but all at once.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.nn import Conv1d, Conv2d, Embedding, GroupNorm, LayerNorm, Linear
from torch.nn.attention import SDPBackend, sdpa_kernel

LEAST: Final = 1e-292  # for each number squared: what is lost below, over a rounding error


def is_measured(layer: Any) -> bool:
    """Say whether norms of the layer's gradients are found without making the gradients."""
    if isinstance(layer, (Conv1d, Conv2d)):
        is_plain = layer.groups == 1 and layer.padding_mode == "zeros"
        return is_plain and isinstance(layer.padding, tuple)
    return isinstance(layer, (Linear, Embedding))


def squared_norms(layer: Any, into: Any, back: Any) -> Any:
    """Return, for each row, the squared norm of its gradient of the layer's weights and bias."""
    if isinstance(layer, Embedding):
        return _embedded(layer, into, back)
    places, backs = _places(layer, into, back)
    weight = _pairs(places, backs)
    if layer.bias is None:
        return weight
    return weight + backs.sum(1).square().sum(1) + _rounding(backs, _lengths(backs))


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


def one_by_one(layer: Any, into: Any, back: Any) -> list[Any]:
    """Return every row's own gradients of the layer's parameters, in their order."""
    if isinstance(layer, (LayerNorm, GroupNorm)):
        return _normed(layer, into, back)
    held = {name: parameter.detach() for name, parameter in layer.named_parameters()}

    def met(parameters: Any, row: Any, back_of_row: Any) -> Any:
        out = torch.func.functional_call(layer, parameters, (row[None],))
        return (out[0] * back_of_row).sum()

    with sdpa_kernel(SDPBackend.MATH):  # the one form of attention that many rows can share
        made = torch.func.vmap(torch.func.grad(met), in_dims=(None, 0, 0))(held, into, back)
    return list(made.values())


def _normed(layer: Any, into: Any, back: Any) -> list[Any]:
    """Return the sums over places of what came back, times what was normalised, and alone."""
    rows = len(into)
    if isinstance(layer, GroupNorm):
        even = torch.nn.functional.group_norm(into, layer.num_groups, eps=layer.eps)
        sides = (rows, layer.num_channels, -1)
        found = [(even * back).reshape(sides).sum(2), back.reshape(sides).sum(2)]
    else:
        shape = layer.normalized_shape
        even = torch.nn.functional.layer_norm(into, shape, eps=layer.eps)
        found = [one.reshape(rows, -1, *shape).sum(1) for one in (even * back, back)]
    wanted = zip((layer.weight, layer.bias), found, strict=True)
    return [one for parameter, one in wanted if parameter is not None]


def _places(layer: Any, into: Any, back: Any) -> tuple[Any, Any]:
    """Return what came in and what came back as rows x places x numbers."""
    if isinstance(layer, Conv1d):
        unfolded = torch.nn.functional.unfold(
            into[:, :, None], (1, *layer.kernel_size), (1, *layer.dilation), (0, *layer.padding),
            (1, *layer.stride),
        )  # fmt: skip
        return unfolded.transpose(1, 2), back.transpose(1, 2)
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
        return _squared(places).sum(1) * _squared(backs).sum(1)
    if count * (ins + outs) <= ins * outs:
        found = (places @ places.transpose(1, 2)) * (backs @ backs.transpose(1, 2))
        squares = found.sum((1, 2))
    else:
        squares = (backs.transpose(1, 2) @ places).square().sum((1, 2))
    return squares + _rounding(places, _lengths(places) * _lengths(backs), ins + outs)


def _lengths(many: Any) -> Any:
    """Return how long what is at each place is."""
    return _squared(many).sqrt()


def _squared(many: Any) -> Any:
    """Return the square of that, never too small: tiny numbers have squares that are nothing."""
    return many.square().sum(2) + many.shape[2] * LEAST


def _rounding(many: Any, lengths: Any, more: int = 0) -> Any:
    """Return what rounding can take from squared norms of sums over places.

    A sum of k products is off by k rounding errors of the sum of their sizes at most, in whatever
    order it is made (Higham 2002, chapter 3); `lengths` are those sizes, place by place.
    """
    count = many.shape[1]
    if count == 1:
        return torch.zeros_like(lengths[:, 0])
    errors = (count * count + more + 8) * torch.finfo(lengths.dtype).eps
    return errors * lengths.sum(1).square()


def _embedded(layer: Any, tokens: Any, back: Any) -> Any:
    rows = len(tokens)
    backs = _unpadded(layer, tokens, back).reshape(rows, -1, back.shape[-1])
    said = tokens.reshape(rows, -1)
    if said.shape[1] == 1:
        return backs.square().sum((1, 2))
    same = (said[:, :, None] == said[:, None, :]).to(backs.dtype)
    squares = (same * (backs @ backs.transpose(1, 2))).sum((1, 2))
    return squares + _rounding(backs, _lengths(backs), backs.shape[2])


def _unpadded(layer: Any, tokens: Any, back: Any) -> Any:
    if layer.padding_idx is None:
        return back
    return torch.where((tokens == layer.padding_idx)[..., None], 0, back)
