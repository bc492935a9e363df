"""The terms of the field stand in the glossary, on its pages, and where they are implemented."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "glossary.md"
# What somebody who knows another library searches for: in the module and on the page, word by word.
FIELD = (
    "privacy unit", "contribution bounds", "partition selection", "local differential privacy",
    "privacy budget", "post-processing", "accountant", "privacy filter", "sensitivity",
    "secure aggregation", "synthetic data", "output checking", "Poisson subsampling",
    "randomised response", "public keys", "private keys",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One term: its names, what it is, and the files that its last cell links."""

    names: tuple[str, ...]
    says: str
    links: tuple[Path, ...]

    @property
    def modules(self) -> list[Path]:
        return [path for path in self.links if path.suffix == ".py"]

    @property
    def pages(self) -> list[Path]:
        return [path for path in self.links if ROOT / "docs" in path.parents]


def rows() -> Iterator[Row]:
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("| ") and not line.startswith(("| term |", "| ---")):
            term, says, *_others, here = (cell.strip() for cell in line.strip("|").split("|"))
            names = tuple(name.strip() for name in re.split(r"[,()]", term) if name.strip())
            links = re.findall(r"\]\(([^)#]+)", here)
            yield Row(names, says, tuple((PAGE.parent / link).resolve() for link in links))


ROWS = list(rows())
BY_NAME = {name: row for row in ROWS for name in row.names}


def docstrings(path: Path) -> str:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (
        node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, kinds)
    )
    return "\n".join(ast.get_docstring(node) or "" for node in nodes)


def has(text: str, name: str) -> bool:
    """Say whether a text has the term, or its plural, whatever is large in it or bold."""
    plain = re.sub(r"[\s*]+", " ", text).casefold()
    return re.search(rf"\b{re.escape(name.casefold())}s?\b", plain) is not None


@pytest.mark.parametrize("row", ROWS, ids=[row.names[0] for row in ROWS])
def test_every_term_stands_in_the_docstrings_of_the_modules_that_it_links(row: Row) -> None:
    missing = [
        str(path)
        for path in row.modules
        if not any(has(docstrings(path), name) for name in row.names)
    ]
    assert missing == []


@pytest.mark.parametrize("name", FIELD)
def test_a_term_of_the_field_stands_on_its_page_and_in_its_module(name: str) -> None:
    row = BY_NAME[name]
    assert row.modules
    assert any(has(docstrings(path), name) for path in row.modules)
    assert any(has(path.read_text("utf-8"), name) for path in row.pages)


def test_every_term_is_said_once_in_a_sentence() -> None:
    named = [name for row in ROWS for name in row.names]
    assert len(named) == len(set(named))
    assert [row.names[0] for row in ROWS if not re.fullmatch(r"[A-Z].*\.", row.says)] == []


def test_the_glossary_is_linked_from_where_people_begin() -> None:
    links = {
        "README.md": "docs/reference/glossary.md",
        "docs/tutorials/start-here.md": "../reference/glossary.md",
    }
    for start, link in links.items():
        assert f"]({link})" in (ROOT / start).read_text("utf-8")


def test_a_term_that_is_missing_is_found() -> None:
    assert has("The **privacy\nunit** is", "privacy unit")
    assert not has("The unit of privacy is", "privacy unit")
    assert not has("remarks", "mark")
