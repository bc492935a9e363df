"""Compare local and central differential privacy: the same question at the same epsilon.

Local: each respondent randomises their own answer, and nobody has to be trusted. Central: a trusted
owner holds the true answers and adds noise to the count. The local error is larger by a factor of
about the square root of the number of respondents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from sfumato.client.answer_chart import CONFIG, SCHEMA
from sfumato.client.ask_terms import Json
from sfumato.client.plot import Plot
from sfumato.dp.local.two_coins import FAIR
from sfumato.dp.refusal import Refused
from sfumato.lab.attack_report import ACCENT, BOUND
from sfumato.lab.platform_noise import NumpyRandomSource, private_sums

PEOPLE: Final = (30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
EPSILON: Final = float(FAIR.epsilon)  # the epsilon of randomised response with two fair coins: ln 3


@dataclass(frozen=True)
class Both:
    """The mean error of an estimated share: with local and with central differential privacy.

    It is for one number of respondents.
    """

    people: int
    local: float
    trusted: float


def compare(
    share: float, people: Sequence[int], dice: np.random.Generator, *, tries: int = 200
) -> tuple[Both, ...]:
    """Return the mean error of an estimated share for each number of respondents.

    The error is given for local and for central differential privacy.
    """
    if not 0 <= share <= 1 or any(count < 2 for count in people):
        raise Refused(
            "bad-request",
            "The survey's share or numbers of people are out of range.",
            "Give a share from 0 to 1, and at least one number of people.",
        )
    return tuple(_both(share, count, dice, tries) for count in people)


def _both(share: float, people: int, dice: np.random.Generator, tries: int) -> Both:
    yes = round(share * people)
    truths = np.arange(people) < yes
    told = [float(FAIR.behind(Fraction(_coins(truths, dice), people))) for _ in range(tries)]
    whole = np.full(tries, yes, dtype=np.int64)
    counted = private_sums(whole, sensitivity=1, epsilon=EPSILON, dice=dice) / people
    exact = yes / people
    return Both(people, _mean_error(told, exact), _mean_error(counted.tolist(), exact))


def _coins(truths: np.ndarray, dice: np.random.Generator) -> int:
    return int(FAIR.randomise(truths, NumpyRandomSource(dice)).sum())


def _mean_error(found: Sequence[float], exact: float) -> float:
    return float(np.mean(np.abs(np.array(found) - exact)))


def local_beside_global(
    dice: np.random.Generator, *, share: float = 0.7, people: Sequence[int] = PEOPLE
) -> Plot:
    """Plot the local and the central error against the number of respondents."""
    found = compare(share, people, dice)
    first, last = found[0], found[-1]
    title = "Local or central differential privacy"
    summary = (
        f"{share:.0%} of the people would say yes, and both ways cost epsilon "
        f"{EPSILON:.3g}. With {first.people:,} people, the mean error is "
        f"{first.local:.1%} for coins on each device, and {first.trusted:.1%} for a "
        f"trusted owner. With {last.people:,} people, it is {last.local:.2%} and "
        f"{last.trusted:.4%}. With a hundred times as many people, the error is ten "
        "times smaller with coins, and a hundred times smaller with the owner."
    )
    columns = ("people", "coins: mean error", "owner: mean error")
    cells = tuple((f"{b.people:,}", f"{b.local:.3%}", f"{b.trusted:.4%}") for b in found)
    return Plot({**_spec(found, title), "description": summary}, title, summary, columns, cells)


def _spec(found: Sequence[Both], title: str) -> Json:
    names = {"local": "coins: nobody has the true answers", "trusted": "an owner adds the noise"}
    rows = [
        {"people": b.people, "way": way, "error": getattr(b, field)}
        for b in found
        for field, way in names.items()
    ]
    log: Json = {"type": "log"}
    colour: Json = {
        "field": "way", "type": "nominal", "title": None, "legend": {"orient": "top", "columns": 1},
        "scale": {"domain": list(names.values()), "range": [BOUND, ACCENT]},
    }  # fmt: skip
    return {
        "$schema": SCHEMA, "config": CONFIG, "width": 560, "height": 280,
        "title": {"text": title}, "data": {"values": rows},
        "mark": {"type": "line", "size": 3, "point": True},
        "encoding": {
            "x": {"field": "people", "type": "quantitative", "scale": log, "title": "people"},
            "y": {"field": "error", "type": "quantitative", "scale": log,
                  "title": "mean error of the share", "axis": {"format": "~%"}},
            "color": colour,
        },
    }  # fmt: skip
