"""Every specimen of the zoo is caught in its allowance of runs, but the one that says it is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sfumato.lab.broken
from sfumato.lab.audit import Audited
from sfumato.lab.audit.audit_suite import audit_specimen
from sfumato.lab.broken.specimen import Specimen
from sfumato.lab.broken.zoo import ZOO

FOLDER = Path(sfumato.lab.broken.__file__).parent


def audited(specimen: Specimen, seed: int) -> Audited:
    return audit_specimen(specimen, np.random.default_rng(seed))


def test_the_zoo_has_more_than_forty_specimens_with_names_of_their_own() -> None:
    assert len(ZOO) >= 40
    assert len({one.id for one in ZOO}) == len({one.name for one in ZOO}) == len(ZOO)


def test_some_are_sold_by_a_rho() -> None:
    sold = [one for one in ZOO if one.rho is not None]
    assert len(sold) >= 5
    assert {audited(one, seed=2).words for one in sold} == {"rho"}


# Their pairs are answers: who joins raises one of them, or all.
ANSWERS = {"G3", "M7", "R1", "R2", "V7", "Z1", "Z4"}


def test_a_pair_of_rows_that_somebody_joins_has_one_row_more() -> None:
    """Else it is a swap, and says so: the claim has to be one about swaps."""
    rows = [
        one for one in ZOO
        if isinstance(one.pair[0], tuple) and one.relation == "joins" and one.id not in ANSWERS
    ]  # fmt: skip
    assert [one.id for one in rows if len(one.pair[1]) != len(one.pair[0]) + 1] == []


def test_only_the_formula_check_is_not_to_be_caught() -> None:
    assert [one.id for one in ZOO if not one.catchable] == ["N1"]


@pytest.mark.parametrize("specimen", ZOO, ids=lambda specimen: specimen.id)
def test_a_specimen_is_caught_if_it_can_be(specimen: Specimen) -> None:
    found = audited(specimen, seed=1)
    assert found.is_violated == specimen.catchable
    assert found.samples <= 131_072


@pytest.mark.slow
@pytest.mark.parametrize("specimen", ZOO, ids=lambda specimen: specimen.id)
def test_a_specimen_is_caught_with_other_dice_too(specimen: Specimen) -> None:
    found = [audited(specimen, seed=seed).is_violated for seed in range(100, 120)]
    assert sum(found) >= 18 if specimen.catchable else not any(found)


def test_the_formula_behind_the_textbook_gaussian_is_wrong_where_no_run_shows_it() -> None:
    """N1: sigma for (20, 0.01) has a delta of 0.48 at epsilon 20; the formula says so at once."""
    from scipy.stats import norm

    epsilon, sigma = 20, np.sqrt(2 * np.log(1.25 / 0.01)) / 20
    half, shift = 1 / (2 * sigma), epsilon * sigma
    delta = norm.cdf(half - shift) - np.exp(epsilon) * norm.cdf(-half - shift)
    assert delta == pytest.approx(0.48, abs=0.02)


def test_every_file_of_the_zoo_says_that_it_is_broken() -> None:
    for path in FOLDER.glob("*.py"):
        assert "BROKEN" in path.read_text("utf-8").splitlines()[0], path.name
