"""In CI nothing is skipped but for the shared data that may be absent; no clock judges a test."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

ALLOWED = "shared/data"

# An example may take any time: under load one of a moment was over Hypothesis's 200 milliseconds.
settings.register_profile(
    "house", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("house")


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
