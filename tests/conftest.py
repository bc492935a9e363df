"""In CI nothing is skipped but for the shared data that may be absent; no clock judges a test."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # it has no types

from support import tiers, warm_workers

ALLOWED = "shared/data"

# What takes longest begins first: begun last, it would be waited for by idle workers.
LONGEST = (
    "contract/test_engine.py", "lab/audit/test_release_audit.py", "contract/test_engine_spark.py",
    "examples/test_notebooks.py", "faults/test_pipeline_kills.py", "faults/test_release_kills.py",
    "faults/test_add_faults.py", "server/console/test_script_injection.py", "contract/test_streams_on_engines.py",  # noqa: E501
    "docs/test_how_to.py", "contract/test_vault_on_spark.py", "server/console/test_survey_owner.py",
    "sandbox/test_environment_store.py", "server/console/test_accessibility.py", "lab/audit/test_external_targets.py",  # noqa: E501
    "sandbox/test_covert_senders.py", "features/regression/test_noise.py", "server/console/test_survey_pages.py",  # noqa: E501
    "engines/ingest/test_person_sketch.py", "features/federated/tensors/test_remote_tensor.py", "features/streams/test_noise.py",  # noqa: E501
    "faults/test_stream_kills.py", "client/test_remote_vault.py", "cli/test_json_contract.py",
    "contract/test_vault_on_postgres.py", "features/surveys/test_mean_interval.py", "engines/kernel/test_ranks.py",  # noqa: E501
    "features/jobs/test_jobs.py", "features/federated/test_sites.py", "features/pipelines/test_release.py",  # noqa: E501
    "lab/audit/test_shipped_mechanisms.py", "features/federated/test_sum_release.py", "features/federated/tensors/test_tensor_processes.py",  # noqa: E501
    "features/federated/test_flower.py", "engines/shared/test_stored_parts.py", "release/test_repeats_under_kills.py",  # noqa: E501
    "features/regression/test_sensitivity.py", "contract/test_ledger_machine.py",
    "query/test_reference_plans.py", "features/data_sets/test_uploads.py", "docs/test_readme.py",
    "server/test_row_canaries.py", "docs/test_serving.py", "features/audit/test_answer_sheet.py",
    "features/federated/test_average_release.py", "features/streams/test_release.py", "contract/test_survey_store.py",  # noqa: E501
    "docs/test_pipelines.py", "docs/test_airlock.py", "features/surveys/test_report_flood.py",
)  # fmt: skip

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
    """Leave out what is not quick; put the longest files first, then those of the most tests."""
    if config.getoption("--quick"):
        costs = tiers.read_costs()
        slow = [item for item in items if not tiers.is_quick(item.nodeid, costs)]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if tiers.is_quick(item.nodeid, costs)]
    home, many = Path(__file__).parent, Counter(item.path for item in items)
    first = {home / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (first.get(item.path, len(first)), -many[item.path]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """Give every file to one worker, and files that share a Spark to one as well."""
    return Together(config, log)


class Together(LoadFileScheduling):  # type: ignore[misc]  # nor has this
    """Files by files, but for those that go together."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "engines" if file.endswith(ON_ONE_SPARK) else file


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
