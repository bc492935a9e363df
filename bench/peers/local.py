"""sfumato itself: randomise, pack, count and estimate, with cryptographic dice."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

from bench.peers import survey_script
from bench.peers.survey_script import EPSILON, Survey
from sfumato.dp.local.frequency_estimation import estimate
from sfumato.dp.local.frequency_oracle import Oracle, simulate
from sfumato.dp.local.hadamard_response import Hadamard
from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.local_hashing import Hashing
from sfumato.dp.local.subset_selection import Subset
from sfumato.dp.local.unary_encoding import Unary
from sfumato.system.randomness import BulkRandomSource

KINDS: Final[dict[str, Callable[[int, Fraction], Oracle]]] = {
    "k-ary": KAry.within,
    "unary": Unary.within,
    "hashing": Hashing.within,
    "hadamard": Hadamard.within,
    "subset": Subset.within,
}


def _survey(make: Callable[[int, Fraction], Oracle]) -> Survey:
    def survey(values: Any, size: int) -> Any:
        return estimate(simulate(make(size, Fraction(EPSILON)), values, BulkRandomSource())).shares

    return survey


if __name__ == "__main__":
    survey_script.answer("numpy", {kind: _survey(make) for kind, make in KINDS.items()})
