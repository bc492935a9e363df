"""Infer membership in a study from its published trait frequencies (Homer et al. 2008).

One trait reveals nothing, but a thousand together do. The sum over all traits of (theirs - usual)
times (study's - usual) is larger for members. The attacker names a target who scores above 99
strangers, so exactly one in a hundred non-members is named by mistake.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.lab.attack import EPSILONS_OPTION, Attack, Setting
from sfumato.lab.attack_report import Report, SuccessRate
from sfumato.lab.platform_noise import DELTA, private_vectors
from sfumato.lab.success_rate_bounds import hit_rate_bound

Floats = NDArray[np.float64]
PEOPLE: Final = 100
TRAITS: Final = 1000
STRANGERS: Final = 99


def likeness(people: NDArray[Any], means: Floats, usual: Floats) -> Floats:
    """Return Homer's statistic: how much each person's traits resemble the study's means.

    It is larger for members. `usual` has the usual frequency of each trait.
    """
    score: Floats = (people - usual) @ (means - usual)
    return score


def is_named(target: NDArray[Any], strangers: NDArray[Any], means: Floats, usual: Floats) -> bool:
    """Return True if the attacker names the target: no stranger resembles the study as much."""
    alone = float(likeness(target, means, usual))
    return alone > float(likeness(strangers, means, usual).max())


def false_alarms(strangers: int) -> float:
    """Return the false positive rate: how often a non-member scores above `strangers` strangers.

    A non-member is drawn like the strangers, and the release contains none of them.
    """
    return 1 / (strangers + 1)


def private_counts(
    counts: NDArray[np.int64], *, epsilon: float, dice: np.random.Generator
) -> NDArray[np.int64]:
    """Return the counts with Gaussian noise; all traits together cost (epsilon, delta).

    One person adds 0 or 1 to each count, so the L2 sensitivity is the square root of the number of
    traits.
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
        measure=f"members identified, if {100 * alarms:.2g} % of non-members are wrongly "
        "identified too",
        successes=_judged(setting, hits, alarms),
        finding=_finding(setting, hits, alarms),
        guessing=alarms,
    )


def _hits(setting: Setting, people: int, traits: int, strangers: int) -> dict[float | None, int]:
    """Attack many drawn studies; return how often a member is named, for each release.

    A release is given by its epsilon; None is the exact release.
    """
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
        f"Exact means identify {hits[None] / setting.runs:.0%} of the members, while "
        f"{alarms:.1%} of the non-members are wrongly identified. sfumato's release of "
        f"the same means identifies {ours}."
    )


ATTACK: Final = Attack(
    "membership",
    "find out who is in a study, from its means alone",
    _run,
    options={
        "people": "how many are in the study",
        "traits": "how many means the study releases",
        "strangers": "with how many other people a member is compared",
        **EPSILONS_OPTION,
    },
)
