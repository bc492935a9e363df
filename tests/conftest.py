"""In CI nothing is skipped but for the shared data that may be absent; no clock judges a test."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # it has no types

import warm

ALLOWED = "shared/data"

# What takes longest begins first: begun last, it would be waited for by idle workers.
LONGEST = (
    "contract/test_engine.py", "lab/test_door_audit.py", "contract/test_engine_spark.py",
    "examples/test_notebooks.py", "faults/test_pipeline_kills.py", "faults/test_release_kills.py",
    "faults/test_add_faults.py", "console/test_scripts.py", "contract/test_streams_on_engines.py",
    "docs/test_how_to.py", "contract/test_vault_on_spark.py", "console/test_survey_owner.py",
    "sandbox/test_environments.py", "console/test_eyes_and_ears.py", "lab/test_audit_targets.py",
    "sandbox/test_senders.py", "client/test_regression_noise.py", "console/test_survey_pages.py",
    "engines/test_sketch.py", "federated/test_remote.py", "door/test_stream_noise.py",
    "faults/test_stream_kills.py", "service/test_remote.py", "cli/test_contract.py",
    "contract/test_vault_on_postgres.py", "core/test_survey_mean.py", "engines/test_ranks.py",
    "service/test_jobs.py", "federated/test_sites.py", "door/test_pipelines.py",
    "lab/test_shipped.py", "federated/test_sums.py", "federated/test_rooms.py",
    "federated/test_flower.py", "engines/test_parts.py", "service/test_repeats.py",
    "plan/test_regression_sensitivity.py", "contract/test_ledger_machine.py",
    "plan/test_reference.py", "service/test_uploads.py", "docs/test_readme.py",
    "service/test_canaries.py", "docs/test_serving.py", "service/test_sheets_of_all.py",
    "federated/test_averages.py", "door/test_streams.py", "contract/test_survey_store.py",
    "docs/test_pipelines.py", "docs/test_airlock.py", "service/test_survey_flood.py",
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
    if request.path.relative_to(Path(__file__).parent).as_posix() in warm.COLD:
        warm.cold()
    else:
        warm.warm()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, then those of the most tests."""
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
