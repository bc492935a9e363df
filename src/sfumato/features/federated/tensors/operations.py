"""The closed list of operations that a worker executes, by name.

None returns a value to Python (`item`, `tolist`, a branch). None has an output shape that depends
on values (`nonzero`, `unique`, a mask as an index).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

Operation = Callable[..., Any]

METHODS: Final = (
    "__getitem__", "__rpow__", "__rsub__", "__rtruediv__", "abs", "add", "addmm", "amax", "amin",
    "argmax", "argmin", "bmm", "ceil", "clamp", "clamp_max", "clamp_min", "clone", "contiguous",
    "cos", "cumsum", "detach", "div", "dot", "double", "eq", "exp", "expand", "flatten", "float",
    "floor", "ge", "gt", "int", "le", "log", "log1p", "log_softmax", "long", "lt", "matmul",
    "max", "mean", "min", "mm", "mul", "mv", "ne", "neg", "norm", "outer", "permute", "pow",
    "prod", "relu", "reshape", "round", "rsqrt", "sigmoid", "sign", "sin", "softmax", "sqrt",
    "square", "squeeze", "std", "sub", "sum", "t", "tanh", "to", "transpose", "unsqueeze", "var",
    "view",
)  # fmt: skip
IN_PLACE: Final = (
    "add_", "addcdiv_", "addcmul_", "clamp_", "copy_", "div_", "fill_", "lerp_", "mul_", "neg_",
    "requires_grad_", "sqrt_", "sub_", "zero_",
)  # fmt: skip
OF_TORCH: Final = ("cat", "full_like", "maximum", "minimum", "ones_like", "stack", "where",
                   "zeros_like")  # fmt: skip
OF_NETWORKS: Final = (
    "adaptive_avg_pool2d", "avg_pool1d", "avg_pool2d", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "celu", "conv1d", "conv2d", "cross_entropy", "elu", "gelu",
    "group_norm", "hardsigmoid", "hardswish", "hardtanh", "l1_loss", "layer_norm", "leaky_relu",
    "linear", "logsigmoid", "max_pool1d", "max_pool2d", "mish", "mse_loss", "nll_loss", "prelu",
    "selu", "silu", "smooth_l1_loss", "softplus", "softsign",
)  # fmt: skip
SAME: Final = {  # aliases
    "__add__": "add", "__radd__": "add", "__sub__": "sub", "__mul__": "mul", "__rmul__": "mul",
    "__truediv__": "div", "true_divide": "div", "divide": "div", "subtract": "sub",
    "multiply": "mul", "__rdiv__": "__rtruediv__", "__pow__": "pow", "__matmul__": "matmul",
    "__neg__": "neg", "negative": "neg", "absolute": "abs", "T": "t", "rsub": "__rsub__",
    "__eq__": "eq", "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt",
    "__ge__": "ge", "__iadd__": "add_", "__isub__": "sub_", "__imul__": "mul_",
    "clip": "clamp", "concat": "cat", "boolean_dispatch": "max_pool2d", "_max_pool2d": "max_pool2d",
    "data": "detach", "log_sigmoid": "logsigmoid",
}  # fmt: skip

# the arguments that name an object to write to
WRITES: Final = frozenset({"inplace", "max_norm", "out"})
SAFE_ARGS: Final = {  # the number of positional arguments before such an argument
    "celu": 2, "elu": 2, "hardsigmoid": 1, "hardswish": 1, "hardtanh": 3, "leaky_relu": 2,
    "mish": 1, "selu": 1, "silu": 1,
}  # fmt: skip

OPERATIONS: Final[dict[str, Operation]] = {
    **{name: getattr(torch.Tensor, name) for name in (*METHODS, *IN_PLACE)},
    **{name: getattr(torch, name) for name in OF_TORCH},
    **{name: getattr(torch.nn.functional, name) for name in OF_NETWORKS},
}


def name_of(said: str) -> str | None:
    """Return the name under which a worker runs a PyTorch function, or None if it does not."""
    name = SAME.get(said, said)
    return name if name in OPERATIONS else None
