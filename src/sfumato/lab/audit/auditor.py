"""The auditor: run a mechanism many times, and prove a lower bound of its epsilon.

It works in epochs that double the number of runs. A fair coin chooses the data set of each run.
Each epoch trains guesses on all earlier runs, and tests them on as many fresh runs. Epoch k spends
6 alpha / (pi k)**2, so all bounds hold together, whatever was searched (soundness rule 40). The
result is "epsilon is at least so much", and never "this is private".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from inspect import Parameter, signature
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.refusal import Refused
from sfumato.lab.audit.epsilon_lower_bounds import Score, epsilon_above, share_of
from sfumato.lab.audit.guess_event import Event, Trials
from sfumato.lab.audit.outputs import Outputs, joined, read_outputs, read_sides
from sfumato.lab.audit.privacy_claim import Claim, EpsilonClaim, OrderTwoClaim, RhoClaim

Random = np.random.Generator
Mechanism = Callable[..., Any]  # Any: the audited code has its own inputs and outputs
# a function: for each run, whether it uses D2 -> the outputs of all runs
Run = Callable[[NDArray[np.bool_]], Outputs]
FIRST: Final = 128  # number of runs before the first guess
ALPHA: Final = 1e-4
MAX_RUNS: Final = 131_072  # the most runs, unless these look suspicious
MAX_RUNS_IF_SUSPICIOUS: Final = 8 * MAX_RUNS  # the most runs, if they look suspicious
# the lenient alpha of the test that makes an audit continue; it proves nothing
SUSPICION_ALPHA: Final = 0.05
MAX_ITEMS: Final = 4096  # the most items that are read from a generator
# if the mechanism raises one of these errors, the error is an output
ERRORS: Final = (Exception, SystemExit)


@dataclass(frozen=True)
class Audited:
    """The result of an audit: a lower bound, and never a proof of privacy."""

    lower: float  # the lower bound, at the claimed delta
    claim: float
    delta: float
    samples: int  # number of runs of the mechanism, on both data sets together
    view: str  # the feature of the outputs that gave the bound
    confidence: float  # the probability that `lower` holds
    words: str = "epsilon"  # the name of the bounded parameter

    @property
    def is_violated(self) -> bool:
        """Return True if the lower bound exceeds the claim."""
        return self.lower > self.claim

    @property
    def finding(self) -> str:
        """Return sentences: whether the claim is broken, and the lower bound that is proved."""
        delta = f" at delta {self.delta:g}" if self.delta else ""
        sure = f"{100 * self.confidence:g} %"
        proof = f"{self.words} is at least {self.lower:.3g}{delta}, at confidence {sure}"
        runs = f"{self.samples:,} runs"
        if self.is_violated:
            return (
                f"The claim of {self.words} {self.claim:g} is broken: {proof}. The "
                f"evidence is in {self.view}, after {runs}."
            )
        return (
            f"Not accused: the claim is {self.words} {self.claim:g}; the audit proved "
            f"that {proof}, after {runs}. An audit cannot prove that a mechanism is "
            "private."
        )


def audit(  # noqa: PLR0913  # an auditor's terms
    mechanism: Mechanism,
    D: object,
    D2: object,
    *,
    epsilon: float,
    delta: float = 0.0,
    alpha: float = ALPHA,
    most: int | None = None,
    dice: Random,
) -> Audited:
    """Run a mechanism on two neighbours, and return a lower bound of its epsilon.

    A mechanism takes the data (and perhaps a random generator) and returns any output. Or it takes
    the data, a number of runs and a generator, and returns one row per run, which is much faster.
    Runs must be independent of each other. The audit ends as soon as the claim is refuted.

    Args:
        mechanism: What is audited.
        D: A data set.
        D2: Its neighbour.
        epsilon: The claimed epsilon.
        delta: The claimed delta.
        alpha: The chance that the bound is wrong.
        most: The largest number of runs; by default 131,072, and up to 1,048,576 while the runs
            look suspicious.
        dice: The random generator of the coin flips, also given to a mechanism that takes one.

    Returns:
        The lower bound, and whether it breaks the claim.

    Raises:
        Refused: `bad-request` if the claim, `alpha` or the number of runs is out of range, or if
            the outputs cannot be read.
        ValueError: If the mechanism takes a number of runs, and does not return one output for
            each.
    """
    run = runs_of(mechanism, D, D2, dice)
    return audit_on(EpsilonClaim(epsilon, delta), run, alpha=alpha, most=most, dice=dice)


def audit_rho(  # noqa: PLR0913  # an auditor's terms
    mechanism: Mechanism,
    D: object,
    D2: object,
    *,
    rho: float,
    alpha: float = ALPHA,
    most: int | None = None,
    dice: Random,
) -> Audited:
    """Audit a claim of rho-zCDP, such as that of Gaussian noise.

    Args:
        mechanism: What is audited.
        D: A data set.
        D2: Its neighbour.
        rho: The claimed rho.
        alpha: The chance that the bound is wrong.
        most: The largest number of runs; without it, as many as `audit` takes.
        dice: The random generator, as for `audit`.

    Returns:
        The lower bound, and whether it breaks the claim.

    Raises:
        Refused: `bad-request` if the claim, `alpha` or the number of runs is out of range, or if
            the outputs cannot be read.
        ValueError: If the mechanism takes a number of runs, and does not return one output for
            each.
    """
    run = runs_of(mechanism, D, D2, dice)
    return audit_on(RhoClaim(rho), run, alpha=alpha, most=most, dice=dice)


def audit_order_2(  # noqa: PLR0913  # an auditor's terms
    mechanism: Mechanism,
    D: object,
    D2: object,
    *,
    divergence: float,
    alpha: float = ALPHA,
    most: int | None = None,
    dice: Random,
) -> Audited:
    """Audit a claimed bound of the Renyi divergence of order 2, such as that of Skellam noise.

    Args:
        mechanism: What is audited.
        D: A data set.
        D2: Its neighbour.
        divergence: The claimed bound of the divergence.
        alpha: The chance that the bound is wrong.
        most: The largest number of runs; without it, as many as `audit` takes.
        dice: The random generator, as for `audit`.

    Returns:
        The lower bound, and whether it breaks the claim.

    Raises:
        Refused: `bad-request` if the claim, `alpha` or the number of runs is out of range, or if
            the outputs cannot be read.
        ValueError: If the mechanism takes a number of runs, and does not return one output for
            each.
    """
    run = runs_of(mechanism, D, D2, dice)
    return audit_on(OrderTwoClaim(divergence), run, alpha=alpha, most=most, dice=dice)


def audit_on(claim: Claim, run: Run, *, alpha: float, most: int | None, dice: Random) -> Audited:
    """Audit a privacy claim with the default limits on the number of runs.

    Without `most`, the audit does at most 131,072 runs, and continues only if these look
    suspicious. If `most` is given, it is the only limit.
    """
    limits = (
        {"most": MAX_RUNS, "max_runs_if_suspicious": MAX_RUNS_IF_SUSPICIOUS}
        if most is None
        else {"most": most, "max_runs_if_suspicious": most}
    )
    return run_audit(claim, run, alpha=alpha, dice=dice, **limits)


def run_audit(  # noqa: PLR0913  # an auditor's terms
    claim: Claim,
    run: Run,
    *,
    alpha: float,
    most: int,
    dice: Random,
    max_runs_if_suspicious: int = 0,
) -> Audited:
    """Audit a claim with at most `most` runs, or with more of them if they look suspicious.

    Past runs alone decide whether to continue. Each epoch has its own share of alpha, used or not.
    So all bounds hold together, whenever the audit ends.
    """
    _check(claim, alpha, most)
    past = _trials(run, FIRST, dice)
    found = Audited(0.0, claim.value, claim.delta, past.size, "nothing", 1 - alpha, claim.words)
    epoch = 0
    while 2 * past.size <= max(most, max_runs_if_suspicious) and not found.is_violated:
        event = claim.event(past, found.lower)
        if 2 * past.size > most and not _is_suspicious(claim, event, past):
            break
        epoch += 1
        fresh = _trials(run, past.size, dice)
        lower = claim.proved(event, fresh, share_of(alpha, epoch))
        past = _all_of(past, fresh)
        found = replace(found, samples=past.size)
        if lower > found.lower:
            found = replace(found, lower=lower, view=event.view.name)
    return found


def _is_suspicious(claim: Claim, event: Event, past: Trials) -> bool:
    """Return True if past runs seem to contradict the claim, so that more runs are worth it.

    It proves nothing, because the same runs chose the guessing rule (event), and alpha is lenient.
    """
    return claim.proved(event, past.half(1), SUSPICION_ALPHA) > claim.value


def could_prove(most: int, delta: float, alpha: float = ALPHA) -> float:
    """Return the largest epsilon that an audit of `most` runs can prove.

    It is reached if every guess of the last epoch is right.
    """
    epochs, last = 0, FIRST
    while 4 * last <= most:
        epochs, last = epochs + 1, 2 * last
    if 2 * last > most:
        return 0.0
    return epsilon_above(Score(last, last, last), delta, share_of(alpha, epochs + 1))


def _check(claim: Claim, alpha: float, most: int) -> None:
    if not (claim.value >= 0 and 0 <= claim.delta < 1 and 0 < alpha < 1 and most >= 2 * FIRST):
        raise Refused(
            "bad-request",
            "An audit needs a claimed epsilon of at least 0, a delta below 1, an alpha between 0 "
            "and 1, and at least 256 runs.",
            "Correct these numbers.",
        )


def _trials(run: Run, count: int, dice: Random) -> Trials:
    """Run the mechanism `count` times; a fair coin chooses the data set of each run."""
    is_second = dice.integers(0, 2, size=count).astype(np.bool_)
    return Trials(run(is_second), is_second)


def _all_of(one: Trials, other: Trials) -> Trials:
    sides = np.concatenate([one.is_second, other.is_second])
    return Trials(joined([one.seen, other.seen]), sides)


def runs_of(mechanism: Mechanism, D: object, D2: object, dice: Random) -> Run:
    """Return a function that runs the mechanism on either data set, in bulk or one by one."""
    takes = _positional(mechanism)
    if takes >= 3:
        return _at_once(mechanism, D, D2, dice)
    return _one_by_one(_caught(mechanism, takes, dice), D, D2)


def _positional(mechanism: Mechanism) -> int:
    """Count the arguments that a mechanism requires, to know how to call it.

    It takes the data, the data and a generator, or the data, a number of runs and a generator.
    """
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    takes = signature(mechanism).parameters.values()
    return sum(one.kind in kinds and one.default is Parameter.empty for one in takes)


def _at_once(mechanism: Mechanism, D: object, D2: object, dice: Random) -> Run:
    def run(is_second: NDArray[np.bool_]) -> Outputs:
        parts = []
        for data, which in ((D, ~is_second), (D2, is_second)):
            places = np.flatnonzero(which)
            if places.size:
                parts.append((places, mechanism(data, places.size, dice)))
        return read_sides(parts)

    return run


def _one_by_one(mechanism: Callable[[object], object], D: object, D2: object) -> Run:
    """Return a function that runs the mechanism once per coin flip, in the order of the flips.

    So a drift over time affects both data sets alike.
    """

    def run(is_second: NDArray[np.bool_]) -> Outputs:
        found = [mechanism(D2 if second else D) for second in is_second.tolist()]
        return read_outputs(found, len(found))

    return run


def _caught(mechanism: Mechanism, takes: int, dice: Random) -> Callable[[object], object]:
    more = (dice,) if takes == 2 else ()

    def run(data: object) -> object:
        try:
            return _taken(mechanism(data, *more))
        except ERRORS as error:
            return error

    return run


def _taken(found: object) -> object:
    """Turn a generator that a mechanism returned into a list of its first 4096 items.

    An error that ended the generator is the last item. Any other output is returned unchanged.
    """
    if not isinstance(found, Iterator):
        return found
    taken: list[object] = []
    try:
        for one in islice(found, MAX_ITEMS):
            taken.append(one)  # items before an error are output, too
    except ERRORS as error:
        taken.append(error)
    return {type(found).__name__: taken}
