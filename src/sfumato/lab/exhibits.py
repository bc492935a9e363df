"""Draw the interactive exhibits of the lab's pages: a plot, a sentence and a table for each.

All data are synthetic and all noise comes from a seed, so equal slider values show equal pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from sfumato.client.answer_chart import CONFIG, SCHEMA
from sfumato.client.ask_terms import Json
from sfumato.client.plot import Plot
from sfumato.dp.refusal import Refused
from sfumato.lab.attack import Setting
from sfumato.lab.attack_report import ACCENT, BOUND, Report, SuccessRate
from sfumato.lab.attacks import attack
from sfumato.lab.attacks.linkage import Row, in_bands, uniqueness
from sfumato.lab.empirical_sensitivity import empirical_sensitivity
from sfumato.lab.local_and_central import PEOPLE, local_beside_global
from sfumato.lab.platform_noise import private_sums
from sfumato.lab.sample_data import medical_rows
from sfumato.lab.utility_curves import repeated_trials, utility_curve

EPSILONS: Final = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 30.0)
MAX_SEEDS: Final = 1000
Chosen = Mapping[str, float]


@dataclass(frozen=True)
class Slider:
    """A slider of an exhibit: its label, and the list of values to choose from."""

    name: str
    label: str
    values: tuple[float, ...]
    start: int  # the index of the initial value

    def text(self, place: int) -> str:
        """Return the value at a position of the slider as formatted text."""
        return f"{self.values[place]:,g}"


@dataclass(frozen=True)
class Exhibit:
    """An interactive exhibit of the lab: its title, its sliders, and the function that draws it."""

    name: str
    title: str
    says: str
    sliders: tuple[Slider, ...]
    draw: Callable[[Chosen, np.random.Generator], Plot]
    has_dice: bool = True  # False if the drawing has no randomness

    def places(self, typed: Mapping[str, str]) -> dict[str, int]:
        """Return each slider's index from the URL's parameters. Refuse an invalid index."""
        return {one.name: _place(one, typed.get(one.name)) for one in self.sliders}

    def shown(self, places: Mapping[str, int], seed: int = 0) -> Plot:
        """Draw the exhibit for these slider indices; another seed draws other noise."""
        if not 0 <= seed < MAX_SEEDS:
            raise Refused(
                "bad-request",
                f"The seed of the exhibit is not a whole number from 0 to {MAX_SEEDS - 1}.",
                "Give another seed.",
            )
        return _shown(self.name, tuple(places[one.name] for one in self.sliders), seed)


def _place(slider: Slider, typed: str | None) -> int:
    if typed is None:
        return slider.start
    is_place = typed.isascii() and typed.isdecimal() and len(typed) < 4
    if not is_place or int(typed) >= len(slider.values):
        last = len(slider.values) - 1
        raise Refused(
            "bad-request",
            f"The slider {slider.name} has no such position.",
            f"Give a position from 0 to {last}.",
        )
    return int(typed)


# cached, because each plot is requested three times; a large one takes a megabyte
@lru_cache(maxsize=32)
def _shown(name: str, places: tuple[int, ...], seed: int) -> Plot:
    found = exhibit(name)
    values = {s.name: s.values[p] for s, p in zip(found.sliders, places, strict=True)}
    return found.draw(values, np.random.default_rng(seed))


def exhibit(name: str) -> Exhibit:
    """Return the lab's exhibit of that name; refuse an unknown name."""
    found = next((one for one in EXHIBITS if one.name == name), None)
    if found is None:
        raise Refused(
            "unknown-page",
            "The lab has no such exhibit.",
            "The lab's first page lists all exhibits.",
        )
    return found


# --- the drawings --------------------------------------------------------------------------------


def _trials(chosen: Chosen, dice: np.random.Generator) -> Plot:
    return repeated_trials(120, chosen["epsilon"], dice, trials=int(chosen["times"]))


def _curve(chosen: Chosen, dice: np.random.Generator) -> Plot:
    high, low = chosen["high"], chosen["low"]
    regions = (("high privacy", 0.1, high), ("medium", high, low), ("low", low, 30.0))
    return utility_curve(
        int(chosen["people"]), 140, 200, dice, regions=regions, threshold=chosen["error"]
    )


