"""A model as a file: safetensors, written and read strictly; numbers of 32 bits, nothing to run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

import numpy as np

from sfumato.core.learning.network import Numbers
from sfumato.core.refusal import Refused

_LENGTH: Final = 8
_MOST_HEADER: Final = 1 << 20
_ALIGNED: Final = 8


def model_bytes(widths: tuple[int, ...], flat: Numbers, says: Mapping[str, str]) -> bytes:
    """Return the layers as a safetensors file, with texts about them in its header."""
    shapes = _shapes(widths)
    header: dict[str, Any] = {"__metadata__": dict(says)}  # Any: JSON
    start = 0
    for name, sides in shapes:
        end = start + 4 * int(np.prod(sides))
        header[name] = {"dtype": "F32", "shape": list(sides), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    return len(text).to_bytes(_LENGTH, "little") + text + flat.astype("<f4").tobytes()


def read_model(found: bytes) -> tuple[tuple[int, ...], Numbers, dict[str, str]]:
    """Return widths, numbers and texts of a file that `model_bytes` wrote, or refuse."""
    model = None
    try:
        model = _read(found)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        model = None
    if model is None:
        raise Refused(
            "bad-request",
            "The file is no model that this house has written.",
            "Give a file that `sfumato federate train --out` wrote.",
        )
    return model


def _read(found: bytes) -> tuple[tuple[int, ...], Numbers, dict[str, str]]:
    size = int.from_bytes(found[:_LENGTH], "little")
    if len(found) < _LENGTH or size > min(_MOST_HEADER, len(found) - _LENGTH):
        raise ValueError
    header = json.loads(found[_LENGTH : _LENGTH + size])
    says = {str(key): str(value) for key, value in header.pop("__metadata__").items()}
    shapes = [(name, tuple(one["shape"])) for name, one in header.items()]
    widths = (shapes[0][1][1], *(sides[0] for _, sides in shapes[::2]))
    whole = found[_LENGTH + size :]
    flat = np.frombuffer(whole, dtype="<f4").astype(np.float64)
    if not np.isfinite(flat).all() or model_bytes(widths, flat, says) != found:
        raise ValueError
    return widths, flat, says


def _shapes(widths: tuple[int, ...]) -> list[tuple[str, tuple[int, ...]]]:
    """Return names and sides as PyTorch names those of a sequence of layers and activations."""
    made: list[tuple[str, tuple[int, ...]]] = []
    for place, (ins, outs) in enumerate(pairwise(widths)):
        made += [(f"{2 * place}.weight", (outs, ins)), (f"{2 * place}.bias", (outs,))]
    return made
