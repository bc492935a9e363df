"""What a worker makes of bytes that no client of ours would send."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make .venv/torch.done")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from sfumato.features.federated.tensors.object_store import Store  # noqa: E402
from sfumato.features.federated.tensors.tensor_messages import Reference, decode, encode  # noqa: E402


def framed(words: object, data: bytes = b"") -> bytes:
    text = json.dumps(words).encode()
    return len(text).to_bytes(4, "little") + text + data


def refused(store: Store, message: bytes) -> bool:
    return "refused" in decode(store.handle(message))


def put(name: str, shape: object, at: int, size: int) -> object:
    return {"dict": {"do": "put", "value": {"tensor": [name, shape, at, size, False]}}}


BAD: dict[str, bytes] = {
    "nothing": b"",
    "a pickle": pickle.dumps({"do": "list"}),
    "a length beyond it": b"\xff\xff\xff\x7f{}",
    "deep": framed({"dict": {"do": json.loads("[" * 60 + "]" * 60)}}),
    "no names": framed({"dict": []}),
    "no digits": framed({"float": 1}),
    "an output by its place": encode(
        {"do": "call", "name": "elu", "args": (Reference("2"), 2.0, True), "named": {}}
    ),
    "another by its place": encode(
        {"do": "call", "name": "leaky_relu", "args": (Reference("2"), 2.0, True), "named": {}}
    ),
    "two kinds": framed({"dict": {}, "tuple": []}),
    "no such request": framed({"dict": {"do": "exec", "text": "1"}}),
    "no such kind": framed({"dict": {"do": {"pickle": "gASV"}}}),
    "a tensor beyond its bytes": framed(put("float32", [4], 0, 16), bytes(8)),
    "a tensor of another size": framed(put("float32", [4], 0, 8), bytes(8)),
    "a tensor before its bytes": framed(put("float32", [2], -8, 8), bytes(8)),
    "a shape below zero": framed(put("float32", [-1, -2], 0, 8), bytes(8)),
    "a shape of words": framed(put("float32", ["2"], 0, 8), bytes(8)),
    "a type that is none": framed(put("object", [1], 0, 8), bytes(8)),
    "whole numbers with gradients": framed(
        {"dict": {"do": "put", "value": {"tensor": ["int64", [1], 0, 8, True]}}}, bytes(8)
    ),
    "an attribute": encode({"do": "call", "name": "__class__", "args": (), "named": {}}),
    "another method": encode(
        {"do": "call", "name": "storage", "args": (Reference("1"),), "named": {}}
    ),
    "an output": encode(
        {"do": "call", "name": "neg", "args": (Reference("1"),), "named": {"out": Reference("1")}}
    ),
    "too few arguments": encode({"do": "call", "name": "add", "args": (), "named": {}}),
    "a write to nothing": encode({"do": "call", "name": "add_", "args": (1, 2), "named": {}}),
    "a gradient that does not fit": encode({"do": "set grad", "key": "1", "to": Reference("2")}),
    "bytes beyond it": framed({"bytes": [0, 9]}, bytes(8)),
    "no such key": encode({"do": "get", "key": "99"}),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_nonsense_is_refused_and_the_worker_goes_on(name: str) -> None:
    store = Store({})
    for value in (torch.ones(2, requires_grad=True), torch.ones(3)):
        store.handle(encode({"do": "put", "value": value}))
    assert refused(store, BAD[name])
    assert decode(store.handle(encode({"do": "get", "key": "1"})))["said"].tolist() == [1, 1]


@given(st.binary(max_size=200))
def test_no_bytes_make_a_worker_fail(message: bytes) -> None:
    assert refused(Store({}), message)


WORDS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(WORDS)
def test_words_are_read_as_they_were_written(words: Any) -> None:
    assert decode(encode(words)) == words


def test_infinities_and_slices_travel_too() -> None:
    words = [float("inf"), b"raw", slice(1, None, 2), ..., torch.float64]
    assert decode(encode(words)) == words
