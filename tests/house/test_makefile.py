"""The habits hold together: targets of make, hooks before a commit, the hosted run, locks."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")


def make(*words: str) -> str:
    """Return what make prints; it is asked only for what changes nothing."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    ran = subprocess.run(
        ("make", *words),
        cwd=ROOT, env=outside, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return ran.stdout


def lock(name: str) -> str:
    return (ROOT / "requirements" / f"{name}.lock").read_text("utf-8")


def entries(text: str) -> set[str]:
    """Return each locked version of a list, with all of its hashes."""
    return set(re.split(r"\n(?=\S)", text.strip()))


def test_help_has_one_line_for_each_target() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    lines = [line.split(maxsplit=1) for line in make("help").splitlines()]
    assert sorted(target for target, _ in lines) == sorted(phony.split())
    assert [target for target, says in lines if not re.fullmatch(r"[A-Z].*\.", says)] == []


def test_the_hooks_before_a_commit_run_what_make_check_runs() -> None:
    recipe = re.findall(r"^check:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)[0]
    checks = [line.removeprefix("\t@$(BIN)/") for line in recipe.splitlines()]
    hooks = (ROOT / ".pre-commit-config.yaml").read_text("utf-8")
    assert re.findall(r"^ +entry: \.venv/bin/(.*)$", hooks, re.MULTILINE) == checks
    assert re.findall(r"^ +- repo: (.*)$", hooks, re.MULTILINE) == ["local"]


def test_the_hosted_run_is_the_one_of_this_repository() -> None:
    hosted = (ROOT / ".github/workflows/ci.yml").read_text("utf-8")
    assert re.findall(r"^ +- run: (.*)$", hosted, re.MULTILINE) == [".ci/run"]
    used = re.findall(r"uses: (\S+)", hosted)
    assert [one for one in used if not re.fullmatch(r"actions/checkout@[0-9a-f]{40}", one)] == []


@pytest.mark.parametrize("name", ["build", "docs", "uv"])
def test_a_small_lock_holds_the_very_versions_of_the_large_one(name: str) -> None:
    assert entries(lock(name)) <= entries(lock("dev"))


@pytest.mark.parametrize(
    ("target", "locks"), [("wheel", {"uv", "build"}), ("docs", {"uv", "core", "docs"})]
)
def test_a_wheel_and_the_pages_install_only_what_they_need(target: str, locks: set[str]) -> None:
    # -B: as if nothing was made yet; -n: say it, and do nothing
    said = make("-n", "-B", target)
    assert set(re.findall(r"requirements/(\w+)\.lock", said)) == locks
