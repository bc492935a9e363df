"""The time of a release says nothing of its noise."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from sfumato.query.measure import Cells, Measure
from sfumato.query.request import Request
from sfumato.query.sql.select import read_sql
from sfumato.release.guarded_release import release
from sfumato.release.release_order import Asker, Order
from sfumato.vault.sealed import Sealed
from support.scripted_engine import ScriptedEngine
from support.small_vaults import open_with, write_patients

pytestmark = pytest.mark.slow
RELEASES = 10_000
# 0.03 is two deviations of what chance makes of 500 slow ones among 5,000: this is more than four
CHANCE = 0.06
CARD = """
unit = "row"
people = "p"
version = "1"
budget = { epsilon = 1000, delta = 0 }
[columns.zip]
type = "text"
"""


def auc(sizes: list[int], times: list[float]) -> float:
    """Return how well the time tells the largest twentieth of |noise| from the smaller half."""
    size, spent = np.abs(np.array(sizes)), np.array(times)
    large, small = spent[size >= np.quantile(size, 0.95)], spent[size < np.quantile(size, 0.5)]
    u = stats.mannwhitneyu(large, small).statistic
    return float(u / (len(large) * len(small)))


def in_memory(tmp_path: Path) -> Path:
    memory = Path("/dev/shm")  # noqa: S108  # of the test's own, under pytest's unique name
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else tmp_path))
    return folder


def timed(draw: Callable[[int], int]) -> float:
    sizes, times = [], []
    for number in range(RELEASES):
        start = time.perf_counter()
        size = draw(number)
        times.append(time.perf_counter() - start)
        sizes.append(size)
    return auc(sizes, times)


def test_a_sampler_that_counts_is_caught_by_its_time() -> None:
    dice = random.Random(1)

    def counting(_number: int) -> int:
        size = 0
        while dice.random() < 0.99:
            size += 1
        return size

    assert timed(counting) > 0.9


@pytest.mark.parametrize("epsilon", ["0.05", "0.00002"])
def test_ten_thousand_single_releases_do_not_betray_their_noise(
    tmp_path: Path, epsilon: str
) -> None:
    folder = in_memory(tmp_path)  # a fast disk is harsher
    with open_with(folder, "clinic", write_patients(folder / "p.csv"), CARD) as vault:
        listing = vault.house.catalogue.find("clinic")
        assert listing is not None

        def reading(measure: Measure) -> Sealed[Cells]:
            return Sealed(Cells((np.zeros(1, dtype=np.int64),)))

        door = replace(vault.house.queries.door, engine=ScriptedEngine(reading))
        request = Request(read_sql("SELECT COUNT(*) FROM clinic", "clinic"), Fraction(epsilon))
        order = Order(
            listing.card,
            listing.table,
            request,
            Asker("owner"),
            "",
            lambda _: listing.card,
            fresh=True,
        )

        def draw(number: int) -> int:
            answer = release(door, replace(order, op=f"op-{number}")).answer
            rows = answer["rows"]
            assert isinstance(rows, list)
            return int(rows[0][0])

        assert abs(timed(draw) - 0.5) < CHANCE
