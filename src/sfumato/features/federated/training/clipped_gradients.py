"""Per-person clipped gradients and their sum.

Workers train with `clipped_steps`. It computes rows one by one, in whole grid steps, so one
person's contribution does not depend on other rows. `clipped_sum` is the usual fast form of DP-SGD:
all rows in one batch, in floating point. It has no proof against adversarial weights; `bench
learning` measures it.

In the fast form, a first pass returns the gradient at each layer's output. Each person's gradient
norm follows from it (`squared_norms`). A second matrix product adds up the scaled gradients. Shared
weights, and layers without a closed-form norm, need materialised per-person gradients. These are
computed in batches of bounded size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import Conv1d, Conv2d, Embedding, GroupNorm, LayerNorm, Linear
from torch.nn.attention import SDPBackend, sdpa_kernel

from sfumato.dp.secure_aggregation.stochastic_rounding import PeopleGrid
from sfumato.features.federated.tensors.tensor_messages import malformed
from sfumato.features.federated.training.layer_admission import check, entered
from sfumato.features.federated.training.layers import LEARNT

# --- Norms of per-person gradients of a layer, and the sum of scaled gradients
#
# A per-person gradient is not materialised if its norm is known without it. For a linear layer, and
# for an embedding of one token, the gradient is an outer product, and its norm is a product of
# norms. A layer can apply to several positions of a row (convolutions; linear layers and embeddings
# of sequences). Its squared norm is a sum over pairs of positions of two inner products: of the
# inputs and of the output gradients. These are the ghost norms of Li et al. (2022). With so many
# positions that the gradient itself is smaller, the gradient is materialised (Bu, Mao, Xu 2022).
#
# Sums over positions can cancel. Rounding could then make a norm too small by any factor, and an
# adversary can choose such weights. So each norm includes a bound on the rounding error of its
# sums: a squared norm here is never less than the true one. `LEAST` covers squares that underflow a
# double, which matter if the other factor is as large as a double can be.
#
# Normalisation layers have few parameters, so their gradients have a closed form. All other layers
# use PyTorch's `torch.func`: one gradient per row, vectorised over rows.


LEAST: Final = 1e-292  # added per squared number; it is more than underflow can lose


def is_measured(layer: Any) -> bool:
    """Return True if `squared_norms` supports the layer, so that it needs no gradient per row."""
    if isinstance(layer, (Conv1d, Conv2d)):
        is_plain = layer.groups == 1 and layer.padding_mode == "zeros"
        return is_plain and isinstance(layer.padding, tuple)
    return isinstance(layer, (Linear, Embedding))


def squared_norms(layer: Any, into: Any, back: Any) -> Any:
    """Return each row's squared gradient norm for a layer's weights and bias.

    It is computed from the layer's input (`into`) and the gradient at its output (`back`), without
    the rows' gradients themselves.
    """
    if isinstance(layer, Embedding):
        return _embedded(layer, into, back)
    places, backs = _places(layer, into, back)
    weight = _pairs(places, backs)
    if layer.bias is None:
        return weight
    return weight + backs.sum(1).square().sum(1) + _rounding(backs, _lengths(backs))


def summed(layer: Any, into: Any, back: Any) -> list[Any]:
    """Return the gradients of the layer's parameters, summed over rows, one for each parameter."""
    if isinstance(layer, Embedding):
        total = torch.zeros_like(layer.weight)
        total.index_add_(0, into.reshape(-1), _unpadded(layer, into, back).flatten(0, -2))
        return [total]
    places, backs = _places(layer, into, back)
    flat = backs.flatten(0, 1)
    whole = (flat.T @ places.flatten(0, 1)).reshape(layer.weight.shape)
    return [whole] if layer.bias is None else [whole, flat.sum(0)]


def one_by_one(layer: Any, into: Any, back: Any) -> list[Any]:
    """Return the gradients of the layer's parameters, row by row, one array for each parameter."""
    if isinstance(layer, (LayerNorm, GroupNorm)):
        return _normed(layer, into, back)
    held = {name: parameter.detach() for name, parameter in layer.named_parameters()}

    def met(parameters: Any, row: Any, back_of_row: Any) -> Any:
        out = torch.func.functional_call(layer, parameters, (row[None],))
        return (out[0] * back_of_row).sum()

    with sdpa_kernel(SDPBackend.MATH):  # the only attention kernel that vmap supports here
        made = torch.func.vmap(torch.func.grad(met), in_dims=(None, 0, 0))(held, into, back)
    return list(made.values())


