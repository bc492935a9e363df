"""sfumato itself: randomise, pack, count and estimate, with cryptographic dice."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

from bench.peers import survey_script
from bench.peers.survey_script import EPSILON, Survey
from sfumato.core.local.estimate import estimate
from sfumato.core.local.hadamard import Hadamard
from sfumato.core.local.hashing import Hashing
from sfumato.core.local.k_ary import KAry
from sfumato.core.local.oracle import Oracle, simulate
from sfumato.core.local.subset import Subset
from sfumato.core.local.unary import Unary
from sfumato.dice import StretchedDice

KINDS: Final[dict[str, Callable[[int, Fraction], Oracle]]] = {
    "k-ary": KAry.within,
    "unary": Unary.within,
    "hashing": Hashing.within,
    "hadamard": Hadamard.within,
    "subset": Subset.within,
}


def _survey(make: Callable[[int, Fraction], Oracle]) -> Survey:
    def survey(values: Any, size: int) -> Any:
        return estimate(simulate(make(size, Fraction(EPSILON)), values, StretchedDice())).shares

    return survey


if __name__ == "__main__":
    survey_script.answer("numpy", {kind: _survey(make) for kind, make in KINDS.items()})
