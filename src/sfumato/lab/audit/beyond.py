"""Canaries beyond every bound: far too large a value, in too many rows, in too many groups.

Of such a person one row of one group counts, cut to the bounds: exactly what is paid for. Where a
clamp, a cap of rows or a cap of groups is forgotten, more of them shows. What is released of both
of a canary's groups is looked at together, for it is one person's; where both count, both are paid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.lab.audit.claim import Claim
from sfumato.lab.audit.door import KEYS, Canaries, Released, Seen, by_key, read_toml, written
from sfumato.lab.audit.one_run import OneRunClaim, coins

FIRST: Final = 10**7  # of the keys and of the people: those of no other canary
GROUPS: Final = 2  # that a canary is in, where one counts, or both
ROWS: Final = 3  # of each group, where one counts
VALUE: Final = 1000  # of each row, where 100 counts


@dataclass(frozen=True)
class Beyond:
    """A grouped question about people who brought more than counts."""

    name: str
    where: str = ""
    groups: int = 1  # that count
    data_set: str = "beyond"
    keys: int = KEYS  # canaries, there or not
    epsilon: int = 1
    factor: int = 2
    is_short: bool = False

    @property
    def claim(self) -> Claim:
        """Return the price of the question, which is all that a person pays."""
        return OneRunClaim(float(self.epsilon))

    def seen(self, canaries: Canaries, factor: int) -> Seen:
        """Return what is released of both groups of each canary."""
        is_in = canaries.put_once(self.data_set, partial(put_beyond, keys=self.keys))
        sql = f"SELECT k, SUM(x) FROM {self.data_set}{self.where} GROUP BY k"
        answer = canaries.vault[self.data_set].ask(
            sql, epsilon=factor * self.epsilon, delta=0, max_groups=self.groups
        )
        found = by_key(answer.rows)
        return Seen({place: _both(found, place) for place in range(len(is_in))}, is_in)


def _both(found: Released, place: int) -> Sequence[object]:
    return [number for key in _keys_of(place) for number in found[key]]


def _keys_of(place: int) -> range:
    """Return the groups of one canary."""
    return range(FIRST + GROUPS * place, FIRST + GROUPS * (place + 1))


def put_beyond(canaries: Canaries, name: str, *, keys: int) -> NDArray[np.bool_]:
    """Add canaries by coin flips, each with more of everything than a person may bring."""
    is_in = coins(keys, canaries.dice)
    rows = (
        (f"b{FIRST + place}", key, VALUE)
        for place in np.flatnonzero(is_in).tolist()
        for key in _keys_of(place)
        for _ in range(ROWS)
    )
    source = written(canaries.folder / f"{name}.csv", ("who", "k", "x"), rows)
    groups = ", ".join(map(str, range(FIRST, FIRST + GROUPS * keys)))
    canaries.vault.add(name, source, read_toml(_CARD % groups))
    return is_in


_CARD: Final = """
unit = "who"
people = "canaries-beyond-bounds"
version = "1"
budget = { epsilon = 1000 }
size = 20000
[columns.k]
type = "integer"
keys = [%s]
[columns.x]
type = "integer"
lower = 0
upper = 100
"""

BEYOND: Final = (
    Beyond("SUM of too much"),
    Beyond("SUM of too much, filtered", " WHERE x >= 1"),
    Beyond("SUM in two groups", groups=GROUPS),
)
