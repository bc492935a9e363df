"""An answer that was given before, as far as a top-up needs it; all of it is public."""

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
    """One paid draw of noise over all parts: its own price, its noises, what was released."""

    epsilon: Fraction
    delta: Fraction
    noises: tuple[Noise, ...]
    parts: tuple[NDArray[np.int64], ...]


@dataclass(frozen=True)
class Earlier:
    """A stored answer: the operation it was given to, what it is of, and what it cost in all."""

    op: str
    digest: str  # SHA-256 (hex) of the stored answer
    plan: str  # SHA-256 (hex) of the canonical plan
    epsilon: Fraction  # the whole price, as it was named
    delta: Fraction
    selection: tuple[Fraction, Fraction] | None  # epsilon and delta that choosing keys took
    draws: tuple[Draw, ...]
    keys: Sequence[Sequence[Json]] | None  # the private keys that were chosen, in their order
