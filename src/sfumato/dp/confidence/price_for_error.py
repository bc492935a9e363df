"""Find the smallest price on a grid that achieves an error bound, or refuse."""

from __future__ import annotations

from collections.abc import Callable

from sfumato.dp.refusal import Refused


def smallest_step(is_enough: Callable[[int], bool], max_step: int) -> int:
    """Return the smallest step in 1..most that is enough, by bisection; refuse if none is.

    If a step is enough, every larger step must be enough too.
    """
    if not is_enough(max_step):
        raise Refused(
            "error-out-of-reach",
            "No allowed epsilon makes the noise that small.",
            "Allow a larger error, or ask for less in one request.",
        )
    too_little = 0
    while max_step - too_little > 1:
        middle = (too_little + max_step) // 2
        if is_enough(middle):
            max_step = middle
        else:
            too_little = middle
    return max_step
