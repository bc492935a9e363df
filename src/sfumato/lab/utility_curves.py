"""Show what epsilon costs in error: a table, many draws at one epsilon, and the whole curve.

The noise is the platform's own. The error of a count depends on epsilon alone, never on the rows,
so it is known before any question is asked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.client.answer_chart import CONFIG, SCHEMA
from sfumato.client.ask_terms import Json
from sfumato.client.plot import Plot
from sfumato.dp.refusal import Refused
from sfumato.lab.platform_noise import private_sums

# number of steps between the bounds of a value; with so many, rounding adds no error
STEPS: Final = 1_000_000
EPSILONS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
RANGE: Final = (0.1, 30.0)
# the name of a level of protection, and its lowest and highest epsilon
Regions = Sequence[tuple[str, float, float]]
# The limits of "high" and "low" privacy are a convention; the odds in the table are a theorem.
REGIONS: Final[Regions] = (("high privacy", 0.1, 1.0), ("medium", 1.0, 10.0), ("low", 10.0, 30.0))
TINTS: Final = ("#009E73", "#E69F00", "#D55E00")
# if the largest error is more than so many times the smallest, the axis is logarithmic
FLAT: Final = 30
DECADES: Final = 10_000  # the largest ratio of the largest error to the smallest that is drawn
BARS: Final = 61  # the most bars of a histogram
# from so many points on, a line has no point marks, and an axis does not show every integer
MANY_POINTS: Final = 15
DIGITS: Final = ",.12~g"  # the number format of ticks: 600 and 0.001, never 6e+2
READABLE: Final = 1e6  # larger odds are written as a power of ten


@dataclass(frozen=True)
class Errors:
    """Error statistics of many releases of one count or sum, all at one epsilon."""

    epsilon: float
    mean: float  # the mean absolute error
    within: float  # 95th percentile of the absolute error

    @property
    def odds(self) -> str:
        """Return e^epsilon as text: the largest change of a belief's odds by a release."""
        power = self.epsilon / math.log(10)
        if power > math.log10(READABLE):
            return f"10^{power:.0f}"
        return _short(math.exp(self.epsilon))

    def cells(self, unit: float) -> tuple[str, ...]:
        """Return the row of the error table as text, with the errors multiplied by `unit`."""
        mean, within = self.mean * unit, self.within * unit
        return (f"{self.epsilon:g}", f"{mean:,.4g}", f"{within:,.4g}", f"{self.odds} : 1")


def _short(number: float) -> str:
    """Format a number with three significant digits, for a table or a sentence."""
    return f"{number:.3g}" if number < 1000 else f"{float(f'{number:.3g}'):,.0f}"


def errors(
    epsilons: Sequence[float],
    dice: np.random.Generator,
    *,
    sensitivity: int = 1,
    trials: int = 10_000,
) -> tuple[Errors, ...]:
    """Return the errors of many releases of a count or sum, at each epsilon.

    Args:
        epsilons: One entry of the result for each.
        dice: The random generator, such as `numpy.random.default_rng()`.
        sensitivity: The largest change of the result by one person.
        trials: How many releases are drawn at each epsilon.

    Returns:
        The errors at each epsilon, in the order of `epsilons`.
    """
    return tuple(_errors(one, dice, sensitivity, trials) for one in epsilons)


def _errors(epsilon: float, dice: np.random.Generator, sensitivity: int, trials: int) -> Errors:
    truth = np.zeros(trials, dtype=np.int64)
    sizes = np.abs(private_sums(truth, sensitivity=sensitivity, epsilon=epsilon, dice=dice))
    within = float(np.quantile(sizes, 0.95, method="higher"))
    return Errors(epsilon, float(sizes.mean()), within)


def error_table(
    dice: np.random.Generator,
    epsilons: Sequence[float] = EPSILONS,
    *,
    regions: Regions = REGIONS,
    threshold: float | None = None,
) -> Plot:
    """Plot and tabulate the error of a count against epsilon.

    Args:
        dice: The random generator of the noise.
        epsilons: The privacy parameters to try, in order.
        regions: Names of levels of protection, each with its lowest and highest epsilon.
        threshold: The largest useful error; it is marked, and the summary says where it is met.

    Raises:
        Refused: An epsilon, a region or the threshold is not valid.
    """
    drawing = _Drawing("What epsilon costs: the error of a count", 1.0, regions, threshold)
    return _curve(errors(epsilons, dice), drawing)


