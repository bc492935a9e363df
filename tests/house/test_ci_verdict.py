"""The verdict of CI: a skip stays red, a flaky test is written down, a repeated one is red."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools.ci_tests import judge, recorded

ONCE = """
from pathlib import Path

def test_lucky():
    mark = Path(__file__).with_name("was-run")
    was_run = mark.exists()
    mark.touch()
    assert was_run
"""
SKIPPED = """
import pytest

def test_skipped():
    pytest.skip("there is no such program")
"""
ALLOWED = SKIPPED.replace("there is no such program", "shared/data is absent")
FINE = "def test_fine():\n    pass\n"
BROKEN = "def test_broken():\n    assert 0\n"
MANY = "import pytest\n\n@pytest.mark.parametrize('n', range(11))\ndef test_all(n):\n    assert 0\n"


def verdict(folder: Path, **files: str) -> tuple[int, set[str]]:
    """Return the exit status of CI over these files of tests, and what was written down."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)

    def command(options: Sequence[str]) -> list[str]:
        alone = [option for option in options if option not in ("-n", "0")]
        return [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", str(folder), *alone]

    record = folder / "failed-once.tsv"
    return judge(command, record), set(recorded(record))


@pytest.mark.parametrize(
    ("files", "status"),
    [
        ({"fine": FINE}, 0),
        ({"fine": FINE, "skipped": ALLOWED}, 0),
        ({"fine": FINE, "skipped": SKIPPED}, 1),
        ({"fine": FINE, "broken": BROKEN}, 1),
        ({"fine": FINE, "broken": "import nothing_of_that_name\n"}, 1),
        ({"fine": FINE, "many": MANY}, 1),
        ({"skipped": ALLOWED}, 1),
        ({}, 1),
    ],
)
def test_only_a_run_in_which_all_passed_is_green(
    tmp_path: Path, files: dict[str, str], status: int
) -> None:
    assert verdict(tmp_path, **files) == (status, set())


def test_a_skip_beside_a_flaky_test_is_still_red(tmp_path: Path) -> None:
    assert verdict(tmp_path, fine=FINE, once=ONCE, skipped=SKIPPED)[0] == 1


def test_a_flaky_test_is_written_down_and_red_when_it_fails_again(tmp_path: Path) -> None:
    assert verdict(tmp_path, fine=FINE, once=ONCE) == (0, {"test_once::test_lucky"})
    (tmp_path / "was-run").unlink()
    assert verdict(tmp_path, fine=FINE, once=ONCE) == (1, {"test_once::test_lucky"})
