"""Whole fits at the door: every question of a regression, one after the other, as one mechanism.

The code that ships makes the questions, splits the price and chooses where each round looks. All
that is added is GROUP BY a key: the fit is that of a crowd, which has one key, and along with it
the same sums are released of every other key. What is released of a key, in all rounds together, is
held against the price of the whole fit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Final, Unpack

import numpy as np
from numpy.typing import NDArray

from sfumato.client.answer import Answer
from sfumato.client.builder import Builder
from sfumato.client.regression.fit import Fit
from sfumato.client.shown import Budget, CardView, Price
from sfumato.client.terms import AskTerms, PriceTerms
from sfumato.client.vault import DataSet
from sfumato.core.expression import Ref
from sfumato.lab.audit.claim import Claim
from sfumato.lab.audit.door import Canaries, Seen, by_key, listed, read_toml, written
from sfumato.lab.audit.one_run import OneRunClaim, coins

NAME: Final = "fitted"
KEY: Final = "k"
KEYS: Final = 60_000  # what is released of a key is many small numbers: each says little
CROWD: Final = 5000
OTHERS: Final = 10**6  # so far are their numbers from those of other canaries: they are others


class Grouped:
    """A data set of which every question is asked by key; its answers are those of the crowd's.

    It keeps what was released of the other keys, which is what an auditor looks at.
    """

    def __init__(self, data_set: DataSet) -> None:
        self._data_set = data_set
        self.released: dict[Hashable, list[object]] = {}

    @property
    def card(self) -> CardView:
        """Return what the owner declared."""
        return self._data_set.card

    @property
    def budget(self) -> Budget:
        """Return cap, spent and left."""
        return self._data_set.budget

    def ask(self, question: Builder, **terms: Unpack[AskTerms]) -> Answer:
        """Return what was released of the crowd."""
        answer = self._data_set.ask(_by_key(question), **terms)
        for key, values in by_key(answer.rows).items():
            self.released.setdefault(key, []).extend(values)
        return _of_crowd(answer)

    def price(self, question: Builder, **terms: Unpack[PriceTerms]) -> Price:
        """Return the price, which is that of every key."""
        return self._data_set.price(_by_key(question), **terms)

    def begun(self) -> Builder:
        """Return a question that asks nothing yet."""
        return Builder(self._data_set.name, self)


def _by_key(question: Builder) -> Builder:
    return replace(question, keys=((KEY, Ref(KEY)),))


def _of_crowd(answer: Answer) -> Answer:
    """Return the crowd's row alone, without its key."""
    place = [row[0] for row in answer.rows].index(KEYS)
    return replace(
        answer,
        columns=answer.columns[1:],
        rows=(answer.rows[place][1:],),
        std=(answer.std[place][1:],),
        interval=(answer.interval[place][1:],),
    )


@dataclass(frozen=True)
class Fitted:
    """A fit in which a canary is all that the crowd is not."""

    name: str
    fit: Callable[[Builder, int], Fit]  # of these rows, for that price
    maker: str  # the module of client/regression that it goes through
    epsilon: int = 2
    factor: int = 2
    is_short: bool = False

    @property
    def claim(self) -> Claim:
        """Return the price of the whole fit."""
        return OneRunClaim(float(self.epsilon))

    def seen(self, canaries: Canaries, factor: int) -> Seen:
        """Return what all questions of a fit release of each key."""
        is_in = canaries.put_once(NAME, put_crowd)
        grouped = Grouped(canaries.vault[NAME])
        self.fit(grouped.begun(), factor * self.epsilon)
        return Seen(grouped.released, is_in)


def put_crowd(canaries: Canaries, name: str) -> NDArray[np.bool_]:
    """Add a canary a key, at a corner of all columns, and a crowd that is never at that corner.

    So a canary's yes is unlikely by the fit, and moves the gradients by nearly all that is paid.
    The coins of the first canaries' keys are those turned over, as fair as they were: else half of
    the first are in both tables, and a vault takes tables that share a half for one people's.
    """
    is_in = coins(KEYS, canaries.dice)
    is_in[: len(canaries.is_in)] = ~canaries.is_in[:KEYS]
    crowd = ((f"r{2 * OTHERS + n}", KEYS, int(n % 4 > 0), int(n % (8 if n % 4 == 0 else 31) == 0))
             for n in range(CROWD))  # fmt: skip
    joining = ((f"f{OTHERS + key}", key, 1, 1) for key in np.flatnonzero(is_in).tolist())
    rows = ((who, k, e, "true" if b else "false") for who, k, e, b in (*crowd, *joining))
    source = written(canaries.folder / f"{name}.csv", ("who", "k", "e", "b"), rows)
    canaries.vault.add(name, source, read_toml(_CARD % listed(KEYS + 1)))
    return is_in


_CARD: Final = """
unit = "who"
people = "canaries-in-a-crowd"
version = "1"
budget = { epsilon = 1000 }
size = 40000
[columns.k]
type = "integer"
keys = [%s]
[columns.e]
type = "integer"
lower = 0
upper = 1
[columns.b]
type = "boolean"
"""


def _line(rows: Builder, epsilon: int) -> Fit:
    return rows.linear("e", ["b"], epsilon=epsilon, delta=0)


def _odds(rows: Builder, epsilon: int) -> Fit:
    return rows.logistic("b", ["e"], epsilon=epsilon, delta=0)


FITS: Final = (
    Fitted("a line", _line, "linear"),
    Fitted("odds", _odds, "logistic"),
)