def utility_curve(  # noqa: PLR0913  # what a curve is of, and how it is drawn
    people: int,
    low: float,
    high: float,
    dice: np.random.Generator,
    *,
    points: int = 25,
    epsilons: tuple[float, float] = RANGE,
    regions: Regions = REGIONS,
    threshold: float | None = None,
) -> Plot:
    """Plot the privacy-utility curve of a mean: its error over a range of epsilons.

    The mean is a noisy sum divided by a public number of people; each value is between the bounds.

    Args:
        people: How many people the mean is of.
        low: The lower bound of a person's value.
        high: The upper bound.
        dice: The random generator of the noise.
        points: How many epsilons to try.
        epsilons: The first and the last of them.
        regions: Names of levels of protection, each with its lowest and highest epsilon.
        threshold: The largest useful error; it is marked, and the summary says where it is met.

    Raises:
        Refused: The mean, a range, a region or the threshold is not valid.
    """
    if people < 1 or not low < high or points < 2:
        raise Refused(
            "bad-request",
            "The number of people or the bounds of the mean are out of range.",
            "Give at least one person, and a lower bound below the upper bound.",
        )
    if not 0 < epsilons[0] < epsilons[1]:
        raise Refused(
            "bad-request",
            "The range of epsilon is empty.",
            "Give an epsilon above 0, and a larger one.",
        )
    spaced = [float(f"{one:.3g}") for one in np.geomspace(*epsilons, points)]
    found = errors(spaced, dice, sensitivity=STEPS)
    title = (
        f"Privacy and usefulness: a mean of {people:,} people, with values between {low:,g} "
        f"and {high:,g}"
    )
    return _curve(found, _Drawing(title, (high - low) / STEPS / people, regions, threshold))


@dataclass(frozen=True)
class _Drawing:
    """The options of an error curve: its title, unit of error, privacy regions and threshold."""

    title: str
    unit: float
    regions: Regions
    threshold: float | None

    def check(self) -> None:
        """Refuse regions that overlap or have no width, and thresholds that are not above 0."""
        ends = [end for _, low, high in self.regions for end in (low, high)]
        is_apart = all(0 < low < high for _, low, high in self.regions) and ends == sorted(ends)
        if not is_apart or not (self.threshold is None or self.threshold > 0):
            raise Refused(
                "bad-request",
                "A region ends before it begins, two regions overlap, or the threshold "
                "is not above 0.",
                'Give regions in order, as ("high privacy", 0.1, 1.0), and an error above 0.',
            )


def _curve(found: Sequence[Errors], drawing: _Drawing) -> Plot:
    """Plot the errors against epsilon, with a summary in words and a table."""
    drawing.check()
    columns = ("epsilon", "mean error", "95 % within", "odds move by at most")
    summary = " ".join((*_said(found, drawing.unit), *_said_of(found, drawing)))
    cells = tuple(one.cells(drawing.unit) for one in found)
    spec = {**_curve_spec(found, drawing), "description": summary}
    return Plot(spec, drawing.title, summary, columns, cells)


def _said(found: Sequence[Errors], unit: float) -> tuple[str, str]:
    first, last = found[0], found[-1]
    return (
        f"The mean error is {_short(first.mean * unit)} at epsilon {first.epsilon:g}, "
        f"and {_short(last.mean * unit)} at epsilon {last.epsilon:g}.",
        "The release can change the odds of any belief about a person by a factor of "
        f"{first.odds} at epsilon {first.epsilon:g}, and of {last.odds} at epsilon "
        f"{last.epsilon:g}.",
    )


def _said_of(found: Sequence[Errors], drawing: _Drawing) -> tuple[str, ...]:
    """Return the sentence that says from which epsilon on the error is small enough.

    Without a threshold there is no sentence.
    """
    most = drawing.threshold
    if most is None:
        return ()
    too_much = [place for place, one in enumerate(found) if one.mean * drawing.unit > most]
    place = too_much[-1] + 1 if too_much else 0
    if place == len(found):
        return (f"No epsilon in the range has a mean error of {most:,g} or less.",)
    return (f"The mean error is {most:,g} or less from epsilon {found[place].epsilon:g} on.",)


