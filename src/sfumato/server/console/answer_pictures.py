"""Draw an answer's plots as SVG for the console, with error bars that fade out.

The Vega-Lite spec comes from `client/answer_chart.py`. Here it gets the page's colours, and its
error bars become shades that fade towards the ends of the interval. The SVG contains no script,
style or link.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from xml.etree import ElementTree

from sfumato.client.answer import Answer
from sfumato.client.answer_chart import PALETTE, spec_of, view_of
from sfumato.dp.refusal import Bug, Refused
from sfumato.system.optional_packages import extra_module

Spec = dict[str, Any]  # Any: a Vega-Lite spec
# the shades of an interval, as shares of its width, the widest first
SHADES: Final = tuple(n / 10 for n in range(10, 0, -1))
SOLID: Final = 0.62
NARROW: Final = 240  # width on a phone, without the axis labels
TAGS: Final = frozenset(
    {"svg", "g", "path", "line", "rect", "text", "tspan", "defs", "linearGradient", "stop",
     "clipPath", "title", "desc", "circle"}
)  # fmt: skip
ATTRIBUTES: Final = frozenset(
    {"version", "class", "width", "height", "viewBox", "fill", "stroke", "stroke-miterlimit",
     "transform", "role", "aria-hidden", "aria-label", "aria-roledescription", "d", "x", "y", "x1",
     "y1", "x2", "y2", "stroke-width", "stroke-opacity", "fill-opacity", "opacity", "text-anchor",
     "font-family", "font-size", "font-weight", "pointer-events", "display", "stroke-dasharray",
     "stroke-linecap", "stroke-linejoin", "id", "offset", "stop-color", "gradientUnits",
     "clip-path", "dx", "dy", "cx", "cy", "r"}
)  # fmt: skip
SVG: Final = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True)
class Look:
    """The colours of plots on a light page, or on a dark one."""

    ink: str
    quiet: str
    grid: str
    accent: str
    palette: tuple[str, ...]
    instead: Mapping[str, str]  # replacements of colours with too little contrast


# fmt: off
LOOKS: Final[Mapping[str, Look]] = {
    "light": Look("#23282b", "#5d666b", "#e4e4df", "#1f6f78", ("#1f6f78", *PALETTE[1:]), {}),
    "dark": Look("#e6e6e1", "#a3abb0", "#343b40", "#7cc4cb", ("#7cc4cb", *PALETTE[1:7], "#e6e6e1"),
                 {"#0072B2": "#56B4E9", "#555555": "#a3abb0", "#777777": "#a3abb0"}),
}
# fmt: on


def looks() -> frozenset[str]:
    """Return the names of the plot colour schemes: "light" and "dark"."""
    return frozenset(LOOKS)


@dataclass(frozen=True)
class Picture:
    """The plot of one answer column: its Vega-Lite spec, its summary in words, and its notes."""

    column: str
    spec: Spec
    words: str
    notes: str


def pictured(answer: Answer, column: str) -> Picture | None:
    """Return the plot of one column of an answer; None if that column cannot be drawn."""
    try:
        spec = spec_of(view_of(answer, None, column, None), "", answer.notes)
        words = answer.plot(y=column).summary
    except Refused:
        return None
    title: Any = spec["title"]  # Any: a Vega-Lite spec
    return Picture(column, spec, words, " ".join(title["subtitle"]))


def drawn(picture: Picture, look: str) -> bytes:
    """Draw an answer's plot as SVG without active content, for a light or a dark page."""
    spec = restyled(picture.spec, LOOKS[look])
    svg: str = extra_module("vl_convert", "serve").vegalite_to_svg(spec)
    return harmless(svg)


def drawn_alone(spec: Mapping[str, object], look: str) -> bytes:
    """Draw a plot that isn't of an answer as SVG, in the page's colours and without a title."""
    bare = {key: value for key, value in spec.items() if key not in ("title", "description")}
    made = {**_visible(bare, LOOKS[look]), "config": _config(LOOKS[look])}
    return harmless(extra_module("vl_convert", "serve").vegalite_to_svg(made))


def _visible(spec: Spec, look: Look) -> Spec:
    """Replace the colours of a plot that have too little contrast on the page's background."""
    text = json.dumps(spec)
    for colour, other in look.instead.items():
        text = text.replace(f'"{colour}"', f'"{other}"')
    made: Spec = json.loads(text)
    return made


