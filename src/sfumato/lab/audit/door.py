"""Audits through the whole door: a vault is made with canaries, and grouped questions are asked.

Each question is one release over many public keys. Its twin is the same question at several times
the price, held against the price of one: what is sold too cheaply has to be caught. Fits and
streams, which are more than one question, are beside this (fits.py, streams.py).
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.client.terms import Number
from sfumato.client.vault import DataSet
from sfumato.core.compose import rho_within
from sfumato.lab.audit.auditing import ALPHA, Audited, Random
from sfumato.lab.audit.claim import Claim, RhoClaim
from sfumato.lab.audit.one_run import ENOUGH, OneRunClaim, coins, judged

Bools = NDArray[np.bool_]
Released = Mapping[Hashable, Sequence[object]]  # key -> the numbers that left the door
KEYS: Final = 2 * ENOUGH
NAME: Final = "canaries"  # a canary a key, and nobody else
COMPANY: Final = "company"  # two people besides
CROWDS: Final = "crowds"  # so many besides that a secret key is just about shown
ALWAYS: Final = (5, 10)  # at the twin's price, and at the price: half of the keys each


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
class Question:
    """A grouped question, and what it claims; the first column is the key."""

    name: str
    sql: str
    verbs: tuple[str, ...]  # of plan/verbs, that it goes through
    data_set: str = NAME
    epsilon: int = 1
    delta: str = "0"
    factor: int = 2  # of the twin: more where one canary cannot take more than half of the price
    is_short: bool = False  # asked by the short audit too
    is_rho: bool = False  # Gaussian noise: the claim is the rho that epsilon and delta buy

    @property
    def claim(self) -> Claim:
        """Return what is claimed; for a rho, taking keys to have noise of their own each."""
        if self.is_rho:
            return RhoClaim(float(rho_within(Fraction(self.epsilon), Fraction(self.delta))))
        return OneRunClaim(float(self.epsilon), float(self.delta))

    def seen(self, canaries: Canaries, factor: int) -> Seen:
        """Return what was released, for so many times the price."""
        answer = canaries.vault[self.data_set].ask(
            self.sql, epsilon=factor * self.epsilon, delta=Decimal(self.delta)
        )
        found, is_in = by_key(answer.rows), canaries.is_in
        if self.data_set == CROWDS:
            found = {key: found[f"z{key}"] for key in range(len(is_in)) if f"z{key}" in found}
        return Seen(found, is_in)


def by_key(rows: Iterable[Sequence[object]]) -> dict[Hashable, list[object]]:
    """Return the numbers of each key, whose column is the first."""
    found: dict[Hashable, list[object]] = {}
    for key, *values in rows:
        found.setdefault(key, []).extend(values)
    return found


@dataclass(frozen=True, eq=False)
class Canaries:
    """A vault with canaries in it, who is there, and what it takes to put more of them."""

    vault: Vault
    is_in: Bools
    folder: Path
    dice: Random  # of coins
    others: dict[str, Bools] = field(default_factory=dict)  # data sets that were added later

    def put_once(self, data_set: str, put: Callable[[Canaries, str], Bools]) -> Bools:
        """Return who is in a data set of its own, which is added when it is first needed."""
        if data_set not in self.others:
            self.others[data_set] = put(self, data_set)
        return self.others[data_set]


def held(question: Asked, seen: Seen, dice: Random, *, alpha: float = ALPHA) -> Audited:
    """Return what was seen proves against the claim; keys that were not shown count as well."""
    keys = range(len(seen.is_in))
    return judged(question.claim, seen.released, keys, seen.is_in, alpha=alpha, dice=dice)


def put_canaries(vault: Vault, folder: Path, dice: Random, *, keys: int = KEYS) -> Canaries:
    """Add the three data sets to a fresh vault, a canary for each key by a coin flip."""
    is_in = coins(keys, dice)
    here = np.flatnonzero(is_in).tolist()
    rows = ((f"c{key}", key, 100, "d", "2026-01-05") for key in here)
    header = ("who", "k", "x", "c", "day")
    vault.add(NAME, written(folder / "canaries.csv", header, rows), read_toml(_CARD % listed(keys)))
    _put_company(vault, folder, here, keys)
    _put_crowds(vault, folder, here, keys)
    return Canaries(vault, is_in, folder, dice)


def _put_company(vault: Vault, folder: Path, here: Sequence[int], keys: int) -> None:
    always = ((f"p{key}-{n}", key, 90, 1, 1, 10) for key in range(keys) for n in range(2))
    joining = ((f"s{key}", key, 100, 0, 0, 0) for key in here)
    header = ("who", "k", "x", "u", "v", "w")
    source = written(folder / "company.csv", header, (*always, *joining))
    vault.add(COMPANY, source, read_toml(_COMPANY_CARD % listed(keys)))


def _put_crowds(vault: Vault, folder: Path, here: Sequence[int], keys: int) -> None:
    always = (
        (f"q{key}-{n}", f"z{key}") for key in range(keys) for n in range(ALWAYS[key % len(ALWAYS)])
    )
    joining = ((f"t{key}", f"z{key}") for key in here)
    source = written(folder / "crowds.csv", ("who", "z"), (*always, *joining))
    vault.add(CROWDS, source, read_toml(_CROWDS_CARD))


def written(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    """Return the path, at which the rows are then."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def listed(keys: int) -> str:
    """Return so many keys as a card lists them."""
    return ", ".join(map(str, range(keys)))


