"""The answer of a pipeline: numbers in a row with their error bars, and arrays beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from sfumato.dp.json_values import Json
from sfumato.features.pipelines.program_plan import MEDIAN, Run
from sfumato.release.locks.central_dp import GUARANTEE
from sfumato.sandbox.program_outputs import Output


def answer_of(run: Run, stored: Sequence[int]) -> Json:
    """Return what is shown of the stored whole numbers: sums over blocks, or chosen points."""
    parts = list(_parts(run, stored))
    plain = [(output, values[0]) for output, values in parts if not output.shape]
    return {
        "columns": [output.name for output, _ in plain],
        "rows": [[value for _, value in plain]],
        "std": [[_std(run, output) for output, _ in plain]],
        "interval": [[_interval(run, output, value) for output, value in plain]],
        "arrays": {
            output.name: {
                "values": nested(values, output.shape),
                "std": _std(run, output),
                "margin": _margin(run, output),
            }
            for output, values in parts
            if output.shape
        },
        "guarantee": GUARANTEE,
    }


def _parts(run: Run, stored: Sequence[int]) -> Iterator[tuple[Output, list[float]]]:
    if len(stored) != run.numbers:
        raise ValueError("a stored answer has another number of numbers")
    over = 1 if run.take == MEDIAN else run.counted
    place = 0
    for output in run.program.outputs:
        mine = stored[place : place + output.count]
        yield output, [_clamped(output, output.lower + output.step * one / over) for one in mine]
        place += output.count


def _clamped(output: Output, value: Fraction) -> float:
    """Return the value within the declared range: noise can carry it out, and it cannot be there.

    This is post-processing of what was released, and brings it no further from the average.
    """
    return float(min(max(value, output.lower), output.upper))


def nested(values: Sequence[float], shape: Sequence[int]) -> Sequence[object]:
    """Return the values as lists in lists of that shape, the last place fastest."""
    if len(shape) <= 1:
        return list(values)
    each = len(values) // shape[0]
    return [nested(values[i * each : (i + 1) * each], shape[1:]) for i in range(shape[0])]


def _std(run: Run, output: Output) -> float | None:
    noise = run.noise(output)
    return None if noise is None else float(output.step) * noise.std() / run.counted


def _margin(run: Run, output: Output) -> float | None:
    return None if run.take == MEDIAN else run.margins()[output.name]


def _interval(run: Run, output: Output, value: float) -> list[float] | None:
    """Return the interval around the clamped value, within the range.

    Clamping brings the value no further from an average that lies in the range, so the interval
    around it holds wherever that around the noisy value does.
    """
    margin = _margin(run, output)
    if margin is None:
        return None
    return [max(value - margin, float(output.lower)), min(value + margin, float(output.upper))]
