"""Reconstruct people's values from leave-one-out means, or guess one from a DP mean.

Let r be the released means of n people, all shifted by one unknown noise value. The shift cancels
in -(n - 1)(r_i - mean r), which is person i's value minus the mean of all: exact, whatever the
noise. One person known to the attacker then determines the shift.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from sfumato.lab.broken.leave_one_out_shared_noise import FloatArray, broken_releases

EXACT: Final = 1e-6  # a smaller error is only float rounding


@dataclass(frozen=True)
class Rebuilt:
    """Errors of the reconstructed values, over all runs and all people unknown to the attacker."""

    runs: int
    known: int
    people: int  # number of people, without the known ones
    max_error: float
    median_error: float

    @property
    def is_exact(self) -> bool:
        """Return True if every value was reconstructed in every run."""
        return self.max_error < EXACT

    @property
    def finding(self) -> str:
        """Return a sentence: how exactly the attacker reconstructed the other people's values."""
        who = f"An attacker who knows {_count(self.known)} reconstructed the other {self.people:,}"
        if self.is_exact:
            return f"{who} exactly, in {_runs(self.runs)} (largest error {self.max_error:.0e})."
        return (
            f"{who} with a median error of {self.median_error:.3g} "
            f"(largest {self.max_error:.3g}), in {_runs(self.runs)}."
        )


@dataclass(frozen=True)
class Guessed:
    """How wrong guesses of people's values are, with a private mean and without any release."""

    runs: int
    people: int
    max_error: float
    median_error: float
    midpoint: float
    # the median error of guesses that are always the middle of the public range
    midpoint_error: float

    @property
    def has_helped(self) -> bool:
        """Return True if the release makes guesses better than the middle of the range."""
        return self.median_error < self.midpoint_error

    @property
    def finding(self) -> str:
        """Return sentences that compare guesses with and without the private mean."""
        return (
            "The attacker knows everybody else, and guesses a person from the private "
            f"mean with a median error of {self.median_error:.3g}. Without any release, "
            f"always guessing {self.midpoint:g} has a median error of "
            f"{self.midpoint_error:.3g}. {self._verdict}"
        )

    @property
    def _verdict(self) -> str:
        if not self.has_helped:
            return "The release did not help."
        if self.runs == 1:
            return (
                "In this one draw the noise was small by chance, and the attacker cannot know that."
            )
        return "The release helped: its epsilon is large."


def rebuild(released: ArrayLike, known: Mapping[int, float]) -> FloatArray:
    """Reconstruct everybody's value from leave-one-out means with one shared noise value.

    Args:
        released: The released means, one for each person; or a row of them for each release.
        known: The values that the attacker knows, by index. The median over several decides, so
            one wrong value does no harm.

    Returns:
        A guess for each person; or a row of them for each release.

    Raises:
        ValueError: If `known` is empty.
    """
    if not known:
        raise ValueError("name at least one known person: without one, only distances are known")
    distances = distances_from_mean(released)
    truths = np.array(list(known.values()), dtype=np.float64)
    shift = np.median(truths - distances[..., list(known)], axis=-1, keepdims=True)
    guesses: FloatArray = distances + shift
    return guesses


def rebuild_from_others(released: ArrayLike, values: Sequence[float]) -> FloatArray:
    """Guess each person's value from leave-one-out means with independent noise.

    The attacker knows all others. A person is in all means but their own. Each of those means gives
    a guess of the person's value. The average of all guesses removes most of the noise.
    """
    means, truths = np.asarray(released, dtype=np.float64), np.asarray(values, dtype=np.float64)
    others = len(truths) - 1
    each = others * means + truths  # the sum of all values, estimated from each mean
    sums = (each.sum(axis=-1, keepdims=True) - each) / others  # averaged over the other means
    guesses: FloatArray = sums - (truths.sum() - truths)
    return guesses


def distances_from_mean(released: ArrayLike) -> FloatArray:
    """Return each person's value minus the mean of all, computed from the released means alone."""
    means = np.asarray(released, dtype=np.float64)
    others = means.shape[-1] - 1
    distances: FloatArray = -others * (means - means.mean(axis=-1, keepdims=True))
    return distances


def attack_broken_release(
    values: Sequence[float], dice: np.random.Generator, *, known: Sequence[int], runs: int = 1000
) -> Rebuilt:
    """Attack leave-one-out means that share one noise value.

    Args:
        values: The true values.
        dice: The random generator of the noise.
        known: The indices of the people whom the attacker knows.
        runs: How many releases are attacked.

    Returns:
        The errors of the guesses.

    Raises:
        ValueError: If `known` is empty, or there are fewer than two values.
    """
    releases = broken_releases(values, dice, runs=runs)
    guesses = rebuild(releases, {place: values[place] for place in known})
    return judge_rebuilt(guesses, values, known=known)


def judge_rebuilt(guesses: FloatArray, values: Sequence[float], *, known: Sequence[int]) -> Rebuilt:
    """Return the errors of the guesses for all people but the known ones."""
    hidden = [place for place in range(len(values)) if place not in known]
    errors = _errors(guesses, values)[:, hidden]
    return Rebuilt(
        runs=len(errors),
        known=len(known),
        people=len(hidden),
        max_error=float(errors.max()),
        median_error=float(np.median(errors)),
    )


def guess_from_private_mean(
    release: ArrayLike, values: Sequence[float], *, bounds: tuple[float, float]
) -> FloatArray:
    """Guess each person from a private mean, as an attacker who knows all the others exactly.

    The guess is n times the mean, minus the others' clamped values, kept in the public bounds: the
    most likely value. One release gives one guess per person; several give one row each.
    """
    clamped = np.clip(np.asarray(values, dtype=np.float64), *bounds)
    others = clamped.sum() - clamped
    totals = len(clamped) * np.asarray(release, dtype=np.float64)
    guesses: FloatArray = np.clip(totals[..., np.newaxis] - others, *bounds)
    return guesses


def attack_private_mean(
    release: ArrayLike, values: Sequence[float], *, bounds: tuple[float, float]
) -> Guessed:
    """Attack private means, as an attacker who knows everybody but one person.

    Args:
        release: The released mean, or several.
        values: The true values.
        bounds: The public bounds (lower, upper) to which values were clamped.

    Returns:
        The errors of the guesses, and of always guessing the middle of the bounds.
    """
    errors = _errors(guess_from_private_mean(release, values, bounds=bounds), values)
    midpoint = (bounds[0] + bounds[1]) / 2
    return Guessed(
        runs=len(errors),
        people=len(values),
        max_error=float(errors.max()),
        median_error=float(np.median(errors)),
        midpoint=midpoint,
        midpoint_error=float(np.median(np.abs(np.asarray(values) - midpoint))),
    )


def _errors(guesses: FloatArray, values: Sequence[float]) -> FloatArray:
    errors: FloatArray = np.abs(np.atleast_2d(guesses) - np.asarray(values, dtype=np.float64))
    return errors


def _count(people: int) -> str:
    return "one person" if people == 1 else f"{people:,} people"


def _runs(runs: int) -> str:
    return "one release" if runs == 1 else f"each of {runs:,} releases"
