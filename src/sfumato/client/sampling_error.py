"""Widen error bars of means by the sampling error, computed from a noisy standard deviation.

The variance is private and must be paid for (soundness rule 4), so the same question asks for it.
The rest is free post-processing. For independent, identically distributed values with standard
deviation s, the mean of n values varies by s / sqrt(n) from sample to sample.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from sfumato.client.answer_table import AnswerValues, SomeAnswer
from sfumato.dp.refusal import Refused

NORMAL: Final = 1.96  # half-width of a normal 95 % interval, in standard deviations
SAMPLED: Final = (
    "The ± of {} includes sampling error, if values are independent and from one distribution. "
    "It adds noise and sampling, so it holds at 90 % or more."
)
Bar = tuple[float, float]


@dataclass(frozen=True)
class _Sources:
    """The positions of three columns of an answer: a mean, its standard deviation and count."""

    mean: int
    deviation: int
    count: int


def with_sampling_error(answer: SomeAnswer) -> SomeAnswer:
    """Widen the error bar of every mean by its sampling error; or refuse."""
    found = [_sources(answer, name) for name in answer.columns if _verb(answer, name) == "mean"]
    if not found:
        raise Refused(
            "not-in-language",
            "The answer has no mean (AVG), so it has no sampling error to add.",
            "Ask for AVG(x), STDDEV(x) and COUNT(x) of the same column in one question.",
        )
    names = ", ".join(answer.columns[of.mean] for of in found)
    if SAMPLED.format(names) in answer.notes:
        return answer
    std = [list(row) for row in answer.std]
    bars = [list(row) for row in answer.interval]
    for place in range(len(answer.rows)):
        for of in found:
            _widen(answer, of, place, std[place], bars[place])
    return replace(
        answer,
        std=tuple(map(tuple, std)),
        interval=tuple(map(tuple, bars)),
        notes=(*answer.notes, SAMPLED.format(names)),
    )


def _sources(answer: AnswerValues, name: str) -> _Sources:
    of = answer.output_of_column(name)["of"]
    deviation = _column(answer, "deviation", of)
    count = _column(answer, "count_values", of)
    if deviation is None or count is None:
        raise Refused(
            "not-in-language",
            f"The sampling error of {name!r} needs its standard deviation and the number of its "
            "values.",
            f"Ask for STDDEV and COUNT of the same expression in the same question as {name}.",
            column=name,
        )
    return _Sources(answer.columns.index(name), deviation, count)


def _column(answer: AnswerValues, verb: str, of: object) -> int | None:
    for place, name in enumerate(answer.columns):
        asked = answer.output_of_column(name)
        if asked.get("verb") == verb and asked.get("of") == of:
            return place
    return None


def _verb(answer: AnswerValues, name: str) -> object:
    return cast("Mapping[str, Any]", answer.output_of_column(name)).get("verb")


def _widen(
    answer: AnswerValues, of: _Sources, row: int, std: list[float | None], bars: list[Bar | None]
) -> None:
    spread, count = _number(answer, row, of.deviation), _number(answer, row, of.count)
    noise = std[of.mean] or 0.0
    std[of.mean] = math.hypot(noise, _error(spread, count))
    bar = bars[of.mean]
    widest, least = _end(answer, row, of.deviation, 1), _end(answer, row, of.count, 0)
    if bar is not None:
        more = NORMAL * _error(widest, least)
        bars[of.mean] = (bar[0] - more, bar[1] + more)


def _error(spread: float, count: float) -> float:
    return max(spread, 0.0) / math.sqrt(max(count, 1.0))


def _number(answer: AnswerValues, row: int, place: int) -> float:
    return float(str(answer.rows[row][place]))


def _end(answer: AnswerValues, row: int, place: int, which: int) -> float:
    """Return the lower (`which` 0) or upper (1) end of a number's interval.

    Without an interval, return the number itself.
    """
    bar = answer.interval[row][place]
    return _number(answer, row, place) if bar is None else float(bar[which])
