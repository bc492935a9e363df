"""What epsilon costs in error: a table, many draws at one epsilon, and the whole curve.

The noise is the platform's own. The error of a count hangs on epsilon alone, never on the rows, so
all of it can be known before anything is asked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.client.chart import CONFIG, SCHEMA
from sfumato.client.plot import Plot
from sfumato.client.terms import Json
from sfumato.core.refusal import Refused
from sfumato.lab.ours import private_sums

STEPS: Final = 1_000_000  # of a number between its bounds, so that rounding is no part of the error
EPSILONS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
# Where one kind of protection ends is a convention, not a theorem; the odds beside it are one.
REGIONS: Final = (("high privacy", 0.1, 1.0), ("medium", 1.0, 10.0), ("low", 10.0, 30.0))
TINTS: Final = ("#009E73", "#E69F00", "#D55E00")


@dataclass(frozen=True)
class Errors:
    """The errors of many releases of one sum at one epsilon."""

    epsilon: float
    mean: float  # of the error's size
    within: float  # 95 % of the errors are no larger
    odds: float  # by which the release may shift what anybody believes of a person, at most

    def cells(self, unit: float) -> tuple[str, ...]:
        """Return the row of a table, of errors in that unit."""
        mean, within = self.mean * unit, self.within * unit
        return (f"{self.epsilon:g}", f"{mean:,.4g}", f"{within:,.4g}", f"{_short(self.odds)} : 1")


def _short(number: float) -> str:
    """Return three digits of it as people read numbers, however large."""
    return f"{number:.3g}" if number < 1000 else f"{float(f'{number:.3g}'):,.0f}"


def errors(
    epsilons: Sequence[float],
    dice: np.random.Generator,
    *,
    sensitivity: int = 1,
    trials: int = 10_000,
) -> tuple[Errors, ...]:
    """Return how far releases at each epsilon are from the truth, over so many trials each."""
    return tuple(_errors(one, dice, sensitivity, trials) for one in epsilons)


def _errors(epsilon: float, dice: np.random.Generator, sensitivity: int, trials: int) -> Errors:
    truth = np.zeros(trials, dtype=np.int64)
    sizes = np.abs(private_sums(truth, sensitivity=sensitivity, epsilon=epsilon, dice=dice))
    within = float(np.quantile(sizes, 0.95, method="higher"))
    return Errors(epsilon, float(sizes.mean()), within, math.exp(epsilon))


def error_table(dice: np.random.Generator, epsilons: Sequence[float] = EPSILONS) -> Plot:
    """Return the table of epsilon against error, for a count."""
    return _curve(errors(epsilons, dice), "What epsilon costs: the error of a count", 1.0)


def utility_curve(
    people: int, low: float, high: float, dice: np.random.Generator, *, points: int = 25
) -> Plot:
    """Return the error of a mean over epsilon from 0.1 to 30.

    It is the mean of so many people's numbers, clamped to the bounds; how many they are is public.
    """
    if people < 1 or not low < high:
        raise Refused("bad-request", "No such mean.", "Give people, and a low below a high.")
    spaced = [float(f"{one:.3g}") for one in np.geomspace(0.1, 30, points)]
    found = errors(spaced, dice, sensitivity=STEPS)
    title = f"Privacy and usefulness: a mean of {people:,} people between {low:g} and {high:g}"
    return _curve(found, title, (high - low) / STEPS / people)


def _curve(found: Sequence[Errors], title: str, unit: float) -> Plot:
    """Return the curve, of errors in that unit."""
    columns = ("epsilon", "mean error", "95 % within", "odds move by at most")
    first, last = found[0], found[-1]
    summary = (
        f"At epsilon {first.epsilon:g} the error is {_short(first.mean * unit)} on average, at "
        f"{last.epsilon:g} it is {_short(last.mean * unit)}. What anybody believes of a person can "
        f"move by odds of {_short(first.odds)} to 1 at epsilon {first.epsilon:g}, and of "
        f"{_short(last.odds)} to 1 at {last.epsilon:g}."
    )
    cells = tuple(one.cells(unit) for one in found)
    spec = {**_curve_spec(found, title, unit), "description": summary}
    return Plot(spec, title, summary, columns, cells)


def _curve_spec(found: Sequence[Errors], title: str, unit: float) -> Json:
    rows = [{"epsilon": e.epsilon, "mean": e.mean * unit, "within": e.within * unit} for e in found]
    x: Json = {
        "field": "epsilon", "type": "quantitative", "scale": {"type": "log", "domain": [0.1, 30]},
        "axis": {"values": [0.1, 0.3, 1, 3, 10, 30], "grid": False}, "title": "epsilon",
    }  # fmt: skip
    y: Json = {"type": "quantitative", "title": "error"}
    return {
        "$schema": SCHEMA, "config": CONFIG, "width": 560, "height": 300,
        "title": {"text": title, "subtitle": ["Line: mean error. Soft band: 95 % of the errors."]},
        "layer": [*_regions(x), {"data": {"values": rows}, "layer": [
            _drawn({"type": "area", "opacity": 0.25}, x, {**y, "field": "within"}),
            _drawn({"type": "line", "size": 3}, x, {**y, "field": "mean"}),
        ]}],
    }  # fmt: skip


def _regions(x: Json) -> list[Json]:
    """Return the regions of high, medium and low privacy, tinted and named."""
    bands = [
        {"name": name, "from": low, "to": high, "tint": tint}
        for (name, low, high), tint in zip(REGIONS, TINTS, strict=True)
    ]
    left: Json = {**x, "field": "from"}
    tint: Json = {"field": "tint", "type": "nominal", "scale": None}
    sides: Json = {"x": left, "x2": {"field": "to"}, "color": tint}
    names: Json = {"x": left, "y": {"value": 14}, "text": {"field": "name"}}
    word: Json = {"type": "text", "align": "left", "dx": 6}
    data: Json = {"values": bands}
    return [
        {"data": data, "mark": {"type": "rect", "opacity": 0.1}, "encoding": sides},
        {"data": data, "mark": word, "encoding": names},
    ]


def _drawn(mark: Json, x: Json, y: Json) -> Json:
    return {"mark": mark, "encoding": {"x": x, "y": y}}


def repeated_trials(
    truth: int, epsilon: float, dice: np.random.Generator, *, trials: int = 1000
) -> Plot:
    """Return the picture of many releases of one count, beside the truth."""
    whole = np.full(trials, truth, dtype=np.int64)
    released = private_sums(whole, sensitivity=1, epsilon=epsilon, dice=dice)
    low, high = (int(np.quantile(released, q, method="nearest")) for q in (0.025, 0.975))
    title = f"{trials:,} releases of one count, each at epsilon {epsilon:g}"
    summary = (
        f"The truth is {truth:,}. The releases lie around it: 95 % of them between {low:,} and "
        f"{high:,}. A platform gives one of them; whoever could draw them all would average them."
    )
    values, counts = _bins(released)
    cells = tuple((f"{v:,}", f"{c:,}") for v, c in zip(values, counts, strict=True))
    spec = _trials_spec(values, counts, truth, title)
    return Plot({**spec, "description": summary}, title, summary, ("released", "times"), cells)


def _bins(released: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    """Return the middles of at most 61 equal bins, and how many releases fall in each."""
    low, high = int(released.min()), int(released.max())
    width = (high - low) // 61 + 1
    places = (released - low) // width
    counts = np.bincount(places)
    return [low + width * place + width // 2 for place in range(len(counts))], counts.tolist()


def _trials_spec(values: Sequence[int], counts: Sequence[int], truth: int, title: str) -> Json:
    rows = [{"value": v, "times": c} for v, c in zip(values, counts, strict=True)]
    x: Json = {
        "field": "value",
        "type": "quantitative",
        "title": "released",
        "scale": {"zero": False},
    }
    y: Json = {"field": "times", "type": "quantitative", "title": "times"}
    soft: Json = {"type": "area", "opacity": 0.5, "interpolate": "monotone"}
    rule: Json = {"type": "rule", "strokeDash": [4, 4], "size": 2}
    return {
        "$schema": SCHEMA, "config": CONFIG, "width": 560, "height": 240,
        "title": {"text": title, "subtitle": ["Dashed: the truth."]},
        "layer": [
            {"data": {"values": rows}, "mark": soft, "encoding": {"x": x, "y": y}},
            {"data": {"values": [{"value": truth}]}, "mark": rule, "encoding": {"x": x}},
        ],
    }  # fmt: skip
