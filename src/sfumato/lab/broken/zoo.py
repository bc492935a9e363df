"""List all BROKEN mechanisms (the zoo), grouped in files by what is wrong with them."""

from __future__ import annotations

from typing import Final

from sfumato.lab.broken import (
    clamping,
    floating_point,
    gaussian_noise,
    leave_one_out,
    local_randomisers,
    private_choices,
    releases,
    sparse_vector,
    sums,
)
from sfumato.lab.broken.specimen import Specimen

ZOO: Final[tuple[Specimen, ...]] = (
    *leave_one_out.SPECIMENS,
    *floating_point.SPECIMENS,
    *sparse_vector.SPECIMENS,
    *private_choices.SPECIMENS,
    *clamping.SPECIMENS,
    *sums.SPECIMENS,
    *releases.SPECIMENS,
    *gaussian_noise.SPECIMENS,
    *local_randomisers.SPECIMENS,
)
