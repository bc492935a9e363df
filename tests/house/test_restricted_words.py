"""Words that only certain rooms may use (unsealing, randomness, asserts), and words of no prose."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sfumato.dp.refusal import CODES

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "sfumato"
# Words of no plain technical English: say compute, higher, repair, is, sandbox, submitted program.
ARCHAISMS = re.compile(
    r"\b(reckon|dearer|mend(?=s?\b|ed|ing)|lies\b|stands\b(?! for)|goes by\b|of which nobody"
    r"|hearken|thereof|bubbles?\b|strangers?\b)",
    re.IGNORECASE,
)
# (file, word) -> why it is there all the same; an entry that nothing needs has to go
KEPT = {
    ("CHANGELOG.md", "lies"): "a site that says what is not true",
    ("docs/how-to/surveys.md", "stands"): "where bicycles are parked",
    ("docs/reference/lab-bounds.md", "strangers"): "people outside the study, of the lab",
    ("docs/tutorials/lab-attacks-models.md", "strangers"): "people outside the study, of the lab",
    ("src/sfumato/client/vault.py", "stands"): "a field of a reply, which is a stored name",
    ("src/sfumato/features/audit/schema.py", "stands"): "a field of a reply",
    ("src/sfumato/features/audit/service.py", "stands"): "a field of a reply",
    ("src/sfumato/lab/attack_bounds.py", "strangers"): "people outside the study",
    ("src/sfumato/lab/attacks/membership_in_counts.py", "stranger"): "people outside the study",
    ("src/sfumato/lab/attacks/membership_in_counts.py", "strangers"): "a setting of the attack",
    ("src/sfumato/lab/attacks/membership_in_models.py", "strangers"): "a setting of the attack",
    ("src/sfumato/lab/audit/correct_mechanisms.py", "lies"): "coins that say what is not true",
    ("src/sfumato/lab/audit/stream_audit.py", "strangers"): "people without a canary",
    ("src/sfumato/sandbox/container_runtimes.py", "bubble"): "the host name in a sandbox",
    ("src/sfumato/sandbox/sandbox_process.py", "bubble"): "the host name in a sandbox",
    ("src/sfumato/sandbox/squashfs.py", "bubble"): "the host name in a sandbox",
    ("src/sfumato/server/console/static/complete.js", "bubbles"): "a word of the browser",
}
# The bytes of these are pinned: a program's results are stored under their digest.
PINNED = {f"sandbox/{name}.py" for name in ("inside", "function", "study", "image", "nested")}


def sources() -> Iterator[tuple[str, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), path.read_text("utf-8")


def places(pattern: str) -> set[str]:
    return {name for name, text in sources() if re.search(pattern, text)}


def test_only_the_door_opens_a_sealed_value() -> None:
    names = ("central_dp", "k_anonymity", "reviewed", "secure_aggregation")
    locks = {f"release/guarantees/{name}.py" for name in names}
    assert places(r"\bunseal\b") == {"release/unseal.py", *locks}


def test_nobody_reaches_into_a_sealed_value_by_its_slot() -> None:
    assert places(r"_Sealed__held|\b__held\b") == {"release/unseal.py", "vault/sealed.py"}


def test_real_randomness_stands_in_one_module() -> None:
    pattern = r"\bos\.urandom|\bimport secrets|\bSystemRandom\b|from random import|\bgetrandom\b"
    # a fixed seed: the bundled files, byte for byte; and the name of a call that programs may make
    made_once = {"lab/generate.py", "sandbox/seccomp.py"}
    assert places(pattern) - made_once == {"system/randomness.py"}


def test_numpy_randomness_is_used_in_the_lab_and_the_demo_alone() -> None:
    allowed = ("lab/", "cli/demo_story.py", "sandbox/inside.py")  # a program's own, seeded anew
    assert [p for p in places(r"np\.random|numpy\.random") if not p.startswith(allowed)] == []


def test_the_package_has_no_assert_that_dash_o_would_remove() -> None:
    found = [
        name
        for name, text in sources()
        if any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(text)))
    ]
    assert found == []


def test_broad_excepts_stand_only_where_everything_is_caught() -> None:
    # storage/sql_ledger rolls a transaction back and raises the very same error again;
    # federated/parallel_calls raises it again in the thread that asked
    allowed = (
        "release/", "server/", "cli/", "engines/duckdb/worker", "engines/shared/driver_process",
        "storage/sql_ledger", "storage/records_database", "sandbox/program_outputs",
        "features/federated/flower/client_mod", "features/federated/parallel_calls",
        "sandbox/inside", "sandbox/study",  # what a submitted program raises
        # where a failure would be a bit of somebody's rows
    )  # fmt: skip
    found = places(r"except (Base)?Exception\b|except:")
    assert [p for p in found if not p.startswith(allowed)] == []


def test_every_code_that_is_raised_is_in_the_table() -> None:
    raised = {c for _, text in sources() for c in re.findall(r'Refused\(\s*"([a-z-]+)"', text)}
    assert raised <= set(CODES)


def test_every_code_in_the_table_is_raised_somewhere() -> None:
    texts = [text for name, text in sources() if name != "dp/refusal.py"]
    used = {c for text in texts for c in re.findall(r'"([a-z]+(?:-[a-z]+)*)"', text)}
    assert [code for code in CODES if code not in used] == []


def test_every_code_has_a_page() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "reference" / "codes").glob("*.md")} - {"index"}
    assert pages == set(CODES)


def test_no_source_file_is_longer_than_900_lines() -> None:
    # One cohesive thing is one file; above 600 lines, look whether it is two things.
    long = {name: text.count("\n") for name, text in sources() if text.count("\n") > 900}
    assert long == {}


def archaisms(text: str) -> set[str]:
    """Return the archaisms of a text; addresses of links do not count."""
    return {word.lower() for word in ARCHAISMS.findall(re.sub(r"\]\([^)]*\)", "]", text))}


def prose() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each file of the package and of each page."""
    pages = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG")]
    folders = ((PACKAGE, ("py", "md", "html", "js", "css")), (ROOT / "docs", ("md", "svg")))
    for folder, endings in folders:
        pages += [page for ending in endings for page in sorted(folder.rglob(f"*.{ending}"))]
    for page in pages:
        pinned = page.is_relative_to(PACKAGE) and page.relative_to(PACKAGE).as_posix() in PINNED
        if not pinned and not page.is_relative_to(ROOT / "docs" / "notebook"):
            yield page.relative_to(ROOT).as_posix(), page.read_text("utf-8")


