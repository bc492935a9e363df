"""Every aggregate has its oracle, its audit, a method, a place in the docs and on the console."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from sfumato.client import query_builder
from sfumato.features.queries.pages import WORDS
from sfumato.lab.audit.release_audit import QUESTIONS
from sfumato.query.aggregates.registry import AGGREGATES, Registered

ROOT = Path(__file__).parents[3]


def texts_of(file: Path) -> set[str]:
    """Return every text that stands in the code of a file."""
    nodes = ast.walk(ast.parse(file.read_text("utf-8")))
    return {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def lacking(verb: str, one: Registered) -> Iterator[str]:
    """Yield what an aggregate lacks, as CONTRIBUTING.md names it."""
    called = one.sql + "("
    file_of = one.kind.parts.__module__.rpartition(".")[2]
    tables = {
        "PAIRS": "tests/query/aggregates/test_sensitivity_attained.py",
        "CHARGED": "tests/release/test_charged_events.py",
        "said_plainly": "tests/support/query_oracle.py",
    }
    for name, file in tables.items():  # the running count has a file of its own
        if verb != "running_count" and verb not in texts_of(ROOT / file):
            yield f"an entry in {name} of {file}"
    if not any(file_of in question.verbs for question in QUESTIONS):
        yield "a question in QUESTIONS of src/sfumato/lab/audit/release_audit.py"
    if verb not in texts_of(Path(query_builder.__file__)):
        yield "a method in src/sfumato/client/query_builder.py"
    if called not in (ROOT / "docs" / "reference" / "questions.md").read_text("utf-8"):
        yield f"{called} in docs/reference/questions.md"
    if not any(word.startswith(called) for word in WORDS):
        yield f"{called} in WORDS of src/sfumato/features/queries/pages.py"


@pytest.mark.parametrize("verb", AGGREGATES)
def test_an_aggregate_lacks_nothing(verb: str) -> None:
    found = list(lacking(verb, AGGREGATES[verb]))
    assert not found, "\n".join(["it lacks:", *found])


def test_what_is_lacking_is_found() -> None:
    toy = Registered(AGGREGATES["mean"].kind, "TOY", "toy_{}")
    assert len(list(lacking("toy", toy))) == 6
