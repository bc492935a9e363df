"""Message format between client and worker: JSON, then tensors as raw bytes. No pickle."""

from __future__ import annotations

import json
from typing import Any, Final

import torch

from sfumato.dp.refusal import Refused

Words = Any  # JSON that may contain tensors, dtypes, slices, tuples and references
MAX_BYTES: Final = 1 << 31
MAX_WORDS: Final = 1 << 22
MAX_DEEP: Final = 32
FAULTS: Final = (  # errors while decoding an invalid message
    ValueError, TypeError, KeyError, AttributeError, RuntimeError, OverflowError, MemoryError,
)  # fmt: skip
_LENGTH: Final = 4
DTYPES: Final = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float16, torch.float32, torch.float64, torch.int8, torch.int16, torch.int32,
        torch.int64, torch.uint8, torch.bool,
    )
}  # fmt: skip


class Reference:
    """An object's key at a worker, as messages contain it."""

    __slots__ = ("key",)

    def __init__(self, key: str) -> None:
        self.key = key


def encode(words: Words) -> bytes:
    """Encode a request or reply as one message."""
    buffers: list[bytes] = []
    text = json.dumps(_plain(words, buffers), separators=(",", ":"), allow_nan=False).encode()
    return b"".join([len(text).to_bytes(_LENGTH, "little"), text, *buffers])


def decode(message: bytes) -> Words:
    """Decode a message into its request or reply; refuse invalid bytes."""
    try:
        return _read(message)
    except FAULTS:
        is_read = False
    if not is_read:
        raise malformed("the bytes are not a message")
    return None


def answered(message: bytes, who: str) -> Words:
    """Decode a worker's reply; return its answer, or raise its refusal with `who` as the source."""
    answer = decode(message)
    if "refused" in answer:
        code, cause, next_step = answer["refused"]
        raise Refused(code, f"{who}: {cause}", next_step)
    return answer["said"]


def malformed(why: str) -> Refused:
    """Return the refusal of an invalid message, or of an operation that is not allowed."""
    return Refused(
        "remote-refused",
        f"The worker does not allow this: {why}.",
        "Use only tensors, numbers, slices and the operations that docs/how-to/federated.md lists.",
    )


def _read(message: bytes) -> Words:
    if not isinstance(message, bytes) or not _LENGTH <= len(message) <= MAX_BYTES:
        raise ValueError
    size = int.from_bytes(message[:_LENGTH], "little")
    if size > min(MAX_WORDS, len(message) - _LENGTH):
        raise ValueError
    start = _LENGTH + size
    return _rich(json.loads(message[_LENGTH:start]), memoryview(message)[start:], 0)


def _plain(words: Words, buffers: list[bytes]) -> Words:  # one branch per type
    match words:
        case None | bool() | str() | int():
            return words
        case bytes():
            return {"bytes": _buffer(words, buffers)}
        case float():
            return {"float": words.hex()}
        case Reference():
            return {"reference": words.key}
        case torch.Tensor():
            return _tensor_out(words, buffers)
        case torch.dtype():
            return {"dtype": str(words).removeprefix("torch.")}
        case slice():
            parts = (words.start, words.stop, words.step)
            return {"slice": [_plain(part, buffers) for part in parts]}
        case tuple():
            return {"tuple": [_plain(part, buffers) for part in words]}
        case list():
            return [_plain(part, buffers) for part in words]
        case dict():
            return {"dict": {str(key): _plain(part, buffers) for key, part in words.items()}}
    if words is Ellipsis:
        return {"ellipsis": True}
    raise malformed(f"a value of type {type(words).__name__} cannot be sent")


def _tensor_out(tensor: torch.Tensor, buffers: list[bytes]) -> Words:
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in DTYPES or tensor.device.type != "cpu":
        raise malformed(f"a tensor of {name} on {tensor.device.type} cannot be sent")
    data = tensor.detach().contiguous().numpy().tobytes()
    at, size = _buffer(data, buffers)
    return {"tensor": [name, list(tensor.shape), at, size, tensor.requires_grad]}


def _buffer(data: bytes, buffers: list[bytes]) -> list[int]:
    """Append a tensor's bytes to the message's buffers; return their offset and their length."""
    at = sum(map(len, buffers))
    buffers.append(data)
    return [at, len(data)]


def _rich(words: Words, data: memoryview, depth: int) -> Words:
    if depth > MAX_DEEP:
        raise ValueError
    if isinstance(words, list):
        return [_rich(part, data, depth + 1) for part in words]
    if not isinstance(words, dict):
        return words
    ((kind, value),) = words.items()
    match kind:
        case "float":
            return float.fromhex(value)
        case "reference":
            return Reference(str(value))
        case "bytes":
            return _bytes_in(value, data)
        case "tensor":
            return _tensor_in(value, data)
        case "dtype":
            return DTYPES[value]
        case "slice":
            return slice(*(_rich(part, data, depth + 1) for part in value))
        case "tuple":
            return tuple(_rich(part, data, depth + 1) for part in value)
        case "dict":
            return {key: _rich(part, data, depth + 1) for key, part in value.items()}
        case "ellipsis":
            return Ellipsis
    raise ValueError


def _bytes_in(value: Words, data: memoryview) -> bytes:
    at, size = value
    if not 0 <= at <= at + size <= len(data):
        raise ValueError
    return bytes(data[at : at + size])


def _tensor_in(value: Words, data: memoryview) -> torch.Tensor:
    name, shape, at, size, needs_grad = value
    dtype = DTYPES[name]
    count = 1
    for side in shape:
        if not isinstance(side, int) or side < 0:
            raise ValueError
        count *= side
    if needs_grad is True and not dtype.is_floating_point:
        raise ValueError
    if not 0 <= at <= at + size <= len(data) or size != count * dtype.itemsize:
        raise ValueError
    if count == 0:
        flat = torch.empty(0, dtype=dtype)
    else:
        flat = torch.frombuffer(bytearray(data[at : at + size]), dtype=dtype)
    found = flat.reshape(shape)
    return found.requires_grad_() if needs_grad is True else found
