"""Comments, docstrings and pages cite documents, rules and decisions that are in the repository."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "bench", "tools", "docs", "examples", "requirements", ".ci", ".github")
RULES = ROOT / "docs" / "explanation" / "soundness-rules.md"
SECTIONS = re.split(r"^### Rule (\d+a?)$", RULES.read_text("utf-8"), flags=re.M)
RULE = dict(zip(SECTIONS[1::2], SECTIONS[2::2], strict=True))
# Chapters of the public specification of OCI images, which oci_layers.py reads.
PUBLIC = {"image-layout.md", "layer.md"}
# Pages that tools/docs_site makes from the tables of the code.
GENERATED = {"reference/commands.md", "reference/routes.md"}
OLD_NAMES = "docs/notebook/0136-old-and-new-names.md"  # it lists the paths that are gone

Cited = tuple[str, str]  # where, what


def files() -> Iterator[Path]:
    """Yield every text file that may cite a document."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".md", ".js", ".html", ".css", ".toml", ".yml", ".yaml"}:
                yield path
    yield from sorted((*ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml"))


def prose_of(path: Path, text: str) -> str:
    """Return what is written for people: of Python the comments and docstrings, else all."""
    if path.suffix != ".py":
        return text
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    comments = re.findall(r"(?:^|\s)#.*", text)
    return "\n".join([*(ast.get_docstring(node) or "" for node in nodes), *comments])


@lru_cache(maxsize=1)
def prose() -> dict[str, str]:
    """Return the prose of each file that names a document, a rule or a decision."""
    found = {}
    for path in files():
        text = path.read_text("utf-8")
        if re.search(r"\.md\b|\brules?\s+\d|\b(decision|notebook)s?[ /]\d", text, re.I):
            found[path.relative_to(ROOT).as_posix()] = prose_of(path, text)
    return found


@lru_cache(maxsize=1)
def documents() -> set[str]:
    """Return all endings of the paths of Markdown files: `rules.md`, `explanation/rules.md`, …"""
    paths = [path.relative_to(ROOT).parts for folder in FOLDERS
             for path in (ROOT / folder).rglob("*.md")]  # fmt: skip
    paths += [(path.name,) for path in ROOT.glob("*.md")]
    return {"/".join(parts[at:]) for parts in paths for at in range(len(parts))}


def missing_documents(text: str) -> Iterator[str]:
    for cited in re.findall(r"(?<![\w.*/-])(?:\.{1,2}/)*([\w][\w./-]*\.md)\b", text):
        if cited not in documents() | PUBLIC | GENERATED:
            yield cited


def missing_decisions(text: str) -> Iterator[str]:
    """Yield every decision or diary that is named by its path or by its number and is not there."""
    named = re.findall(r"docs/(decisions|notebook)/(\d{4}[\w-]*)", text)
    short = re.findall(r"\b(decision|notebook) (\d{4})\b", text, re.I)
    named += [("notebook" if word.lower() == "notebook" else "decisions", n) for word, n in short]
    for folder, name in named:
        if not any((ROOT / "docs" / folder).glob(f"{name}*.md")):
            yield f"docs/{folder}/{name}"


def missing_rules(text: str) -> Iterator[str]:
    """Yield every cited rule that is not on the page, or that does not say whose rule it is."""
    number = r"\d+a?(?!\w)"
    for before, listed in re.findall(
        rf"(\w+\s+)?\brules?\s+({number}(?:(?:, | and | to ){number})*)", text, re.I
    ):
        if before.strip().lower() != "soundness":
            yield f"rule {listed}, of what?"
        yield from (one for one in re.findall(number, listed) if one not in RULE)


def all_of(missing: Callable[[str], Iterator[str]]) -> list[Cited]:
    # the page itself may point from rule to rule
    own = RULES.relative_to(ROOT).as_posix()
    skipped = {own, "tests/house/test_citations.py", OLD_NAMES}
    return [(path, what) for path, text in prose().items() if path not in skipped
            for what in missing(text)]  # fmt: skip


def test_every_document_that_is_cited_is_in_the_repository() -> None:
    assert all_of(missing_documents) == []


def test_every_decision_that_is_cited_by_its_number_is_there() -> None:
    assert all_of(missing_decisions) == []


def test_every_rule_that_is_cited_is_a_soundness_rule_of_the_page() -> None:
    assert all_of(missing_rules) == []


def test_a_citation_of_nothing_is_found() -> None:
    assert list(
        missing_documents("as (security.md, 3.1) has it; see `privacy_filter.proof.md`")
    ) == ["security.md"]
    assert list(missing_documents("[x](../../no/such/page.md) and a/README.md")) == [
        "no/such/page.md",
        "a/README.md",
    ]
    assert list(missing_documents("https://example.org/another/page.md")) == []
    assert list(missing_decisions("docs/decisions/9999, notebook 0001, notebook 9998")) == [
        "docs/decisions/9999",
        "docs/notebook/9998",
    ]
    assert list(missing_rules("rules 3, and (soundness rule 13)")) == ["rule 3, of what?"]
    assert list(missing_rules("soundness\nrules 8a and 99")) == ["99"]


def test_every_rule_names_modules_and_tests_that_hold_it() -> None:
    for number, text in RULE.items():
        modules = re.search(r"^These modules .*?\*: (.*?)\n\n", text, re.M | re.S)
        named = re.findall(r"`([\w./]+)`", modules.group(1)) if modules else []
        tests = re.findall(r"`([\w/]+\.py)::(test_\w+)`", text)
        assert named, number
        assert tests, number
        assert [m for m in named if not (ROOT / "src" / "sfumato" / m).exists()] == [], number


def test_every_test_that_the_page_names_is_there() -> None:
    for file, name in re.findall(r"`([\w/]+\.py)::(\w+)`", RULES.read_text("utf-8")):
        assert f"def {name}(" in (ROOT / "tests" / file).read_text("utf-8"), f"{file}::{name}"


def test_the_rules_are_numbered_in_turn() -> None:
    assert list(RULE) == [*map(str, range(1, 9)), "8a", *map(str, range(9, 41))]
