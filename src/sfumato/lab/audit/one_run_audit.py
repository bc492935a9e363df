"""Audit in one run: one canary for each of many public keys, present by a coin flip.

A question grouped by m public keys is m trials at once, each at full strength, because one person
is in one group. Guesses for one half of the keys are trained on the other half. The bound holds
however a release correlates its keys (Steinke, Nasr, Jagielski 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.refusal import Refused
from sfumato.lab.audit.auditor import ALPHA, Audited, Random
from sfumato.lab.audit.epsilon_lower_bounds import one_run_above
from sfumato.lab.audit.guess_event import Event, Trials
from sfumato.lab.audit.outputs import read_outputs
from sfumato.lab.audit.privacy_claim import Claim, EpsilonClaim

Key = Hashable
Ask = Callable[[list[tuple[str, Key]]], Mapping[Key, object]]
ENOUGH: Final = 10_000  # the least number of keys; with fewer, an audit shows too little
NOT_SHOWN: Final = "the key was not shown"


@dataclass(frozen=True)
class OneRunClaim(EpsilonClaim):
    """A claim of (epsilon, delta)-DP, tested with many coins in one run."""

    def proved(self, event: Event, fresh: Trials, alpha: float) -> float:
        """Return the lower bound of epsilon that the right guesses about one run prove."""
        return one_run_above(event.score(fresh), self.delta, alpha)


def audit_one_run(  # noqa: PLR0913  # an auditor's terms
    ask: Ask,
    keys: Sequence[Key],
    *,
    epsilon: float,
    delta: float = 0.0,
    alpha: float = ALPHA,
    dice: Random,
) -> Audited:
    """Audit one release over many keys, each of which has a canary or not.

    Args:
        ask: What is audited: it gets rows of (person, key), and returns an answer by key.
        keys: The keys, at least 10,000.
        epsilon: The claimed epsilon.
        delta: The claimed delta.
        alpha: The chance that the bound is wrong.
        dice: The random generator of the coin flips and of the order of the keys.

    Returns:
        The lower bound, and whether it breaks the claim.

    Raises:
        Refused: `bad-request` for too few keys.
    """
    is_in = coins(len(keys), dice)
    rows = [(f"canary {place}", keys[place]) for place in np.flatnonzero(is_in).tolist()]
    return judged(OneRunClaim(epsilon, delta), ask(rows), keys, is_in, alpha=alpha, dice=dice)


def coins(count: int, dice: Random) -> NDArray[np.bool_]:
    """Flip a fair coin for each of at least ten thousand keys, or refuse fewer."""
    if count < ENOUGH:
        raise Refused(
            "bad-request",
            f"An audit in one run needs at least {ENOUGH:,} keys.",
            "Declare more public keys. With fewer keys, the audit cannot prove anything.",
        )
    return dice.integers(0, 2, size=count).astype(np.bool_)


def judged(  # noqa: PLR0913  # an auditor's terms
    claim: Claim,
    answers: Mapping[Key, object],
    keys: Sequence[Key],
    is_in: NDArray[np.bool_],
    *,
    alpha: float,
    dice: Random,
) -> Audited:
    """Guess from the answers which canaries are present, and return the proved lower bound.

    The guesses for each half of the keys are trained on the other half. Each half may be wrong with
    a chance of alpha / 2.
    """
    order = dice.permutation(len(keys))
    values = [answers.get(keys[place], NOT_SHOWN) for place in order.tolist()]
    trials = Trials(read_outputs(values, len(values)), is_in[order])
    halves = trials.half(0), trials.half(1)
    found = Audited(0.0, claim.value, claim.delta, len(keys), "nothing", 1 - alpha, claim.words)
    for past, fresh in (halves, halves[::-1]):
        event = claim.event(past, 0.0)
        lower = claim.proved(event, fresh, alpha / 2)
        if lower > found.lower:
            found = Audited(
                lower, found.claim, found.delta, len(keys), event.view.name, 1 - alpha, claim.words
            )
    return found