def _normed(layer: Any, into: Any, back: Any) -> list[Any]:
    """Return a normalisation layer's gradients for each row: of its weight, then of its bias."""
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
    """Reshape a layer's input and output gradient to rows x positions x numbers.

    A position is a place to which a convolution applies its kernel, or a vector of a linear layer's
    input.
    """
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
    """Return, for each row, the squared norm of its gradient of the layer's weights.

    The gradient is a sum over pairs: the outer product of input (`places`) and output gradient
    (`backs`) at each position.
    """
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
    """Return the norm of the vector at each position, never too low by underflow.

    A tiny constant (LEAST) is added to the square of each number.
    """
    return _squared(many).sqrt()


def _squared(many: Any) -> Any:
    """Return the squared norm of the vector at each position, never too low by underflow.

    A tiny constant (LEAST) is added for each number; it is more than underflow can lose.
    """
    return many.square().sum(2) + many.shape[2] * LEAST


def _rounding(many: Any, lengths: Any, more: int = 0) -> Any:
    """Return an upper bound on the rounding error of squared norms of sums over positions.

    A sum of products has at most one rounding error for each product, each relative to the sum of
    the absolute values. This holds in any order of summation (Higham 2002, chapter 3). `lengths`
    holds the absolute values for each position. `more` is the number of further products.
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


Steps = NDArray[np.int64]
Numbers = NDArray[np.float64]
Use = tuple[Any, Any, Any]  # Any: a layer, its input, and its output gradient


MADE_AT_ONCE: Final = 1 << 24  # the most numbers in the per-person gradients that exist at once


def clipped_sum(model: Any, data: Any, target: Any, loss: str, clip: float) -> np.ndarray:
    """Return the sum of the rows' gradients, each clipped to norm `clip`; a row is a person.

    This is the fast form, in floating point (doubles). Through rounding, one person changes the sum
    of the others by less than half a grid step.
    """
    whole, rows = model.double(), data.double()
    at_once = _rows_at_once(whole) or max(len(rows), 1)
    total = 0.0
    for start in range(0, max(len(rows), 1), at_once):
        some = slice(start, start + at_once)
        parts = clipped_parts(whole, rows[some], target[some], loss, clip)
        total = total + torch.cat([part.reshape(-1) for part in parts])
    return np.asarray(torch.as_tensor(total).numpy())


def clipped_steps(model: Any, data: Any, target: Any, loss: str, grid: PeopleGrid) -> Steps:
    """Return the exact sum of the rows' clipped and rounded gradients; a row is a person.

    Each row is computed alone, in the same memory and with the same shape. In a batch, the last
    digit of a row depends on the batch size and on its position. Adversarial weights can amplify
    that digit.
    """
    whole, rows = model.double(), data.double()
    place, wanted = (one.new_zeros(1, *one.shape[1:]) for one in (rows, target))
    # compute once on a row of zeros, so that a shape mismatch fails even without rows
    _gradient(whole, place, wanted, loss)
    total = np.zeros(grid.size, dtype=np.int64)
    for number in range(len(rows)):
        place.copy_(rows[number : number + 1])
        wanted.copy_(target[number : number + 1])
        total += grid.person(_gradient(whole, place, wanted, loss))
    return total


def _gradient(model: Any, row: Any, target: Any, loss: str) -> Numbers:
    """Return the gradient of one row's loss with respect to all parameters, in order."""
    value = row
    for layer in check(model):
        value = layer(entered(layer, value))
    found = torch.autograd.grad(_loss(value, target, loss), list(model.parameters()))
    return np.asarray(torch.cat([part.reshape(-1) for part in found]).numpy())


def clipped_parts(model: Any, data: Any, target: Any, loss: str, clip: float) -> list[Any]:
    """Return, for each parameter, the sum of the rows' clipped gradients.

    The sums have the model's own dtype. The model is a sequence of layers of a closed list
    (`layers.py`). Rows with a non-finite gradient add nothing. No failure depends on a row's values
    or on the number of rows.
    """
    # compute on a row of zeros, so that a shape mismatch fails as it does with rows
    if len(data) == 0:
        row, wanted = (one.new_zeros(1, *one.shape[1:]) for one in (data, target))
        return [torch.zeros_like(p) for p in clipped_parts(model, row, wanted, loss, clip)]
    uses = _passed(model, data, target, loss)
    is_shared = _shared(uses)
    measured = [use for use in uses if is_measured(use[0]) and not is_shared(use[0])]
    made = _made([use for use in uses if not is_measured(use[0]) or is_shared(use[0])])
    norms = torch.sqrt(_squares(measured, made))
    whole = torch.isfinite(norms)
    scale = torch.where(norms > clip, clip / norms, torch.ones_like(norms))
    parts = {key: _added(each, scale, whole) for key, each in made.items()}
    for layer, into, back in measured:
        entered_by, scaled = _kept(into, back, scale, whole)
        found = summed(layer, entered_by, scaled)
        parts |= {id(p): part for p, part in zip(layer.parameters(), found, strict=True)}
    return [parts[id(parameter)] for parameter in model.parameters()]


