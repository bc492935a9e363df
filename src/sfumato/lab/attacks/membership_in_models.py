"""Membership inference on a trained model (LiRA: Carlini, Chien, Nasr and others 2022).

The attacker trains shadow models on other people, without and with the target's row. Two normal
distributions describe the target's margin in the two cases. Their likelihood ratio scores the
margin of the released model. A row is named if its ratio is among the highest of strangers' rows,
so the false positive rate is known exactly.

The shadow model with the row is not retrained. One step of the optimality condition along the row
gives it (Rad and Maleki 2020), and a test compares it with retraining.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from sfumato.lab.attack import EPSILONS_OPTION, Attack, Setting
from sfumato.lab.attack_report import Report, SuccessRate
from sfumato.lab.logistic_models import (
    Floats,
    chance_of,
    curves_of,
    noise_variance,
    private_twins,
    trained,
)
from sfumato.lab.one_bit_game import parts
from sfumato.lab.platform_noise import DELTA
from sfumato.lab.success_rate_bounds import hit_rate_bound

PEOPLE: Final = 24
COLUMNS: Final = 200
RIDGE: Final = 0.1
SHADOWS: Final = 64
STRANGERS: Final = 999
SHARES: Final = (0.01, 0.001)  # false positive rates: shares of strangers named by mistake
OWN: Final = 0.9  # norm of a person's own columns, which resemble nobody else's
WRONG: Final = 0.15  # share of labels that do not follow from the columns
FRESH: Final = 1000  # new people on whom a model's accuracy is measured
SETTLING: Final = 8  # number of Newton steps to solve for the margin with the row


@dataclass(frozen=True)
class Shadows:
    """Shadow models, which the attacker trains on other people, to learn what margins are usual.

    They hold the terms to compute a row's margin as if the model had been trained with that row.
    """

    rows: Floats  # models x people x columns
    weights: Floats  # models x columns
    # models x people x people: the Cholesky factor with which the inverse Hessian is applied
    held: Floats

    @staticmethod
    def of(people: int, columns: int, count: int, dice: np.random.Generator) -> Shadows:
        """Draw new people, and train shadow models on them."""
        rows = draw_people(count * people, columns, dice).reshape(count, people, columns)
        weights = trained(rows, RIDGE)
        alike = rows @ np.swapaxes(rows, 1, 2)
        loose = RIDGE / np.maximum(curves_of(rows, weights), 1e-12)
        inverse = np.linalg.inv(alike + loose[..., None] * np.eye(people))
        return Shadows(rows, weights, np.linalg.cholesky(inverse))

    def margins(self, rows: Floats) -> tuple[Floats, Floats]:
        """Return the margin of each row in each model: trained without the row, and with it."""
        without = rows @ self.weights.T
        return without, with_the_row(without, self._give(rows))

    def _give(self, rows: Floats) -> Floats:
        """Return how far each row can move its own margin: row . inverse Hessian . row.

        By Woodbury's identity it is (|row|^2 - |held^T a|^2) / ridge. The vector a has the row's
        products with the people, and `held` is the Cholesky factor of each model.
        """
        count, people, columns = self.rows.shape
        along = (self.rows.reshape(-1, columns) @ rows.T).reshape(count, people, len(rows))
        fast = ((np.swapaxes(self.held, 1, 2) @ along) ** 2).sum(axis=1).T
        give: Floats = np.maximum((rows**2).sum(axis=1)[:, None] - fast, 0) / RIDGE
        return give


def with_the_row(without: Floats, give: Floats) -> Floats:
    """Compute each margin m after training with the row from the margin m0 without it.

    The code solves m = m0 + give (1 - chance(m)), where chance(m) is the probability of the true
    label. `give` is how far a row can move its own margin.
    """
    margins = without + give * (1 - chance_of(without)) / (1 + give / 4)
    for _ in range(SETTLING):
        chances = chance_of(margins)
        excess = margins - without - give * (1 - chances)
        margins = margins - excess / (1 + give * chances * (1 - chances))
    return margins


def draw_people(count: int, columns: int, dice: np.random.Generator) -> Floats:
    """Draw examples of norm 1: each is a person's columns times their label.

    One column follows the label, except for 15 % of the people (WRONG). The other columns are a
    person's own, like the words of a letter, and together have the norm 0.9 (OWN).
    """
    own = dice.standard_normal((count, columns - 1))
    own *= OWN / np.sqrt((own**2).sum(axis=1, keepdims=True))
    follows = np.where(dice.random(count) < WRONG, -1.0, 1.0)
    told = follows * np.sqrt(1 - OWN**2)
    examples: Floats = np.concatenate([told[:, None], own], axis=1)
    return examples


def log_ratios(rows: Floats, model: Floats, bells: Bells, noise: float) -> Floats:
    """Return each row's log likelihood ratio: was the released model trained with it, or without?

    The two cases are compared by the row's margin. `noise` is the variance of the model's noise.
    """
    seen = rows @ model
    return _log_bell(seen, bells.with_it, noise) - _log_bell(seen, bells.without, noise)


def stand_above(crowd: Floats, model: Floats, bells: Bells, epsilon: float | None) -> int:
    """Return how many strangers have at least the target's likelihood ratio; the target is first.

    The fewer they are, the surer the attacker is that the target's row was in the training.
    """
    noise = 0.0
    if epsilon is not None:
        noise = noise_variance(ridge=RIDGE, columns=crowd.shape[1], epsilon=epsilon)
    ratios = log_ratios(crowd, model, bells, noise)
    return int((ratios[1:] >= ratios[0]).sum())


def released(weights: Floats, epsilon: float | None, dice: np.random.Generator) -> Floats:
    """Return the released models: the exact weights, or with the noise of (epsilon, delta)-DP."""
    if epsilon is None:
        return weights
    return private_twins(weights, ridge=RIDGE, epsilon=epsilon, dice=dice)


@dataclass(frozen=True)
class Bells:
    """For each row, two normal distributions of its margin: trained without the row, and with it.

    They are fitted over the shadow models. Each is given by its mean and its variance.
    """

    without: tuple[Floats, Floats]
    with_it: tuple[Floats, Floats]

    @staticmethod
    def of(shadows: Shadows, rows: Floats) -> Bells:
        """Fit the two normal distributions of each row's margin to the shadow models."""
        without, with_it = shadows.margins(rows)
        return Bells(_bell(without), _bell(with_it))


