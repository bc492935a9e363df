"""The zoo: every BROKEN mechanism by its id, grouped in files by what went wrong."""

from __future__ import annotations

from typing import Final

from sfumato.lab.broken import (
    choosing,
    clamping,
    floats,
    gaussians,
    leave_one_out,
    local,
    releases,
    sparse_vector,
    sums,
)
from sfumato.lab.broken.specimen import Specimen

ZOO: Final[tuple[Specimen, ...]] = (
    *leave_one_out.SPECIMENS,
    *floats.SPECIMENS,
    *sparse_vector.SPECIMENS,
    *choosing.SPECIMENS,
    *clamping.SPECIMENS,
    *sums.SPECIMENS,
    *releases.SPECIMENS,
    *gaussians.SPECIMENS,
    *local.SPECIMENS,
)
