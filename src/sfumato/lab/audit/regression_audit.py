"""Audit whole regression fits end to end: all questions of a fit count as one mechanism.

The shipped code creates the questions, splits the price and chooses the inputs of each round. The
audit only adds GROUP BY a key. The fit itself uses one key, that of a crowd; the same sums are
released for every other key. All that is released of a key, over all rounds, is tested against the
price of the whole fit.
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
from sfumato.lab.audit.canaries import (
    Canaries,
    CanaryFlips,
    CanaryReleases,
    Table,
    between,
    by_key,
    listed,
)
from sfumato.lab.audit.one_run_audit import OneRunClaim
from sfumato.lab.audit.privacy_claim import Claim
from sfumato.query.expression import Ref

NAME: Final = "fitted"
KEY: Final = "k"
KEYS: Final = 60_000  # many, because each of a key's many released numbers reveals little
CROWD: Final = 5000


@dataclass(frozen=True, eq=False)
class Grouped:
    """A data set that answers each question by key, and returns only the row of the crowd's key.

    It stores the released rows of the other keys for the auditor.
    """

    data_set: DataSet
    crowd: int  # the key of the crowd
    released: dict[Hashable, list[object]] = field(default_factory=dict)

    @property
    def card(self) -> CardView:
        """Return the data card of the data set."""
        return self.data_set.card

    @property
    def budget(self) -> Budget:
        """Return the privacy budget: cap, spent and left."""
        return self.data_set.budget

    def ask(self, question: Builder, **terms: Unpack[AskTerms]) -> Answer:
        """Ask the question grouped by key, and return the answer of the crowd's key."""
        answer = self.data_set.ask(_by_key(question), **terms)
        for key, values in by_key(answer.rows).items():
            self.released.setdefault(key, []).extend(values)
        return _of_key(answer, self.crowd)

    def price(self, question: Builder, **terms: Unpack[PriceTerms]) -> Price:
        """Return the price of the question grouped by key."""
        return self.data_set.price(_by_key(question), **terms)

    def builder(self) -> Builder:
        """Return an empty question on this data set."""
        return Builder(self.data_set.name, self)


def _by_key(question: Builder) -> Builder:
    return replace(question, keys=((KEY, Ref(KEY)),))


def _of_key(answer: Answer, key: int) -> Answer:
    """Return one key's row of a grouped answer, in the form of an answer without groups."""
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
    """The end-to-end audit of one kind of regression fit; the fit itself uses a crowd of people.

    A canary in each other key contradicts the fit.
    """

    name: str
    fit: Callable[[Builder, int], Fit]  # (rows, price) -> fit
    maker: str  # the module of features/regression that it uses
    epsilon: int = 2
    factor: int = 2
    is_short: bool = False

    @property
    def claim(self) -> Claim:
        """Return the audited claim: the price of the whole fit."""
        return OneRunClaim(float(self.epsilon))

    def release(self, canaries: Canaries, factor: int) -> CanaryReleases:
        """Fit the model; return all that its questions release of each canary's key."""
        placed = canaries.put_once(NAME, KEYS, _in_a_crowd)
        grouped = Grouped(canaries.vault[NAME], placed.first + KEYS)
        self.fit(grouped.builder(), factor * self.epsilon)
        return CanaryReleases({key: grouped.released[placed.first + key] for key in range(KEYS)},
                    placed.is_in)  # fmt: skip


def _in_a_crowd(placed: CanaryFlips) -> Table:
    """Return an audit's rows: one canary per key at a corner, and a crowd that avoids the corner.

    The fit uses the crowd alone, so it finds the canary's value unlikely. Then the canary changes
    the gradients by nearly the whole sensitivity.
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
