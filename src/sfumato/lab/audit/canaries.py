"""Put canaries into a fresh vault: artificial people whose presence a fair coin decides.

All end-to-end audits share this module. It declares what a vault must support. It numbers
canaries, flips their coins, writes their rows and cards, and keeps what was released of them. A new
audit defines what a canary contributes (a `Table`), and asks about it (an `AuditedQuestion`).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.client.ask_terms import Number
from sfumato.client.vault import DataSet
from sfumato.lab.audit.auditor import Random
from sfumato.lab.audit.one_run_audit import ENOUGH, coins
from sfumato.lab.audit.privacy_claim import Claim

Bools = NDArray[np.bool_]
Released = Mapping[Hashable, Sequence[object]]  # key -> the released numbers
SET_OFFSET: Final = 10**7  # the offset between the numbers of two sets of canaries
# the budget of a data set, enough for all audits of a vault
BUDGET: Final = {"epsilon": 1000, "delta": Decimal("0.1")}


class Vault(Protocol):
    """A fresh vault on any engine, opened by its owner."""

    def add(self, name: str, source: str | Path, card: Mapping[str, object]) -> object:
        """Add a data set from a file of rows and a data card."""
        ...

    def __getitem__(self, name: str, /) -> DataSet:
        """Return the data set of that name, for questions."""
        ...

    def open_stream(  # noqa: PLR0913  # an owner's words
        self,
        data_set: str,
        name: str,
        question: str,
        *,
        start: str,
        periods: int,
        rows: int,
        epsilon: Number,
    ) -> object:
        """Open a stream: a running count over days that are still to come."""
        ...

    def close_days(self, data_set: str, name: str, *, until: str) -> object:
        """Close a stream's open periods up to a day."""
        ...


@dataclass(frozen=True, eq=False)
class CanaryReleases:
    """The released numbers of each key, and which keys have a canary (an artificial person)."""

    released: Released
    is_in: Bools


class AuditedQuestion(Protocol):
    """The interface of a question that an audit asks about all canaries (artificial people).

    An audit may need one release or more.
    """

    @property
    def name(self) -> str:
        """Return the question's name on the page and on the command line."""
        ...

    @property
    def factor(self) -> int:
        """Return the true price of the twin (the positive control) divided by its claimed price."""
        ...

    @property
    def is_short(self) -> bool:
        """Return True if the short audit includes the question."""
        ...

    @property
    def claim(self) -> Claim:
        """Return the claimed privacy bound of everything that is released of one key."""
        ...

    def release(self, canaries: Canaries, factor: int) -> CanaryReleases:
        """Ask the question at `factor` times its price; return what is released of each canary."""
        ...


@dataclass(frozen=True)
class Table:
    """The rows of some canaries and their data card; the person is the first value of each row."""

    people: str
    columns: Mapping[str, Mapping[str, object]]  # as on a card, in the order of the rows
    rows: Iterable[Sequence[object]]
    terms: Mapping[str, object] = field(default_factory=dict)  # further entries of the card

    @property
    def card(self) -> dict[str, object]:
        """Return the data card of these rows, as a mapping."""
        shared = {"unit": "who", "people": self.people, "version": "1", "budget": BUDGET}
        return {**shared, "columns": dict(self.columns), **self.terms}

    def put(self, vault: Vault, folder: Path, name: str) -> None:
        """Write the rows to a file in the folder, and add it to a vault."""
        source = folder / f"{name}.csv"
        with source.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(("who", *self.columns))
            writer.writerows(self.rows)
        vault.add(name, source, self.card)


@dataclass(frozen=True, eq=False)
class CanaryFlips:
    """The coin flips that decide which canaries (artificial people) are present in one data set.

    The canaries and their keys are numbered from `first`.
    """

    first: int
    is_in: Bools

    @property
    def here(self) -> list[int]:
        """Return the indices of the canaries that are present, from 0."""
        found: list[int] = np.flatnonzero(self.is_in).tolist()
        return found


@dataclass(frozen=True, eq=False)
class Canaries:
    """A vault with canaries (artificial people), their coin flips, and data sets added later."""

    vault: Vault
    is_in: Bools
    folder: Path
    dice: Random  # the source of coin flips
    # the flips for data sets that were added later, by name
    others: dict[str, CanaryFlips] = field(default_factory=dict)

    def put_once(self, name: str, keys: int, table: Callable[[CanaryFlips], Table]) -> CanaryFlips:
        """Add a data set with canaries to the vault, unless it is there; return the coin flips.

        A coin flip decides for each canary whether it is present.
        """
        if name not in self.others:
            first = SET_OFFSET * (1 + len(self.others))
            placed = CanaryFlips(first, coins(max(keys, ENOUGH), self.dice)[:keys])
            table(placed).put(self.vault, self.folder, name)
            self.others[name] = placed
        return self.others[name]


def listed(keys: Iterable[object], kind: str = "integer") -> dict[str, object]:
    """Return the entry for a data card: a column whose public keys are listed."""
    return {"type": kind, "keys": list(keys)}


def between(lower: object, upper: object, kind: str = "integer") -> dict[str, object]:
    """Return the entry for a data card: a column with a lower and an upper bound."""
    return {"type": kind, "lower": lower, "upper": upper}


def by_key(rows: Iterable[Sequence[object]]) -> dict[Hashable, list[object]]:
    """Group the released numbers of an answer by key, which is its first column."""
    found: dict[Hashable, list[object]] = {}
    for key, *values in rows:
        found.setdefault(key, []).extend(values)
    return found
