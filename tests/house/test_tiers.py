"""`make test` runs what took little by the record, and it still guards the promises."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.tiers import NOT_INSTALLED, Cost, Timer, is_quick, needs_more, read_costs, write_costs

ROOT = Path(__file__).parents[2]
# What breaks when noise is halved, a clamp dropped, a charge skipped, a sensitivity wrong, a wall
# crossed: a file of each has to stay in `make test`, with most of its tests.
GUARDS = (
    "tests/dp/mechanisms/test_laplace.py",
    "tests/engines/ingest/test_prepare.py",
    "tests/query/aggregates/test_sensitivity_attained.py",
    "tests/release/test_charged_events.py",
    "tests/release/test_guarded_release.py",
    "tests/house/test_import_walls.py",
)


def reported(node: str, when: str, seconds: float) -> Any:  # Any: what pytest has of a test
    return SimpleNamespace(nodeid=node, when=when, duration=seconds)


def timed(*reports: tuple[str, str, float]) -> dict[str, Cost]:
    timer = Timer()
    for one in reports:
        timer.pytest_runtest_logreport(reported(*one))
    return {cost.test: cost for cost in timer.costs()}


def test_a_function_is_dear_by_all_of_its_cases_and_its_cheapest_stays() -> None:
    costs = timed(
        ("a.py::f[x]", "call", 0.75), ("a.py::f[y[1]]", "call", 0.5), ("a.py::g", "call", 0.9)
    )
    assert costs == {"a.py::f": Cost("a.py::f", 1.25, "y[1]")}
    assert not is_quick("a.py::g[spark]", costs)
    assert [is_quick(f"a.py::{test}", costs) for test in ("f[x]", "f[y[1]]", "g", "new")] == [
        False, True, True, True,
    ]  # fmt: skip


def test_the_longest_set_up_is_that_of_the_file() -> None:
    costs = timed(
        ("a.py::f", "setup", 4.0), ("a.py::f", "call", 0.1), ("a.py::g", "call", 0.1),
        ("a.py::g", "teardown", 2.0),
    )  # fmt: skip
    assert costs == {"a.py": Cost("a.py", 6.0)}
    assert not is_quick("a.py::g", costs)


def test_the_record_is_read_as_it_is_written(tmp_path: Path) -> None:
    costs = [Cost("a.py::f", 2.5, "x-1"), Cost("a.py", 9.0)]
    write_costs(costs, tmp_path / "costs.tsv")
    assert read_costs(tmp_path / "costs.tsv") == {cost.test: cost for cost in costs}
    assert read_costs(tmp_path / "none.tsv") == {}


@pytest.mark.parametrize(
    "line", ["import torch", "    from pyspark.sql import x", 'importorskip("tor' + 'ch")']
)
def test_a_file_that_imports_more_is_found(line: str, tmp_path: Path) -> None:
    file = tmp_path / "test_a.py"
    file.write_text(f"import torchvision_of_ours\n{line}\n")
    assert needs_more(file)
    file.write_text("import torchvision_of_ours\n# import torch\n")
    assert not needs_more(file)


def test_what_is_recorded_is_there() -> None:
    files = {cost.partition("::")[0] for cost in read_costs()}
    assert [file for file in sorted(files) if not (ROOT / file).exists()] == []


def test_what_is_left_out_is_not_in_the_quick_lock() -> None:
    lock = (ROOT / "requirements" / "test.lock").read_text("utf-8")
    locked = {
        line.partition("==")[0].replace("-", "_") for line in lock.splitlines() if "==" in line
    }
    assert locked & {*NOT_INSTALLED, "axe_playwright_python"} == set()


@pytest.mark.parametrize("file", GUARDS)
def test_the_guards_stay_in_make_test(file: str) -> None:
    costs = read_costs()
    text = (ROOT / file).read_text("utf-8")
    tests = [
        line.split("(")[0].removeprefix("def ")
        for line in text.splitlines()
        if line.startswith("def test_")
    ]
    left_out = [test for test in tests if not is_quick(f"{file}::{test}", costs)]
    assert len(left_out) < len(tests) / 2