def test_prose_has_no_archaisms() -> None:
    assert {(name, word) for name, text in prose() for word in archaisms(text)} == set(KEPT)


@pytest.mark.parametrize(
    "sentence",
    [
        "What is reckoned is free.",
        "The dearer the noise.",
        "It mends the card.",
        "The file was mended.",
        "The file lies in a folder.",
        "This is how it stands.",
        "The name it goes by.",
        "A row of which nobody knows.",
        "It hearkens.",
        "The keys thereof.",
        "Two Bubbles run.",
        "A stranger's program.",
    ],
)
def test_a_planted_archaism_is_found(sentence: str) -> None:
    assert archaisms(sentence)


def test_words_that_only_look_like_archaisms_are_none() -> None:
    spared = "We recommend an amended card; n stands for rows; bubblewrap; [0030](strangers.md)."
    assert archaisms(spared) == set()


@pytest.mark.parametrize("lock", sorted(path.name for path in ROOT.glob("requirements/*")))
def test_a_locked_list_names_hashes_and_no_registry(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text()
    assert "--hash=sha256:" in text
    assert not re.search(r"https?://|--index|--extra-index|--find-links|pypi", text)


def unfilled(source: str) -> list[str]:
    """Return the texts of refusals in which a placeholder is shown as it is written."""
    return [
        part.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Refused"
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
        if re.search(r"\{(?:\w|'[^']*'\.)[^{}]*\}", part.value)
    ]


def test_no_refusal_shows_a_placeholder_that_nothing_fills() -> None:
    planted = 'Refused("code", "It is {name}.", f"Not {name!r}, nor " "{", "{ epsilon = 1 }")'
    assert unfilled(planted) == ["It is {name}."]
    for path in sorted(PACKAGE.rglob("*.py")):
        assert not unfilled(path.read_text("utf-8")), path
