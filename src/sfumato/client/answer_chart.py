"""The data of an answer's plot, and its Vega-Lite spec as a plain dict.

Column names and keys are untrusted text: the spec holds them as data and as titles, never as
field names or expressions. The module reads only released numbers and the receipt.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

from sfumato.client.answer_table import AnswerValues, cell_text
from sfumato.client.ask_terms import Json
from sfumato.dp.refusal import Refused

Order = Literal["", "temporal", "quantitative"]
OPEN: Final = "Where an end of an interval is unknown, it runs past the edge of the picture."
# Okabe and Ito's palette; its colours differ for colour-blind readers too
PALETTE: Final = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000",
)  # fmt: skip
AMOUNTS: Final = ("count", "count_values", "count_people", "count_distinct", "sum", "running_count")
MANY: Final = 30  # with up to this many keys, bars have the order of the answer
MAX_BARS: Final = 60  # the most bars in a panel; the table shows all numbers
MAX_PANELS: Final = 12
SIZES: Final = {"w": "width", "h": "height"}
SCHEMA: Final = "https://vega.github.io/schema/vega-lite/v6.json"
DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?")
CONFIG: Final = {
    "background": "white",
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelFontSize": 12, "titleFontSize": 12, "labelLimit": 260, "titleLimit": 400,
        "titlePadding": 10, "gridColor": "#e6e6e6", "labelOverlap": True, "maxExtent": 300,
        "labelSeparation": 8,
    },
    "legend": {"labelFontSize": 12, "titleFontSize": 12, "labelLimit": 200, "titleLimit": 200},
    "header": {"labelFontSize": 12, "titleFontSize": 12, "labelLimit": 220, "titleLimit": 400},
    "title": {
        "fontSize": 16, "subtitleFontSize": 12, "subtitleColor": "#555555", "anchor": "start",
        "frame": "bounds", "offset": 14, "limit": 640, "subtitlePadding": 6,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One number of an answer to plot, with its first key, its labels and its interval."""

    key: object
    labels: tuple[str, ...]
    value: float
    low: float
    high: float
    text: str

    def said(self) -> str:
        """Return the number as a text of its labels and value, such as "north, women: 12"."""
        return ": ".join(filter(None, (", ".join(self.labels), self.text)))


@dataclass(frozen=True)
class View:
    """One column of an answer to plot, with its keys.

    The keys are in this order: axis, colours, panels.
    """

    answer: AnswerValues
    y: str
    keys: tuple[str, ...]
    colours: int
    cells: tuple[Cell, ...]

    @property
    def panels(self) -> tuple[str, ...]:
        """Return the keys by which the plot is split into panels, after axis and colours."""
        return self.keys[1 + (self.colours > 0) :]

    @property
    def is_amount(self) -> bool:
        """Return True if the plotted column is a count or a sum, whose bars start at zero."""
        return self.answer.output_of_column(self.y).get("verb") in AMOUNTS

    @property
    def order(self) -> Order:
        """Return "temporal" or "quantitative" if the axis is a time or a number, else "".

        With such a key, the plot is a line.
        """
        return order_of([cell.key for cell in self.cells]) if self.keys else ""

    @property
    def highest(self) -> dict[str, float]:
        """Return the largest plotted value for each label on the axis."""
        found: dict[str, float] = {}
        for cell in self.cells:
            found[cell.labels[0]] = max(found.get(cell.labels[0], -math.inf), cell.value)
        return found

    @property
    def labels(self) -> list[str]:
        """Return the labels on the plot's axis, in order and without repetition."""
        return list(dict.fromkeys(cell.labels[0] for cell in self.cells))


