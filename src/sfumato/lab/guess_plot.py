"""Plot an attacker's guesses: one strip per person, darker where more guesses are.

The strip also shows the true value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.client.answer_chart import CONFIG, SCHEMA
from sfumato.client.ask_terms import Json
from sfumato.client.plot import Plot
from sfumato.lab.attack_report import ACCENT, BOUND

FloatArray = NDArray[np.float64]
BINS: Final = 110
WIDTH: Final = 250
HEIGHT: Final = 406
COLUMNS: Final = 3  # number of panels side by side
MIDDLE: Final = (5, 50, 95)  # percentiles that the table gives


def strips(
    panels: Mapping[str, FloatArray], truths: FloatArray, *, title: str, summary: str, of: str
) -> Plot:
    """Plot one panel per release, with one strip per person, sorted by the true value.

    The guesses of a panel are an array of runs x people. Guesses beyond the axis are drawn at its
    end.
    """
    order = np.argsort(truths, kind="stable")
    edges = _edges(truths)
    values: list[Json] = []
    for name, guesses in panels.items():
        values += _shares(name, guesses[:, order], edges)
        values += [
            {"panel": name, "person": row, "truth": float(truths[place])}
            for row, place in enumerate(order)
        ]
    return Plot(
        spec={**_spec(values, list(panels), of, title), "description": summary},
        title=title,
        summary=summary,
        columns=(f"true {of}", *(f"guesses: {name}" for name in panels)),
        cells=tuple(
            (f"{truths[place]:g}", *(_middle(guesses[:, place]) for guesses in panels.values()))
            for place in order
        ),
    )


def _edges(truths: FloatArray) -> FloatArray:
    low, high = float(truths.min()), float(truths.max())
    room = max(0.04 * (high - low), 1e-9)
    return np.linspace(low - room, high + room, BINS + 1)


def _shares(name: str, guesses: FloatArray, edges: FloatArray) -> list[Json]:
    """Return the strips to draw: for each person, the bins with guesses, and their shares."""
    width = edges[1] - edges[0]
    places = np.floor((guesses - edges[0]) / width).clip(0, BINS - 1).astype(np.int64)
    runs, people = guesses.shape
    flat = places + BINS * np.arange(people)
    counts = np.bincount(flat.ravel(), minlength=BINS * people)
    return [
        {
            "panel": name,
            "person": int(cell) // BINS,
            "low": round(float(edges[cell % BINS]), 3),
            "high": round(float(edges[cell % BINS + 1]), 3),
            "share": round(float(counts[cell]) / runs, 4),
        }
        for cell in np.flatnonzero(counts)
    ]


def _middle(guesses: FloatArray) -> str:
    low, half, high = np.percentile(guesses, MIDDLE)
    return f"{half:.1f} ({low:.1f} to {high:.1f})"


def _spec(values: list[Json], panels: list[str], of: str, title: str) -> Json:
    x: Json = {"type": "quantitative", "scale": {"zero": False, "nice": False}, "title": of}
    y: Json = {"field": "person", "type": "ordinal", "axis": None, "scale": {"padding": 0.1}}
    guessed: Json = {
        "transform": [{"filter": "datum.share != null"}],
        "mark": {"type": "rect", "color": ACCENT},
        "encoding": {
            "x": {**x, "field": "low"},
            "x2": {"field": "high"},
            "y": y,
            "opacity": {
                "field": "share", "type": "quantitative", "legend": None,
                "scale": {"type": "sqrt", "domain": [0, 1], "range": [0, 1]},
            },
        },
    }  # fmt: skip
    true: Json = {
        "transform": [{"filter": "datum.truth != null"}],
        "mark": {
            "type": "point",
            "shape": "circle",
            "size": 26,
            "color": BOUND,
            "strokeWidth": 1,
            "opacity": 1,
        },
        "encoding": {"x": {**x, "field": "truth"}, "y": y},
    }
    return {
        "$schema": SCHEMA, "config": CONFIG, "data": {"values": values},
        "title": {"text": title, "subtitle": [
            "One row per person. Blue: the guesses; darker means more guesses.",
            "Orange circle: the truth.",
        ]},
        "facet": {"field": "panel", "type": "nominal", "sort": panels, "title": None},
        "columns": 2 if len(panels) == 4 else COLUMNS,  # four panels fill a 2 x 2 grid
        "spec": {"width": WIDTH, "height": HEIGHT, "layer": [guessed, true]},
    }  # fmt: skip
