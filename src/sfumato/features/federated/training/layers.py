"""The closed list of layers that sites can train, and their encoding in messages.

Every layer treats each row independently. Its output for a row, and whether it fails, depends only
on that row, the weights, and the shapes that all rows share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

import torch
from torch.nn import (
    Conv1d,
    Conv2d,
    Embedding,
    GroupNorm,
    LayerNorm,
    Linear,
    PReLU,
    TransformerEncoderLayer,
)

from sfumato.dp.refusal import Refused
from sfumato.features.federated.tensors.tensor_messages import malformed

Words = tuple[Any, ...]  # Any: a name, then numbers and further names
LEARNT: Final = (
    Linear, Conv1d, Conv2d, Embedding, GroupNorm, LayerNorm, PReLU, TransformerEncoderLayer,
)  # fmt: skip
PLAIN: Final[dict[str, type[torch.nn.Module]]] = {
    "flatten": torch.nn.Flatten,
    "hardsigmoid": torch.nn.Hardsigmoid,
    "hardswish": torch.nn.Hardswish,
    "identity": torch.nn.Identity,
    "logsigmoid": torch.nn.LogSigmoid,
    "mish": torch.nn.Mish,
    "relu": torch.nn.ReLU,
    "relu6": torch.nn.ReLU6,
    "selu": torch.nn.SELU,
    "sigmoid": torch.nn.Sigmoid,
    "silu": torch.nn.SiLU,
    "softsign": torch.nn.Softsign,
    "tanh": torch.nn.Tanh,
}
POOLS: Final[dict[str, Any]] = {  # layers that are built from one side of their window or output
    "adaptivepool": torch.nn.AdaptiveAvgPool2d,
    "avgpool": torch.nn.AvgPool2d,
    "avgpool1d": torch.nn.AvgPool1d,
    "maxpool": torch.nn.MaxPool2d,
    "maxpool1d": torch.nn.MaxPool1d,
}
# layers that are built from these attributes
BENT: Final[dict[str, tuple[Any, tuple[str, ...]]]] = {
    "celu": (torch.nn.CELU, ("alpha",)),
    "elu": (torch.nn.ELU, ("alpha",)),
    "hardtanh": (torch.nn.Hardtanh, ("min_val", "max_val")),
    "leakyrelu": (torch.nn.LeakyReLU, ("negative_slope",)),
    "softplus": (torch.nn.Softplus, ("beta", "threshold")),
}
SHARES: Final[dict[str, Any]] = {  # layers that are built from the dimension that sums to one
    "logsoftmax": torch.nn.LogSoftmax,
    "softmax": torch.nn.Softmax,
}
KINDS: Final = (
    *LEARNT, *PLAIN.values(), *POOLS.values(), *(kind for kind, _ in BENT.values()),
    *SHARES.values(), torch.nn.GELU,
)  # fmt: skip
BENDS: Final = {"relu": torch.nn.functional.relu, "gelu": torch.nn.functional.gelu}

MAX_SIDE: Final = 64  # of a convolution's or pool's window
MAX_NUMBERS: Final = 1 << 26  # parameters of one layer
MAX_SIDES: Final = 8  # dimensions of a normalisation or softmax
MAX_BENT: Final = 1e6
MIN_EPS: Final = 1e-12  # with eps 0, a row of equal numbers has no gradient

INSTEAD: Final = {  # advice in the refusal of a layer
    "BatchNorm": (
        "Use GroupNorm or LayerNorm: they normalise one row alone, but batch norms mix rows."
    ),
    "InstanceNorm": "Use GroupNorm, with as many groups as channels.",
    "Dropout": (
        "Leave it out, or write Identity. Dropout draws from PyTorch's generator, which reveals "
        "how many rows there were. Clipping and noise already keep a model from memorising "
        "single rows."
    ),
    "LSTM": (
        "Use Conv1d or a TransformerEncoderLayer, because a recurrent layer has several outputs."
    ),
    "GRU": (
        "Use Conv1d or a TransformerEncoderLayer, because a recurrent layer has several outputs."
    ),
    "RNN": (
        "Use Conv1d or a TransformerEncoderLayer, because a recurrent layer has several outputs."
    ),
    "MultiheadAttention": "Use TransformerEncoderLayer(..., dropout=0.0, batch_first=True).",
    "TransformerEncoderLayer": "Make it with dropout=0.0, batch_first=True, relu or gelu.",
    "LayerNorm": f"Keep its weights and its bias, and an eps of {MIN_EPS:g} to 1.",
    "GroupNorm": f"Keep its weights and its bias, and an eps of {MIN_EPS:g} to 1.",
    "Softmax": "Give a side: dim=-1, or 1 and more. Side 0 is the side of the rows.",
    "LogSoftmax": "Give a side: dim=-1, or 1 and more. Side 0 is the side of the rows.",
    "Conv": "Use square ones, with zero padding and no dilation.",
    "Embedding": "Use a plain Embedding(count, width) as the first layer.",
}


def words_of(model: Any) -> tuple[Words, ...]:
    """Encode a Sequential of supported layers as names and numbers; refuse any other model."""
    layers = list(flat(model))
    return tuple(_words_at(place, layers) for place in range(len(layers)))


def made_of(words: Sequence[Any]) -> torch.nn.Sequential:
    """Build a Sequential from its encoding as names and numbers; refuse an invalid one."""
    layers: list[torch.nn.Module] = []
    for one in words:
        match one:
            case ("again", int(place)) if 0 <= place < len(layers):
                layers.append(layers[place])
            case ("tied", int(place), *rest) if 0 <= place < len(layers):
                layers.append(_tied(_layer(tuple(rest)), layers[place]))
            case _:
                layers.append(_layer(one))
    return torch.nn.Sequential(*layers)


def flat(model: Any) -> Iterator[Any]:
    """Yield the layers of a Sequential in order, with nested Sequentials flattened."""
    if not isinstance(model, torch.nn.Sequential):
        raise malformed("the model must be a Sequential of plain layers")
    for layer in model:
        if is_kind(layer, torch.nn.Sequential):
            yield from flat(layer)
        else:
            yield layer


def is_kind(layer: Any, kind: Any) -> bool:
    """Return True if the layer is a `kind` and has its unchanged `forward`.

    Sendable layers are subclasses, so the types may differ.
    """
    return isinstance(layer, kind) and type(layer).forward is kind.forward


def refused(layer: Any) -> Refused:
    """Return the refusal of an unsupported layer, with advice."""
    name = type(layer).__name__
    found = next((text for word, text in INSTEAD.items() if word in name), None)
    return Refused(
        "remote-refused",
        f"Sites cannot train a layer of type {name}.",
        found or "Use layers that docs/how-to/federated.md lists.",
    )


# --- words ------------------------------------------------------------------------------------


def _words_at(place: int, layers: list[Any]) -> Words:
    """Encode the layer at `place` of the model, as names and numbers.

    If the layer repeats an earlier layer, or shares its weights, the encoding names the earlier
    one.
    """
    layer = layers[place]
    own = {id(parameter) for parameter in layer.parameters()}
    for earlier, other in enumerate(layers[:place]):
        if own and other is layer:
            return ("again", earlier)
        common = own & {id(parameter) for parameter in other.parameters()}
        if common:
            weights = [id(getattr(one, "weight", None)) for one in (layer, other)]
            if [*common] != weights[:1] or weights[0] != weights[1]:
                raise malformed("two layers share only their weights, or one layer is used twice")
            return ("tied", earlier, *words_alone(layer))
    return words_alone(layer)


def words_alone(layer: Any) -> Words:
    """Encode one layer as names and numbers, without regard to other layers of the model.

    Refuse an unsupported layer or setting, or a layer with a hook.
    """
    words = _words(layer)
    is_hooked = layer._forward_hooks or layer._forward_pre_hooks
    if words and not is_hooked and any(is_kind(layer, kind) for kind in KINDS):
        with torch.device("meta"):  # draw no weights
            plain = _layer_or_none(words)
        if plain is not None and _traits(plain) == _traits(layer):
            return words
    raise refused(layer)


def _words(layer: Any) -> Words:
    """Return the encoding of a layer as names and numbers; empty for an unsupported one."""
    if isinstance(layer, LEARNT):
        bare = () if getattr(layer, "bias", layer) is not None else ("bare",)
        return (*bare, *_learnt_words(layer))
    if isinstance(layer, torch.nn.GELU):
        return ("gelu", layer.approximate)
    for name, kind in PLAIN.items():
        if is_kind(layer, kind):
            return (name,)
    for name, kind in POOLS.items():
        if isinstance(layer, kind):
            return (name, _side(getattr(layer, "kernel_size", getattr(layer, "output_size", 0))))
    for name, (kind, numbers) in BENT.items():
        if isinstance(layer, kind):
            return (name, *(getattr(layer, number) for number in numbers))
    found = [(name, layer.dim) for name, kind in SHARES.items() if isinstance(layer, kind)]
    return found[0] if found else ()


def _learnt_words(layer: Any) -> Words:
    match layer:
        case Linear():
            return ("linear", layer.in_features, layer.out_features)
        case Embedding():
            return ("embedding", layer.num_embeddings, layer.embedding_dim)
        case Conv1d() | Conv2d():
            sides = (layer.kernel_size, layer.stride, layer.padding)
            name = "conv" if isinstance(layer, Conv2d) else "conv1d"
            groups = () if layer.groups == 1 else (layer.groups,)
            return (name, layer.in_channels, layer.out_channels, *map(_side, sides), *groups)
        case LayerNorm():
            return ("layernorm", layer.eps, *layer.normalized_shape)
        case GroupNorm():
            return ("groupnorm", layer.num_groups, layer.num_channels, layer.eps)
        case PReLU():
            return ("prelu", layer.num_parameters)
    names = [name for name, bend in BENDS.items() if bend is layer.activation]
    inner, ends = layer.linear1, layer.norm1
    sizes = (layer.self_attn.embed_dim, layer.self_attn.num_heads, inner.out_features)
    return ("encoder", *sizes, *names, layer.norm_first, ends.eps)


def _side(sides: Any) -> Any:
    """Return the side of a square setting: 3 for a kernel of (3, 3), or for a plain 3.

    A setting that is not square is refused later, by a comparison of `_traits`.
    """
    return sides[0] if isinstance(sides, tuple) else sides


def _traits(layer: Any) -> list[Any]:
    """List everything that distinguishes a layer, except its weights: all settings and shapes.

    `words_alone` compares the lists of a layer and of its decoded encoding. If they differ, the
    layer has a setting that its encoding does not contain, and is refused.
    """
    kept = (int, float, str, tuple, type(None), FunctionType, BuiltinFunctionType)
    found: list[Any] = [[(name, p.shape) for name, p in layer.named_parameters()]]
    for name, part in layer.named_modules():
        said = {word: value for word, value in vars(part).items() if isinstance(value, kept)}
        said = {word: value for word, value in said.items() if word not in ("training", "inplace")}
        found.append((name, said))
    return found


# --- layers -----------------------------------------------------------------------------------


def _layer(words: Any) -> torch.nn.Module:
    made = _layer_or_none(words)
    if made is None:
        raise malformed("a layer is of an unknown type")
    return made


def _layer_or_none(words: Any) -> torch.nn.Module | None:
    match words:
        case ("bare", "linear" | "conv" | "conv1d", *_):
            return _weighed(words[1:], bias=False)
        case (str(name),) if name in PLAIN:
            return PLAIN[name]()
        case (str(name), side) if name in POOLS and _are_counts(side, most=MAX_SIDE):
            return _made(POOLS[name], side)
        case (str(name), *numbers) if name in BENT:
            kind, names = BENT[name]
            fits = len(numbers) == len(names) and _are_numbers(*numbers)
            return _made(kind, *numbers) if fits else None
        case (str(name), int(dim)) if name in SHARES and (dim == -1 or 1 <= dim <= MAX_SIDES):
            return _made(SHARES[name], dim)
        case ("gelu", "none" | "tanh" as how):
            return torch.nn.GELU(how)
        case ("layernorm" | "groupnorm" | "prelu" | "encoder", *_):
            return _normed(words)
        case (str(), *_):
            return _weighed(words, bias=True)
    return None


def _weighed(words: Words, *, bias: bool) -> torch.nn.Module | None:
    match words:
        case ("linear", ins, outs) if _are_counts(ins, outs):
            return Linear(ins, outs, bias=bias)
        case ("embedding", count, outs) if _are_counts(count, outs):
            return Embedding(count, outs)
        case ("conv" | "conv1d" as name, ins, outs, side, stride, edge, *more) if (
            _are_counts(ins, outs, side, side)
            and _are_counts(side, most=MAX_SIDE)
            and _are_counts(stride, most=MAX_SIDE)
            and type(edge) is int
            and 0 <= edge <= MAX_SIDE
        ):
            return _convolution(name, (ins, outs, side, stride, edge), more, bias=bias)
    return None


def _convolution(
    name: str, sizes: tuple[int, ...], more: list[Any], *, bias: bool
) -> torch.nn.Module | None:
    ins, outs, *sides = sizes
    groups = more[0] if more else 1
    if len(more) > 1 or not _are_counts(groups) or ins % groups or outs % groups:
        return None
    kind: Callable[..., torch.nn.Module] = Conv2d if name == "conv" else Conv1d
    return kind(ins, outs, *sides, groups=groups, bias=bias)


def _normed(words: Words) -> torch.nn.Module | None:
    match words:
        case ("layernorm", eps, *shape) if is_eps(eps) and len(shape) <= MAX_SIDES:
            return LayerNorm(shape, eps=eps) if _are_counts(*shape) else None
        case ("groupnorm", groups, channels, eps) if _are_counts(groups, channels):
            return (
                GroupNorm(groups, channels, eps) if is_eps(eps) and _fit(channels, groups) else None
            )
        case ("prelu", count) if _are_counts(count):
            return PReLU(count)
        case ("encoder", width, heads, inner, str(bend), bool(first), eps) if (
            bend in BENDS and _are_counts(width, inner) and _are_counts(4 * width, width)
            and _are_counts(heads) and _fit(width, heads) and is_eps(eps)
        ):  # fmt: skip
            return TransformerEncoderLayer(
                width, heads, inner, dropout=0.0, activation=BENDS[bend], layer_norm_eps=eps,
                batch_first=True, norm_first=first,
            )  # fmt: skip
    return None


def _made(kind: Callable[..., torch.nn.Module], *numbers: Any) -> torch.nn.Module | None:
    """Build a layer from its decoded arguments; return None if they do not fit its kind."""
    try:
        return kind(*numbers)
    except (TypeError, ValueError, AssertionError):
        return None


def _tied(layer: Any, first: Any) -> Any:
    """Make the layer share the weights of an earlier layer, and return the layer."""
    mine, theirs = (getattr(one, "weight", None) for one in (layer, first))
    if mine is None or theirs is None or mine.shape != theirs.shape:
        raise malformed("only weights of one shape can be shared")
    layer.weight = theirs
    return layer


def _are_counts(*numbers: Any, most: int = MAX_NUMBERS - 1) -> bool:
    """Return True if `numbers` are positive integers whose product is at most `most`.

    A decoded layer is refused otherwise, because it could take too much memory.
    """
    return (
        bool(numbers)
        and all(type(number) is int and 0 < number <= most for number in numbers)
        and math.prod(numbers) <= most
    )


def _are_numbers(*numbers: Any) -> bool:
    return all(type(one) in (int, float) and abs(one) <= MAX_BENT for one in numbers)


def is_eps(number: Any) -> bool:
    return type(number) in (int, float) and MIN_EPS <= number <= 1


def _fit(many: int, groups: int) -> bool:
    return many % groups == 0
