"""In CI nothing is skipped but for the shared data that may be absent; no clock judges a test."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # it has no types

from support import tiers, warm_workers

ALLOWED = "shared/data"

# Seconds of a test that has no record of its cost, with its part of the collection.
SHORT_S = 0.03

# `sparks` of contract/conftest.py lasts as long as a worker: one JVM for all of these.
ON_ONE_SPARK = tuple(
    f"contract/test_engine{of}.py"
    for of in ("", "_cold", "_forget", "_questions", "_streams", "_tables", "_wanted")
)

# An example may take any time: under load one of a moment was over Hypothesis's 200 milliseconds.
settings.register_profile(
    "house", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("house")


@pytest.fixture(scope="module", autouse=True)
def workers(request: pytest.FixtureRequest) -> None:
    """Have the engine's workers forked, but where a test is about their start."""
    if request.path.relative_to(Path(__file__).parent).as_posix() in warm_workers.COLD:
        warm_workers.cold()
    else:
        warm_workers.warm()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `make test` and `make test-all` (support/tiers.py)."""
    parser.addoption("--quick", action="store_true", help="run the tests of `make test` alone")
    parser.addoption("--costs", action="store_true", help="write what tests take: tests/costs.tsv")


def pytest_configure(config: pytest.Config) -> None:
    """Time the tests, where that is asked for; a worker of pytest-xdist does not."""
    if config.getoption("--costs") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(tiers.Timer(), "timer")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files and folders that need what `make test` does not install."""
    if not config.getoption("--quick"):
        return None
    if collection_path.is_dir():
        shared = collection_path / "conftest.py"
        return (shared.exists() and tiers.needs_more(shared)) or None
    is_tests = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    return (is_tests and tiers.needs_more(collection_path)) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not quick, and put the longest files first."""
    if config.getoption("--quick"):
        costs = tiers.read_costs()
        slow = [item for item in items if not tiers.is_quick(item.nodeid, costs)]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if tiers.is_quick(item.nodeid, costs)]
        costs = {}
    else:
        costs = tiers.read_costs()
    longest_first(items, costs)


def longest_first(items: list[pytest.Item], costs: dict[str, tiers.Cost]) -> None:
    """Put the longest files first, so that no worker waits for a long file at the end.

    Tests that share a worker stay together, and each file keeps its order.
    """
    took: dict[str, float] = defaultdict(float)
    for test, cost in costs.items():
        took[scope_of(test)] += cost.seconds
    for item in items:
        took[scope_of(item.nodeid)] += SHORT_S
    items.sort(key=lambda item: (-took[scope_of(item.nodeid)], scope_of(item.nodeid)))


def scope_of(test: str) -> str:
    """Return what a test shares its worker with: its file, or the files that share a Spark."""
    file = tiers.split_id(test)[0]
    return "engines" if file.endswith(ON_ONE_SPARK) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """Give every file to one worker, and files that share a Spark to one as well."""
    return Together(config, log)


class Together(LoadFileScheduling):  # type: ignore[misc]  # nor has this
    """Files by files, but for those that go together."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run if CI skipped a test for any other reason."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") != "true" or reporter is None:
        return
    reasons = [str(report.longrepr) for report in reporter.stats.get("skipped", [])]
    wrong = [reason for reason in reasons if ALLOWED not in reason]
    if wrong:
        reporter.write_line(f"CI skips nothing, but skipped: {wrong[0]}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
