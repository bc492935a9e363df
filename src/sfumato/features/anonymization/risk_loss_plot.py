"""Risk against loss, a point for each k, the chosen one marked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sfumato.client.answer_chart import CONFIG, SCHEMA
from sfumato.client.ask_terms import Json
from sfumato.client.plot import Plot

Point = dict[str, Any]  # Any: numbers of the service, as JSON has them
_LINE: Final = "#0072B2"
_CHOSEN: Final = "#D55E00"


def risk_and_loss(curve: Mapping[str, Any]) -> Plot:  # Any: the service's JSON
    """Return the picture, with its table and a summary in words."""
    points = [one for one in curve["points"] if "refused" not in one]
    title = f"What hiding in a larger crowd costs, {curve['method']} recoding"
    return Plot(
        spec=_spec(curve, points, title),
        title=title,
        summary=f"{title}. {_summary(curve, points)}",
        columns=("k", "highest chance of being found", "loss", "rows left out"),
        cells=tuple(_cells(one, curve["chosen"]) for one in points),
    )


def _summary(curve: Mapping[str, Any], points: list[Point]) -> str:
    chosen = [one for one in points if one["k"] == curve["chosen"]]
    said = [
        f"Chosen: k = {one['k']}, at most {one['highest']:.1%} found, loss {one['loss']:.3f}."
        for one in chosen
    ]
    beyond = [one["k"] for one in curve["points"] if "refused" in one]
    if beyond:
        said.append(f"Out of reach: k = {', '.join(map(str, beyond))}.")
    return " ".join(said)


def _cells(one: Point, chosen: int) -> tuple[str, ...]:
    mark = " (chosen)" if one["k"] == chosen else ""
    return (
        f"{one['k']}{mark}",
        f"{one['highest']:.1%}",
        f"{one['loss']:.3f}",
        f"{one['suppressed']:,}",
    )


def _rows(points: list[Point], chosen: int) -> list[Json]:
    """Return a point for each place, named after every k that comes to lie there."""
    places: dict[tuple[float, float], list[int]] = {}
    for one in points:
        places.setdefault((one["highest"], one["loss"]), []).append(one["k"])
    return [
        {"k": f"k = {', '.join(map(str, ks))}", "risk": x, "loss": y, "chosen": chosen in ks}
        for (x, y), ks in places.items()
    ]


def _spec(curve: Mapping[str, Any], points: list[Point], title: str) -> Json:
    rows = _rows(points, curve["chosen"])
    x: Json = {
        "field": "risk", "type": "quantitative", "axis": {"format": "%"},
        "scale": {"zero": True}, "title": "highest chance of being found",
    }  # fmt: skip
    y: Json = {
        "field": "loss", "type": "quantitative", "scale": {"zero": True},
        "title": "loss (0: nothing, 1: everything)",
    }  # fmt: skip
    color: Json = {
        "condition": {"test": "datum.chosen", "value": _CHOSEN}, "value": _LINE,
    }  # fmt: skip
    place: Json = {"x": x, "y": y}
    subtitle = f"{curve['guarantee']}. Owner-only. Orange: {curve['goal']}."
    return {
        "$schema": SCHEMA, "config": CONFIG, "width": 460, "height": 280,
        "title": {"text": title, "subtitle": [subtitle]},
        "data": {"values": rows},
        "layer": [
            {"mark": {"type": "line", "color": _LINE, "opacity": 0.5}, "encoding": place},
            {"mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
             "encoding": {**place, "color": color}},
            {"mark": {"type": "text", "align": "left", "dx": 8, "dy": -6},
             "encoding": {**place, "text": {"field": "k"}, "color": color}},
        ],
    }  # fmt: skip
