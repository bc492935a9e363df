"""The schedule of a fleet, fixed before the first round, and the sum of each round.

Every site recomputes grid, noise and bit width from the schedule and its own agreement. So no site
has to trust others about the amount of noise.
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

from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.dp.secure_aggregation.distributed_noise import NoisySum, noisy_sum_for
from sfumato.dp.secure_aggregation.message_encoding import refused
from sfumato.dp.secure_aggregation.round_terms import Terms
from sfumato.dp.secure_aggregation.stochastic_rounding import Grid
from sfumato.features.federated.agreement import Agreement

Arrays = Mapping[str, NDArray[Any]]  # Any: any float dtype
OURS: Final = "sfumato"  # the name of our record in a message and in a node's context
ARRAYS, SETTINGS = "arrays", "config"  # Flower's own names for a model and its settings
DP: Final = "central-dp"
NOT_DP: Final = "secure-average (not DP)"
MAX_ROUNDS: Final = 10_000
MAX_NUMBERS: Final = 1 << 24
MAX_DIGITS: Final = 40
# grid steps per square root of the size, to try in order; the finest grid with drawable noise is
# used
STEPS_OF_ROOT: Final = (16, 8, 4, 2, 1)
PLAIN_STEPS: Final = 1 << 20  # number of grid steps per clip if there is no noise
_KEYS: Final = ("name", "size", "clip", "rounds", "epsilon", "delta")


@dataclass(frozen=True)
class Schedule:
    """The settings of all rounds of a fleet: model size, clipping norm, rounds, and price.

    Without epsilon, the sums have no noise: secure average, not DP.
    """

    name: str
    size: int  # parameters of the model
    clip: Fraction
    rounds: int  # upper bound
    epsilon: Fraction | None
    delta: Fraction | None

    def __post_init__(self) -> None:
        is_priced = self.epsilon is not None and self.delta is not None
        if is_priced != (self.epsilon is not None or self.delta is not None):
            raise _bad("give both epsilon and delta, or neither")
        if is_priced and not (self.epsilon or 0) > 0 < (self.delta or 0) < 1:
            raise _bad("epsilon must be above 0, and delta between 0 and 1")
        if self.clip <= 0 or not 1 <= self.size <= MAX_NUMBERS:
            raise _bad("a clip must be above 0, and a model must have 1 to 2**24 numbers")
        if not 1 <= self.rounds <= MAX_ROUNDS or not 1 <= len(self.name) <= MAX_DIGITS:
            raise _bad("a schedule must have a name of up to 40 letters and up to 10,000 rounds")

    @property
    def guarantee(self) -> str:
        """Return the guarantee's name: central-dp, or secure-average (not DP)."""
        return NOT_DP if self.epsilon is None else DP

    def spelled(self) -> str:
        """Return the schedule's canonical JSON."""
        said = {
            "name": self.name,
            "size": self.size,
            "clip": str(self.clip),
            "rounds": self.rounds,
            "epsilon": None if self.epsilon is None else str(self.epsilon),
            "delta": None if self.delta is None else str(self.delta),
        }
        return json.dumps(said, sort_keys=True, separators=(",", ":"))


def schedule(  # noqa: PLR0913  # a training run and its price
    name: str,
    *,
    size: int,
    clip: float | str,
    rounds: int,
    epsilon: float | str | None,
    delta: float | str | None,
) -> Schedule:
    """Create the schedule of a fleet's rounds; without epsilon and delta, sums have no noise.

    `epsilon=None, delta=None` gives a secure average, which is not differentially private.
    """
    price = [None if x is None else _fraction(str(Fraction(str(x)))) for x in (epsilon, delta)]
    return Schedule(name, size, Fraction(str(clip)), rounds, *price)


def read_schedule(text: str) -> Schedule:
    """Parse a schedule from its canonical JSON, or refuse."""
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
                raise _bad("size and rounds must be whole numbers")
            found = Schedule(name, size, _fraction(clip), rounds, *price)
            if found.spelled() == text:
                return found
    raise _bad(f"it must have {', '.join(_KEYS)}, in the canonical spelling")


def _fraction(text: str) -> Fraction:
    above, _, below = text.partition("/")
    digits = (above, below or "1")
    # no exponents: "1e9999999" is a short text for a number that takes minutes to compute with
    if not all(part.isascii() and part.isdigit() and len(part) <= MAX_DIGITS for part in digits):
        raise _bad("a number must be one fraction of whole numbers of up to 40 digits")
    if int(digits[1]) == 0:
        raise _bad("a number has the divisor zero")
    return Fraction(int(above), int(digits[1]))


