"""One browser and one service for a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from support.browser import chromium
from support.served_vault import Service, served
from support.small_vaults import patients_vault


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return a running Chromium; while it runs, no test of its process can run a loop."""
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service of one vault with two hundred patients, whom ada may ask about."""
    with served(patients_vault(tmp_path_factory.mktemp("console"), "ada")) as running:
        yield running
