"""The same tests for workers in this process and at a real site, which is served once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest

from sfumato.release.guarantees import secure_aggregation
from support.tensor_workers import AGES, Make, RealSite, real_site

if TYPE_CHECKING:
    from sfumato.features.federated.tensors.worker import Worker

KINDS = ("in-process", "site")


@pytest.fixture(scope="session")
def served_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSite]:
    """Return the site; its workers are emptied for each test."""
    pytest.importorskip("torch", reason="torch is not installed: make .venv/torch.done")
    with real_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture
def without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """No site draws its share: what is left is the sum."""
    monkeypatch.setattr(
        secure_aggregation.skellam, "sample", lambda _v, count, _d: np.zeros(count, dtype=np.int64)
    )


@pytest.fixture(params=KINDS)
def worker(request: pytest.FixtureRequest) -> Make:
    """Return what makes a worker of that name."""
    from sfumato.features.federated import VirtualWorker

    if request.param == "in-process":
        return lambda name: VirtualWorker(id=name)
    site: RealSite = request.getfixturevalue("served_site")
    return site.fresh()


@pytest.fixture(params=KINDS)
def clinic(request: pytest.FixtureRequest) -> Worker:
    """Return a worker whose owner has a table of two people."""
    import torch

    from sfumato.features.federated import VirtualWorker

    if request.param == "in-process":
        return VirtualWorker(id="clinic", tables={"ages": torch.tensor(AGES)})
    site: RealSite = request.getfixturevalue("served_site")
    return site.fresh()("clinic")
