"""Compare the side channels of answers on two neighbours: shape, code, charge and time.

Both neighbours get the same questions. All of an answer but its noisy numbers must be equal, byte
by byte. Times are compared and shown. On a busy machine, times alone prove nothing.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from sfumato.client.answer import Answer
from sfumato.dp.refusal import Refused

Ask = Callable[[str], Answer]
# Entries of a receipt that differ between any two answers: who asked when, and signatures.
OWN: Final = frozenset({"op", "seq", "signed", "signature", "key"})


@dataclass(frozen=True)
class Said:
    """What an answer or refusal contains besides noisy numbers, to compare two of them."""

    code: str  # the code of the refusal; empty if the question was answered
    charge: str  # the price and the budget that is left
    shape: str  # everything else, with a placeholder for each released number


def said(ask: Ask, question: str) -> Said:
    """Ask a question, and return the contents of its answer or refusal without noisy numbers."""
    try:
        answer = ask(question)
    except Refused as refused:
        facts = json.dumps(refused.facts, default=str, sort_keys=True)
        return Said(refused.code, facts, f"{refused.cause} {refused.next_step}")
    receipt = {name: value for name, value in answer.receipt.items() if name not in OWN}
    charge = {name: receipt.pop(name) for name in ("epsilon", "delta", "left", "charged", "free")}
    shape = [answer.columns, _marks(answer.rows), _marks(answer.std), _marks(answer.interval),
             answer.guarantee, answer.notes, receipt]  # fmt: skip
    return Said("", json.dumps(charge, sort_keys=True), json.dumps(shape, sort_keys=True))


def _marks(value: object) -> object:
    """Replace each number in an answer by a placeholder, so that only the rest is compared.

    Texts, nulls and lengths stay.
    """
    if isinstance(value, (list, tuple)):
        return [_marks(one) for one in value]
    if isinstance(value, Mapping):
        return {name: _marks(one) for name, one in value.items()}
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return "a number" if is_number else value


def differences(one: Ask, other: Ask, questions: Sequence[str]) -> tuple[str, ...]:
    """Return what differs between answers on two neighbours, apart from noise: "PART of QUESTION".

    A part is the refusal code, the charge, or the shape of the answer.
    """
    found: list[str] = []
    for question in questions:
        first, second = said(one, question), said(other, question)
        for part in ("code", "charge", "shape"):
            if getattr(first, part) != getattr(second, part):
                found.append(f"{part} of {question}")
    return tuple(found)


@dataclass(frozen=True)
class Times:
    """Response times on two neighbouring data sets, compared by a Kolmogorov-Smirnov test."""

    median_ms: tuple[float, float]
    apart: float  # the largest distance between the two cumulative distributions
    chance: float  # the p-value: chance of that distance if the times are alike (asymptotic)

    @property
    def finding(self) -> str:
        """Return a sentence: both median times, and how likely their difference is by chance."""
        one, other = self.median_ms
        return (
            f"The median times are {one:.2f} and {other:.2f} ms. The distance of the "
            f"distributions is {self.apart:.3f}; by chance alone, it is at least that "
            f"in {100 * self.chance:.2g} of 100 cases."
        )


def times(one: Callable[[], object], other: Callable[[], object], runs: int) -> Times:
    """Time `runs` calls on each of two neighbours, in alternation, and compare the times."""
    spent = np.array([[_spent(one), _spent(other)] for _ in range(runs)])
    first, second = np.sort(spent[:, 0]), np.sort(spent[:, 1])
    everywhere = np.sort(spent.ravel())
    shares = [np.searchsorted(side, everywhere, side="right") / runs for side in (first, second)]
    apart = float(np.abs(shares[0] - shares[1]).max())
    middles = (float(np.median(first)) * 1000, float(np.median(second)) * 1000)
    return Times(middles, apart, _kolmogorov(apart * math.sqrt(runs / 2)))


def _spent(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _kolmogorov(distance: float) -> float:
    """Return the chance that two sets of times differ by more than `distance` by luck alone.

    The distance is that of Kolmogorov and Smirnov, times the square root of half the runs.
    """
    if distance < 0.3:
        return 1.0
    signs = ((k, 1.0 if k % 2 else -1.0) for k in range(1, 101))
    chance = 2 * sum(sign * math.exp(-2 * (k * distance) ** 2) for k, sign in signs)
    return min(1.0, max(0.0, chance))