def view_of(answer: AnswerValues, x: str | None, y: str | None, color: str | None) -> View:
    keys = [name for name in answer.columns if "key" in answer.output_of_column(name)]
    y = _one_of([name for name in answer.columns if name not in keys], y)
    values = {key: _column(answer, key) for key in keys}
    sizes = {key: len(set(column)) for key, column in values.items()}
    rest = [key for key in keys if key not in (x, color)]
    if x is None and rest:
        x = max(rest, key=lambda key: (bool(order_of(values[key])), sizes[key]))
    rest = [key for key in keys if key not in (x, color)]
    if color is None:
        color = next((key for key in rest if sizes[key] <= len(PALETTE)), None)
    order = [_one_of(keys, key) for key in (x, color) if key is not None]
    if len(set(order)) < len(order):
        raise Refused(
            "not-in-language",
            f"The chart uses the column {x!r} both as x and as color.",
            "Give x and color two different columns.",
        )
    order += [key for key in rest if key != color]
    colours = 0 if color is None else sizes[color]
    view = View(answer, y, tuple(order), colours, _cells(answer, y, order))
    panels = math.prod(sizes[key] for key in view.panels)
    if colours > len(PALETTE) or panels > MAX_PANELS:
        raise Refused(
            "not-in-language",
            f"The chart would need {colours} colours and {panels} panels, which is too many.",
            "Group by fewer columns, or select fewer groups with WHERE. The answer's table shows "
            "all groups.",
        )
    return view


def _one_of(names: Sequence[str], wanted: str | None) -> str:
    if wanted is None and names:
        return names[0]
    if wanted not in names:
        raise Refused(
            "unknown-column",
            f"{wanted!r} is not a column that the chart can use for this argument (x, y or color).",
            f"Name one of: {', '.join(names)}.",
        )
    return str(wanted)


def _column(answer: AnswerValues, name: str) -> list[object]:
    place = answer.columns.index(name)
    return [row[place] for row in answer.rows]


def _cells(answer: AnswerValues, y: str, keys: Sequence[str]) -> tuple[Cell, ...]:
    place = answer.columns.index(y)
    columns = [_column(answer, key) for key in keys]
    labels = [_labels(column) for column in columns]
    firsts = columns[0] if columns else [None] * len(answer.rows)
    has_number = any(row[place] is not None for row in answer.rows)
    made = []
    for number, (row, bars) in enumerate(zip(answer.rows, answer.interval, strict=True)):
        if row[place] is None and has_number:
            continue
        low, high = bars[place] or (math.nan, math.nan)
        names = tuple(column[number] for column in labels)
        text = cell_text(row[place], bars[place])
        made.append(Cell(firsts[number], names, _number(row[place], y), low, high, text))
    return tuple(made)


def _number(value: object, name: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise Refused(
        "type-mismatch",
        f"The column {name!r} has a value that is not a number, so it cannot be drawn.",
        "Draw a column of numbers.",
    )


def _labels(keys: Sequence[object]) -> list[str]:
    """Return keys as printable labels; two different keys get two different labels."""
    made: dict[object, str] = {}
    taken: dict[str, int] = {}
    for key in dict.fromkeys(keys):
        label = _label(key)
        taken[label] = taken.get(label, 0) + 1
        made[key] = label if taken[label] == 1 else f"{label} ({taken[label]})"
    return [made[key] for key in keys]


def _label(key: object) -> str:
    if key is None:
        return "(missing)"
    if isinstance(key, bool):
        return "true" if key else "false"
    return plain(str(key)) or "(empty)"


def plain(text: str) -> str:
    """Replace every unprintable character, such as a text-direction mark, by a space."""
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text)


def order_of(keys: Sequence[object]) -> Order:
    """Return the kind of axis for these keys: "temporal", "quantitative", or "" for categories.

    An axis needs three or more different times or numbers to be one of the first two.
    """
    known = {key for key in keys if key is not None}
    if len(known) < 3:
        return ""
    if all(isinstance(key, str) and _is_time(key) for key in known):
        return "temporal"
    numbers = all(isinstance(key, int | float) and not isinstance(key, bool) for key in known)
    return "quantitative" if numbers else ""


def _is_time(key: str) -> bool:
    if not DAY.fullmatch(key):
        return False
    try:
        datetime.fromisoformat(key)
    except ValueError:
        return False
    return True


# --- the spec ---------------------------------------------------------------------------------


