"""Run the slow tests in pieces, and record which file passed when: python -m tools.slow_tests.

Files that were never run come first, then those whose record is the oldest. The run stops after
`--minutes`, between two files, and the record (`tests/slow-record.tsv`) is committed.
"""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from tools.ci_tests import ROOT, read_report

RECORD = ROOT / "tests" / "slow-record.tsv"
HEADER = "file\tdate\tcommit\tpassed\tfailed\tskipped\tseconds\n"
SLOW = ("-m", "slow", "-p", "no:cacheprovider", "-q")


@dataclass(frozen=True)
class Line:
    """What became of the slow tests of one file, the last time that they were run."""

    file: str
    date: str
    commit: str
    passed: int
    failed: int
    skipped: int
    seconds: int


def read_record(record: Path) -> dict[str, Line]:
    """Return the record, by file."""
    lines = record.read_text("utf-8").splitlines()[1:] if record.exists() else []
    found = [line.split("\t") for line in lines]
    return {f[0]: Line(f[0], f[1], f[2], *(int(number) for number in f[3:])) for f in found}


def write_record(record: Path, lines: Iterable[Line]) -> None:
    """Write the record anew, in the order of files."""
    rows = sorted("\t".join(map(str, astuple(line))) for line in lines)
    record.write_text(HEADER + "".join(f"{row}\n" for row in rows), "utf-8")


def collected(pytest: Sequence[str]) -> list[str]:
    """Return the files that have slow tests."""
    command = [*pytest, *SLOW, "--collect-only", "-n", "0"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return sorted({line.partition("::")[0] for line in said.splitlines() if "::" in line})


def run_file(pytest: Sequence[str], file: str, commit: str) -> Line:
    """Run the slow tests of one file, and return its line of the record."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [*pytest, *SLOW, "-n", "2", file, f"--junitxml={report}"]
        done = subprocess.run(command, cwd=ROOT, check=False)
        run = read_report(report, done.returncode)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    counts = (len(run.passed), len(run.failed), len(run.skipped))
    return Line(file, today, commit, *counts, round(time.monotonic() - began))


def in_turn(
    files: Iterable[str], record: Path, minutes: float, run: Callable[[str], Line]
) -> list[Line]:
    """Run files until the time is over, the oldest record first; record each at once."""
    known = {file: line for file, line in read_record(record).items() if file in set(files)}
    end, ran = time.monotonic() + 60 * minutes, []
    for file in sorted(files, key=lambda file: known[file].date if file in known else ""):
        if time.monotonic() > end:
            break
        known[file] = run(file)
        ran.append(known[file])
        write_record(record, known.values())
    return ran


def main() -> int:
    """Run what there is time for; return 1 where a test failed or was skipped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    minutes = parser.parse_args().minutes
    pytest = [sys.executable, "-m", "pytest"]
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    files = collected(pytest)
    ran = in_turn(files, RECORD, minutes, lambda file: run_file(pytest, file, commit))
    bad = [line for line in ran if line.failed or line.skipped or not line.passed]
    for line in bad:
        print(f"slow: not green: {line.file} ({line.failed} failed, {line.skipped} skipped)")
    print(
        f"slow: {len(ran)} of {len(files)} files, {sum(line.passed for line in ran)} tests passed"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
