"""Write and strictly read models as safetensors files: 32-bit floats, no executable content."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

import numpy as np

from sfumato.dp.learning.input_layers import InputLayers, read_input_layers
from sfumato.dp.learning.integer_network import Numbers
from sfumato.dp.refusal import Refused

_LENGTH: Final = 8
_MAX_HEADER: Final = 1 << 20
_ALIGNED: Final = 8


def model_bytes(widths: tuple[int, ...], flat: Numbers, says: Mapping[str, str]) -> bytes:
    """Encode a model as the bytes of a safetensors file, with text metadata in its header.

    The metadata item `front` describes the layers before the linear ones, if there are any.
    """
    shapes = _shapes(widths, front_in(says))
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
    """Read a model file that `model_bytes` wrote; return layer widths, weights and metadata.

    Any other file is refused.
    """
    model = None
    try:
        model = _read(found)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, Refused):
        model = None
    if model is None:
        raise Refused(
            "bad-request",
            "The file is not a model that sfumato wrote.",
            "Give a file that `sfumato federate train --out` wrote.",
        )
    return model


def front_in(says: Mapping[str, str]) -> InputLayers | None:
    """Return the input layers that a model's metadata describes, or None; refuse malformed ones."""
    return read_input_layers(json.loads(says["front"])) if "front" in says else None


def _read(found: bytes) -> tuple[tuple[int, ...], Numbers, dict[str, str]]:
    size = int.from_bytes(found[:_LENGTH], "little")
    if len(found) < _LENGTH or size > min(_MAX_HEADER, len(found) - _LENGTH):
        raise ValueError
    header = json.loads(found[_LENGTH : _LENGTH + size])
    says = {str(key): str(value) for key, value in header.pop("__metadata__").items()}
    front = front_in(says)
    sides = [tuple(one["shape"]) for one in header.values()]
    linear = sides if front is None else sides[2 * len(front.stages) + len(front.tables) :]
    widths = (linear[0][1], *(one[0] for one in linear[::2]))
    if front is not None and front.outs != widths[0]:
        raise ValueError
    whole = found[_LENGTH + size :]
    flat = np.frombuffer(whole, dtype="<f4").astype(np.float64)
    if not np.isfinite(flat).all() or model_bytes(widths, flat, says) != found:
        raise ValueError
    return widths, flat, says


def _shapes(
    widths: tuple[int, ...], front: InputLayers | None
) -> list[tuple[str, tuple[int, ...]]]:
    """Return tensor names and shapes, as PyTorch names those of a Sequential of layers.

    The input layers come first, as `conv.0.weight` and so on, then `embed.0.weight` and so on.
    """
    made: list[tuple[str, tuple[int, ...]]] = []
    for place, stage in enumerate(() if front is None else front.stages):
        kernel, channels = stage.conv.kernel, stage.conv.channels
        sides = (channels, stage.enters[0], kernel, kernel)
        made += [(f"conv.{place}.weight", sides), (f"conv.{place}.bias", (channels,))]
    for place, table in enumerate(() if front is None else front.tables):
        made.append((f"embed.{place}.weight", (table.entries, table.width)))
    for place, (ins, outs) in enumerate(pairwise(widths)):
        made += [(f"{2 * place}.weight", (outs, ins)), (f"{2 * place}.bias", (outs,))]
    return made
