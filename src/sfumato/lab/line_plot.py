"""Plot lines with confidence bands, with a table of their points."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sfumato.client.answer_chart import CONFIG, PALETTE, SCHEMA
from sfumato.client.ask_terms import Json
from sfumato.client.plot import Plot

WIDTH: Final = 460
HEIGHT: Final = 260


@dataclass(frozen=True)
class Point:
    """A point of a line, with its confidence interval."""

    line: str
    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True)
class Axes:
    """The titles of a line plot and its axes, and named vertical lines at x values."""

    title: str
    x: str
    y: str
    marks: Mapping[str, float]
    is_share: bool = True  # True: y is a share, shown as 0 to 100 %


def curves(axes: Axes, points: Sequence[Point], *, says: str) -> Plot:
    """Plot lines with confidence bands; the lines are in the order in which points name them."""
    cells = tuple((one.line, f"{one.x:g}", _text(axes, one.y), _band(axes, one)) for one in points)
    return Plot(
        spec=_spec(axes, points, says),
        title=axes.title,
        summary=f"{axes.title}. {says}",
        columns=("line", axes.x, axes.y, "95 % interval"),
        cells=cells,
    )


def _text(axes: Axes, value: float) -> str:
    return f"{100 * value:.1f} %" if axes.is_share else f"{value:.3g}"


def _band(axes: Axes, point: Point) -> str:
    return f"{_text(axes, point.low)} to {_text(axes, point.high)}"


def _spec(axes: Axes, points: Sequence[Point], says: str) -> Json:
    lines = list(dict.fromkeys(one.line for one in points))
    scale: Json = {"domain": lines, "range": [PALETTE[i % len(PALETTE)] for i in range(len(lines))]}
    color: Json = {"field": "line", "type": "nominal", "scale": scale, "title": None,
                   "legend": {"orient": "bottom", "columns": 2, "labelLimit": 300,
                              "symbolOpacity": 1}}  # fmt: skip
    x: Json = {"field": "x", "type": "quantitative", "title": axes.x}
    y: Json = {"field": "y", "type": "quantitative", "title": axes.y}
    if axes.is_share:
        y = {**y, "axis": {"format": "%"}, "scale": {"domain": [0, 1]}}
    band: Json = {**y, "field": "low"}
    values = [{"line": p.line, "x": p.x, "y": p.y, "low": p.low, "high": p.high} for p in points]
    return {
        "$schema": SCHEMA, "config": CONFIG, "width": WIDTH, "height": HEIGHT,
        "title": {"text": axes.title, "subtitle": _folded(says)}, "description": says,
        "layer": [
            {"data": {"values": values}, "mark": {"type": "area", "opacity": 0.15},
             "encoding": {"x": x, "y": band, "y2": {"field": "high"}, "color": color}},
            {"data": {"values": values}, "mark": {"type": "line", "point": True},
             "encoding": {"x": x, "y": y, "color": color}},
            *_marks(axes, x),
        ],
    }  # fmt: skip


def _marks(axes: Axes, x: Json) -> list[Json]:
    """Return the plot layers of the named vertical lines: a dashed line and a text for each."""
    if not axes.marks:
        return []
    data: Json = {"values": [{"x": at, "name": name} for name, at in axes.marks.items()]}
    name: Json = {"type": "text", "align": "left", "dx": 4, "baseline": "top"}
    return [
        {"data": data, "mark": {"type": "rule", "strokeDash": [4, 4], "color": "#555555"},
         "encoding": {"x": x}},
        {"data": data, "mark": name,
         "encoding": {"x": x, "y": {"value": 2}, "text": {"field": "name"}}},
    ]  # fmt: skip


def _folded(says: str) -> list[str]:

    return textwrap.wrap(says, 78)
