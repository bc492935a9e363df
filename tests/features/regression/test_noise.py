"""What is said of a fit's noise holds over many fits: real plans and prices, made-up noise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from sfumato.features.regression.fit_result import Fit
from sfumato.features.regression.logistic import PIECES
from sfumato.features.regression.logistic_curve import ladder, logistic
from support.k_anonymity_oracles import XS, Quick, least_squares, people, plain_odds

FITS = 80


def hits(fits: list[Fit], true: np.ndarray) -> list[int]:
    """Return how many fits have each coefficient within its interval."""
    every = [[fit.intercept, *fit.coefficients.values()] for fit in fits]
    return [
        sum(c[i].interval[0] <= value <= c[i].interval[1] for c in every)
        for i, value in enumerate(true)
    ]


def enough(seen: int) -> bool:
    """Say whether so many hits may come of a chance of 95 %; a true one fails once in 10^6."""
    return bool(stats.binom.cdf(seen, FITS, 0.95) > 1e-6)


@pytest.mark.parametrize(("rows", "epsilon"), [(20_000, 1), (3_000, 2), (20_000, 20)])
def test_intervals_of_a_line_hold_the_line_that_has_no_noise(rows: int, epsilon: int) -> None:
    columns = people(rows, seed=1)
    data = Quick(columns, np.random.default_rng(7))
    fits = [data.builder().linear("cost", XS, epsilon=epsilon, delta=0) for _ in range(FITS)]
    seen = hits(fits, least_squares(columns))
    assert all(enough(n) for n in seen), seen
    steady = [fit for fit in fits if "ridge" not in " ".join(fit.notes)]
    if len(steady) == FITS:
        _check_stds(fits)


def _check_stds(fits: list[Fit]) -> None:
    """Hold the stds against what the fits really spread by, which halved noise would double."""
    for name in XS:
        spread = np.std([fit.coefficients[name].value for fit in fits])
        said = np.median([fit.coefficients[name].std for fit in fits])
        assert 0.6 < spread / said < 1.5, name


@pytest.mark.parametrize(("rows", "epsilon"), [(6_000, 0.5), (6_000, 50)])
def test_intervals_of_odds_hold_the_fit_that_has_no_noise(rows: int, epsilon: float) -> None:
    columns = people(rows, seed=1)
    data, fits = Quick(columns, np.random.default_rng(7)), list[Fit]()
    for _ in range(FITS):
        fits.append(data.builder().logistic("sick", XS, epsilon=epsilon, delta=0))
    seen = hits(fits, plain_odds(columns)[0])
    assert all(enough(n) for n in seen), seen
    if epsilon < 1:  # where noise is nearly all of it; 80 fits tell such a ratio to a tenth
        _check_stds(fits)


def test_odds_of_many_people_are_as_good_as_their_sampling() -> None:
    """At epsilon 1 and 100,000 people the noise is less than what other people would change."""
    columns = people(100_000, seed=1)
    true, sampling = plain_odds(columns)
    data = Quick(columns, np.random.default_rng(3))
    fits = [data.builder().logistic("sick", XS, epsilon=1, delta=0) for _ in range(8)]
    made = np.array([[f.intercept.value, *(f.coefficients[x].value for x in XS)] for f in fits])
    assert (np.sqrt(np.mean((made - true) ** 2, axis=0)) < sampling).all()


@pytest.mark.parametrize("pieces", PIECES)
def test_the_curve_in_pieces_rises_from_0_to_1_near_the_logistic_one(pieces: int) -> None:
    x = np.linspace(-20, 20, 4001)
    heights = ladder(pieces).at(x)
    assert (np.diff(heights) >= 0).all()
    assert heights[0] >= 0
    assert heights[-1] <= 1
    assert np.abs(heights - logistic(x)).max() < {2: 0.06, 3: 0.03}.get(pieces, 0.02)
