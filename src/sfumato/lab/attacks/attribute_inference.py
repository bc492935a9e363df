"""Infer a target's secret attribute from a released count, with and without the target's row.

The baseline is the same attacker with a release *without the target's row*. What they learn there
is a fact about people like the target, such as a village where an illness is common. No protection
of one row can hide it. The row itself changes the odds of the secret by a factor of at most
e^epsilon.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.client.plot import Plot
from sfumato.lab.attack import EPSILONS_OPTION, Attack, Setting
from sfumato.lab.attack_report import Report, SuccessRate
from sfumato.lab.line_plot import Axes, Point, curves
from sfumato.lab.platform_noise import private_sums
from sfumato.lab.success_rate_bounds import guessing_bound, hit_rate_bound
from sfumato.system.optional_packages import extra_module

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
PEOPLE: Final = 20
# the share of people with the secret in a village: rare or common, both equally likely
RATES: Final = (0.2, 0.8)
TAIL: Final = 40  # noise beyond this many scales is ignored


@dataclass(frozen=True)
class Village:
    """The attacker's prior beliefs about a village: its size, and the shares with the secret."""

    people: int  # including the target
    rates: tuple[float, ...] = RATES  # equally likely shares of people with the secret

    def others(self, rate: float) -> Floats:
        """Return the distribution of how many other people have the secret: P(0), P(1), and so on.

        `rate` is the share of people with the secret.
        """
        numbers = np.arange(self.people)
        chances: Floats = extra_module("scipy.stats", "lab").binom.pmf(
            numbers, self.people - 1, rate
        )
        return chances


def noise_chances(offsets: NDArray[np.int64], epsilon: float) -> Floats:
    """Return the probability of each noise value in `offsets`, for a count at this epsilon."""
    a = np.exp(-epsilon)
    chances: Floats = (1 - a) / (1 + a) * np.exp(-epsilon * np.abs(offsets))
    return chances


def joint_chances(village: Village, released: Counts, *, epsilon: float, is_in: bool) -> Floats:
    """Return the joint probabilities of each released count and the secret: no, yes.

    If the target's row is in the count, the secret changes it. If not, only the village's rate
    connects the two.
    """
    rows = []
    for secret in (0, 1):
        offsets = released[:, None] - np.arange(village.people)[None, :] - (secret * is_in)
        noise = noise_chances(offsets, epsilon)
        total = np.zeros(len(released))
        for rate in village.rates:
            likely = rate if secret else 1 - rate
            total += likely / len(village.rates) * (noise @ village.others(rate))
        rows.append(total)
    return np.stack(rows)


def odds_moved(village: Village, *, epsilon: float) -> float:
    """Return how much the target's row can change the log odds of their secret at most.

    The largest change over all released counts is at most epsilon.
    """
    released = _reachable(village, epsilon)
    there = joint_chances(village, released, epsilon=epsilon, is_in=True)
    removed = joint_chances(village, released, epsilon=epsilon, is_in=False)
    moved = np.log(there[1] / there[0]) - np.log(removed[1] / removed[0])
    return float(np.abs(moved).max())


def right_without(village: Village, *, epsilon: float) -> float:
    """Return how often `guess` is right about a target whose row was left out of the count.

    It is the baseline: what the attacker learns from the village alone.
    """
    released = _reachable(village, epsilon)
    there = joint_chances(village, released, epsilon=epsilon, is_in=True)
    removed = joint_chances(village, released, epsilon=epsilon, is_in=False)
    guessed = there[1] > there[0]
    right: float = np.where(guessed, removed[1], removed[0]).sum()
    return float(right)


def _reachable(village: Village, epsilon: float) -> Counts:
    reach = int(TAIL / epsilon) + 1
    return np.arange(-reach, village.people + reach + 1)


def guess(village: Village, released: Counts, *, epsilon: float) -> NDArray[np.bool_]:
    """Guess whether the target has the secret, by Bayes' rule.

    The rule uses the village's prior and the noise, and assumes that the target's row is in the
    count.
    """
    chances = joint_chances(village, released, epsilon=epsilon, is_in=True)
    likelier: NDArray[np.bool_] = chances[1] > chances[0]
    return likelier


