"""Plot repeated answers and their running mean, which may or may not converge to the truth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from sfumato.client.answer_chart import CONFIG, SCHEMA
from sfumato.client.ask_terms import Json
from sfumato.client.plot import Plot
from sfumato.lab.attack_report import ACCENT, BOUND
from sfumato.lab.probe import Probe

TITLE: Final = "The mean of all answers so far"
TOLD: Final = (1, 10, 100, 1000)  # the numbers of answers for which the table has the mean


def means_so_far(probes: Mapping[str, Probe], *, truth: float | None = None) -> Plot:
    """Plot each attack's answers as points, and their running mean as a line, one panel each."""
    rows = [row for name, probe in probes.items() for row in _rows(name, probe)]
    said = " ".join(f"{name}: {probe.finding}" for name, probe in probes.items())
    summary = f"{TITLE}. {said}"
    return Plot(
        spec={**_spec(rows, list(probes), truth), "description": summary},
        title=TITLE,
        summary=summary,
        columns=("against", *(f"mean of {count:,}" for count in TOLD)),
        cells=tuple(_cells(name, probe) for name, probe in probes.items()),
    )


def _rows(name: str, probe: Probe) -> list[Json]:
    numbers = np.array(probe.numbers)
    means = np.cumsum(numbers) / np.arange(1, len(numbers) + 1)
    return [
        {"panel": name, "answer": place, "number": float(number), "mean": float(mean)}
        for place, (number, mean) in enumerate(zip(numbers, means, strict=True), start=1)
    ]


def _cells(name: str, probe: Probe) -> tuple[str, ...]:
    means = [
        f"{np.mean(probe.numbers[:count]):.2f}" if len(probe.numbers) >= count else "-"
        for count in TOLD
    ]
    return (name, *means)


def _spec(rows: list[Json], panels: list[str], truth: float | None) -> Json:
    ticks: Json = {"tickMinStep": 1}
    x: Json = {"field": "answer", "type": "quantitative", "title": "answers", "axis": ticks}
    y: Json = {"type": "quantitative", "scale": {"zero": False}, "title": "number"}
    layers: list[Json] = [
        {
            "mark": {"type": "circle", "color": ACCENT, "opacity": 0.3, "size": 20},
            "encoding": {"x": x, "y": {**y, "field": "number"}},
        },
        {
            "mark": {"type": "line", "color": ACCENT, "strokeWidth": 3},
            "encoding": {"x": x, "y": {**y, "field": "mean"}},
        },
    ]
    under = ["Points: the answers. Line: their mean so far."]
    if truth is not None:
        mark: Json = {"type": "rule", "color": BOUND, "strokeDash": [6, 4], "strokeWidth": 2}
        layers.append({"mark": mark, "encoding": {"y": {"datum": truth}}})
        under.append("Orange: the truth.")
    return {
        "$schema": SCHEMA, "config": CONFIG, "data": {"values": rows},
        "title": {"text": TITLE, "subtitle": under},
        "facet": {"field": "panel", "type": "nominal", "sort": panels, "title": None},
        "columns": 2,
        "spec": {"width": 320, "height": 240, "layer": layers},
    }  # fmt: skip