def spec_of(view: View, heading: str, under: Sequence[str]) -> Json:
    """Return the Vega-Lite spec of an answer's plot, with a title and subtitle lines."""
    shown, notes = _shown(view)
    notes += [OPEN] * any(_is_open(cell) for cell in shown.cells)
    chart = _chart(shown)
    title = {"text": heading, "subtitle": _wrapped([*under, *notes])}
    edges = _edges(shown.cells)
    data = {"values": [_datum(cell, shown, edges) for cell in shown.cells]}
    base: Json = {"$schema": SCHEMA, "title": title, "config": CONFIG, "data": data}
    if not shown.panels:
        return {**base, **chart}
    facet = {"field": "panel", "type": "nominal", "sort": None, "title": _by(shown.panels)}
    return {**base, "facet": facet, "columns": 3, "spec": chart}


def _by(names: Sequence[str]) -> str:
    return plain(", ".join(names))


def _wrapped(lines: Sequence[str]) -> list[str]:
    return [part for line in lines for part in textwrap.wrap(plain(line), 88)]


def _shown(view: View) -> tuple[View, list[str]]:
    """Return the view with only the numbers that the plot has room for, and notes on it.

    The notes say which numbers are left out, and that the others are sorted by noisy values.
    """
    if view.order:
        missing = [cell for cell in view.cells if cell.key is None]
        drawn = tuple(cell for cell in view.cells if cell.key is not None)
        left_out = "; ".join(cell.said() for cell in missing)
        return replace(view, cells=drawn), [f"Not drawn: {left_out}"] * bool(missing)
    labels = view.labels if view.keys else []
    if len(labels) <= MANY:
        return view, []
    first = sorted(labels, key=lambda label: -view.highest[label])[:MAX_BARS]
    rank = {label: place for place, label in enumerate(first)}
    cells = [cell for cell in view.cells if cell.labels[0] in rank]
    cells.sort(key=lambda cell: rank[cell.labels[0]])
    part = f"The {len(first)} largest of {len(labels)}, " if len(first) < len(labels) else "Sorted "
    note = f"{part}by their noisy values: the first tend to be too high."
    return replace(view, cells=tuple(cells)), [note]


def _is_open(cell: Cell) -> bool:
    """Return True if an end of the number's interval is infinite; NaN ends mean no interval."""
    return math.isinf(cell.low) or math.isinf(cell.high)


def _edges(cells: Sequence[Cell]) -> tuple[float, float]:
    """Return the two plot coordinates at which intervals without an end are cut off.

    Both coordinates are outside the range of all finite values and ends.
    """
    ends = [x for cell in cells for x in (cell.low, cell.value, cell.high) if math.isfinite(x)]
    low, high = min(ends, default=0.0), max(ends, default=0.0)
    beyond = (high - low) / 10 or max(abs(high), 1.0)
    return low - beyond, high + beyond


def _datum(cell: Cell, view: View, edges: tuple[float, float]) -> Json:
    made: Json = {"value": cell.value, "text": cell.text}
    if not math.isnan(cell.low):
        made |= {"low": max(cell.low, edges[0]), "high": min(cell.high, edges[1])}
    if view.keys:
        made["key"] = _placed(cell, view.order)
    if view.colours:
        made["colour"] = cell.labels[1]
    if view.panels:
        made["panel"] = ", ".join(cell.labels[len(view.keys) - len(view.panels) :])
    return made


def _placed(cell: Cell, order: Order) -> object:
    """Return a key's axis coordinate; times are in UTC, so that no time zone shifts a day."""
    if order == "temporal":
        return datetime.fromisoformat(str(cell.key)).isoformat() + "Z"
    return cell.key if order else cell.labels[0]


def _chart(view: View) -> Json:
    if not view.keys:
        return _single(view)
    return _line(view) if view.order else _bars(view)


def _value(view: View, name: str = "value") -> Json:
    made: Json = {"field": name, "type": "quantitative", "title": plain(view.y)}
    return made | {"scale": {"zero": view.is_amount}, "axis": {"tickCount": 6}}


def _colour(view: View) -> Json:
    return {
        "field": "colour",
        "type": "nominal",
        "sort": None,
        "title": plain(view.keys[1]),
        "scale": {"range": list(PALETTE[: view.colours])},
        "legend": {"symbolOpacity": 1, "symbolType": "square"},
    }


