"""Tell whether somebody is in a study, from how often each trait occurs in it (Homer et al. 2008).

One trait says nothing, a thousand together do: the sum over all traits of (theirs - usual) times
(study's - usual) is larger for who is in it. Whoever is above 99 strangers is named, so that of
people who are not in the study one in a hundred is named by mistake, exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.lab.attack import EPSILONS_OPTION, Attack, Setting
from sfumato.lab.attack_report import Report, SuccessRate
from sfumato.lab.platform_noise import DELTA, private_vectors
from sfumato.lab.success_intervals import hit_rate_bound

Floats = NDArray[np.float64]
PEOPLE: Final = 100
TRAITS: Final = 1000
STRANGERS: Final = 99


def likeness(people: NDArray[Any], means: Floats, usual: Floats) -> Floats:
    """Return for each person how much the study's means lean their way (Homer's statistic)."""
    score: Floats = (people - usual) @ (means - usual)
    return score


def is_named(target: NDArray[Any], strangers: NDArray[Any], means: Floats, usual: Floats) -> bool:
    """Say whether the target is more like the study than every one of the strangers."""
    alone = float(likeness(target, means, usual))
    return alone > float(likeness(strangers, means, usual).max())


def false_alarms(strangers: int) -> float:
    """Return how often somebody who is not in the study is above that many strangers.

    They are one of them: drawn alike, and the release knows none of them.
    """
    return 1 / (strangers + 1)


def private_counts(
    counts: NDArray[np.int64], *, epsilon: float, dice: np.random.Generator
) -> NDArray[np.int64]:
    """Return our release: the counts of all traits together cost epsilon.

    One person adds 0 or 1 to each, so moves all of them by the root of their number at most.
    """
    return private_vectors(counts, sensitivity_squared=counts.size, epsilon=epsilon, dice=dice)


def _run(setting: Setting) -> Report:
    people = setting.whole("people", PEOPLE, least=1, most=100_000)
    traits = setting.whole("traits", TRAITS, least=1, most=100_000)
    strangers = setting.whole("strangers", STRANGERS, least=1, most=10_000)
    hits = _hits(setting, people, traits, strangers)
    alarms = false_alarms(strangers)
    return Report(
        attack="membership",
        title=f"Who is in a study of {people}, from the means of {traits:,} traits",
        knows="The attacker knows the target's traits, how common each is, and other people's.",
        measure=f"members named, where {100 * alarms:.2g} % of the strangers are named too",
        successes=_judged(setting, hits, alarms),
        finding=_finding(setting, hits, alarms),
        guessing=alarms,
    )


def _hits(setting: Setting, people: int, traits: int, strangers: int) -> dict[float | None, int]:
    """Return how often the target was named, by release; None is the exact one."""
    releases: Sequence[float | None] = (None, *setting.epsilons())
    hits = dict.fromkeys(releases, 0)
    for _ in range(setting.runs):
        usual = setting.dice.uniform(0.1, 0.9, traits)
        crowd = setting.dice.random((strangers + 1, traits)) < usual
        counts = setting.dice.binomial(people - 1, usual) + crowd[0]
        for epsilon in releases:
            means = _released(counts, epsilon, setting.dice) / people
            hits[epsilon] += is_named(crowd[0], crowd[1:], means, usual)
    return hits


def _released(
    counts: NDArray[np.int64], epsilon: float | None, dice: np.random.Generator
) -> NDArray[np.int64]:
    return counts if epsilon is None else private_counts(counts, epsilon=epsilon, dice=dice)


def _judged(
    setting: Setting, hits: dict[float | None, int], alarms: float
) -> tuple[SuccessRate, ...]:
    exact = SuccessRate("exact means", hits[None], setting.runs)
    return (
        exact,
        *(
            SuccessRate(
                f"epsilon = {epsilon:g}", hits[epsilon], setting.runs, epsilon,
                hit_rate_bound(epsilon, alarms, DELTA), f"delta = {DELTA:g}",
            )
            for epsilon in setting.epsilons()
        ),
    )  # fmt: skip


def _finding(setting: Setting, hits: dict[float | None, int], alarms: float) -> str:
    ours = ", ".join(
        f"{hits[epsilon] / setting.runs:.1%} at epsilon {epsilon:g}"
        for epsilon in setting.epsilons()
    )
    return (
        f"Exact means name {hits[None] / setting.runs:.0%} of the members, though they are "
        f"averages and {alarms:.1%} of the strangers are named by mistake. From our release of "
        f"the same means it is {ours}."
    )


ATTACK: Final = Attack(
    "membership",
    "tell who is in a study, from its means alone",
    _run,
    options={
        "people": "how many are in the study",
        "traits": "how many means it releases",
        "strangers": "how many others a member has to stand above",
        **EPSILONS_OPTION,
    },
)
