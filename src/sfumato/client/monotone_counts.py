"""Running counts made tidy: whole, not negative and never falling; free, of released numbers only.

The nearest rising line, each number weighed by its own noise (pool adjacent violators; Barlow,
Bartholomew, Bremner, Brunk 1972). It is a projection, so no deviation of it can be told (soundness
rule 22).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from sfumato.client.answer import Answer

Floats = NDArray[np.float64]

RISEN: Final = (
    "Running counts were made never to fall. Deviations and ranges are those before, cut at zero."
)


def nearest_monotone(answer: Answer, name: str, values: Floats, std: Floats) -> list[int]:
    """Return a column of running counts as whole numbers that never fall along their periods."""
    made = values.copy()
    for places in _series(answer, name):
        made[places] = nearest_rising(values[places], std[places])
    return [int(v) for v in np.maximum(np.rint(made), 0).tolist()]


def nearest_rising(values: Floats, std: Floats) -> Floats:
    """Return the numbers that never fall and are nearest, in shares of each one's noise."""
    weights = 1 / np.maximum(std, 1e-5) ** 2
    pools: list[tuple[float, float, int]] = []  # mean, weight and how many there are
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        pools.append((value, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            pools.append(_pooled(pools.pop(-2), pools.pop()))
    return np.repeat([mean for mean, _, _ in pools], [count for _, _, count in pools])


def _pooled(
    one: tuple[float, float, int], other: tuple[float, float, int]
) -> tuple[float, float, int]:
    weight = one[1] + other[1]
    return (one[0] * one[1] + other[0] * other[1]) / weight, weight, one[2] + other[2]


def _series(answer: Answer, name: str) -> list[list[int]]:
    """Return the rows of each running count by period; none where a key does not stand there."""
    asked = [answer.asked(column) for column in answer.columns]
    keys = [place for place, output in enumerate(asked) if "key" in output]
    along = cast("Sequence[object]", answer.asked(name)["of"])[0]
    periods = [place for place in keys if asked[place]["key"] == along]
    question = cast("Mapping[str, Any]", answer.receipt["question"])  # Any: JSON of the wire
    if not periods or len(keys) != len(question["group_by"]):
        return []
    order = sorted(range(len(answer.rows)), key=lambda row: str(answer.rows[row][periods[0]]))
    series: dict[tuple[object, ...], list[int]] = {}
    for row in order:
        others = tuple(answer.rows[row][place] for place in keys if place != periods[0])
        series.setdefault(others, []).append(row)
    return list(series.values())
