"""Every test that a comment, a proof or a page names is there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
READ = ("src/**/*.py", "src/**/*.md", "docs/**/*.md", "bench/**/*.py", "README.md")
NO_TEST = {"test_target", "test_rows"}  # of bench/digits.py: pictures, and what they show
FILES = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")}
NAMES = {Path(file).stem for file in FILES} | {
    name
    for file in FILES
    for name in re.findall(r"\bdef (test_\w+)", (ROOT / file).read_text("utf-8"))
}


def missing(text: str) -> Iterator[str]:
    """Yield every file of tests, and every test, that a text names and that is not there."""
    yield from (file for file in re.findall(r"\btests/[\w/]+\.py\b", text) if file not in FILES)
    for name in re.findall(r"\btest_\w+\b", text):  # one that ends in _ is the beginning of several
        known = name in NAMES | NO_TEST or (
            name[-1] == "_" and any(n.startswith(name) for n in NAMES)
        )
        if not known and f"{name}.py" not in text:
            yield name


def named_in(paths: Iterable[Path]) -> list[str]:
    return [f"{path}: {one}" for path in paths for one in missing(path.read_text("utf-8"))]


def test_every_test_that_is_named_is_there() -> None:
    assert named_in(path for glob in READ for path in ROOT.glob(glob)) == []


def test_a_test_that_is_gone_is_found() -> None:
    assert list(missing("Held by `test_of_nothing` of tests/house/test_named_tests.py.")) == [
        "test_of_nothing"
    ]
    assert list(missing("see tests/house/test_nothing.py")) == ["tests/house/test_nothing.py"]