def _neighbours(chosen: Chosen, _dice: np.random.Generator) -> Plot:
    """Plot the largest change of a sum of salaries by removing one person, and its sensitivity.

    The town is synthetic, so its rows may be measured; rows of a vault never are.
    """
    bound, people = int(chosen["bound"]), int(chosen["people"])
    town = medical_rows()[:people]

    def total(rows: Sequence[Row]) -> int:
        return sum(min(int(row["salary"]), bound) for row in rows)

    asked = sorted({max(2, round(people ** (step / 6))) for step in range(1, 7)})
    seen = [empirical_sensitivity(total, town[:count]).largest for count in asked]
    rows: list[Json] = [
        {"x": count, "naive": most, "ours": bound} for count, most in zip(asked, seen, strict=True)
    ]
    title = "One person fewer: a sum of salaries"
    summary = (
        f"In a table of {asked[0]:,} people, the absence of one person changes the sum "
        f"by at most {seen[0]:,.0f}; in a table of {people:,}, by at most "
        f"{seen[-1]:,.0f}. Salaries are clamped to {bound:,}, so a new person could "
        "change the sum by that much. The noise must protect this person, too."
    )
    columns = ("people", "largest change in this table", "largest possible change (sensitivity)")
    cells = tuple((f"{r['x']:,}", f"{r['naive']:,.0f}", f"{bound:,}") for r in rows)
    spec = _lines_spec(rows, title, ("people", "change of the sum"), ("seen", "possible"))
    return Plot({**spec, "description": summary}, title, summary, columns, cells)


def _linkage(chosen: Chosen, _dice: np.random.Generator) -> Plot:
    band = int(chosen["band"])
    columns = ("zip", "age", "salary")[: int(chosen["known"])]
    found = uniqueness(in_bands(medical_rows(), "salary", band), columns)
    return Report(
        attack="linkage",
        title="Unique in a table without names",
        knows=f"A neighbour knows the {_listed(columns)}"
        + (f", salaries to within {band:,}." if "salary" in columns else "."),
        measure="people with a unique row",
        successes=tuple(SuccessRate(" + ".join(f.columns), f.unique, f.rows) for f in found),
        finding=found[-1].finding,
    ).plot


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _averaging(chosen: Chosen, dice: np.random.Generator) -> Plot:
    """Plot the error of the mean of repeated answers, if each answer had its own noise."""
    epsilon, most = chosen["epsilon"], int(chosen["times"])
    asked = sorted({max(1, round(most ** (step / 12))) for step in range(13)})
    tries = 200
    noise = private_sums(
        np.zeros((tries, most), dtype=np.int64), sensitivity=1, epsilon=epsilon, dice=dice
    )
    means = np.cumsum(noise, axis=1) / np.arange(1, most + 1)
    errors = [float(np.abs(means[:, count - 1]).mean()) for count in asked]
    single = errors[0]
    right = float((np.abs(means[:, -1]) < 0.5).mean())
    rows: list[Json] = [
        {"x": count, "naive": error, "ours": single}
        for count, error in zip(asked, errors, strict=True)
    ]
    title = "Asking the same question again, and averaging"
    summary = (
        f"With new noise each time, the mean of {most:,} answers has an error of "
        f"{errors[-1]:.2g}, and gives the exact count in {right:.0%} of the cases. In "
        "sfumato, the same question has the same answer: asking again shows nothing "
        f"new, and the error stays {single:.2g}."
    )
    columns = ("answers", "error, new noise each time", "error, the same answer")
    cells = tuple((f"{r['x']:,}", f"{r['naive']:.3g}", f"{r['ours']:.3g}") for r in rows)
    names = ("new noise each time", "the same answer")
    spec = _lines_spec(rows, title, ("answers", "error of the count"), names)
    return Plot({**spec, "description": summary}, title, summary, columns, cells)


