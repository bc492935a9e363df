"""The audits of everything that ships, each beside its planted twin, and the zoo."""

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
from sfumato.lab.audit.canaries import Asked, Canaries, Vault
from sfumato.lab.audit.out_of_bounds_canaries import BEYOND
from sfumato.lab.audit.regression_audit import FITS
from sfumato.lab.audit.release_audit import KEYS, QUESTIONS, held, put_canaries
from sfumato.lab.audit.shipped_mechanisms import SHIPPED, TWIN, Shipped
from sfumato.lab.audit.stream_audit import STREAMS
from sfumato.lab.broken.specimen import Specimen
from sfumato.lab.broken.zoo import ZOO

RUNS, TWINS, CANARIES = range(3)  # what dice are for: no two share any
AT_THE_DOOR: Final[tuple[Asked, ...]] = (*QUESTIONS, *BEYOND, *FITS, *STREAMS)


@dataclass(frozen=True)
class Held:
    """A mechanism that was held against its claim, and a twin that must not pass."""

    name: str
    where: str
    audited: Audited
    factor: int  # the twin is sold for one part in so many of its epsilon
    twin: Audited

    @property
    def tells(self) -> bool:
        """Say whether the audit shows anything: its twin was caught."""
        return self.twin.is_violated

    @property
    def counts(self) -> bool:
        """Say whether it is an audit of the constant: a twin of twice the epsilon was caught."""
        return self.tells and self.factor <= TWIN

    @property
    def is_well(self) -> bool:
        """Say whether the mechanism was not accused, by an audit that shows something."""
        return self.tells and not self.audited.is_violated

    @property
    def verdict(self) -> str:
        """Return the outcome in a few words."""
        if self.audited.is_violated:
            return "ACCUSED"
        if not self.tells:
            return "SHOWS NOTHING: its twin passed"
        return "not accused" if self.counts else "not accused; no audit of the constant"


@dataclass(frozen=True)
class Found:
    """A specimen of the zoo and what the auditor said."""

    specimen: Specimen
    audited: Audited

    @property
    def is_well(self) -> bool:
        """Say whether it was caught, or said beforehand that running does not show it."""
        return self.audited.is_violated or not self.specimen.catchable

    @property
    def verdict(self) -> str:
        """Return the outcome in a word or two."""
        if self.audited.is_violated:
            return "caught"
        return "MISSED" if self.specimen.catchable else "a check of its formula finds it"


def names() -> tuple[str, ...]:
    """Return every name that an audit can be asked by."""
    held = [one.name for one in SHIPPED] + [one.name for one in AT_THE_DOOR]
    return (*held, *(word for one in ZOO for word in (one.id, one.name)))


def dice_of(seed: int, use: int = 0) -> Random:
    """Return the dice that a seed stands for; those of another use know nothing of them."""
    return np.random.default_rng([seed, use])


def bare(one: Shipped, seed: int) -> Held:
    """Return the audit of one mechanism outside the house."""
    claimed = _held(one, one.make(one.price), dice_of(seed, RUNS))
    twin = _held(one, one.twin(), dice_of(seed, TWINS))
    return Held(one.name, "bare", claimed, one.factor, twin)


def _held(one: Shipped, mechanism: Mechanism, dice: Random) -> Audited:
    price = float(one.price)
    if one.is_order_2:
        return audit_order_2(mechanism, *one.pair, divergence=price, most=one.most, dice=dice)
    if one.is_rho:
        return audit_rho(mechanism, *one.pair, rho=price, most=one.most, dice=dice)
    return audit(mechanism, *one.pair, epsilon=price, delta=one.delta, most=one.most, dice=dice)


def at_the_door(
    canaries: Canaries, question: Asked, where: str, seed: int, *, alpha: float = ALPHA
) -> Held:
    """Return the audit of one question on an engine; alpha is that of accusing what is right."""
    audited = held(question, question.seen(canaries, 1), dice_of(seed, RUNS), alpha=alpha)
    twin = held(question, question.seen(canaries, question.factor), dice_of(seed, TWINS))
    return Held(question.name, where, audited, question.factor, twin)


def mechanisms(chosen: Iterable[str] = ()) -> tuple[Shipped, ...]:
    """Return every mechanism, or those that are named."""
    wanted = {name.casefold() for name in chosen}
    return tuple(one for one in SHIPPED if not wanted or one.name.casefold() in wanted)


def all_bare(seed: int, chosen: Iterable[str] = ()) -> Iterator[Held]:
    """Yield the audit of every mechanism, or of those that are named."""
    for one in mechanisms(chosen):
        yield bare(one, seed)


def all_at_the_door(  # noqa: PLR0913  # where, with what, which
    vault: Vault,
    folder: Path,
    where: str,
    *,
    seed: int,
    questions: Iterable[Asked] = AT_THE_DOOR,
    keys: int = KEYS,
) -> Iterator[Held]:
    """Yield the audit of every question in a fresh vault, all about the same canaries."""
    canaries = put_canaries(vault, folder, dice_of(seed, CANARIES), keys=keys)
    for question in questions:
        yield at_the_door(canaries, question, where, seed)


def specimens(chosen: Iterable[str] = ()) -> tuple[Specimen, ...]:
    """Return the whole zoo, or those that are named."""
    wanted = {name.casefold() for name in chosen}
    return tuple(
        one for one in ZOO if not wanted or wanted & {one.id.casefold(), one.name.casefold()}
    )


def whole_zoo(seed: int, chosen: Iterable[str] = ()) -> Iterator[Found]:
    """Yield what the auditor says of every specimen, or of those that are named."""
    for one in specimens(chosen):
        yield Found(one, looked_at(one, dice_of(seed)))


def looked_at(one: Specimen, dice: Random) -> Audited:
    """Return what the auditor says of a specimen, held against what it claims."""
    if one.rho is not None:
        return audit_rho(one.mechanism, *one.pair, rho=one.rho, dice=dice)
    return audit(one.mechanism, *one.pair, epsilon=one.epsilon, delta=one.delta, dice=dice)
