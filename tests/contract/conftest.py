"""One PostgreSQL for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pg


@pytest.fixture(scope="session")
def server() -> Iterator[pg.Server]:
    """Run a throw-away PostgreSQL."""
    with pg.running() as found:
        yield found