def _coins(chosen: Chosen, dice: np.random.Generator) -> Plot:
    """Plot a two-coin survey: the estimated share of yes against the number of respondents.

    For example, if 70 % would truthfully say yes, then 60 % of the randomised answers are yes.
    """
    people, truth = int(chosen["people"]), chosen["yes"] / 100
    asked = sorted({max(10, round(people ** (step / 12))) for step in range(4, 13)})
    seen = [float(dice.binomial(n, 0.25 + truth / 2)) / n for n in asked]
    told = [2 * share - 0.5 for share in seen]
    bars = [2 * 1.96 * math.sqrt(s * (1 - s) / n) for s, n in zip(seen, asked, strict=True)]
    rows: list[Json] = [
        {"x": n, "value": t, "low": t - b, "high": t + b, "truth": truth}
        for n, t, b in zip(asked, told, bars, strict=True)
    ]
    title = "Two coins: the share is known, but nobody's answer"
    summary = (
        f"{truth:.0%} of the people truly say yes. With two coins, about "
        f"{0.25 + truth / 2:.0%} of the answers are yes. From them, the estimate is "
        f"{told[-1]:.1%} ± {bars[-1]:.1%}, with {asked[-1]:,} respondents. Four times "
        "as many respondents halve the error."
    )
    columns = ("respondents", "answers that are yes", "estimate", "±, 95 %")
    cells = tuple(
        (f"{n:,}", f"{s:.1%}", f"{t:.1%}", f"{b:.1%}")
        for n, s, t, b in zip(asked, seen, told, bars, strict=True)
    )
    spec = _band_spec(rows, title, "respondents", "share that says yes")
    return Plot({**spec, "description": summary}, title, summary, columns, cells)


def _both(chosen: Chosen, dice: np.random.Generator) -> Plot:
    most, share = int(chosen["people"]), chosen["yes"] / 100
    people = [count for count in PEOPLE if count <= most]
    return local_beside_global(dice, share=share, people=people)


def _means(chosen: Chosen, dice: np.random.Generator) -> Plot:
    return _attacked("loo", dice, chosen, runs=200).pictures[0]


def _study(chosen: Chosen, dice: np.random.Generator) -> Plot:
    return _attacked("membership", dice, chosen, runs=60).plot


def _counts(chosen: Chosen, dice: np.random.Generator) -> Plot:
    return _attacked("reconstruction", dice, chosen, runs=10).plot


def _attacked(name: str, dice: np.random.Generator, chosen: Chosen, *, runs: int) -> Report:
    """Run an attack with few repeats. The command `sfumato attack` makes more repeats."""
    options = {key: f"{value:g}" for key, value in chosen.items() if key != "epsilon"}
    options["epsilons"] = f"{chosen['epsilon']:g}"
    return attack(name).run(Setting(dice, runs, options))


def _frame(
    title: str, rows: Sequence[Json], layers: Sequence[Json], *, under: Sequence[str] = ()
) -> Json:
    return {
        "$schema": SCHEMA, "config": CONFIG, "width": 560, "height": 280,
        "title": {"text": title, "subtitle": list(under)},
        "data": {"values": list(rows)}, "layer": list(layers),
    }  # fmt: skip


def _log(name: str) -> Json:
    return {"field": "x", "type": "quantitative", "scale": {"type": "log"}, "title": name}


def _lines_spec(
    rows: Sequence[Json], title: str, axes: tuple[str, str], names: tuple[str, str]
) -> Json:
    x, y = axes
    fields = dict(zip(("naive", "ours"), names, strict=True))
    drawn = [{"x": r["x"], "y": r[f], "line": name} for r in rows for f, name in fields.items()]
    colour: Json = {
        "field": "line", "type": "nominal", "title": None, "legend": {"orient": "top"},
        "scale": {"domain": list(names), "range": [BOUND, ACCENT]},
    }  # fmt: skip
    tall: Json = {"field": "y", "type": "quantitative", "title": y}
    line: Json = {"type": "line", "size": 3}
    encoding: Json = {"x": _log(x), "y": tall, "color": colour}
    return _frame(title, drawn, [{"mark": line, "encoding": encoding}])


def _band_spec(rows: Sequence[Json], title: str, x: str, y: str) -> Json:
    tall: Json = {"type": "quantitative", "axis": {"format": "%"}, "title": y}
    soft: Json = {"x": _log(x), "y": {**tall, "field": "low"}, "y2": {"field": "high"}}
    line: Json = {"x": _log(x), "y": {**tall, "field": "value"}}
    truth: Json = {"y": {**tall, "field": "truth"}}
    rule: Json = {"type": "rule", "strokeDash": [4, 4], "color": "#777777"}
    under = "Line: the estimate. Shaded band: 95 % interval. Dashed: the truth."
    return _frame(title, rows, [
        {"mark": {"type": "area", "color": ACCENT, "opacity": 0.25}, "encoding": soft},
        {"mark": {"type": "line", "color": ACCENT, "size": 3, "point": True}, "encoding": line},
        {"data": {"values": [rows[0]]}, "mark": rule, "encoding": truth},
    ], under=[under])  # fmt: skip