@dataclass(frozen=True)
class Plan:
    """The rounding grid, noise and bit width of the sum in each round of a fleet.

    Every site and the server compute the same plan.
    """

    agreement: Agreement
    schedule: Schedule

    @cached_property
    def cohort(self) -> Agreement:
        """Return the agreement for a round; without noise, its floor is all sites.

        Two sums from the same model, with and without one site, would reveal that site's update.
        """
        if self.schedule.epsilon is not None:
            return self.agreement
        return replace(self.agreement, floor=len(self.agreement.members))

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of agreement and schedule (hex)."""
        return sha256((self.agreement.digest + self.schedule.spelled()).encode()).hexdigest()

    @cached_property
    def noise(self) -> NoisySum | None:
        """Return the noise and grid of a round's sum, or None if the schedule has no noise.

        It takes the finest of a few grids at which the noise can be drawn.
        """
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
        """Return a round's noisy sum on a grid with `steps` steps up to the clipping norm.

        The noise is the least that epsilon and delta allow. Its sensitivity covers any change of
        one site's update.
        """
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
        """Return the grid to which sites round their clipped updates before secure aggregation."""
        if self.noise is not None and isinstance(self.noise.grid, Grid):
            return self.noise.grid
        return Grid(self.schedule.clip, PLAIN_STEPS, self.schedule.size)

    @property
    def spread(self) -> float:
        """Return the std of the noise on each number of a sum, in units of the update.

        The least number of sites is assumed; more sites add more noise. Returns 0 without noise.
        """
        if self.noise is None:
            return 0.0
        return math.sqrt(self.noise.variance) * float(self.grid.clip) / self.grid.steps

    @cached_property
    def bits(self) -> int:
        """Return the bits per integer of the masked sum, so that no sum wraps around."""
        if self.noise is not None:
            return self.noise.bits
        return (len(self.agreement.members) * self.grid.most_each + 1).bit_length() + 1

    def terms(self, nonce: bytes, number: int, task: str) -> Terms:
        """Return the terms of a round, bound to its number, its model and its settings."""
        about = f"{self.digest}/{number}/{task}"
        return self.cohort.terms(nonce, self.schedule.size, self.bits, about)

    def integers(self, update: NDArray[np.float64], dice: RandomSource) -> NDArray[np.int64]:
        """Clip and round the update, and add this site's share of the noise."""
        if self.noise is None:
            return self.grid.rounded(update, dice)
        return self.noise.noisy(update, dice)


def number_and_task(about: str) -> tuple[int, str]:
    """Parse a round's number and its task digest from the terms' `about` text."""
    _, _, rest = about.partition("/")
    number, _, task = rest.partition("/")
    if not number.isascii() or not number.isdigit() or len(number) > len(str(MAX_ROUNDS)):
        raise refused("The round has no number.")
    return int(number), task


def task_digest(arrays: Arrays, settings: Mapping[str, object]) -> str:
    """Return the SHA-256 (hex) of a round's initial model and settings.

    All sites sign the hash, so all train from the same model. Otherwise the server could send one
    site another model, and single out its update in the sum.
    """
    said = sha256(_spelled(settings).encode())
    for name, array in arrays.items():
        said.update(json.dumps([name, array.dtype.str, list(array.shape)]).encode())
        said.update(np.ascontiguousarray(array).tobytes())
    return said.hexdigest()


def check_records(names: Iterable[str]) -> None:
    """Refuse a Flower message with any record besides our own, the model's arrays and the settings.

    The sites sign no other records. An app that reads another record could get different values at
    each site.
    """
    if set(names) - {OURS, ARRAYS, SETTINGS}:
        raise refused("The message has records that the sites have not signed.")


def _spelled(settings: Mapping[str, object]) -> str:
    """Return a round's settings as canonical JSON, with bytes as hex, to hash them."""
    return json.dumps(dict(settings), sort_keys=True, default=lambda held: {"hex": held.hex()})


def flat(arrays: Arrays, like: Arrays) -> NDArray[np.float64]:
    """Concatenate a model's arrays; refuse arrays whose names, shapes or kinds differ from `like`.

    The arrays must be floats.
    """
    shapes = {name: (array.shape, array.dtype.kind) for name, array in arrays.items()}
    wanted = {name: (array.shape, array.dtype.kind) for name, array in like.items()}
    if shapes != wanted or any(kind != "f" for _, kind in wanted.values()) or not wanted:
        raise refused("The arrays are not floats with the round's names and shapes.")
    return np.concatenate([arrays[name].astype(np.float64).ravel() for name in like])


def moved(arrays: Arrays, update: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """Return the model's arrays after adding the update. Each array keeps its own float dtype."""
    found, start = {}, 0
    for name, array in arrays.items():
        part = update[start : start + array.size].reshape(array.shape)
        found[name] = (array.astype(np.float64) + part).astype(array.dtype)
        start += array.size
    return found


def _bad(why: str) -> Refused:
    return Refused(
        "bad-federation",
        f"The fleet's schedule cannot be used: {why}.",
        "Set name, size, clip, rounds and price with `schedule(...)` before the first round.",
    )
