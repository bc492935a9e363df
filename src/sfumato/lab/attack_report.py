"""Report an attack's success rates, with the theoretical upper bound of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sfumato.client.answer_chart import CONFIG, SCHEMA
from sfumato.client.ask_terms import Json
from sfumato.client.plot import Plot
from sfumato.lab.success_rate_bounds import interval

CONFIDENCE: Final = 0.95
ACCENT: Final = "#0072B2"
BOUND: Final = "#D55E00"
_TICK: Final[Json] = {"type": "tick", "color": BOUND, "thickness": 3, "size": 26}


@dataclass(frozen=True)
class SuccessRate:
    """An attack's success rate against one release."""

    against: str  # "the exact release", "epsilon = 1"
    hits: int
    tries: int
    epsilon: float | None = None  # epsilon of the release; None if the release has no guarantee
    # the highest rate that theory allows; None if theory allows any rate
    bound: float | None = None
    note: str = ""

    @property
    def rate(self) -> float:
        """Return the share of tries in which the attack was right."""
        return self.hits / self.tries if self.tries else 0.0

    def within(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Return the exact confidence interval of the success probability."""
        return interval(self.hits, self.tries, confidence)

    def is_above_bound(self, confidence: float) -> bool:
        """Return True if the rate is significantly above its theoretical bound."""
        return self.bound is not None and self.within(confidence)[0] > self.bound


@dataclass(frozen=True)
class Report:
    """An attack's success rates against releases with and without privacy protection."""

    attack: str  # its name on the command line
    title: str
    knows: str  # what the attacker knows, in plain words
    measure: str  # what counts as a success: "people rebuilt to within 1 cm"
    successes: tuple[SuccessRate, ...]
    finding: str  # one to four plain sentences
    guessing: float | None = None  # the success rate of a guess without any release
    pictures: tuple[Plot, ...] = field(default=())  # further plots, besides the bars of `successes`
    # reports of the same attack with other measures of success
    beside: tuple[Report, ...] = field(default=())

    def above_bounds(self, confidence: float = 0.999) -> tuple[SuccessRate, ...]:
        """Return the success rates that are significantly above their theoretical bounds.

        The confidence holds for all bounded rates together, also those of the further reports in
        `beside`. Their one-sided intervals share the probability of error (Bonferroni).
        """
        judged = [one for one in self._all() if one.bound is not None]
        miss = (1 - confidence) / max(1, len(judged))
        return tuple(one for one in judged if one.is_above_bound(1 - 2 * miss))

    def _all(self) -> tuple[SuccessRate, ...]:
        return sum((report._all() for report in self.beside), self.successes)

    @property
    def plot(self) -> Plot:
        """Return a bar chart of the success rates, with their intervals and bounds."""
        return Plot(
            spec={**_spec(self), "description": self.finding},
            title=self.title,
            summary=f"{self.title}. {self.knows} {self.finding}",
            columns=COLUMNS,
            cells=tuple(_cells(one) for one in self.successes),
        )

    @property
    def table(self) -> str:
        """Return the success rates as a text table."""
        return self.plot.table

    def save(self, path: str | Path) -> Path:
        """Write the plot in the format of its suffix (.svg, .png, .html or .json).

        Further plots go into numbered files next to it.
        """
        path = Path(path)
        more = [*self.pictures, *(report.plot for report in self.beside)]
        for number, picture in enumerate(more, start=2):
            picture.save(path.with_stem(f"{path.stem}-{number}"))
        return self.plot.save(path)

    def as_json(self) -> Json:
        """Return the success rates and the finding of the attack as JSON."""
        return {
            "attack": self.attack, "title": self.title, "knows": self.knows,
            "measure": self.measure, "guessing": self.guessing, "finding": self.finding,
            "successes": [_success_json(one) for one in self.successes],
            "beside": [report.as_json() for report in self.beside],
        }  # fmt: skip

    def __repr__(self) -> str:
        head = f"{self.title}\n{self.knows}\n\n{self.table}\n\nRight: {self.measure}."
        return "\n\n".join([f"{head}\n\n{self.finding}", *map(repr, self.beside)])

    def _repr_html_(self) -> str:
        pictures = "".join(picture._repr_html_() for picture in self.pictures)
        more = pictures + "".join(report._repr_html_() for report in self.beside)
        return f"{self.plot._repr_html_()}{more}"


COLUMNS: Final = ("against", "right", "95 % interval", "tries", "at most, by theory")


def _cells(one: SuccessRate) -> tuple[str, ...]:
    low, high = one.within()
    bound = "-" if one.bound is None else _share(one.bound)
    name = f"{one.against} ({one.note})" if one.note else one.against
    return (name, _share(one.rate), f"{_share(low)} to {_share(high)}", f"{one.tries:,}", bound)


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _success_json(one: SuccessRate) -> Json:
    low, high = one.within()
    return {
        "against": one.against, "epsilon": one.epsilon, "hits": one.hits, "tries": one.tries,
        "rate": one.rate, "low": low, "high": high, "bound": one.bound, "note": one.note,
    }  # fmt: skip


def _spec(report: Report) -> Json:
    """Return the chart of success rates as Vega-Lite JSON.

    It has bars with confidence intervals, a tick at each theoretical bound, and a line for
    guessing.
    """
    rows = [{**_success_json(one), "label": _label(one)} for one in report.successes]
    y: Json = {
        "field": "label", "type": "nominal", "sort": None, "title": None,
        "axis": {"labelExpr": "split(datum.label, '\\n')", "labelLimit": 340},
    }  # fmt: skip
    share: Json = {
        "type": "quantitative",
        "stack": None,
        "axis": {"format": "%"},
        "scale": {"domain": [0, 1]},
    }
    layers: list[Json] = [
        _layer({"type": "bar", "color": ACCENT, "opacity": 0.35, "height": 16}, y, share, "rate"),
        _layer({"type": "rule", "color": ACCENT, "size": 3}, y, share, "low", "high"),
        {
            **_layer(_TICK, y, share, "bound"),
            "transform": [{"filter": "datum.bound != null"}],
        },
    ]
    if report.guessing is not None:
        rule = {"type": "rule", "strokeDash": [4, 4], "color": "#555555"}
        layers.append({"mark": rule, "encoding": {"x": {"datum": report.guessing}}})
    return {
        "$schema": SCHEMA, "config": CONFIG, "width": 460, "height": {"step": 34},
        "title": {"text": report.title, "subtitle": _under(report)},
        "data": {"values": rows}, "layer": layers,
    }  # fmt: skip


def _label(one: SuccessRate) -> str:
    """Label a bar by the attacked release, and a note that tells equal releases apart."""
    return f"{one.against}\n{one.note}" if one.note else one.against


def _layer(mark: Json, y: Json, share: Json, field_: str, to: str | None = None) -> Json:
    x: Json = {**share, "field": field_, "title": "right"}
    encoding: Json = {"y": y, "x": x}
    if to is not None:
        encoding["x2"] = {"field": to}
    return {"mark": mark, "encoding": encoding}


def _under(report: Report) -> Sequence[str]:
    marks = []
    if any(one.bound is not None for one in report.successes):
        marks.append("Orange mark: the largest value that theory allows.")
    if report.guessing is not None:
        marks.append("Dashed: success of guessing without any release.")
    return [f"Right: {report.measure}. Dark line: 95 % interval.", " ".join(marks)]
