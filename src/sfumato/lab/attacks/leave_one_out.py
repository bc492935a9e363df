"""Rebuild people from leave-one-out means, and try the same on a differentially private mean.

Write r for the released means of n people, all moved by one unknown shift. The shift cancels in
-(n - 1)(r_i - mean r), which is person i's value less everybody's mean: exact, whatever the noise.
One person known to the attacker then fixes the shift.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from sfumato.lab.broken.leave_one_out_shared_noise import FloatArray, broken_releases

EXACT: Final = 1e-6  # an error below this is rounding, not doubt


@dataclass(frozen=True)
class Rebuilt:
    """How far the rebuilt values are from the truth, over all runs and all people not known."""

    runs: int
    known: int
    people: int  # without the known
    max_error: float
    median_error: float

    @property
    def is_exact(self) -> bool:
        """Say whether every guess of every run was right."""
        return self.max_error < EXACT

    @property
    def finding(self) -> str:
        """Return the outcome in plain words."""
        who = f"An attacker who knows {_count(self.known)} rebuilt the other {self.people:,}"
        if self.is_exact:
            return f"{who} exactly, in {_runs(self.runs)} (largest error {self.max_error:.0e})."
        return (
            f"{who} with a median error of {self.median_error:.3g} "
            f"(largest {self.max_error:.3g}), in {_runs(self.runs)}."
        )


@dataclass(frozen=True)
class Guessed:
    """How far guesses from private means are from the truth, beside guessing without any."""

    runs: int
    people: int
    max_error: float
    median_error: float
    midpoint: float
    midpoint_error: float  # median error of who guesses the middle of the public range

    @property
    def has_helped(self) -> bool:
        """Say whether the release brought the guesses closer than the middle of the range."""
        return self.median_error < self.midpoint_error

    @property
    def finding(self) -> str:
        """Return the outcome in plain words."""
        return (
            f"Knowing everybody else, the attacker guesses a person from the private mean "
            f"with a median error of {self.median_error:.3g}. Always guessing {self.midpoint:g}, "
            f"without any release, has {self.midpoint_error:.3g}. {self._verdict}"
        )

    @property
    def _verdict(self) -> str:
        if not self.has_helped:
            return "The release did not help."
        if self.runs == 1:
            return "This one draw of the noise came close, and nobody can tell that it did."
        return "The release helped: its epsilon is large."


def rebuild(released: ArrayLike, known: Mapping[int, float]) -> FloatArray:
    """Return a guess of everyone's value, from means that each leave one person out.

    Args:
        released: The released means, one for each person; or a row of them for each release.
        known: The values that the attacker knows, by place. Of several, the median decides, so
            one wrong value does no harm.

    Returns:
        A guess for each person; or a row of them for each release.
    """
    if not known:
        raise ValueError("name at least one known person: without one, only distances are known")
    distances = distances_from_mean(released)
    truths = np.array(list(known.values()), dtype=np.float64)
    shift = np.median(truths - distances[..., list(known)], axis=-1, keepdims=True)
    guesses: FloatArray = distances + shift
    return guesses


def rebuild_from_others(released: ArrayLike, values: Sequence[float]) -> FloatArray:
    """Return a guess for each person by who knows all others, where every mean has its own noise.

    Everybody's mean but the person's own holds them, so every one of those gives a guess, and the
    middle of all guesses has little of the noise left.
    """
    means, truths = np.asarray(released, dtype=np.float64), np.asarray(values, dtype=np.float64)
    others = len(truths) - 1
    each = others * means + truths  # everybody's sum, as each mean tells it
    sums = (each.sum(axis=-1, keepdims=True) - each) / others  # as all means but one's own tell it
    guesses: FloatArray = sums - (truths.sum() - truths)
    return guesses


def distances_from_mean(released: ArrayLike) -> FloatArray:
    """Return each person's value less everybody's mean, from the released means alone."""
    means = np.asarray(released, dtype=np.float64)
    others = means.shape[-1] - 1
    distances: FloatArray = -others * (means - means.mean(axis=-1, keepdims=True))
    return distances


def attack_broken_release(
    values: Sequence[float], dice: np.random.Generator, *, known: Sequence[int], runs: int = 1000
) -> Rebuilt:
    """Attack leave-one-out means that all have the same noise.

    Args:
        values: The true values.
        dice: A generator of noise.
        known: The places of the people whom the attacker knows.
        runs: How many releases are attacked.

    Returns:
        The errors of the guesses.
    """
    releases = broken_releases(values, dice, runs=runs)
    guesses = rebuild(releases, {place: values[place] for place in known})
    return judge_rebuilt(guesses, values, known=known)


def judge_rebuilt(guesses: FloatArray, values: Sequence[float], *, known: Sequence[int]) -> Rebuilt:
    """Return the errors of the guesses over everyone but the known."""
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
    """Return a guess for each person, by an attacker who knows all the others exactly.

    The mean of n clamped values times n, less the others: the most likely value, kept within the
    public bounds. One release gives one guess per person, many give a row for each.
    """
    clamped = np.clip(np.asarray(values, dtype=np.float64), *bounds)
    others = clamped.sum() - clamped
    totals = len(clamped) * np.asarray(release, dtype=np.float64)
    guesses: FloatArray = np.clip(totals[..., np.newaxis] - others, *bounds)
    return guesses


def attack_private_mean(
    release: ArrayLike, values: Sequence[float], *, bounds: tuple[float, float]
) -> Guessed:
    """Attack private means, by an attacker who knows everybody but one person.

    Args:
        release: The released mean, or several.
        values: The true values.
        bounds: The public bounds (lower, upper) to which values were clamped.

    Returns:
        The errors of the guesses, beside that of guessing the middle of the bounds.
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
