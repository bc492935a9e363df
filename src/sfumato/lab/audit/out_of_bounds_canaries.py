"""Audit clamping and contribution bounds with canaries that exceed all of them.

Each canary has values that are too large, in too many rows, in too many groups. One row of one
group counts, clamped to the bounds: exactly what is paid for. If an engine forgets a clamp or a
bound on rows or groups, the release reveals more of the canary. Sums by stored ranks, sums with a
filter, lists and distinct values take separate paths through an engine. The audit reads all groups
of a canary together, because they belong to one person; where all groups count, all are paid for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Final

from sfumato.dp.accounting.zcdp_conversion import rho_within
from sfumato.lab.audit.canaries import (
    Canaries,
    CanaryFlips,
    CanaryReleases,
    Released,
    Table,
    between,
    by_key,
    listed,
)
from sfumato.lab.audit.one_run_audit import OneRunClaim
from sfumato.lab.audit.privacy_claim import Claim, RhoClaim
from sfumato.lab.audit.release_audit import KEYS

GROUPS: Final = 2  # the number of groups of a canary; the question counts one of them, or all
MANY: Final = 4  # the same for a claim of rho, because half of a rho would not be detected
ROWS: Final = 3  # the number of rows of a canary in each group; the question counts one of them
VALUE: Final = 1000  # the value of each row, which is clamped to 100
MAX_KEYS: Final = 100


@dataclass(frozen=True)
class OutOfBoundsCanaries:
    """A grouped question, audited with canaries that exceed the contribution and value bounds."""

    name: str
    asks: str = "SUM(x)"
    where: str = ""
    groups: int = 1  # the contribution bound on groups
    of: int = GROUPS  # groups of each canary
    data_set: str = "beyond"
    keys: int = KEYS  # canaries, present or not
    epsilon: int = 1
    # if it is not 0, the noise is Gaussian, and the claim is the rho of epsilon and delta
    delta: str = "0"
    factor: int = 2
    is_short: bool = False

    @property
    def claim(self) -> Claim:
        """Return the audited claim: the price of the question, which is all that a person pays."""
        if self.delta != "0":
            return RhoClaim(float(rho_within(Fraction(self.epsilon), Fraction(self.delta))))
        return OneRunClaim(float(self.epsilon))

    def release(self, canaries: Canaries, factor: int) -> CanaryReleases:
        """Ask the question; return the released numbers of all groups of each canary together."""
        placed = self.put(canaries)
        answer = canaries.vault[self.data_set].ask(
            f"SELECT k, {self.asks} FROM {self.data_set}{self.where} GROUP BY k",
            epsilon=factor * self.epsilon,
            delta=Decimal(self.delta),
            max_groups=self.groups,
        )
        return self._together(by_key(answer.rows), placed)

    def put(self, canaries: Canaries) -> CanaryFlips:
        """Add the canaries to the vault if needed, and return which are present."""
        return canaries.put_once(self.data_set, self.keys, partial(_too_much, self.of))

    def _together(self, found: Released, placed: CanaryFlips) -> CanaryReleases:
        def all_of(place: int) -> Sequence[object]:
            return [number for key in _keys_of(placed, self.of, place) for number in found[key]]

        places = range(len(placed.is_in))
        return CanaryReleases({place: all_of(place) for place in places}, placed.is_in)


@dataclass(frozen=True)
class Totalled(OutOfBoundsCanaries):
    """A question about each person's sum, which clamps that sum; all rows of a person count."""

    def release(self, canaries: Canaries, factor: int) -> CanaryReleases:
        """Ask the question; return the released sums of all groups of each canary together."""
        placed = self.put(canaries)
        sums = canaries.vault[self.data_set].group_by("k").sum("x", within=(0, MAX_KEYS))
        answer = sums.ask(
            epsilon=factor * self.epsilon, delta=0, max_groups=self.groups, max_rows=ROWS
        )
        return self._together(by_key(answer.rows), placed)


def _keys_of(placed: CanaryFlips, groups: int, place: int) -> range:
    """Return the keys of the groups in which one canary (number `place`) has rows."""
    return range(placed.first + groups * place, placed.first + groups * (place + 1))


def _too_much(groups: int, placed: CanaryFlips) -> Table:
    """Return a table of canaries that exceed the bounds on values, rows and groups."""
    rows = (
        (f"b{placed.first + place}", key, VALUE, "d", row)
        for place in placed.here
        for key in _keys_of(placed, groups, place)
        for row in range(ROWS)
    )
    keys = range(placed.first, placed.first + groups * len(placed.is_in))
    columns = {
        "k": listed(keys),
        "x": between(0, MAX_KEYS),
        "c": listed(("a", "d"), "text"),
        "w": between(0, MAX_KEYS),
    }
    return Table(f"canaries-{placed.first}", columns, rows, {"size": 20_000})


BEYOND: Final = (
    OutOfBoundsCanaries("SUM of too much"),
    OutOfBoundsCanaries("SUM of too much, filtered", where=" WHERE x >= 1"),
    OutOfBoundsCanaries("MODE of too much", "MODE(c)"),
    OutOfBoundsCanaries("COUNT(DISTINCT) of too much", "COUNT(DISTINCT w)"),
    OutOfBoundsCanaries("SUM in two groups", groups=GROUPS),
    OutOfBoundsCanaries("COUNT and SUM in four groups, Gaussian", "COUNT(*), SUM(x)", data_set="many",  # noqa: E501
           groups=MANY, of=MANY, epsilon=3, delta="0.01"),
    Totalled("SUM within a person's bounds"),
)  # fmt: skip