def narrowed(spec: Mapping[str, Any]) -> Spec:
    """Return the plot's spec in phone width, with its panels one below another."""
    if "spec" in spec:
        return {**spec, "columns": 1, "spec": {**spec["spec"], "width": NARROW}}
    return {**spec, "width": NARROW}


def harmless(svg: str) -> bytes:
    """Return the SVG without elements and attributes that are not on the allow-lists."""
    root = ElementTree.fromstring(svg)  # noqa: S314  # our own converter wrote it, without entities
    if root.tag != f"{SVG}svg":
        raise Bug("the converter gave no SVG")
    _strip(root)
    ElementTree.register_namespace("", SVG[1:-1])
    return ElementTree.tostring(root)


def _strip(element: ElementTree.Element) -> None:
    for name in set(element.attrib) - ATTRIBUTES:
        del element.attrib[name]
    for child in list(element):
        if child.tag.removeprefix(SVG) in TAGS:
            _strip(child)
        else:
            element.remove(child)


# --- the look ---------------------------------------------------------------------------------


def restyled(spec: Mapping[str, Any], look: Look) -> Spec:
    """Return the plot's spec in the page's colours, without a title, and with fading error bars."""
    made = {key: value for key, value in spec.items() if key != "title"}
    made["config"] = _config(look)
    if "spec" in made:
        return {**made, "spec": _softened(made["spec"], look)}
    return _softened(made, look)


def _config(look: Look) -> Spec:
    text = {
        "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal",
        "labelColor": look.quiet, "titleColor": look.quiet, "labelLimit": 260, "titleLimit": 400,
    }  # fmt: skip
    lines = {"gridColor": look.grid, "domain": False, "tickColor": look.grid, "titlePadding": 12}
    return {
        "background": None,
        "padding": {"left": 28, "top": 8, "right": 40, "bottom": 4},  # room for wider fonts
        "font": "sans-serif",
        "view": {"stroke": None},
        "axis": {
            **text,
            **lines,
            "labelOverlap": True,
            "labelSeparation": 8,
            "maxExtent": 300,
            "labelPadding": 6,
        },
        "legend": {**text, "columnPadding": 40},  # so that long names do not overlap
        "header": text,
        "text": {"color": look.ink},
        "rule": {"color": look.ink},
    }


def _softened(chart: Spec, look: Look) -> Spec:
    """Replace a plot's error bars by edges that fade, because an interval has no hard end.

    Bars fade at their ends, points get fading lines, and lines get fading bands.
    """
    layers: list[Spec] = chart["layer"]
    kinds = {layer["mark"]["type"]: layer for layer in layers}
    if _has_palette(chart) or any(map(_has_palette, layers)):
        made = [part for layer in layers for part in _shaded(layer, look)]
    elif "bar" in kinds:
        made = _fading_bars(kinds["bar"], kinds["rule"], look)
    else:
        made = [part for layer in layers for part in _faded(layer, look)]
    narrow: Spec = (
        {"width": 320} if "encoding" not in chart else {}
    )  # a single number fits a phone too
    layers = [_coloured(layer, look) for layer in made]
    return _coloured({**chart, **narrow, "layer": layers}, look)


def _has_palette(layer: Spec) -> bool:
    return "scale" in layer.get("encoding", {}).get("color", {})


def _interval_axis(layer: Spec) -> str | None:
    """Return the axis, "x" or "y", along which the layer draws a confidence interval; or None."""
    encoding = layer["encoding"]
    return next((a for a in "xy" if encoding.get(f"{a}2", {}).get("field") == "high"), None)


def _fading_bars(bar: Spec, rule: Spec, look: Look) -> list[Spec]:
    """Return the layers of bars that are solid up to the interval and fade out over it.

    The bars may be positive or negative.
    """
    axis = _interval_axis(rule) or "y"
    value = bar["encoding"][axis]
    known = [
        ("certain", "datum.low > 0 ? datum.low : datum.high < 0 ? datum.high : 0"),
        ("under", "datum.low < 0 ? datum.low : datum.certain"),
        ("over", "max(datum.high, datum.certain)"),
    ]
    solid = {"type": "bar", "color": look.accent, "opacity": SOLID}
    over = {"type": "bar", "color": _gradient(axis, look.accent, (SOLID, 0))}
    under = {"type": "bar", "color": _gradient(axis, look.accent, (0, SOLID))}
    certain = {**value, "field": "certain"}
    end = f"{axis}2"
    made: list[Spec] = [
        {"mark": solid, "encoding": {axis: certain}},
        {"mark": over, "encoding": {axis: certain, end: {"field": "over"}}},
        {"mark": under, "encoding": {axis: {**value, "field": "under"}, end: {"field": "certain"}}},
        {
            "mark": {"type": "tick", "thickness": 2, "color": look.accent},
            "encoding": {axis: value},
        },
    ]
    ends = [{"calculate": how, "as": name} for name, how in known]
    return [{"transform": ends, **layer} for layer in made]


