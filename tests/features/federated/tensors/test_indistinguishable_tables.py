"""Two workers are told the same at random, and their tables differ: nothing that is told may."""

from __future__ import annotations

import random
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make .venv/torch.done")

from sfumato.dp.refusal import Refused  # noqa: E402
from sfumato.features.federated.tensors.object_store import Store  # noqa: E402
from sfumato.features.federated.tensors.tensor_messages import Reference  # noqa: E402

TABLE = "table:t"
CALLS: tuple[tuple[str, int], ...] = (  # with so many tensors beside the first
    ("add", 1), ("mul", 1), ("add_", 1), ("copy_", 1), ("clone", 0), ("detach", 0), ("t", 0),
    ("sum", 0), ("matmul", 1), ("relu", 0), ("flatten", 0), ("zero_", 0), ("where", 2),
    ("expand", 1), ("reshape", 1), ("lerp_", 2),
)  # fmt: skip


def words_at_random(rng: random.Random, keys: list[str]) -> dict[str, Any]:
    """One request, of the kinds by which tables were taken once: writes, views, gradients."""

    def some() -> str:
        return TABLE if rng.random() < 0.25 else rng.choice(keys)

    kind = rng.random()
    if not keys or kind < 0.15:
        return {"do": "put", "value": (rng.random(), rng.random() < 0.7)}
    if kind < 0.55:
        name, more = rng.choice(CALLS)
        args = tuple(Reference(some()) for _ in range(1 + more))
        return {"do": "call", "name": name, "args": args, "named": {}}
    if kind < 0.65:
        place = rng.choice([0, 1, slice(None), slice(0, 1)])
        args = (Reference(rng.choice(keys)), place)
        return {"do": "call", "name": "__getitem__", "args": args, "named": {}}
    if kind < 0.85:
        args = (Reference(some()),) if rng.random() < 0.3 else ()
        named = {"retain_graph": True} if rng.random() < 0.7 else {}
        return {"do": "backward", "key": some(), "args": args, "named": named}
    if kind < 0.92:
        return {"do": "grad", "key": rng.choice(keys)}
    if kind < 0.96:
        return {"do": "set grad", "key": rng.choice(keys), "to": Reference(some())}
    return {"do": rng.choice(["drop", "get"]), "key": rng.choice(keys)}


def said(store: Store, words: dict[str, Any]) -> Any:
    """What it says, as what can be compared."""
    if words["do"] == "put":
        number, needs_grad = words["value"]
        value = torch.full((2, 2), number).requires_grad_(needs_grad)
        words = {**words, "value": value}
    try:
        return plain(store.do(words))
    except Refused as refusal:
        return refusal.code, refusal.cause


def plain(told: Any) -> Any:
    match told:
        case torch.Tensor():
            return "values", torch.nan_to_num(told.detach().double()).flatten().tolist()
        case Reference():
            return told.key
        case list():
            return [plain(part) for part in told]
        case dict():
            return {key: plain(part) for key, part in told.items()}
    return told


def keys_in(told: Any) -> list[str]:
    each = told if isinstance(told, list) else [told]
    return [one["key"] for one in each if isinstance(one, dict) and one["key"] != TABLE]


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("hundred", range(6))
def test_nothing_that_a_worker_says_hangs_on_what_its_table_holds(hundred: int) -> None:
    """Not what may be had at the end, with its gradients; not shapes, words of refusals, names."""
    taken = 0
    for seed in range(100 * hundred, 100 * hundred + 100):
        rng = random.Random(seed)
        tables = [torch.tensor([[1.0, 2.0], [3.0, 5.0]]), torch.tensor([[7.0, 1.5], [2.5, 4.0]])]
        one, other = (Store({"t": table}) for table in tables)
        keys: list[str] = []
        for _ in range(25):
            words = words_at_random(rng, keys)
            told = said(one, words)
            assert told == said(other, words), (seed, words)
            keys += [key for key in keys_in(told) if key not in keys]
        for key in keys:
            for words in ({"do": "grad", "key": key}, {"do": "get", "key": key}):
                told = said(one, words)
                assert told == said(other, words), (seed, words)
                for made in keys_in(told):
                    got = said(one, {"do": "get", "key": made})
                    assert got == said(other, {"do": "get", "key": made}), (seed, made)
                taken += isinstance(told, tuple) and told[0] == "values"
    assert taken > 100  # something is had, so that there is something to compare
