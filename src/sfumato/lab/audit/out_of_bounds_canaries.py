"""Canaries beyond every bound: far too large a value, in too many rows, in too many groups.

Of such a person one row of one group counts, cut to the bounds: exactly what is paid for. Where a
clamp, a cap of rows or a cap of groups is forgotten, more of them shows. Sums by stored ranks and
with a filter, lists and different values each go a way of their own through an engine. What is
released of all of a canary's groups is looked at together, for it is one person's; where all count,
all are paid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Final

from sfumato.dp.accounting.composition import rho_within
from sfumato.lab.audit.canaries import (
    Canaries,
    Placed,
    Released,
    Seen,
    Table,
    between,
    by_key,
    listed,
)
from sfumato.lab.audit.one_run_audit import OneRunClaim
from sfumato.lab.audit.privacy_claim import Claim, RhoClaim
from sfumato.lab.audit.release_audit import KEYS

GROUPS: Final = 2  # that a canary is in, where one counts, or all
MANY: Final = 4  # the same, where a rho is claimed: half of it does not show
ROWS: Final = 3  # of each group, where one counts
VALUE: Final = 1000  # of each row, where 100 counts
MOST: Final = 100


@dataclass(frozen=True)
class OutOfBoundsCanaries:
    """A grouped question about people who brought more than counts."""

    name: str
    asks: str = "SUM(x)"
    where: str = ""
    groups: int = 1  # that count
    of: int = GROUPS  # groups that a canary is in
    data_set: str = "beyond"
    keys: int = KEYS  # canaries, there or not
    epsilon: int = 1
    delta: str = "0"  # with one, noise is Gaussian, and the claim the rho that both buy
    factor: int = 2
    is_short: bool = False

    @property
    def claim(self) -> Claim:
        """Return the price of the question, which is all that a person pays."""
        if self.delta != "0":
            return RhoClaim(float(rho_within(Fraction(self.epsilon), Fraction(self.delta))))
        return OneRunClaim(float(self.epsilon))

    def seen(self, canaries: Canaries, factor: int) -> Seen:
        """Return what is released of all groups of each canary."""
        placed = self.put(canaries)
        answer = canaries.vault[self.data_set].ask(
            f"SELECT k, {self.asks} FROM {self.data_set}{self.where} GROUP BY k",
            epsilon=factor * self.epsilon,
            delta=Decimal(self.delta),
            max_groups=self.groups,
        )
        return self._together(by_key(answer.rows), placed)

    def put(self, canaries: Canaries) -> Placed:
        """Return who is there, after which they are in the vault."""
        return canaries.put_once(self.data_set, self.keys, partial(_too_much, self.of))

    def _together(self, found: Released, placed: Placed) -> Seen:
        def all_of(place: int) -> Sequence[object]:
            return [number for key in _keys_of(placed, self.of, place) for number in found[key]]

        places = range(len(placed.is_in))
        return Seen({place: all_of(place) for place in places}, placed.is_in)


@dataclass(frozen=True)
class Totalled(OutOfBoundsCanaries):
    """The same of each person's sum, which is cut instead of their rows: all of those count."""

    def seen(self, canaries: Canaries, factor: int) -> Seen:
        """Return what is released of all groups of each canary."""
        placed = self.put(canaries)
        sums = canaries.vault[self.data_set].group_by("k").sum("x", within=(0, MOST))
        answer = sums.ask(
            epsilon=factor * self.epsilon, delta=0, max_groups=self.groups, max_rows=ROWS
        )
        return self._together(by_key(answer.rows), placed)


def _keys_of(placed: Placed, groups: int, place: int) -> range:
    """Return the groups of one canary."""
    return range(placed.first + groups * place, placed.first + groups * (place + 1))


def _too_much(groups: int, placed: Placed) -> Table:
    """Return canaries, each with more of everything than a person may bring."""
    rows = (
        (f"b{placed.first + place}", key, VALUE, "d", row)
        for place in placed.here
        for key in _keys_of(placed, groups, place)
        for row in range(ROWS)
    )
    keys = range(placed.first, placed.first + groups * len(placed.is_in))
    columns = {
        "k": listed(keys),
        "x": between(0, MOST),
        "c": listed(("a", "d"), "text"),
        "w": between(0, MOST),
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
