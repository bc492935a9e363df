"""Run all audits: of the shipped mechanisms, each with its twin, and of the broken ones (the zoo).

A twin is a positive control: the same mechanism with less noise than it claims. An audit that does
not catch its twin shows nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from sfumato.lab.audit.auditor import (
    ALPHA,
    Audited,
    Mechanism,
    Random,
    audit,
    audit_order_2,
    audit_rho,
)
from sfumato.lab.audit.canaries import AuditedQuestion, Canaries, Vault
from sfumato.lab.audit.out_of_bounds_canaries import BEYOND
from sfumato.lab.audit.regression_audit import FITS
from sfumato.lab.audit.release_audit import KEYS, QUESTIONS, audit_question, put_canaries
from sfumato.lab.audit.shipped_mechanisms import CONTROL_FACTOR, SHIPPED, Shipped
from sfumato.lab.audit.stream_audit import STREAMS
from sfumato.lab.broken.specimen import Specimen
from sfumato.lab.broken.zoo import ZOO

# the uses of randomness; each of them has a generator of its own
RUNS, CONTROLS, CANARIES = range(3)
END_TO_END: Final[tuple[AuditedQuestion, ...]] = (*QUESTIONS, *BEYOND, *FITS, *STREAMS)


@dataclass(frozen=True)
class MechanismAudit:
    """The audit of a mechanism, and of its twin (with too little noise), which must be caught."""

    name: str
    where: str
    audited: Audited
    factor: int  # the twin's true epsilon divided by its claimed epsilon
    positive_control: Audited

    @property
    def tells(self) -> bool:
        """Return True if the audit caught the twin; an audit that misses its twin proves nothing.

        The twin is the positive control: the same mechanism with too little noise.
        """
        return self.positive_control.is_violated

    @property
    def counts(self) -> bool:
        """Return True if the audit counts as sharp: its twin costs at most twice the claim.

        The twin is the positive control, a mechanism with too little noise. The audit must have
        caught it.
        """
        return self.tells and self.factor <= CONTROL_FACTOR

    @property
    def is_well(self) -> bool:
        """Return True if the audit went as it should: it caught the twin, but not the mechanism."""
        return self.tells and not self.audited.is_violated

    @property
    def verdict(self) -> str:
        """Return the verdict in a few words: accused, inconclusive, or not accused."""
        if self.audited.is_violated:
            return "ACCUSED"
        if not self.tells:
            return "INCONCLUSIVE: its positive control was missed"
        return "not accused" if self.counts else "not accused; the constant was not audited"


@dataclass(frozen=True)
class SpecimenAudit:
    """A mechanism that is broken on purpose (a specimen), and its audit."""

    specimen: Specimen
    audited: Audited

    @property
    def is_well(self) -> bool:
        """Return True if the audit caught the broken mechanism, or no audit by running it can."""
        return self.audited.is_violated or not self.specimen.catchable

    @property
    def verdict(self) -> str:
        """Return the verdict in a few words: caught, missed, or found by its formula only."""
        if self.audited.is_violated:
            return "caught"
        return "MISSED" if self.specimen.catchable else "a check of its formula finds it"


def names() -> tuple[str, ...]:
    """Return the names of all audits that can be run."""
    held = [one.name for one in SHIPPED] + [one.name for one in END_TO_END]
    return (*held, *(word for one in ZOO for word in (one.id, one.name)))


def dice_of(seed: int, use: int = 0) -> Random:
    """Return the random generator of a seed; each `use` number gives an independent one."""
    return np.random.default_rng([seed, use])


def audit_directly(one: Shipped, seed: int) -> MechanismAudit:
    """Audit one mechanism and its twin (positive control) by direct calls, outside the platform."""
    claimed = _audited(one, one.make(one.price), dice_of(seed, RUNS))
    twin = _audited(one, one.positive_control(), dice_of(seed, CONTROLS))
    return MechanismAudit(one.name, "bare", claimed, one.factor, twin)


def _audited(one: Shipped, mechanism: Mechanism, dice: Random) -> Audited:
    price = float(one.price)
    if one.is_order_2:
        return audit_order_2(mechanism, *one.pair, divergence=price, most=one.most, dice=dice)
    if one.is_rho:
        return audit_rho(mechanism, *one.pair, rho=price, most=one.most, dice=dice)
    return audit(mechanism, *one.pair, epsilon=price, delta=one.delta, most=one.most, dice=dice)


def audit_end_to_end(
    canaries: Canaries, question: AuditedQuestion, where: str, seed: int, *, alpha: float = ALPHA
) -> MechanismAudit:
    """Audit one question, and its twin (positive control), through the whole release of an engine.

    `alpha` is the chance that a correct release is accused.
    """
    audited = audit_question(
        question, question.release(canaries, 1), dice_of(seed, RUNS), alpha=alpha
    )
    twin = audit_question(
        question, question.release(canaries, question.factor), dice_of(seed, CONTROLS)
    )
    return MechanismAudit(question.name, where, audited, question.factor, twin)


def mechanisms(chosen: Iterable[str] = ()) -> tuple[Shipped, ...]:
    """Return all shipped mechanisms that can be audited directly, or the named ones."""
    wanted = {name.casefold() for name in chosen}
    return tuple(one for one in SHIPPED if not wanted or one.name.casefold() in wanted)


def audit_all_directly(seed: int, chosen: Iterable[str] = ()) -> Iterator[MechanismAudit]:
    """Yield the audit of each shipped mechanism, or of the named ones."""
    for one in mechanisms(chosen):
        yield audit_directly(one, seed)


def audit_all_end_to_end(  # noqa: PLR0913  # where, with what, which
    vault: Vault,
    folder: Path,
    where: str,
    *,
    seed: int,
    questions: Iterable[AuditedQuestion] = END_TO_END,
    keys: int = KEYS,
) -> Iterator[MechanismAudit]:
    """Yield the audit of each question in a fresh vault, all with the same canaries."""
    canaries = put_canaries(vault, folder, dice_of(seed, CANARIES), keys=keys)
    for question in questions:
        yield audit_end_to_end(canaries, question, where, seed)


def specimens(chosen: Iterable[str] = ()) -> tuple[Specimen, ...]:
    """Return all broken mechanisms of the zoo, or the named ones."""
    wanted = {name.casefold() for name in chosen}
    return tuple(
        one for one in ZOO if not wanted or wanted & {one.id.casefold(), one.name.casefold()}
    )


def audit_zoo(seed: int, chosen: Iterable[str] = ()) -> Iterator[SpecimenAudit]:
    """Yield the audit of each broken mechanism, or of the named ones."""
    for one in specimens(chosen):
        yield SpecimenAudit(one, audit_specimen(one, dice_of(seed)))


def audit_specimen(one: Specimen, dice: Random) -> Audited:
    """Audit a broken mechanism against its own claim."""
    if one.rho is not None:
        return audit_rho(one.mechanism, *one.pair, rho=one.rho, dice=dice)
    return audit(one.mechanism, *one.pair, epsilon=one.epsilon, delta=one.delta, dice=dice)
