"""The tests of the sandbox, for every runtime that starts on this machine."""

from __future__ import annotations

import pytest

from bubbles import RUNTIMES, starts


@pytest.fixture(scope="module", params=RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> str:
    """Return a runtime by its name; the default one has to start."""
    name = str(request.param)
    if name != "bubblewrap" and not starts(name):
        pytest.skip(f"no bubble starts with {name} on this machine")
    return name
