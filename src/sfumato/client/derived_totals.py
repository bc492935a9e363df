"""Sum released groups into totals: free post-processing, with correct error bars for sums.

Only counts of rows, and sums, over a complete list of public keys can be added (soundness rule 8).
Numbers of people would count some people twice, and private keys leave groups out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from sfumato.dp.refusal import Refused

if TYPE_CHECKING:
    from sfumato.client.answer_table import AnswerValues, SomeAnswer

ADDITIVE: Final = ("count", "count_values", "sum")
TIDIED: Final = "Tidied: free post-processing of released numbers, which spends no privacy budget."
MISS: Final = 0.05  # intervals hold at 95 %
_Z95: Final = 1.959963984540054


def total_cells(answer: SomeAnswer, keep: Sequence[str]) -> SomeAnswer:
    """Sum an answer's numbers over all keys that are not in `keep`, as a new answer."""
    places = _kept_places(answer, keep)
    numbers = _numbers(answer)
    groups: dict[tuple[object, ...], list[int]] = {}
    for row, values in enumerate(answer.rows):
        groups.setdefault(tuple(values[place] for place in places), []).append(row)
    lines = [_line(answer, key, rows, numbers) for key, rows in groups.items()]
    dropped = [
        c for c in answer.columns if c not in keep and answer.columns.index(c) not in numbers
    ]
    note = (
        f"Summed over {' and '.join(dropped) or 'nothing'} from an answer that was already paid; "
        "free."
    )
    return replace(
        answer,
        columns=(*keep, *(answer.columns[place] for place in numbers)),
        rows=tuple(line[0] for line in lines),
        std=tuple(line[1] for line in lines),
        interval=tuple(line[2] for line in lines),
        notes=(*answer.notes, note),
    )


def _line(
    answer: AnswerValues, key: tuple[object, ...], rows: list[int], numbers: list[int]
) -> tuple[tuple[object, ...], tuple[float | None, ...], tuple[tuple[float, float] | None, ...]]:
    values: list[object] = []
    stds: list[float | None] = []
    bars: list[tuple[float, float] | None] = []
    for place in numbers:
        total = sum(cast("float", answer.rows[row][place]) for row in rows)
        std = cast("float", answer.std[rows[0]][place])
        margin = margin_of_sum(std, len(rows), _kind(answer))
        values.append(total)
        stds.append(std * math.sqrt(len(rows)))
        # the interval of a total with a single cell
        of_one = answer.interval[rows[0]][place] if len(rows) == 1 else None
        bars.append(of_one or (total - margin, total + margin))
    nothing: list[None] = [None] * len(key)
    return (*key, *values), (*nothing, *stds), (*nothing, *bars)


def margin_of_sum(std: float, count: int, kind: str) -> float:
    """Bound the absolute sum of `count` independent noise values, at 95 % or more.

    For Gaussian noise the bound is the normal quantile. For Laplace noise of scale b it is a
    Chernoff bound. For the sum S and any x below 1/b, E exp(xS) <= (1 - (bx)^2)^-count. It holds
    for discrete noise of scale b too, as (cosh y - 1) / y^2 rises with y. The standard deviation s
    of discrete noise is below that of continuous noise: 2 b^2 <= 1.38 s^2 from half a step on. The
    factor 1.38 allows for that.
    """
    if kind == "gaussian":
        return _Z95 * std * math.sqrt(count)
    scale = std * math.sqrt(1.38 / 2)
    return min(_chernoff(scale, count, share / 100) for share in range(1, 100))


def _chernoff(scale: float, count: int, share: float) -> float:
    """Return the bound t that a sum of `count` Laplace noises exceeds with probability 5 % at most.

    The bound t solves 2 exp(-xt) (1 - share^2)^-count = 5 %, where x = share / scale (Chernoff).
    The caller takes the least t over several shares between 0 and 1.
    """
    return scale / share * (math.log(2 / MISS) - count * math.log1p(-(share**2)))


def _kind(answer: AnswerValues) -> str:
    mechanism = str(cast("dict[str, Any]", answer.receipt)["mechanism"])  # Any: JSON of the wire
    return "gaussian" if "gaussian" in mechanism else "laplace"


def has_private_keys(answer: AnswerValues) -> bool:
    """Return True if partition selection chose the answer's keys, so groups may be missing."""
    split = cast("list[dict[str, Any]]", answer.receipt.get("split", []))
    return any(part["part"] == "choice of keys" for part in split)


def _kept_places(answer: AnswerValues, keep: Sequence[str]) -> list[int]:
    if TIDIED in answer.notes:
        raise _refused(
            "The answer was tidied (post-processed), so its cells are biased and no longer "
            "independent.",
            "Add up the original answer first, and then tidy the totals. Both are free.",
        )
    if len(set(keep)) < len(keep):
        raise _refused("A key is named twice.", "Name each key once.")
    keys = [c for c in answer.columns if "key" in answer.output_of_column(c)]
    unknown = [name for name in keep if name not in keys]
    if unknown:
        raise _refused(
            f"{unknown[0]!r} is not a key of the answer.", "Keep some of: " + ", ".join(keys) + "."
        )
    question = cast("dict[str, Any]", answer.receipt["question"])
    if question["having"] is not None or question["limit"] is not None:
        raise _refused(
            "The answer does not have all groups, because the question has HAVING or LIMIT.",
            "Ask the same question without HAVING and LIMIT, which is free.",
        )
    if has_private_keys(answer):
        raise _refused(
            "Groups with few people are missing from the answer, so it cannot be added up.",
            "Ask for the total by itself.",
        )
    if len(keys) < len(question["group_by"]):
        raise _refused("A key of the grouping is not in the answer.", "Put every key into SELECT.")
    return [answer.columns.index(name) for name in keep]


def _numbers(answer: AnswerValues) -> list[int]:
    numbers = []
    for place, name in enumerate(answer.columns):
        asked = answer.output_of_column(name)
        if "key" in asked:
            continue
        if asked.get("verb") not in ADDITIVE:
            raise _refused(
                f"{name!r} is neither a count of rows nor a sum, so its cells do not add up.",
                "Ask for it by itself.",
            )
        numbers.append(place)
    return numbers


def _refused(cause: str, next_step: str) -> Refused:
    return Refused("not-in-language", cause, next_step)