def _run(setting: Setting) -> Report:
    village = Village(setting.whole("people", PEOPLE, least=1, most=2000))
    successes = [_exact(setting, village)]
    for epsilon in setting.epsilons():
        successes.append(_knowing_others(setting, village, epsilon))
    for epsilon in setting.epsilons():
        successes += _knowing_village(setting, village, epsilon)
    return Report(
        attack="attribute",
        title=f"Somebody's secret from one count of {village.people} people",
        knows="One attacker knows the secrets of all others; another attacker knows only the "
        "kind of village.",
        measure="targets whose secret is guessed correctly",
        successes=tuple(successes),
        finding=_finding(village, tuple(successes)),
        guessing=0.5,
        pictures=(_picture(village),),
    )


def _exact(setting: Setting, village: Village) -> SuccessRate:
    """Return how often the attacker is right from an exact count, if they know all other people."""
    secrets, others = _drawn(setting, village)
    guessed = (others + secrets) - others == 1
    return SuccessRate("exact count, others known", int((guessed == secrets).sum()), setting.runs)


def _knowing_others(setting: Setting, village: Village, epsilon: float) -> SuccessRate:
    secrets = setting.dice.random(setting.runs) < 0.5
    others = _drawn(setting, village)[1]
    released = private_sums(others + secrets, sensitivity=1, epsilon=epsilon, dice=setting.dice)
    hits = int(((released - others >= 1) == secrets).sum())
    name = f"epsilon = {epsilon:g}, others known"
    return SuccessRate(name, hits, setting.runs, epsilon, guessing_bound(epsilon))


def _knowing_village(setting: Setting, village: Village, epsilon: float) -> list[SuccessRate]:
    """Return the success rates of an attacker who knows the village but no single person.

    One rate is with the target's row in the count, the other without it.
    """
    made = []
    without = right_without(village, epsilon=epsilon)
    for name, is_in in (("village known", True), ("village known, target removed", False)):
        secrets, others = _drawn(setting, village)
        released = private_sums(
            others + secrets * is_in, sensitivity=1, epsilon=epsilon, dice=setting.dice
        )
        hits = int((guess(village, released, epsilon=epsilon) == secrets).sum())
        bound = hit_rate_bound(epsilon, without) if is_in else None
        text = f"epsilon = {epsilon:g}, {name}"
        made.append(SuccessRate(text, hits, setting.runs, epsilon, bound))
    return made


def _drawn(setting: Setting, village: Village) -> tuple[Counts, Counts]:
    """Draw a village for each run, and in it the target's secret and the other people's.

    Return the secrets (0 or 1), and how many other people have the secret.
    """
    rates = setting.dice.choice(np.array(village.rates), setting.runs)
    secrets = (setting.dice.random(setting.runs) < rates).astype(np.int64)
    return secrets, setting.dice.binomial(village.people - 1, rates).astype(np.int64)


def _finding(village: Village, successes: tuple[SuccessRate, ...]) -> str:
    removed = [one for one in successes if one.epsilon is not None and one.bound is None]
    knowing = ", ".join(
        f"{one.rate:.0%} at epsilon {one.epsilon:g}"
        for one in successes
        if one.epsilon is not None and one.against.endswith("others known")
    )
    moved = odds_moved(village, epsilon=1)
    most = max(one.rate for one in removed)
    return (
        "An attacker who knows all others reads the secret from an exact count; from "
        f"sfumato's counts, they are right for {knowing}. An attacker who knows only "
        f"the village is right for up to {most:.0%}, even if the target's row was never "
        "counted: this is knowledge about the village. At epsilon 1, the row itself "
        f"changes the odds by a factor of at most {np.exp(moved):.3f}; the limit is "
        f"{np.e:.3f}."
    )


def _picture(village: Village) -> Plot:
    """Plot how sure the attacker is of the secret after each released count, at epsilon 1."""
    released = np.arange(-4, village.people + 5)
    points = []
    for line, is_in in (("target in the count", True), ("target removed", False)):
        no, yes = joint_chances(village, released, epsilon=1, is_in=is_in)
        share = yes / (no + yes)
        points += [Point(line, float(x), y, y, y) for x, y in zip(released, share, strict=True)]
    return curves(
        Axes("What a count reveals about one villager", "released count (epsilon 1)",
             "chance that the target has the secret", {}),
        points,
        says="Without the target, the count reveals the kind of village. The gap between "
            "the lines is what the target's own row adds: a factor of at most e in the "
            "odds.",
    )  # fmt: skip


ATTACK: Final = Attack(
    "attribute",
    "guess a secret from a count, with the target in it and without",
    _run,
    runs=20_000,
    options={"people": "how many live in the village", **EPSILONS_OPTION},
)
