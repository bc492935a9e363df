"""A stored answer: the public fields that a top-up (more budget for less noise) needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.json_values import Json
from sfumato.dp.mechanisms.noise import Noise


@dataclass(frozen=True)
class Draw:
    """One paid draw of noise for all partial aggregates: the price, the noise and the values."""

    epsilon: Fraction
    delta: Fraction
    noises: tuple[Noise, ...]
    parts: tuple[NDArray[np.int64], ...]


@dataclass(frozen=True)
class Earlier:
    """A stored answer that a top-up improves: its operation id, plan, total price and draws."""

    op: str
    digest: str  # SHA-256 (hex) of the stored answer
    plan: str  # SHA-256 (hex) of the canonical plan
    epsilon: Fraction  # the total price, as it was requested
    delta: Fraction
    selection: tuple[Fraction, Fraction] | None  # epsilon and delta of partition selection
    draws: tuple[Draw, ...]
    keys: Sequence[Sequence[Json]] | None  # the selected private keys, in order