def _curve_spec(found: Sequence[Errors], drawing: _Drawing) -> Json:
    unit = drawing.unit
    top = max([drawing.threshold or 0.0, *(one.within * unit for one in found)])
    lowest = min(one.mean * unit for one in found)
    is_flat = top > 0 and found[0].mean * unit > FLAT * lowest
    floor = _power_below(max(lowest, top / DECADES)) if is_flat else 0.0
    y = _log_axis(floor, top) if is_flat else _error_axis()
    shown = [one for one in found if one.mean * unit >= floor]
    rows = [
        {"epsilon": e.epsilon, "mean": e.mean * unit, "within": max(e.within * unit, floor)}
        for e in shown
    ]
    under = ["Line: mean error. Shaded band: 95 % of the errors."]
    if len(shown) < len(found):
        under.append(f"Above epsilon {shown[-1].epsilon:g} it is too small to draw.")
    ends = _ends([one.epsilon for one in found])
    x = _epsilon_axis(*ends)
    band: Json = {"x": x, "y": {**y, "field": "within"}, "y2": {"datum": floor}}
    line: Json = {"x": x, "y": {**y, "field": "mean"}}
    mark: Json = {"type": "line", "size": 3, "point": len(found) < MANY_POINTS}
    return {
        "$schema": SCHEMA, "config": CONFIG, "width": 560, "height": 300,
        "title": {"text": drawing.title, "subtitle": under},
        "layer": [*_regions(x, ends, drawing.regions), {"data": {"values": rows}, "layer": [
            {"mark": {"type": "area", "opacity": 0.25}, "encoding": band},
            {"mark": mark, "encoding": line},
        ]}, *_limit(drawing.threshold, y)],
    }  # fmt: skip


def _error_axis() -> Json:
    return {"type": "quantitative", "title": "error", "axis": {"format": DIGITS}}


def _power_below(number: float) -> float:
    return 10.0 ** math.floor(math.log10(number))


def _log_axis(floor: float, high: float) -> Json:
    """Return the logarithmic y axis of an error plot, as Vega-Lite JSON."""
    return {
        "type": "quantitative", "title": "error (each step is a factor of 10)",
        "scale": {"type": "log", "domain": [floor, high], "nice": False},
        "axis": {"values": _ticks(floor, high, (1,)), "format": DIGITS},
    }  # fmt: skip


