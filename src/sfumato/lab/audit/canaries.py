"""Canaries: people who are there by a coin flip, each by itself, in the tables of a fresh vault.

Here is all that the audits at the door share: what a vault has to do, how canaries are numbered,
flipped, written and added, what a card of theirs says, and what was seen of them. Whoever audits
something new says what a canary brings (a `Table`), and how it is asked (an `Asked`).
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
Released = Mapping[Hashable, Sequence[object]]  # key -> the numbers that left the door
APART: Final = 10**7  # so far are numbers from those of other canaries: they are others
BUDGET: Final = {"epsilon": 1000, "delta": Decimal("0.1")}  # every audit of a vault fits into it


class Vault(Protocol):
    """A fresh vault, open for its owner: on whatever engine."""

    def add(self, name: str, source: str | Path, card: Mapping[str, object]) -> object:
        """Add a data set."""
        ...

    def __getitem__(self, name: str, /) -> DataSet:
        """Return a data set to ask."""
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
        """Open a running count that goes on while days come in."""
        ...

    def close_days(self, data_set: str, name: str, *, until: str) -> object:
        """Close a stream's open periods up to that day."""
        ...


@dataclass(frozen=True, eq=False)
class Seen:
    """What was released of each key, and which keys have a canary."""

    released: Released
    is_in: Bools


class Asked(Protocol):
    """Something that is asked of every canary at once, in one release or in several."""

    @property
    def name(self) -> str:
        """Return what it is called in the page and on the command line."""
        ...

    @property
    def factor(self) -> int:
        """Return of how many times the price its twin is."""
        ...

    @property
    def is_short(self) -> bool:
        """Say whether the short audit asks it too."""
        ...

    @property
    def claim(self) -> Claim:
        """Return what is claimed of all that is released of a key."""
        ...

    def seen(self, canaries: Canaries, factor: int) -> Seen:
        """Return what was released, for so many times the price."""
        ...


@dataclass(frozen=True)
class Table:
    """Rows of people, and what their card says; in each row its person comes first."""

    people: str
    columns: Mapping[str, Mapping[str, object]]  # as on a card, in the order of the rows
    rows: Iterable[Sequence[object]]
    terms: Mapping[str, object] = field(default_factory=dict)  # of the card, besides

    @property
    def card(self) -> dict[str, object]:
        """Return the card."""
        shared = {"unit": "who", "people": self.people, "version": "1", "budget": BUDGET}
        return {**shared, "columns": dict(self.columns), **self.terms}

    def put(self, vault: Vault, folder: Path, name: str) -> None:
        """Add it to a vault, from a file in the folder."""
        source = folder / f"{name}.csv"
        with source.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(("who", *self.columns))
            writer.writerows(self.rows)
        vault.add(name, source, self.card)


@dataclass(frozen=True, eq=False)
class Placed:
    """Who is there of some canaries; they and their keys are numbered from the first."""

    first: int
    is_in: Bools

    @property
    def here(self) -> list[int]:
        """Return the places of those who are there, from 0."""
        found: list[int] = np.flatnonzero(self.is_in).tolist()
        return found


@dataclass(frozen=True, eq=False)
class Canaries:
    """A vault with canaries in it, who is there, and what it takes to put more of them."""

    vault: Vault
    is_in: Bools
    folder: Path
    dice: Random  # of coins
    others: dict[str, Placed] = field(default_factory=dict)  # data sets that were added later

    def put_once(self, name: str, keys: int, table: Callable[[Placed], Table]) -> Placed:
        """Return who is in a data set of its own, which is added when it is first needed."""
        if name not in self.others:
            first = APART * (1 + len(self.others))
            placed = Placed(first, coins(max(keys, ENOUGH), self.dice)[:keys])
            table(placed).put(self.vault, self.folder, name)
            self.others[name] = placed
        return self.others[name]


def listed(keys: Iterable[object], kind: str = "integer") -> dict[str, object]:
    """Return a column of public keys, as a card has it."""
    return {"type": kind, "keys": list(keys)}


def between(lower: object, upper: object, kind: str = "integer") -> dict[str, object]:
    """Return a column with bounds, as a card has it."""
    return {"type": kind, "lower": lower, "upper": upper}


def by_key(rows: Iterable[Sequence[object]]) -> dict[Hashable, list[object]]:
    """Return the numbers of each key, whose column is the first."""
    found: dict[Hashable, list[object]] = {}
    for key, *values in rows:
        found.setdefault(key, []).extend(values)
    return found