def _tooltip(view: View) -> list[Json]:
    names = [("colour", view.keys[1:2])] * bool(view.colours) + [("panel", view.panels)]
    fields = [("key", view.keys[:1]), *names]
    told: list[Json] = [{"field": f, "title": _by(n), "type": "nominal"} for f, n in fields if n]
    return [*told, {"field": "text", "title": plain(view.y), "type": "nominal"}]


def _single(view: View) -> Json:
    """Return the chart spec of a single number: its interval, and its value as text above."""
    loose = {"scale": {"zero": False, "padding": 40}, "axis": {"tickCount": 4}}
    line: Json = {"x": _value(view, "low") | loose, "x2": {"field": "high"}}
    point: Json = {"x": _value(view) | loose}
    return {
        "width": 420,
        "height": 80,
        "layer": [
            {"mark": {"type": "rule", "strokeWidth": 3, "color": PALETTE[0]}, "encoding": line},
            {"mark": {"type": "point", "filled": True, "size": 140, "color": PALETTE[0],
                      "opacity": 1}, "encoding": point},
            {"mark": {"type": "text", "dy": -22, "fontSize": 18},
             "encoding": {**point, "text": {"field": "text"}}},
        ],
    }  # fmt: skip


def _line(view: View) -> Json:
    """Return the spec of a line chart with an error band, for keys in time or number order."""
    x: Json = {"field": "key", "type": view.order, "title": plain(view.keys[0])}
    x["scale"] = {"type": "utc"} if view.order == "temporal" else {"zero": False, "nice": False}
    if all(isinstance(cell.key, int) for cell in view.cells):
        x["axis"] = {"format": "d", "tickMinStep": 1}
    colour = {"color": _colour(view)} if view.colours else {}
    band = {"y": _value(view, "low"), "y2": {"field": "high"}}
    line = {"y": _value(view)}
    point = len(view.labels) <= MAX_BARS and {"filled": True, "size": 30, **_ink(view)}
    return {
        "width": 280 if view.panels else 560,
        "height": 180 if view.panels else 300,
        "encoding": {"x": x, "tooltip": _tooltip(view), **colour},
        "layer": [
            {"mark": {"type": "area", "opacity": 0.2, **_ink(view)}, "encoding": band},
            {"mark": {"type": "line", "point": point, **_ink(view)}, "encoding": line},
        ],
    }


def _ink(view: View) -> Json:
    return {} if view.colours else {"color": PALETTE[0]}


def _bars(view: View) -> Json:
    """Return the spec of a bar chart for counts and sums, else a point chart, with error bars."""
    labels, beside = view.labels, max(view.colours, 1)
    step = max(56, 22 * beside + 12)
    is_upright = len(labels) <= 12 and max(map(len, labels)) * 7 <= step
    along, across, size, other = "xywh" if is_upright else "yxhw"
    key: Json = {"field": "key", "type": "nominal", "sort": None, "title": plain(view.keys[0])}
    shared: Json = {along: key | {"axis": {"labelAngle": 0}}, "tooltip": _tooltip(view)}
    if view.colours:
        shared[f"{along}Offset"] = {"field": "colour", "sort": None}
    colour = {"color": _colour(view)} if view.colours else {}
    kind: Json = (
        {"type": "bar"} if view.is_amount else {"type": "point", "filled": True, "size": 80}
    )
    mark = {
        "mark": {**kind, "opacity": 0.85 if view.is_amount else 1, **_ink(view)},
        "encoding": {across: _value(view), **colour},
    }
    ends = {across: _value(view, "low"), f"{across}2": {"field": "high"}}
    line = {"mark": {"type": "rule", "strokeWidth": 2, "color": "#222222"}, "encoding": ends}
    return {
        SIZES[size]: {"step": step if is_upright else max(24, 15 * beside + 8), "for": "position"},
        SIZES[other]: 300 if is_upright else 220 if view.panels else 420,
        "encoding": shared,
        "layer": [mark, line] if view.is_amount else [line, mark],
    }