def _passed(model: Any, data: Any, target: Any, loss: str) -> list[Use]:
    """Return each use of a trainable layer as (layer, its input, its output gradient)."""
    ins: list[tuple[Any, Any]] = []
    outs: list[Any] = []
    value = data
    for layer in check(model):
        value = entered(layer, value)
        if isinstance(layer, LEARNT):
            ins.append((layer, value.detach()))
        value = layer(value)
        if isinstance(layer, LEARNT):
            outs.append(value)
    backs = torch.autograd.grad(_loss(value, target, loss), outs)
    return [(*use, back) for use, back in zip(ins, backs, strict=True)]


def _shared(uses: list[Use]) -> Callable[[Any], bool]:
    """Return a function from a layer to whether the model uses one of its weights several times.

    Such a weight has one gradient for all of its uses. The norm at one use would measure only a
    part of that gradient.
    """
    times = Counter(id(p) for layer, _, _ in uses for p in layer.parameters())
    return lambda layer: any(times[id(p)] > 1 for p in layer.parameters())


def _made(uses: list[Use]) -> dict[int, Any]:
    """Compute the gradients of some layers row by row, and sum each parameter's over its uses.

    The keys of the result are the `id` of the parameters. A parameter that the model uses twice
    gets one gradient per row.
    """
    found: dict[int, Any] = {}
    for layer, into, back in uses:
        for parameter, each in zip(layer.parameters(), one_by_one(layer, into, back), strict=True):
            found[id(parameter)] = found.get(id(parameter), 0) + each
    return found


def _squares(measured: list[Use], made: dict[int, Any]) -> Any:
    """Return the squared norm of each row's whole gradient, over all parameters.

    `measured` has uses whose norms need no gradients; `made` has the materialised gradients.
    """
    parts = [squared_norms(*use) for use in measured]
    parts += [each.square().flatten(1).sum(1) for each in made.values()]
    return torch.stack(parts).sum(0)


def _added(each: Any, scale: Any, whole: Any) -> Any:
    """Scale one parameter's gradient of each row, and sum up the rows with a finite norm."""
    return torch.where(_beside(whole, each), each * _beside(scale, each), 0).sum(0)


def _kept(into: Any, back: Any, scale: Any, whole: Any) -> tuple[Any, Any]:
    """Return a layer's input and its scaled output gradient, with zeros in rows to be left out.

    Rows without a finite norm (`whole` is False there) are left out, because 0 times NaN is NaN.
    """
    scaled = back * _beside(scale, back)
    if bool(whole.all()):
        return into, scaled
    # zero the input as well, because 0 times NaN is NaN
    zeros = torch.where(_beside(whole, into), into, 0)
    return zeros, torch.where(_beside(whole, back), scaled, 0)


def _rows_at_once(model: Any) -> int:
    """Return how many rows to process at once where per-row gradients are materialised.

    Returns 0 if no layer needs materialised gradients.
    """
    layers = [layer for layer in check(model) if isinstance(layer, LEARNT)]
    is_shared = _shared([(layer, None, None) for layer in layers])
    made = {
        id(p): p.numel()
        for layer in layers
        if not is_measured(layer) or is_shared(layer)
        for p in layer.parameters()
    }
    return max(MADE_AT_ONCE // sum(made.values()), 1) if made else 0


def _beside(one_each: Any, many: Any) -> Any:
    """Reshape one number per row so that it broadcasts over an array with one entry per row."""
    return one_each.reshape(-1, *[1] * (many.dim() - 1))


def _loss(said: Any, target: Any, loss: str) -> Any:
    """Return the sum of the rows' losses; each row's loss depends on that row only."""
    if said.dim() != 2:
        raise malformed("the model must give one row of numbers for each row")
    if loss == "mse":
        if target.shape != said.shape:
            raise malformed("the target and the output of the model have different shapes")
        return (said - target.to(said.dtype)).square().sum()
    if target.shape != said.shape[:1]:
        raise malformed("the target must be one class for each row")
    # an invalid class becomes the nearest class: a failure would leak the row
    classes = torch.nan_to_num(target.double()).clamp(0, said.shape[1] - 1).long()
    return torch.nn.functional.cross_entropy(said, classes, reduction="sum")