def _ticks(low: float, high: float, digits: Sequence[int]) -> list[float]:
    """Return the tick marks of a logarithmic axis between two limits.

    They are the numbers digit * 10^power, for the given digits and every power.
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{digit}e{power}") for power in powers for digit in digits]
    return [tick for tick in ticks if low <= tick <= high]


def _ends(epsilons: Sequence[float]) -> tuple[float, float]:
    low, high = min(epsilons), max(epsilons)
    return (low, high) if low < high else (low / 2, high * 2)


def _epsilon_axis(low: float, high: float) -> Json:
    """Return the logarithmic x axis of epsilon, as Vega-Lite JSON."""
    return {
        "field": "epsilon", "type": "quantitative", "title": "epsilon",
        "scale": {"type": "log", "domain": [low, high], "nice": False},
        "axis": {"values": _ticks(low, high, (1, 3)), "grid": False, "format": DIGITS},
    }  # fmt: skip


def _limit(threshold: float | None, y: Json) -> list[Json]:
    """Return the plot layers of the dashed line at the largest useful error, if there is one."""
    if threshold is None:
        return []
    rule: Json = {"type": "rule", "strokeDash": [6, 4], "size": 2, "color": "#555555"}
    word: Json = {"type": "text", "align": "right", "dx": -8, "dy": -8, "color": "#555555"}
    at: Json = {**y, "datum": threshold}
    said = f"useful up to {threshold:,g}"
    name: Json = {"x": {"value": "width"}, "y": at, "text": {"value": said}}
    data: Json = {"values": [{}]}
    return [
        {"data": data, "mark": rule, "encoding": {"y": at}},
        {"data": data, "mark": word, "encoding": name},
    ]


def _regions(x: Json, ends: tuple[float, float], regions: Regions) -> list[Json]:
    """Return the tinted, named bands of the privacy levels, cut to the range of the x axis."""
    first, last = ends
    bands = [
        {"name": name, "from": max(low, first), "to": min(high, last), "tint": tint}
        for (name, low, high), tint in zip(regions, cycle(TINTS), strict=False)
        if low < last and high > first
    ]
    if not bands:
        return []
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


def repeated_trials(
    truth: int, epsilon: float, dice: np.random.Generator, *, trials: int = 1000
) -> Plot:
    """Plot a histogram of many releases of one count, with the exact count marked.

    Args:
        truth: The exact count.
        epsilon: The price of each release.
        dice: The random generator, such as `numpy.random.default_rng()`.
        trials: How many releases are drawn.

    Returns:
        A plot for a notebook or a page, with its title, a summary in words and its table.
    """
    whole = np.full(trials, truth, dtype=np.int64)
    released = private_sums(whole, sensitivity=1, epsilon=epsilon, dice=dice)
    low, high = (int(np.quantile(released, q, method="nearest")) for q in (0.025, 0.975))
    title = f"{trials:,} releases of one count, each at epsilon {epsilon:g}"
    summary = (
        f"The true count is {truth:,}, and 95 % of the releases are between {low:,} and "
        f"{high:,}. A platform gives only one of them. With all of them, an attacker "
        "could average the noise away."
    )
    bars = _bars(released)
    cells = tuple((one.text, f"{one.times:,}") for one in bars)
    spec = _trials_spec(bars, truth, title)
    return Plot({**spec, "description": summary}, title, summary, ("released", "times"), cells)


@dataclass(frozen=True)
class _Bar:
    """A bar of a histogram: the number of releases between two whole numbers, both included."""

    low: int
    high: int
    times: int

    @property
    def text(self) -> str:
        """Return the range of whole numbers that the bar counts, as text."""
        return f"{self.low:,}" if self.low == self.high else f"{self.low:,} to {self.high:,}"


def _bars(released: NDArray[np.int64]) -> list[_Bar]:
    """Return a histogram with bars of equal width, one per whole number if there are few."""
    low, high = int(released.min()), int(released.max())
    width = (high - low) // BARS + 1
    counts = np.bincount((released - low) // width).tolist()
    starts = [low + width * place for place in range(len(counts))]
    return [_Bar(at, at + width - 1, times) for at, times in zip(starts, counts, strict=True)]


def _trials_spec(bars: Sequence[_Bar], truth: int, title: str) -> Json:
    rows = [{"from": b.low - 0.45, "to": b.high + 0.45, "times": b.times} for b in bars]
    first, last = bars[0].low - 1, bars[-1].high + 1
    axis: Json = {"tickMinStep": 1, "format": ",d", "grid": False}
    if last - first < MANY_POINTS:  # without this, fractions would have ticks too
        axis["values"] = list(range(first, last + 1))
    x: Json = {
        "field": "from", "type": "quantitative", "title": "released", "axis": axis,
        "scale": {"domain": [first, last], "nice": False},
    }  # fmt: skip
    y: Json = {"field": "times", "type": "quantitative", "title": "times",
               "axis": {"tickMinStep": 1, "format": ",d"}}  # fmt: skip
    bar: Json = {"type": "bar", "opacity": 0.5}
    rule: Json = {"type": "rule", "strokeDash": [4, 4], "size": 2}
    return {
        "$schema": SCHEMA, "config": CONFIG, "width": 560, "height": 240,
        "title": {"text": title, "subtitle": ["Dashed: the truth."]},
        "layer": [
            {"data": {"values": rows}, "mark": bar,
             "encoding": {"x": x, "x2": {"field": "to"}, "y": y, "y2": {"datum": 0}}},
            {"data": {"values": [{"from": truth}]}, "mark": rule, "encoding": {"x": x}},
        ],
    }  # fmt: skip
