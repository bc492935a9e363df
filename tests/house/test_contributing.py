"""Paths that the pages for contributors name are there, and so are the names that they edit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md")
PATH = re.compile(
    r"`((?:src|tests|docs|tools|bench|requirements|examples)/[\w./-]*|[\w-]+\.(?:md|toml|yaml))`"
)
# name that a step tells to edit -> the file that has it
EDITED = {
    "AGGREGATES": "src/sfumato/query/aggregates/registry.py",
    "WORDS": "src/sfumato/features/queries/pages.py",
    "_READERS": "src/sfumato/query/sql/aggregates.py",
    "_OURS": "src/sfumato/query/sql/aggregates.py",
    "Registered": "src/sfumato/query/aggregates/registry.py",
    "QUESTIONS": "src/sfumato/lab/audit/release_audit.py",
    "PAIRS": "tests/query/aggregates/test_sensitivity_attained.py",
    "CHARGED": "tests/release/test_charged_events.py",
    "NUMBERS": "tests/query/test_intervals.py",
    "TIGHT": "tests/query/test_intervals.py",
    "said_plainly": "tests/support/query_oracle.py",
    "LARGEST": "src/sfumato/query/number_types.py",
    "SHIPPED": "src/sfumato/lab/audit/shipped_mechanisms.py",
    "NO_MECHANISM": "src/sfumato/lab/audit/shipped_mechanisms.py",
    "Tally": "src/sfumato/query/measure.py",
    "Engine": "src/sfumato/vault/engine_port.py",
    "StreamEngine": "src/sfumato/vault/engine_port.py",
    "make_engine": "tests/contract/conftest.py",
    "kind": "tests/contract/conftest.py",
    "self_test": "src/sfumato/vault/engine_port.py",
    "EngineStopped": "src/sfumato/vault/engine_port.py",
}


def paths(text: str) -> list[str]:
    """Return every path of the repository that a page names or links."""
    linked = re.findall(r"\]\(([\w./-]+)(?:#[\w-]+)?\)", text)
    return [*PATH.findall(text), *linked]


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_is_named_is_there(page: str) -> None:
    found = paths((ROOT / page).read_text("utf-8"))
    assert found
    assert [path for path in found if not (ROOT / path).exists()] == []


def test_every_name_that_a_step_tells_to_edit_is_in_its_file() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    for name, file in EDITED.items():
        assert f"`{name}`" in text
        assert f"`{file}`" in text
        made = rf"^(?:class |(?: *)def )?{name}\b"
        assert re.search(made, (ROOT / file).read_text("utf-8"), re.MULTILINE), (name, file)


def test_a_path_that_is_gone_is_found() -> None:
    assert paths("see `src/sfumato/gone.py` and [it](docs/gone.md#x)") == [
        "src/sfumato/gone.py", "docs/gone.md",
    ]  # fmt: skip
