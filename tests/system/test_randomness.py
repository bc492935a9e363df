"""The real dice: as many bytes as were asked for, even, and never the same twice."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from sfumato.system.randomness import BulkRandomSource, SystemRandomSource

BOTH = (SystemRandomSource(), BulkRandomSource())


@pytest.mark.parametrize("dice", BOTH, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("count", [0, 1, 4096, 4097, 1 << 20])
def test_as_many_bytes_come_as_were_asked_for(dice: SystemRandomSource, count: int) -> None:
    assert len(dice.draw(count)) == count


@pytest.mark.parametrize("dice", BOTH, ids=lambda one: type(one).__name__)
def test_no_two_draws_are_alike(dice: SystemRandomSource) -> None:
    assert len({dice.draw(8192)[:32] for _ in range(300)}) == 300


def test_stretched_bytes_are_even_and_do_not_repeat() -> None:
    """Real dice: a chance of one in a million that this fails by itself."""
    drawn = np.frombuffer(BulkRandomSource().draw(1 << 22), dtype=np.uint8)
    assert stats.chisquare(np.bincount(drawn, minlength=256)).pvalue > 1e-6
    assert len(np.unique(drawn.view("<u8"))) == len(drawn) // 8
