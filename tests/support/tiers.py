"""Which tests `make test` runs: those that took under a second when all of them were last timed.

`tests/costs.tsv` is the record. It lists each test function that took longer (all of its cases
together), with the cheapest of its cases if that one is quick, and each file whose fixtures took
long. `make test` leaves those out, but for the cheapest cases. `make test-all` runs everything, and
`make test-all ARGS=--costs` writes the record anew.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parents[1]
RECORD: Final = TESTS / "costs.tsv"
HEADER: Final = "test\tseconds\tquick case\n"
QUICK_S: Final = 1.0  # a function with all of its cases, or its cheapest case
SET_UP_S: Final = 5.0  # the fixtures of a file

# The guards of promises: all of their tests run in `make test`, whatever they take.
ALWAYS: Final = (
    "tests/dp/mechanisms/test_laplace.py",
    "tests/engines/ingest/test_prepare.py",
    "tests/house/test_import_walls.py",
    "tests/query/aggregates/test_sensitivity_attained.py",
    "tests/release/test_guarded_release.py",
)

# What `make test` does not install (requirements/test.lock has no such package).
NOT_INSTALLED: Final = (
    "axe_playwright_python", "dp_accounting", "flwr", "ipykernel", "mkdocs", "mypy", "nbclient",
    "nbformat", "opendp", "playwright", "pyspark", "requests", "schemathesis", "torch",
)  # fmt: skip
_NAMES: Final = "|".join(NOT_INSTALLED)
_ANYWHERE: Final = re.compile(
    rf"^\s*(?:from|import) (?:{_NAMES})\b|importorskip\(\s*\"(?:{_NAMES})\"", re.M
)
_AT_THE_TOP: Final = re.compile(rf"^(?:from|import) (?:{_NAMES})\b", re.M)
_OURS: Final = re.compile(
    r"^(?:from|import) ((?:support|tools|bench)[.\w]*)(?: import (.*))?$", re.M
)


@dataclass(frozen=True)
class Cost:
    """What one test function, or the fixtures of one file, took."""

    test: str  # file::function, or a file
    seconds: float
    quick_case: str = ""  # what pytest writes in brackets


def read_costs(record: Path = RECORD) -> dict[str, Cost]:
    """Return the record, by test; nothing where there is none."""
    lines = record.read_text("utf-8").splitlines()[1:] if record.exists() else []
    found = [line.split("\t") for line in lines]
    return {test: Cost(test, float(seconds), case) for test, seconds, case in found}


def write_costs(costs: list[Cost], record: Path = RECORD) -> None:
    """Write the record anew, in the order of tests."""
    rows = sorted(f"{one.test}\t{one.seconds:.1f}\t{one.quick_case}\n" for one in costs)
    record.write_text(HEADER + "".join(rows), "utf-8")


def split_id(node: str) -> tuple[str, str, str]:
    """Return the file, the function and the case of a test's id."""
    file, _, rest = node.partition("::")
    function, _, case = rest.partition("[")
    return file, function, case.removesuffix("]")


def is_quick(node: str, costs: dict[str, Cost]) -> bool:
    """Say whether `make test` runs this test."""
    file, function, case = split_id(node)
    if file in ALWAYS:
        return True
    if file in costs or "spark" in node:  # a case of Spark, which is not installed
        return False
    found = costs.get(f"{file}::{function}")
    return found is None or (found.quick_case != "" and found.quick_case == case)


def needs_more(file: Path) -> bool:
    """Say whether a file of tests, or a helper of it, imports what `make test` does not install.

    A helper counts where it does so as it is imported. So does the folder's conftest.py.
    """
    if file.name == "conftest.py":
        return _needs_more_when_imported(file)
    text = file.read_text("utf-8")
    return _ANYWHERE.search(text) is not None or any(map(_needs_more_when_imported, _helpers(text)))


@cache
def _needs_more_when_imported(file: Path) -> bool:
    text = file.read_text("utf-8")
    return _AT_THE_TOP.search(text) is not None or any(
        map(_needs_more_when_imported, _helpers(text))
    )


def _helpers(text: str) -> list[Path]:
    """Return the files of ours, outside the package, that code imports at its top."""
    found = []
    for module, names in _OURS.findall(text):
        home = (TESTS if module.startswith("support") else TESTS.parent).joinpath(
            *module.split(".")
        )
        places = [home, *(home / name.strip(" (),") for name in names.split(","))]
        found += [place.with_suffix(".py") for place in places if place.with_suffix(".py").exists()]
    return found


class Timer:
    """A plugin that adds up what tests take, and writes the record when they have all run.

    Fixtures that a file's tests share are set up by one of its tests, and torn down by another. So
    the longest set-up and the longest teardown of a file are its own, and not those of a test.
    """

    def __init__(self) -> None:
        self.took: dict[str, float] = defaultdict(float)
        self.longest: dict[str, dict[str, tuple[float, str]]] = defaultdict(dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the time of one test's set-up, call or teardown."""
        file, _, _ = split_id(report.nodeid)
        self.took[report.nodeid] += report.duration
        if report.when != "call":
            found = (report.duration, report.nodeid)
            longest = self.longest[file]
            longest[str(report.when)] = max(longest.get(str(report.when), found), found)

    def costs(self) -> list[Cost]:
        """Return what belongs into the record."""
        took = dict(self.took)
        shared = dict[str, float]()
        for file, longest in self.longest.items():
            shared[file] = sum(seconds for seconds, _ in longest.values())
            for seconds, node in longest.values():
                took[node] -= seconds
        cases: dict[str, dict[str, float]] = defaultdict(dict)
        for node, seconds in took.items():
            file, function, case = split_id(node)
            cases[f"{file}::{function}"][case] = seconds
        return [Cost(file, seconds) for file, seconds in shared.items() if seconds >= SET_UP_S] + [
            Cost(test, sum(of.values()), _quick_case(of))
            for test, of in cases.items()
            if sum(of.values()) >= QUICK_S
        ]

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the record, unless the run was stopped."""
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            write_costs(self.costs())


def _quick_case(cases: dict[str, float]) -> str:
    case = min(cases, key=lambda case: cases[case])
    return case if cases[case] < QUICK_S and "\t" not in case else ""
