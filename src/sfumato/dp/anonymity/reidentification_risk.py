"""Re-identification risk of a table: the prosecutor, journalist and marketer attackers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from sfumato.dp.anonymity.coded_table import Codes, Floats
from sfumato.dp.refusal import Refused

HIGH: Final = 0.2  # the most common threshold for the probability of re-identification
_PANELS: Final = 4  # integration panels per unit of x


@dataclass(frozen=True)
class Risk:
    """The probability of re-identification for one kind of attacker, over the rows of a table."""

    highest: float  # for the rows in the smallest class
    mean: float
    above: float  # share of rows whose probability is above the threshold


@dataclass(frozen=True)
class Risks:
    """The re-identification risk for three kinds of attackers.

    They are named as in guidance on health data (Dankar and El Emam 2010).
    """

    prosecutor: Risk  # targets one person who is known to be in the table
    journalist: Risk | None  # targets anybody, not known to be in it; None without a population
    marketer: float  # targets everybody: the expected share of rows re-identified
    sample_uniques: float  # share of the rows that are unique in the table
    population_uniques: float | None  # estimated share of people unique in the population


def risks_of(sizes: Codes, fraction: float | None = None, threshold: float = HIGH) -> Risks:
    """Compute the risk that attackers re-identify people, from the equivalence class sizes.

    `fraction` is the sampling fraction: the share of the population that is in the table.
    """
    if fraction is not None and not 0 < fraction <= 1:
        raise Refused(
            "bad-request",
            "The sampling fraction (the table's share of its population) must be above 0 and at "
            "most 1.",
            "Give a fraction above 0, up to 1.",
        )
    people = int(sizes.sum())
    if not people:
        nobody = Risk(0.0, 0.0, 0.0)
        return Risks(nobody, None, 0.0, 0.0, None)
    alone = int(np.count_nonzero(sizes == 1)) / people
    return Risks(
        prosecutor=_risk(1.0 / sizes, sizes, threshold),
        journalist=None
        if fraction is None
        else _risk(expected_chances(sizes, fraction), sizes, threshold),
        marketer=len(sizes) / people,
        sample_uniques=alone,
        population_uniques=None if fraction is None else population_uniques(sizes, fraction),
    )


def expected_chances(sizes: Codes, fraction: float) -> Floats:
    """Return for each class the expected chance that an attacker picks the right person.

    The attacker picks at random among the F people of the class in the population, so the chance is
    the expected 1/F (Benedetti 1998). Each of the F people is in the table with probability p =
    `fraction`. Given that f of them are in it, F is f plus a negative binomial number. The mean of
    1/F is p times the integral of y**(f - 1) / (p + (1 - p) y) from 0 to 1. For f = 1 that is p
    ln(1/p) / (1 - p).
    """
    different, of_class = np.unique(sizes, return_inverse=True)
    found = np.array([_mean_inverse(int(f), fraction) for f in different])
    chances: Floats = found[of_class]
    return chances


def population_uniques(sizes: Codes, fraction: float) -> float | None:
    """Estimate the share of people who are unique in the population, by Pitman's model.

    The two parameters come from the method of moments (Hoshino 2001): the number of classes, of
    classes of one, and of classes of two. The result is None for a table without classes of two, or
    outside the model.
    """
    people, classes = float(sizes.sum()), float(len(sizes))
    ones, twos = float((sizes == 1).sum()), float((sizes == 2).sum())
    if fraction >= 1 - 1e-12:
        return ones / people
    if not ones:
        return 0.0
    if not twos:
        return None
    c = ones * (ones - 1) / twos
    under = 2 * ones * classes + ones * c - people * c
    if not under:
        return None
    theta = (people * classes * c - ones * (people - 1) * (2 * classes + c)) / under
    alpha = (theta * (ones - people) + (people - 1) * ones) / (people * classes)
    if not (0 < alpha < 1 and theta > -alpha and theta + 1 > 0):
        return None
    everybody = people / fraction
    log = math.lgamma(theta + 1) - math.lgamma(theta + alpha) + alpha * math.log(everybody)
    return min(1.0, math.exp(log) / everybody)


def _mean_inverse(f: int, p: float) -> float:
    """Return the expected 1/F of a class, where F is the number of its people in the population.

    `f` people of the class are in the table, and `p` is the sampling fraction. The code uses
    Gauss-Legendre quadrature on short panels, with y = exp(-x / f).
    """
    if p >= 1 - 1e-12:
        return 1.0 / f
    nodes, weights = np.polynomial.legendre.leggauss(8)
    end = 60.0 - math.log(p)  # the tail beyond is below 1e-26 of the integral
    edges = np.linspace(0.0, end, math.ceil(end) * _PANELS + 1)
    half = (edges[1] - edges[0]) / 2
    x = (edges[:-1] + half)[:, None] + half * nodes
    values = np.exp(-x) / (p + (1 - p) * np.exp(-x / f))
    return float((values @ weights).sum() * half * p / f)


def _risk(chances: Floats, sizes: Codes, threshold: float) -> Risk:
    people = int(sizes.sum())
    return Risk(
        highest=float(chances.max()),
        mean=float(chances @ sizes) / people,
        above=int(sizes[chances > threshold].sum()) / people,
    )
