"""One PostgreSQL for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import postgres_server


@pytest.fixture(scope="session")
def server() -> Iterator[postgres_server.Server]:
    """Run a throw-away PostgreSQL."""
    with postgres_server.running() as found:
        yield found