def _bell(margins: Floats) -> tuple[Floats, Floats]:
    return margins.mean(axis=1), margins.var(axis=1, ddof=1) + 1e-12


def _log_bell(seen: Floats, bell: tuple[Floats, Floats], noise: float) -> Floats:
    mean, variance = bell[0], bell[1] + noise
    log: Floats = -((seen - mean) ** 2) / (2 * variance) - np.log(variance) / 2
    return log


def _run(setting: Setting) -> Report:
    people = setting.whole("people", PEOPLE, least=2, most=500)
    shadows = Shadows.of(
        people, COLUMNS, setting.whole("shadows", SHADOWS, least=2, most=1000), setting.dice
    )
    strangers = setting.whole("strangers", STRANGERS, least=99, most=10_000)
    found = _Found.of(setting, people, strangers, shadows)
    successes = tuple(_successes(setting, found, strangers))
    return Report(
        attack="membership-models",
        title=f"Whose row trained a model of {people} people",
        knows="The attacker has the target's row, the model, and people like those in the "
        "training data.",
        measure="members identified, if 1 % or 0.1 % of non-members are wrongly identified too",
        successes=successes,
        finding=_finding(successes, found),
    )


@dataclass(frozen=True)
class _Found:
    """The results of all trials, by release: the target's ranks, and the models' accuracy.

    A rank is the number of strangers above the target.
    """

    above: dict[float | None, list[int]]
    right: dict[float | None, list[float]]  # accuracy on new people, per chunk of the trials

    @staticmethod
    def of(setting: Setting, people: int, strangers: int, shadows: Shadows) -> _Found:
        releases = (None, *setting.epsilons())
        found = _Found({one: [] for one in releases}, {one: [] for one in releases})
        for runs in parts(setting.runs, people * COLUMNS):
            rows = draw_people(runs * people, COLUMNS, setting.dice)
            found.add(rows.reshape(runs, people, COLUMNS), strangers, shadows, setting.dice)
        return found

    def add(
        self, rows: Floats, strangers: int, shadows: Shadows, dice: np.random.Generator
    ) -> None:
        """Train a model on each group of people, and infer the membership of its first person."""
        exact = trained(rows, RIDGE)
        models = {release: released(exact, release, dice) for release in self.above}
        fresh = draw_people(FRESH, COLUMNS, dice)
        for release, weights in models.items():
            self.right[release].append(float((weights @ fresh.T > 0).mean()))
        for trial, group in enumerate(rows):
            crowd = np.concatenate([group[:1], draw_people(strangers, COLUMNS, dice)])
            bells = Bells.of(shadows, crowd)
            for release, weights in models.items():
                self.above[release].append(stand_above(crowd, weights[trial], bells, release))

    def hits(self, release: float | None, allowed: int) -> int:
        """Return in how many trials fewer than `allowed` strangers rank above the target."""
        return sum(above < allowed for above in self.above[release])


def _successes(setting: Setting, found: _Found, strangers: int) -> list[SuccessRate]:
    made = []
    for release in (None, *setting.epsilons()):
        for share in SHARES:
            allowed = int(share * (strangers + 1) + 1e-9)
            if allowed < 1:
                continue
            alarms = allowed / (strangers + 1)
            name = "the model itself" if release is None else f"epsilon = {release:g}"
            bound = None if release is None else hit_rate_bound(release, alarms, DELTA)
            hits = found.hits(release, allowed)
            made.append(
                SuccessRate(f"{name}, at {100 * alarms:.2g} %", hits, setting.runs, release, bound)
            )
    return made


def _finding(successes: tuple[SuccessRate, ...], found: _Found) -> str:
    named = ", ".join(
        f"{one.rate:.1%} of epsilon {one.epsilon:g}"
        for one in successes
        if one.epsilon is not None and one.against.endswith("at 1 %")
    )
    use = ", ".join(
        f"{np.mean(shares):.0%} {'without noise' if epsilon is None else f'at epsilon {epsilon:g}'}"
        for epsilon, shares in found.right.items()
    )
    return (
        f"The model reveals {successes[0].rate:.0%} of its members, if 1 % of "
        f"non-members are wrongly identified; its private versions reveal {named}. The "
        "price of privacy is accuracy: for new people, the models predict the correct "
        f"label for {use}."
    )


ATTACK: Final = Attack(
    "membership-models",
    "find out whose row trained a model, with shadow models",
    _run,
    runs=300,
    options={
        "people": "how many people the model is trained on",
        "shadows": "how many shadow models are trained",
        "strangers": "with how many other rows a member's row is compared",
        **EPSILONS_OPTION,
    },
)
