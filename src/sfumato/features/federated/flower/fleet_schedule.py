"""What a fleet is to learn: fixed before the first round, and how each round of it is added up.

Every site finds grid, noise and width anew from the schedule and its own agreement, so that nobody
has to be believed about how much noise there is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from hashlib import sha256
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.ports import Dice
from sfumato.dp.refusal import Refused
from sfumato.dp.secure_aggregation.distributed_noise import NoisySum, noisy_sum_for
from sfumato.dp.secure_aggregation.message_encoding import refused
from sfumato.dp.secure_aggregation.round_terms import Terms
from sfumato.dp.secure_aggregation.stochastic_rounding import Grid
from sfumato.features.federated.agreement import Agreement

Arrays = Mapping[str, NDArray[Any]]  # Any: of one kind of floats or another
OURS: Final = "sfumato"  # the name of our record in a message and in a node's context
ARRAYS, SETTINGS = "arrays", "config"  # Flower's own names for a model and its settings
DP: Final = "central-dp"
NOT_DP: Final = "secure-average (not DP)"
MOST_ROUNDS: Final = 10_000
MOST_NUMBERS: Final = 1 << 24
MOST_DIGITS: Final = 40
STEPS_OF_ROOT: Final = (16, 8, 4, 2, 1)  # the finest of which the noise can still be drawn
PLAIN_STEPS: Final = 1 << 20  # of the clip, where there is no noise
_KEYS: Final = ("name", "size", "clip", "rounds", "epsilon", "delta")


@dataclass(frozen=True)
class Schedule:
    """So many rounds of clipped updates; without a price it is a secure average, and not DP."""

    name: str
    size: int  # numbers in the model
    clip: Fraction
    rounds: int  # the most there may be
    epsilon: Fraction | None
    delta: Fraction | None

    def __post_init__(self) -> None:
        is_priced = self.epsilon is not None and self.delta is not None
        if is_priced != (self.epsilon is not None or self.delta is not None):
            raise _bad("epsilon and delta are both given, or neither")
        if is_priced and not (self.epsilon or 0) > 0 < (self.delta or 0) < 1:
            raise _bad("epsilon lies above 0, and delta between 0 and 1")
        if self.clip <= 0 or not 1 <= self.size <= MOST_NUMBERS:
            raise _bad("a clip lies above 0, and a model has 1 to 2**24 numbers")
        if not 1 <= self.rounds <= MOST_ROUNDS or not 1 <= len(self.name) <= MOST_DIGITS:
            raise _bad("a schedule has a name of up to 40 letters and up to 10,000 rounds")

    @property
    def guarantee(self) -> str:
        """Return what the sums of the schedule promise, in the house's words."""
        return NOT_DP if self.epsilon is None else DP

    def spelled(self) -> str:
        """Return the schedule as it travels; one schedule has one spelling."""
        said = {
            "name": self.name,
            "size": self.size,
            "clip": str(self.clip),
            "rounds": self.rounds,
            "epsilon": None if self.epsilon is None else str(self.epsilon),
            "delta": None if self.delta is None else str(self.delta),
        }
        return json.dumps(said, sort_keys=True, separators=(",", ":"))


def schedule(  # noqa: PLR0913  # what a fleet's lesson and its price are
    name: str,
    *,
    size: int,
    clip: float | str,
    rounds: int,
    epsilon: float | str | None,
    delta: float | str | None,
) -> Schedule:
    """Return the schedule; `epsilon=None, delta=None` asks for a secure average without noise."""
    price = [None if x is None else _fraction(str(Fraction(str(x)))) for x in (epsilon, delta)]
    return Schedule(name, size, Fraction(str(clip)), rounds, *price)


