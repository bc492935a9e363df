"""Properties that are tried on examples of Hypothesis's are judged by what is true alone."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=1, database=None)
@given(st.just(0))
def test_an_example_may_take_longer_than_hypothesis_has_patience_for(example: int) -> None:
    time.sleep(0.3)
    assert example == 0
