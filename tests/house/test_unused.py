"""What no code, page or notebook names is dead: tests alone keep nothing alive."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
READERS = (
    "src/**/*.py", "src/**/*.html", "src/**/*.md", "docs/**/*.md", "examples/*.ipynb",
    "bench/**/*.py", "tools/**/*.py", "README.md",
)  # fmt: skip
# name -> who uses it all the same
DECLARES = ("verb", "open_verb")
KEPT = {
    "Forgetful": "a target of the lab that `probe` is to find wanting",
    "above_bounds": "what a report of the lab is judged by",
    "wait_closed": "uvicorn calls it",
    "format_commands": "click calls it",
    "create_module": "Python's import calls it",
    "exec_module": "Python's import calls it",
    "average_in_other_words": "an exhibit of the lab, as a function to call",
    "label_of_one": "an exhibit of the lab, as a function to call",
    "spread_of_errors": "an exhibit of the lab, as a function to call",
    "predicates_of_extremes": "an exhibit of the lab, as a function to call",
    "prefix_oracle_of": "reads a heavy hitter's parameters, as its kin do, in dp/local",
    "mean_places": "what is estimated from rankings, of the library of dp/local",
    "mean_places_by_pairs": "what is estimated from rankings, of the library of dp/local",
}


def public(tree: ast.Module) -> Iterator[str]:
    """Yield the name of every public function, method and class; but not of a verb's handler."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for node in ast.walk(tree):
        if isinstance(node, kinds) and not node.name.startswith("_") and not is_handler(node):
            yield node.name


def is_handler(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """Say whether a decorator declares the function as the handler of a verb."""
    called = (one.func for one in node.decorator_list if isinstance(one, ast.Call))
    return any(isinstance(one, ast.Attribute) and one.attr in DECLARES for one in called)


def unused(names: Iterable[str], texts: Iterable[str]) -> set[str]:
    """Return the names that stand in the texts once at most: where they are made."""
    words: Counter[str] = Counter()
    for text in texts:
        words.update(re.findall(r"\w+", text))
    return {name for name in names if words[name] <= 1}


def test_nothing_public_is_there_for_its_tests_alone() -> None:
    sources = [path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py")]
    names = {name for text in sources for name in public(ast.parse(text))}
    texts = [path.read_text("utf-8") for glob in READERS for path in ROOT.glob(glob)]
    assert unused(names, texts) == set(KEPT)


def test_a_name_that_nobody_uses_is_found() -> None:
    text = "class Used:\n    def spare(self) -> None: ...\n\nUsed()\n"
    assert unused(public(ast.parse(text)), [text]) == {"spare"}