EPSILON: Final = Slider("epsilon", "Price of one answer, ε", EPSILONS, 5)
IN_ALL: Final = Slider("epsilon", "Price of everything that is released, ε", EPSILONS, 5)
EXHIBITS: Final = (
    Exhibit(
        "trials",
        "How noisy is a number?",
        "The same count, released many times with new noise: each release is one possible answer.",
        (EPSILON, Slider("times", "Releases", (100, 300, 1000, 3000, 10_000), 2)),
        _trials,
    ),
    Exhibit(
        "curve",
        "Privacy and usefulness",
        "The error of a mean of heights over the whole range of ε, and how it depends "
        "on the number of people.",
        (
            Slider("people", "People", (20, 60, 200, 600, 2000, 6000, 20_000), 1),
            Slider("error", "Useful up to an error of (cm)", (0.01, 0.1, 0.3, 1, 3, 10), 3),
            Slider("high", "High privacy, ε up to", (0.3, 0.5, 1, 2, 3), 2),
            Slider("low", "Low privacy, ε from", (5, 7, 10, 20), 2),
        ),
        _curve,
    ),
    Exhibit(
        "neighbours",
        "One person fewer",
        "How much one person's absence changes a sum: in a table, and at most by the bounds.",
        (
            Slider("people", "People in the table", (20, 60, 200, 600, 1000), 2),
            Slider("bound", "Salaries are clamped to", (20_000, 50_000, 100_000, 200_000), 3),
        ),
        _neighbours,
        has_dice=False,
    ),
    Exhibit(
        "linkage",
        "Unique in a table without names",
        "A thousand people of a synthetic town: how many are unique by what a neighbour knows.",
        (
            Slider("known", "Columns that the neighbour knows", (1, 2, 3), 2),
            Slider("band", "Salary known to within", (1000, 2000, 5000, 10_000, 20_000, 50_000), 3),
        ),
        _linkage,
        has_dice=False,
    ),
    Exhibit(
        "averaging",
        "Asking again",
        "An attacker asks the same question repeatedly, and averages the answers.",
        (EPSILON, Slider("times", "Answers", (10, 30, 100, 300, 1000, 3000), 4)),
        _averaging,
    ),
    Exhibit(
        "coins",
        "Two coins",
        "Randomised response: everybody flips coins before they answer, so no answer "
        "can be held against them.",
        (
            Slider("people", "Respondents", (100, 300, 1000, 3000, 10_000, 100_000), 3),
            Slider("yes", "True share of yes, in per cent", (1, 5, 10, 30, 50, 70, 90), 5),
        ),
        _coins,
    ),
    Exhibit(
        "both",
        "Local or central?",
        "The same question at the same price: with coins on every device, and with a "
        "trusted owner who adds the noise.",
        (
            Slider("people", "Respondents, at most", (1000, 10_000, 30_000, 100_000), 1),
            Slider("yes", "True share of yes, in per cent", (1, 5, 10, 30, 50, 70, 90), 5),
        ),
        _both,
    ),
    Exhibit(
        "loo",
        "Leave-one-out means",
        "Sixty heights, and what an attacker reconstructs from three broken releases "
        "and from sfumato's.",
        (IN_ALL,),
        _means,
    ),
    Exhibit(
        "membership",
        "Who is in the study?",
        "A study releases only means. An attacker who knows somebody's traits tests "
        "whether they took part.",
        (IN_ALL, Slider("traits", "Means that are released", (10, 100, 300, 1000, 3000), 3)),
        _study,
    ),
    Exhibit(
        "reconstruction",
        "Too many counts",
        "Everybody has a secret bit. An attacker gets the counts of random groups, one "
        "after the other.",
        (IN_ALL, Slider("counts", "Counts that are answered", (50, 100, 200, 400), 3)),
        _counts,
    ),
)
