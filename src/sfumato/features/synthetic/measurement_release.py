"""One table of a vault as a measurement device: noisy counts and private choices as releases.

Each count is an ordinary query, and each choice is charged like one. Each has its own operation
derived from the twin's operation, so a retry of the twin is free. One row per person counts, so one
person changes each count by at most one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final, cast

import numpy as np

from sfumato.dp.accounting.privacy_events import PrivacyCost, PureEvent, privacy_cost
from sfumato.dp.accounting.zcdp_conversion import rho_within
from sfumato.dp.budget import EPSILON_UNITS, RHO_UNITS
from sfumato.dp.json_values import Json
from sfumato.features.synthetic.choice_plan import Candidate, make_distances
from sfumato.features.synthetic.choice_release import choose
from sfumato.features.synthetic.column_categories import Coded
from sfumato.features.synthetic.junction_tree import Clique, Floats
from sfumato.features.synthetic.measurement_port import Choice, Merged
from sfumato.features.synthetic.misfit_plan import TwinErrorPlan
from sfumato.features.synthetic.misfit_release import misfit
from sfumato.features.synthetic.private_bins import uncut
from sfumato.query.expression import Case, Compare, Constant, Expr, LiteralValue, Ref
from sfumato.query.model import Aggregate, Joined, Output, PersonColumn, PersonTable, Query
from sfumato.query.plan import make_plan
from sfumato.query.request import Request
from sfumato.release.guarded_release import release
from sfumato.release.release_order import Asker, Order, ReleaseContext
from sfumato.vault.card.data_card import Card
from sfumato.vault.ports import Listing

FINE: Final = 10**9  # an epsilon that is converted from rho is a multiple of 1/FINE
EVENTS: Final = 1_000  # rounding is reserved for at least this number of events


@dataclass(frozen=True)
class Price:
    """The whole price of a DP twin: pure epsilon, or the rho that epsilon and delta allow."""

    epsilon: Fraction
    delta: Fraction
    rho: Fraction  # 0 for pure DP
    # upper bound on the number of charges; each is rounded up by less than one unit
    events: int = EVENTS

    @property
    def usable(self) -> Fraction:
        """Return the epsilon that the twin's releases may spend together.

        A reserve is subtracted, because every charge is rounded up.
        """
        return self.epsilon - min(Fraction(self.events, EPSILON_UNITS), self.epsilon / 2)

    def epsilon_of_pure(self, part: Fraction) -> Fraction:
        """Return the epsilon, rounded down, that this part of the price buys without a delta."""
        if not self.rho:
            return self.usable * part
        return Fraction(math.isqrt(math.floor(2 * self.rho * part * FINE**2)), FINE)

    @property
    def debt(self) -> PrivacyCost:
        """Return the greatest privacy cost that the whole twin can have.

        The privacy filter checks it before the first count, to refuse a twin that can't be
        completed.
        """
        if not self.rho:
            return privacy_cost(PureEvent(self.epsilon))
        whole = privacy_cost(PureEvent(self.epsilon))
        return PrivacyCost(whole.epsilon, 2**62, math.ceil(self.rho * RHO_UNITS) + self.events, 0)

    def with_error(self, epsilon: Fraction | None) -> PrivacyCost:
        """Return the twin's greatest privacy cost together with that of measuring its error.

        `epsilon` is the error's own price, or None if it is not measured.
        """
        return self.debt if epsilon is None else self.debt + privacy_cost(PureEvent(epsilon))

    def as_json(self) -> Json:
        """Return the price as JSON, for the twin's stamp."""
        return {
            "epsilon": float(self.epsilon),
            "delta": float(self.delta),
            **({"rho": float(self.rho)} if self.rho else {}),
        }


def price_of(epsilon: Fraction, delta: Fraction, events: int = EVENTS) -> Price:
    """Return the price of a twin with at most `events` releases.

    It is in zCDP if the delta makes the counts less noisy than pure DP.
    """
    events = max(events, EVENTS)
    rho = rho_within(epsilon, delta) - Fraction(events, RHO_UNITS) if delta else Fraction(0)
    return Price(epsilon, delta, rho if rho > epsilon**2 / 200 else Fraction(0), events)