def read_schedule(text: str) -> Schedule:
    """Return the schedule that the text spells, or refuse."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        said = None
    match said:
        case {"name": str(name), "size": int(size), "clip": str(clip), "rounds": int(rounds),
              "epsilon": (str() | None) as epsilon,
              "delta": (str() | None) as delta}:  # fmt: skip
            price = [None if x is None else _fraction(x) for x in (epsilon, delta)]
            if isinstance(size, bool) or isinstance(rounds, bool):
                raise _bad("size and rounds are whole numbers")
            found = Schedule(name, size, _fraction(clip), rounds, *price)
            if found.spelled() == text:
                return found
    raise _bad(f"it has {', '.join(_KEYS)}, spelled in one way")


def _fraction(text: str) -> Fraction:
    above, _, below = text.partition("/")
    digits = (above, below or "1")
    # no exponents: "1e9999999" is a short word for a number that takes minutes to work with
    if not all(part.isascii() and part.isdigit() and len(part) <= MOST_DIGITS for part in digits):
        raise _bad("a number is not one fraction of whole numbers of up to 40 digits")
    if int(digits[1]) == 0:
        raise _bad("a number is divided by nothing")
    return Fraction(int(above), int(digits[1]))


@dataclass(frozen=True)
class Plan:
    """How each round's integers are made, the same at every site and at the server."""

    agreement: Agreement
    schedule: Schedule

    @cached_property
    def cohort(self) -> Agreement:
        """Return the agreement that a round is held to: without noise all sites are in, or none.

        A sum over all of them beside one over all but one, both from one model, would be the update
        of that one.
        """
        if self.schedule.epsilon is not None:
            return self.agreement
        return replace(self.agreement, floor=len(self.agreement.members))

    @cached_property
    def digest(self) -> str:
        """Return what stands for the schedule among these sites (hex)."""
        return sha256((self.agreement.digest + self.schedule.spelled()).encode()).hexdigest()

    @cached_property
    def noise(self) -> NoisySum | None:
        """Return the sum with its noise, or None where the schedule asks for none."""
        epsilon, delta = self.schedule.epsilon, self.schedule.delta
        if epsilon is None or delta is None:
            return None
        root = math.isqrt(self.schedule.size - 1) + 1
        *finer, coarsest = (factor * root for factor in STEPS_OF_ROOT)
        for steps in finer:
            try:
                return self._noise(steps, epsilon, delta)
            except Refused as refusal:
                if refusal.code != "noise-out-of-range":
                    raise
        return self._noise(coarsest, epsilon, delta)

    def _noise(self, steps: int, epsilon: Fraction, delta: Fraction) -> NoisySum:
        """Return the sum with the least noise; a person changes one update to any other."""
        return noisy_sum_for(
            Grid(self.schedule.clip, steps, self.schedule.size),
            sites=len(self.agreement.members),
            floor=self.agreement.floor,
            colluders=self.agreement.colluders,
            epsilon=epsilon,
            delta=delta,
            rounds=self.schedule.rounds,
        )

    @cached_property
    def grid(self) -> Grid:
        """Return the steps in which updates are counted."""
        if self.noise is not None and isinstance(self.noise.grid, Grid):
            return self.noise.grid
        return Grid(self.schedule.clip, PLAIN_STEPS, self.schedule.size)

    @property
    def spread(self) -> float:
        """Return the least standard deviation of the noise in each number of a sum."""
        if self.noise is None:
            return 0.0
        return math.sqrt(self.noise.variance) * float(self.grid.clip) / self.grid.steps

    @cached_property
    def bits(self) -> int:
        """Return the width at which no sum wraps around."""
        if self.noise is not None:
            return self.noise.bits
        return (len(self.agreement.members) * self.grid.most_each + 1).bit_length() + 1

    def terms(self, nonce: bytes, number: int, task: str) -> Terms:
        """Return the terms of the round of that number, about that model and its settings."""
        about = f"{self.digest}/{number}/{task}"
        return self.cohort.terms(nonce, self.schedule.size, self.bits, about)

    def integers(self, update: NDArray[np.float64], dice: Dice) -> NDArray[np.int64]:
        """Return the update clipped and rounded, with this site's share of the noise."""
        if self.noise is None:
            return self.grid.rounded(update, dice)
        return self.noise.noisy(update, dice)


def number_and_task(about: str) -> tuple[int, str]:
    """Return which round of a schedule it is, and the digest of what it begins with."""
    _, _, rest = about.partition("/")
    number, _, task = rest.partition("/")
    if not number.isascii() or not number.isdigit() or len(number) > len(str(MOST_ROUNDS)):
        raise refused("The round has no number.")
    return int(number), task


def task_digest(arrays: Arrays, settings: Mapping[str, object]) -> str:
    """Return what stands for the model that a round begins with, and its settings (hex).

    All sites sign it, so all train from the same model: else whoever sends models could make one
    site's update stand out of the sum.
    """
    said = sha256(_spelled(settings).encode())
    for name, array in arrays.items():
        said.update(json.dumps([name, array.dtype.str, list(array.shape)]).encode())
        said.update(np.ascontiguousarray(array).tobytes())
    return said.hexdigest()


def check_records(names: Iterable[str]) -> None:
    """Refuse records beside ours, the model and its settings: nobody has signed what they say.

    An app that reads one could be told another thing at each site.
    """
    if set(names) - {OURS, ARRAYS, SETTINGS}:
        raise refused("It holds records that are not in what all sites have signed.")


def _spelled(settings: Mapping[str, object]) -> str:
    """Return settings of a round as one text: scalars, and lists of them."""
    return json.dumps(dict(settings), sort_keys=True, default=lambda held: {"hex": held.hex()})


def flat(arrays: Arrays, like: Arrays) -> NDArray[np.float64]:
    """Return all numbers in a row; arrays of other names or shapes than `like` are refused."""
    shapes = {name: (array.shape, array.dtype.kind) for name, array in arrays.items()}
    wanted = {name: (array.shape, array.dtype.kind) for name, array in like.items()}
    if shapes != wanted or any(kind != "f" for _, kind in wanted.values()) or not wanted:
        raise refused("The arrays are not floats of the round's names and shapes.")
    return np.concatenate([arrays[name].astype(np.float64).ravel() for name in like])


def moved(arrays: Arrays, update: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """Return the arrays moved by the update, in their own kind of floats."""
    found, start = {}, 0
    for name, array in arrays.items():
        part = update[start : start + array.size].reshape(array.shape)
        found[name] = (array.astype(np.float64) + part).astype(array.dtype)
        start += array.size
    return found


def _bad(why: str) -> Refused:
    return Refused(
        "bad-federation",
        f"The fleet's schedule is not one to follow: {why}.",
        "Fix name, size, clip, rounds and price with `schedule(...)`, before the first round.",
    )