def read_toml(card: str) -> dict[str, object]:
    """Return a card that is written as TOML."""
    return tomllib.loads(card, parse_float=Decimal)


_CARD: Final = """
unit = "who"
people = "canaries"
version = "1"
budget = { epsilon = 1000, delta = 0.1 }
size = 20000
[columns.k]
type = "integer"
keys = [%s]
[columns.x]
type = "integer"
lower = 0
upper = 100
[columns.c]
type = "text"
keys = ["a", "b", "d"]
[columns.day]
type = "date"
lower = 2026-01-01
upper = 2026-03-31
"""
_COMPANY_CARD: Final = """
unit = "who"
people = "canaries-in-company"
version = "1"
budget = { epsilon = 1000, delta = 0.1 }
size = 50000
[columns.k]
type = "integer"
keys = [%s]
[columns.x]
type = "integer"
lower = 0
upper = 100
[columns.u]
type = "integer"
lower = 0
upper = 1
[columns.v]
type = "integer"
lower = 0
upper = 1
[columns.w]
type = "integer"
lower = 0
upper = 10
"""
_CROWDS_CARD: Final = """
unit = "who"
people = "canaries-of-secret-keys"
version = "1"
budget = { epsilon = 1000, delta = 0.1 }
[columns.z]
type = "text"
"""

QUESTIONS: Final[tuple[Question, ...]] = (
    Question("COUNT(*)", "SELECT k, COUNT(*) FROM canaries GROUP BY k", ("count",), is_short=True),
    Question("COUNT(DISTINCT person)", "SELECT k, COUNT(DISTINCT who) FROM canaries GROUP BY k",
             ("count",)),
    Question("SUM", "SELECT k, SUM(x) FROM canaries GROUP BY k", ("sum",)),
    Question("AVG", "SELECT k, AVG(x) FROM canaries GROUP BY k", ("mean",), is_short=True),
    Question("COUNT and SUM", "SELECT k, COUNT(*), SUM(x) FROM canaries GROUP BY k",
             ("count", "sum")),
    Question("MEDIAN", "SELECT k, MEDIAN(x) FROM company GROUP BY k", ("choice",), COMPANY),
    Question("MAX", "SELECT k, MAX(FLOOR(x / 10)) FROM canaries GROUP BY k", ("choice",),
             is_short=True),
    Question("MODE", "SELECT k, MODE(c) FROM canaries GROUP BY k", ("choice",)),
    Question("APPROX_TOP_K", "SELECT k, APPROX_TOP_K(c, 2) FROM canaries GROUP BY k", ("choice",),
             epsilon=3),
    Question("BOUNDS", "SELECT k, BOUNDS(x) FROM canaries GROUP BY k", ("search",), epsilon=5),
    Question("FIRST_ABOVE", "SELECT k, FIRST_ABOVE(c, 1) FROM canaries GROUP BY k", ("search",)),
    Question("RUNNING_COUNT", "SELECT k, date_trunc('month', day) AS m, RUNNING_COUNT(*) "
             "FROM canaries GROUP BY k, m", ("running",)),
    Question("keys that are secret", "SELECT z, COUNT(*) FROM crowds GROUP BY z", ("count",),
             CROWDS, epsilon=3, delta="1e-7", is_short=True),
    Question("VAR_SAMP", "SELECT k, VAR_SAMP(u) FROM company GROUP BY k", ("variance", "moments"),
             COMPANY),
    Question("VAR_SAMP of eleven values", "SELECT k, VAR_SAMP(w) FROM company GROUP BY k",
             ("variance", "moments"), COMPANY),
    Question("COVAR_SAMP", "SELECT k, COVAR_SAMP(u, v) FROM company GROUP BY k",
             ("pairs", "moments"), COMPANY, epsilon=2),
    Question("six aggregates, Gaussian", "SELECT k, COUNT(*), COUNT(x), COUNT(day), COUNT(c), "
             "SUM(x), COUNT(DISTINCT who) FROM canaries GROUP BY k", ("count", "sum"),
             epsilon=3, delta="0.01", is_rho=True),
)  # fmt: skip