def _faded(layer: Spec, look: Look) -> list[Spec]:
    """Return the layers of a confidence interval that fades from the value to both ends."""
    axis = _interval_axis(layer)
    if axis is None:
        return [_inked(layer, look)]
    if layer["mark"]["type"] == "area":
        return _shaded(layer, look)
    low, high = layer["encoding"][axis], layer["encoding"][f"{axis}2"]
    halves = (
        (_gradient(axis, look.accent, (0, SOLID)), low, {"field": "value"}),
        (_gradient(axis, look.accent, (SOLID, 0)), {**low, "field": "value"}, high),
    )
    return [
        {
            "mark": {"type": "bar", "size": 16, "color": fade},
            "encoding": {**layer["encoding"], axis: start, f"{axis}2": end},
        }
        for fade, start, end in halves
    ]


def _gradient(axis: str, colour: str, opacities: tuple[float, float]) -> Spec:
    """Return a gradient of one colour from one opacity to another, along the axis."""
    ends = {"x1": 0, "x2": int(axis == "x"), "y1": int(axis == "y"), "y2": 0}
    red, green, blue = (int(colour[n : n + 2], 16) for n in (1, 3, 5))
    stops = [
        {"offset": place, "color": f"rgba({red},{green},{blue},{opacity})"}
        for place, opacity in enumerate(opacities)
    ]
    return {"gradient": "linear", **ends, "stops": stops}


def _shaded(layer: Spec, look: Look) -> list[Spec]:
    """Return the layers of a confidence interval as stacked shades, each narrower than the last."""
    axis = _interval_axis(layer)
    if axis is None:
        return [_inked(layer, look)]
    colour = look.accent if layer["mark"]["type"] == "area" else look.ink
    return [_recoloured(_shade(layer, axis, part), colour) for part in SHADES]


def _shade(layer: Spec, axis: str, part: float) -> Spec:
    """Return one of the stacked shades that draw a confidence interval: its middle share `part`.

    It is nearly transparent, so that shades add up to a fading bar.
    """
    name = f"{part:g}".replace(".", "_")
    low = f"datum.value - (datum.value - datum.low) * {part:g}"
    high = f"datum.value + (datum.high - datum.value) * {part:g}"
    ends = [{"calculate": low, "as": f"low{name}"}, {"calculate": high, "as": f"high{name}"}]
    mark = {**layer["mark"], "opacity": 0.06}
    if mark["type"] == "rule":
        mark |= {"strokeWidth": 6, "opacity": 0.12}
    encoding = layer["encoding"]
    start, end = {**encoding[axis], "field": f"low{name}"}, {"field": f"high{name}"}
    encoding = {**encoding, axis: start, f"{axis}2": end}
    return {"transform": ends, "mark": mark, "encoding": encoding}


def _recoloured(layer: Spec, colour: str) -> Spec:
    if "color" not in layer["mark"]:
        return layer
    return {**layer, "mark": {**layer["mark"], "color": colour}}


def _inked(layer: Spec, look: Look) -> Spec:
    mark = {**layer["mark"]}
    if mark["type"] == "bar":
        mark["opacity"] = SOLID
    if mark["type"] == "text":
        mark["color"] = look.ink
        return {**layer, "mark": mark}
    if isinstance(mark.get("point"), dict) and "color" in mark:
        mark["point"] = {**mark["point"], "color": look.accent}
    return _recoloured({**layer, "mark": mark}, look.accent)


def _coloured(layer: Spec, look: Look) -> Spec:
    """Return a plot layer with the page's palette, if the layer shows categories by colours."""
    return (
        {**layer, "encoding": _palette(layer["encoding"], look)} if "encoding" in layer else layer
    )


def _palette(encoding: Spec, look: Look) -> Spec:
    colour = encoding.get("color")
    if not isinstance(colour, dict) or "scale" not in colour:
        return encoding
    count = len(colour["scale"]["range"])
    return {**encoding, "color": {**colour, "scale": {"range": list(look.palette[:count])}}}
