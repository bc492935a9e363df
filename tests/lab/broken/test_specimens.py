"""The broken mechanism is the notebook's, faster, and nothing outside the lab can reach it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import kstest

import sfumato.lab
from sfumato.lab.broken.leave_one_out_shared_noise import broken_release, broken_releases, loo_means

HOUSE = Path(sfumato.lab.__file__).parents[1]
RUNS = 20_000
VALUES = [150.0, 160.0, 165.0, 170.0, 190.0]


def noises(values: list[float], *, runs: int, seed: int = 7) -> NDArray[np.float64]:
    """Return the one noise value of each release."""
    released = broken_releases(values, np.random.default_rng(seed), runs=runs)
    difference: NDArray[np.float64] = (released - loo_means(values))[:, 0]
    return difference


def notebook_noises(values: list[float], *, runs: int) -> NDArray[np.float64]:
    """Return noise drawn as the notebook does: Laplace, again and again until it is large."""
    means = loo_means(values)
    drawn = np.random.default_rng(8).laplace(0, means.std(), size=60 * runs)
    kept: NDArray[np.float64] = drawn[np.abs(drawn) >= np.abs(means - means.mean()).max()]
    return kept[:runs]


def test_a_leave_one_out_mean_is_the_mean_of_the_others() -> None:
    assert loo_means([1.0, 2.0, 6.0]).tolist() == [4.0, 3.5, 1.5]


def test_one_noise_value_is_shared_by_all_means_of_a_release() -> None:
    noise = broken_release(VALUES, np.random.default_rng(1)) - loo_means(VALUES)
    assert np.ptp(noise) == pytest.approx(0, abs=1e-12)


def test_the_noise_has_the_distribution_of_the_notebooks_loop() -> None:
    ours, theirs = noises(VALUES, runs=RUNS), notebook_noises(VALUES, runs=RUNS)
    assert kstest(np.abs(ours), np.abs(theirs)).pvalue > 0.001
    assert kstest(ours, theirs).pvalue > 0.001


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_the_comparison_notices_a_scale_ten_percent_off(factor: float) -> None:
    ours, theirs = noises(VALUES, runs=RUNS), notebook_noises(VALUES, runs=RUNS)
    floor = np.abs(theirs).min()
    off = floor + factor * (np.abs(ours) - floor)
    assert kstest(off, np.abs(theirs)).pvalue < 1e-6


def test_every_release_draws_its_noise_anew() -> None:
    assert len(set(noises(VALUES, runs=1000))) == 1000


def test_the_noise_is_never_small() -> None:
    means = loo_means(VALUES)
    largest_distance = np.abs(means - means.mean()).max()
    assert np.abs(noises(VALUES, runs=1000)).min() >= largest_distance - 1e-12


def test_the_same_seed_gives_the_same_release() -> None:
    assert noises(VALUES, runs=3).tolist() == noises(VALUES, runs=3).tolist()


def test_one_outlier_among_a_thousand_equals_does_not_hang() -> None:
    values = [170.0] * 999 + [58.0]
    assert broken_release(values, np.random.default_rng(1)).shape == (1000,)


def test_people_who_are_all_the_same_get_no_noise_at_all() -> None:
    assert broken_release([170.0] * 9, np.random.default_rng(1)).tolist() == [170.0] * 9


def test_one_person_has_no_leave_one_out_mean() -> None:
    with pytest.raises(ValueError, match="at least two people"):
        broken_release([170.0], np.random.default_rng(1))


def test_nothing_but_the_lab_reaches_a_broken_mechanism() -> None:
    reaching = {
        path.relative_to(HOUSE).as_posix()
        for path in HOUSE.rglob("*.py")
        if "lab.broken" in path.read_text(encoding="utf-8")
    }
    table = "system/old_import_paths.py"  # it names modules, and imports none of them
    assert {name for name in reaching if not name.startswith("lab/")} == {table}
    assert "lab/attacks/leave_one_out.py" in reaching


def test_the_lab_exports_no_broken_mechanism_and_its_names_are_sorted() -> None:
    names = sfumato.lab.__all__
    assert names == sorted(names)
    assert not any(name.startswith("broken") or "loo_means" in name for name in names)
