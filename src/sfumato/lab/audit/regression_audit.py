"""Whole fits at the door: every question of a regression, one after the other, as one mechanism.

The code that ships makes the questions, splits the price and chooses where each round looks. All
that is added is GROUP BY a key: the fit is that of a crowd, which has one key, and along with it
the same sums are released of every other key. What is released of a key, in all rounds together, is
held against the price of the whole fit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Final, Unpack

from sfumato.client.answer import Answer
from sfumato.client.ask_terms import AskTerms, PriceTerms
from sfumato.client.display import Budget, CardView, Price
from sfumato.client.query_builder import Builder
from sfumato.client.vault import DataSet
from sfumato.features.regression.fit_result import Fit
from sfumato.lab.audit.canaries import Canaries, Placed, Seen, Table, between, by_key, listed
from sfumato.lab.audit.one_run_audit import OneRunClaim
from sfumato.lab.audit.privacy_claim import Claim
from sfumato.query.expression import Ref

NAME: Final = "fitted"
KEY: Final = "k"
KEYS: Final = 60_000  # what is released of a key is many small numbers: each says little
CROWD: Final = 5000


@dataclass(frozen=True, eq=False)
class Grouped:
    """A data set of which every question is asked by key; its answers are those of the crowd's.

    It keeps what was released of the other keys, which is what an auditor looks at.
    """

    data_set: DataSet
    crowd: int  # its key
    released: dict[Hashable, list[object]] = field(default_factory=dict)

    @property
    def card(self) -> CardView:
        """Return what the owner declared."""
        return self.data_set.card

    @property
    def budget(self) -> Budget:
        """Return cap, spent and left."""
        return self.data_set.budget

    def ask(self, question: Builder, **terms: Unpack[AskTerms]) -> Answer:
        """Return what was released of the crowd."""
        answer = self.data_set.ask(_by_key(question), **terms)
        for key, values in by_key(answer.rows).items():
            self.released.setdefault(key, []).extend(values)
        return _of_key(answer, self.crowd)

    def price(self, question: Builder, **terms: Unpack[PriceTerms]) -> Price:
        """Return the price, which is that of every key."""
        return self.data_set.price(_by_key(question), **terms)

    def begun(self) -> Builder:
        """Return a question that asks nothing yet."""
        return Builder(self.data_set.name, self)


def _by_key(question: Builder) -> Builder:
    return replace(question, keys=((KEY, Ref(KEY)),))


def _of_key(answer: Answer, key: int) -> Answer:
    """Return the row of one key alone, without it."""
    place = [row[0] for row in answer.rows].index(key)
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
    maker: str  # the module of features/regression that it goes through
    epsilon: int = 2
    factor: int = 2
    is_short: bool = False

    @property
    def claim(self) -> Claim:
        """Return the price of the whole fit."""
        return OneRunClaim(float(self.epsilon))

    def seen(self, canaries: Canaries, factor: int) -> Seen:
        """Return what all questions of a fit release of each key."""
        placed = canaries.put_once(NAME, KEYS, _in_a_crowd)
        grouped = Grouped(canaries.vault[NAME], placed.first + KEYS)
        self.fit(grouped.begun(), factor * self.epsilon)
        return Seen({key: grouped.released[placed.first + key] for key in range(KEYS)},
                    placed.is_in)  # fmt: skip


def _in_a_crowd(placed: Placed) -> Table:
    """Return a canary a key, at a corner of all columns, and a crowd that is never at that corner.

    So a canary's yes is unlikely by the fit, and moves the gradients by nearly all that is paid.
    """
    first, crowd = placed.first, placed.first + KEYS
    always = ((f"r{first + n}", crowd, int(n % 4 > 0), n % (8 if n % 4 == 0 else 31) == 0)
              for n in range(CROWD))  # fmt: skip
    joining = ((f"f{first + key}", first + key, 1, True) for key in placed.here)
    rows = ((who, k, e, "true" if b else "false") for who, k, e, b in (*always, *joining))
    columns: dict[str, dict[str, object]] = {
        "k": listed(range(first, crowd + 1)),
        "e": between(0, 1),
        "b": {"type": "boolean"},
    }
    return Table("canaries-in-a-crowd", columns, rows, {"size": 40_000})


def _line(rows: Builder, epsilon: int) -> Fit:
    return rows.linear("e", ["b"], epsilon=epsilon, delta=0)


def _odds(rows: Builder, epsilon: int) -> Fit:
    return rows.logistic("b", ["e"], epsilon=epsilon, delta=0)


FITS: Final = (
    Fitted("a line", _line, "linear"),
    Fitted("odds", _odds, "logistic"),
)
