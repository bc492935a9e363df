"""How likely it is to find somebody: by who knows that they are in the table, by who does not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from sfumato.dp.anonymity.coded_table import Codes, Floats
from sfumato.dp.refusal import Refused

HIGH: Final = 0.2  # a chance of one in five: the threshold that is used most
_PANELS: Final = 4  # of the integral, for each step of its variable


@dataclass(frozen=True)
class Risk:
    """Chances of being found, over the rows of a table."""

    highest: float  # of the rows in the smallest class
    mean: float
    above: float  # share of the rows whose chance is above the threshold


@dataclass(frozen=True)
class Risks:
    """Three attackers, as the guidance on health data names them (Dankar and El Emam 2010)."""

    prosecutor: Risk  # looks for one person, and knows that they are in the table
    journalist: Risk | None  # looks for anybody, and does not; None if the population is unknown
    marketer: float  # the share of all rows that are found, if everybody is looked for
    sample_uniques: float  # the share of the rows that nobody shares in the table
    population_uniques: float | None  # the share that nobody shares in the population, estimated


def risks_of(sizes: Codes, fraction: float | None = None, threshold: float = HIGH) -> Risks:
    """Return the risks of classes of these sizes, in a table that is that part of a population."""
    if fraction is not None and not 0 < fraction <= 1:
        raise Refused(
            "bad-request", "The table is a part of its population.", "Give a fraction from 0 to 1."
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
    """Return the mean of 1/F for each class, F its size in the population (Benedetti 1998).

    Of F people each is in the table with the chance p = `fraction`: where f of them are, F is f
    plus a negative binomial number of misses, and the mean is p times the integral of
    y**(f - 1) / (p + (1 - p) y) from 0 to 1. For f = 1 that is p ln(1/p) / (1 - p).
    """
    different, of_class = np.unique(sizes, return_inverse=True)
    found = np.array([_mean_inverse(int(f), fraction) for f in different])
    chances: Floats = found[of_class]
    return chances


def population_uniques(sizes: Codes, fraction: float) -> float | None:
    """Return an estimate of the share of the population that is alone in it, or None.

    By Pitman's model (Hoshino 2001) with its two numbers from the moments: how many classes, how
    many of one, how many of two. A table without classes of two, or outside the model, has none.
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
    """Return the integral with y = exp(-x / f), by Gauss's rule on short panels of x."""
    if p >= 1 - 1e-12:
        return 1.0 / f
    nodes, weights = np.polynomial.legendre.leggauss(8)
    end = 60.0 - math.log(p)  # what is beyond is below 1e-26 of the whole
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
