"""Every promise of INVARIANTS.md names tests, and every test that it names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "INVARIANTS.md").read_text("utf-8")
NAMED = re.findall(r"`([\w/]+\.py)::(\w+)`", TEXT)
PROMISES = re.split(r"^(?=\d+\. )", re.sub(r"^## .*$", "", TEXT, flags=re.M), flags=re.M)[1:]


def names_in(file: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text("utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def test_every_test_that_a_promise_names_is_there() -> None:
    missing = [f"{file}::{name}" for file, name in NAMED if name not in names_in(file)]
    assert missing == []
    assert all(name.startswith("test_") for _, name in NAMED)


def test_every_promise_names_tests_and_is_numbered_in_turn() -> None:
    assert [int(one.split(".", 1)[0]) for one in PROMISES] == list(range(1, len(PROMISES) + 1))
    assert all(re.search(r"`[\w/]+\.py::test_\w+`", one) for one in PROMISES)


def test_no_promise_names_a_test_twice_and_nothing_else_stands_in_backticks() -> None:
    assert len(NAMED) == len(set(NAMED))
    lines = TEXT.split("## Paying", 1)[1]
    assert lines.count("`") == 2 * len(NAMED)