@dataclass
class PrivateDevice:
    """A device that measures one table of a vault for a twin: each measurement is a paid release.

    It numbers its releases.
    """

    door: ReleaseContext
    listing: Listing
    asker: Asker
    op: str
    price: Price
    columns: tuple[Coded, ...]
    table: str
    earlier: Callable[[str], Card | None]
    check_access: Callable[[], None]
    may_look: Callable[[str], None]  # refuses a new read if the twin is of an earlier version
    joins: tuple[Joined, ...] = ()
    share: Fraction = Fraction(1)  # the share of the whole price that this table has
    done: int = 0
    said: list[Json] = field(default_factory=list)
    asked: list[Request] = field(default_factory=list)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of categories of each column."""
        return tuple(coded.size for coded in self.columns)

    def std(self, share: Fraction) -> float:
        """Return the noise std of each count at this share of the price."""
        part = share * self.share
        if self.price.rho:
            return math.sqrt(1 / float(2 * self.price.rho * part))
        return math.sqrt(2) / float(self.price.usable * part)

    def count(self, columns: Clique, merged: Merged, share: Fraction) -> Floats:
        """Release and return noisy counts of merged categories, with one axis per column."""
        keys = [self.columns[c].grouped(merged[c]) for c in columns]
        sizes = [max(merged[c]) + 1 for c in columns]
        names = [self.columns[c].column.name for c in columns] or ["people"]
        return self._asked(self._question(keys), sizes, (names, share))

    def middles(self, coded: Coded, share: Fraction) -> list[int]:
        """Release a noisy median of the people in each bin of a column, to split the bin there.

        The medians are in steps of the column. Each person is in one bin, so affects only one
        median.
        """
        epsilon = self.price.epsilon_of_pure(share * self.share)
        question = self._medians_of(coded)
        rows = self._released(Request(question, epsilon=epsilon, delta=Fraction(0)))
        found = {int(place): round(Fraction(at) / coded.column.step) for place, at in rows}
        return [found[place] for place in range(len(coded.begins))]

    def times(self, most: int, share: Fraction) -> Floats:
        """Release and return the noisy numbers of people with 1, 2, ..., `most` or more rows."""
        return self._asked(self._times_of(most), [most], (["rows of a person"], share))

    def choose(self, choice: Choice, share: Fraction) -> tuple[int, ...]:
        """Choose candidates privately, by a release that is paid for; return their indices."""
        merged = choice.merged
        candidates = [
            Candidate(
                self._question([self.columns[c].grouped(merged[c]) for c in one.columns]),
                one.expected.reshape([max(merged[c]) + 1 for c in one.columns]),
                one.penalty,
                one.weight,
                (one.columns[0], one.columns[-1]),
            )
            for one in choice.candidates
        ]
        rounds = len(self.columns) - 1 if choice.kind == "tree" else 1
        epsilon = self._epsilon(share / rounds)
        distances = make_distances(self.listing.card, candidates, choice.kind, epsilon)
        self.said.append({"choice": distances.in_words(), "epsilon": float(epsilon * rounds)})
        order = self._order(Request(candidates[0].question))
        self.may_look(order.op)
        return choose(self.door, order, distances)

    def check_looks(self, most: int, binned: Sequence[Coded]) -> None:
        """Plan the twin's first queries, to refuse an impossible twin before it costs anything."""
        medians = [self._medians_of(uncut(one.column)) for one in binned]
        times = [self._times_of(most)] if most > 1 else []
        singles = [self.question_of((place,)) for place in range(len(self.columns))]
        for question in (*medians, *times, *singles):
            make_plan(self.listing.card, question)

    def question_of(self, columns: Clique) -> Query:
        """Return the query that counts the columns, without merging categories."""
        some = [self.columns[c] for c in columns]
        return self._question([one.grouped(tuple(range(one.size))) for one in some])

    def misfit(self, misfits: TwinErrorPlan) -> tuple[int, ...]:
        """Measure the twin's distances from the real rows, in one charge.

        The name of its ledger operation contains the epsilon, so another epsilon is another
        measurement.
        """
        order = self._order(Request(misfits.plans[0].question))
        # the operation of a count never has this form
        op = f"{self.op} {self.table} error:{misfits.epsilon}"
        self.may_look(op)
        return misfit(self.door, replace(order, op=op), misfits)

    def _epsilon(self, share: Fraction) -> Fraction:
        """Return the epsilon of a private choice at this share of the price, rounded down."""
        part = share * self.share
        if not self.price.rho:
            return self.price.usable * part
        return Fraction(math.isqrt(math.floor(8 * self.price.rho * part * FINE**2)), FINE)

    def _asked(
        self, question: Query, sizes: Sequence[int], what: tuple[Sequence[str], Fraction]
    ) -> Floats:
        names, share = what
        part = share * self.share
        if self.price.rho:
            delta = self.price.delta / self.price.events
            request = Request(question, rho=self.price.rho * part, delta=delta)
        else:
            request = Request(question, epsilon=self.price.usable * part, delta=Fraction(0))
        counts = np.zeros(sizes)
        for *keys, count in self._released(request):
            counts[tuple(int(key) for key in keys)] = float(count)
        self.said.append({"counted": list(names), "std": self.std(share)})
        return counts

    def _released(self, request: Request) -> list[list[Any]]:  # Any: JSON of a release
        # a second, equal request needs fresh noise, not the stored answer
        again = request in self.asked
        self.asked.append(request)
        order = replace(self._order(request), fresh=again)
        self.may_look(order.op)
        answer = release(self.door, order).answer
        return cast("list[list[Any]]", answer["rows"])

    def _order(self, request: Request) -> Order:
        self.check_access()  # the caller can lose access between two releases of a twin
        self.done += 1
        return Order(
            card=self.listing.card,
            table=self.listing.table,
            request=request,
            asker=self.asker,
            op=look_op(self.op, self.table, self.done),
            card_of_version=self.earlier,
            check_access=self.check_access,
        )

    def _medians_of(self, coded: Coded) -> Query:
        """Return the query that asks for the median of each bin of a column."""
        key = coded.grouped(tuple(range(coded.size)))
        median = Output("m", Aggregate("quantile", (Ref(coded.column.name),), at=Fraction(1, 2)))
        return replace(self._question([key]), outputs=(Output("k0", key), median))

    def _times_of(self, most: int) -> Query:
        """Return the query that counts people by number of rows: 1, 2, ..., `most` or more."""
        below = [Compare(Ref("times"), "<", Constant.of(count + 1)) for count in range(1, most)]
        whens = tuple((one, _number(place)) for place, one in enumerate(below))
        key = Case(whens, _number(most - 1))
        return Query(
            data_set=self.listing.card.name,
            outputs=(Output("k0", key), Output("n", Aggregate("count"))),
            group_by=(key,),
            max_rows=most,
            source=PersonTable((PersonColumn("times", "count"),), by=self._unit()),
            table=self._other(),
        )

    def _question(self, keys: Sequence[Expr]) -> Query:
        outputs = [Output(f"k{place}", key) for place, key in enumerate(keys)]
        bound = 1 if self.listing.card.by_person else None
        return Query(
            data_set=self.listing.card.name,
            outputs=(*outputs, Output("n", Aggregate("count"))),
            group_by=tuple(keys),
            max_groups=bound,
            max_rows=bound,
            table=self._other(),
            joins=self.joins,
        )

    def _other(self) -> str:
        return "" if self.table == self.listing.card.name else self.table

    def _unit(self) -> str:
        tables = {table.name: table for table in self.listing.card.every_table}
        return tables[self.table].unit or ""


def look_op(op: str, table: str, place: int) -> str:
    """Return the ledger operation of a twin's n-th release of a table (`place`, counted from 1)."""
    return f"{op} {table} {place}"


def _number(value: int) -> Expr:
    return LiteralValue(Constant.of(value))
