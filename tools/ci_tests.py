"""Run the tests for CI, run once more alone what failed, and give one verdict.

    python -m tools.ci_tests [options of pytest]

A test that fails beside others and passes alone is a flaky test. It is printed and written to
`.ci/failed-once.tsv`, which is committed. A test that is recorded there already and fails once more
is red. A skipped test is red in either run, unless it needs the shared data.
"""

from __future__ import annotations

import datetime
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
RECORD = ROOT / ".ci" / "failed-once.tsv"
HEADER = "date\ttest\n"
MAY_SKIP = "shared/data"
MOST_AGAIN = 10  # more failures than these are no luck
TESTS_FAILED = 1  # pytest's exit status; above it nothing was run, or not to its end
AGAIN = ("-n", "0", "-v", "--last-failed", "--last-failed-no-failures", "none")


@dataclass(frozen=True)
class Run:
    """What one run of pytest reported."""

    status: int
    passed: frozenset[str]
    failed: frozenset[str]
    skipped: frozenset[str]  # but for those that may be


def read_report(path: Path, status: int) -> Run:
    """Read a JUnit report of pytest."""
    found: dict[str, set[str]] = {"passed": set(), "failed": set(), "skipped": set()}
    cases = ElementTree.parse(path).iter("testcase") if path.exists() else ()  # noqa: S314  # ours
    for case in cases:
        name = f"{case.get('classname')}::{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            found["failed"].add(name)
        elif (skip := case.find("skipped")) is None:
            found["passed"].add(name)
        elif MAY_SKIP not in f"{skip.get('message')} {skip.text}":
            found["skipped"].add(name)
    return Run(status, *(frozenset(found[kind]) for kind in ("passed", "failed", "skipped")))


def complaints(first: Run, again: Run | None, known: frozenset[str]) -> list[str]:
    """Return why CI is red; nothing where it is green."""
    runs = [run for run in (first, again) if run is not None]
    said = [f"skipped (CI must skip no test): {name}" for run in runs for name in run.skipped]
    if any(run.status > TESTS_FAILED for run in runs):
        said.append("pytest stopped before it had run all tests")
    if again is None:
        said += [f"failed: {name}" for name in first.failed]
    else:
        said += [f"failed twice: {name}" for name in first.failed - again.passed]
        said += [f"failed once, as before: {name}" for name in first.failed & again.passed & known]
    if not said and runs[-1].status != 0:
        said.append("pytest reported a failure, but its report has no failed test")
    if not any(run.passed for run in runs):
        said.append("no test passed")
    return sorted(said)


def recorded(record: Path) -> frozenset[str]:
    """Return the tests that failed once in an earlier run."""
    lines = record.read_text("utf-8").splitlines()[1:] if record.exists() else []
    return frozenset(line.split("\t")[1] for line in lines)


def write_down(record: Path, names: Sequence[str]) -> None:
    """Append tests that failed once to the record."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    before = record.read_text("utf-8") if record.exists() else HEADER
    record.write_text(before + "".join(f"{today}\t{name}\n" for name in names), "utf-8")


def judge(command: Callable[[Sequence[str]], list[str]], record: Path) -> int:
    """Run the tests by this command, and return the exit status of CI."""
    with tempfile.TemporaryDirectory() as folder:

        def run(name: str, *options: str) -> Run:
            report = Path(folder) / f"{name}.xml"
            done = subprocess.run(command([*options, f"--junitxml={report}"]), check=False)
            return read_report(report, done.returncode)

        first, again = run("first"), None
        if first.status == TESTS_FAILED and 0 < len(first.failed) <= MOST_AGAIN:
            print("These tests failed (see above). Each runs again, alone:", flush=True)
            again = run("again", *AGAIN)
    known = recorded(record)
    flaky = sorted(first.failed & again.passed) if again else []
    write_down(record, [name for name in flaky if name not in known])
    for name in flaky:
        print(f"ci: failed once, passed alone (fix it, commit {record.name}): {name}")
    said = complaints(first, again, known)
    for line in said:
        print(f"ci: {line}")
    print(f"ci: {'red' if said else 'green'}")
    return 1 if said else 0


if __name__ == "__main__":
    PYTEST = (sys.executable, "-m", "pytest", *sys.argv[1:])
    sys.exit(judge(lambda options: [*PYTEST, *options], RECORD))
