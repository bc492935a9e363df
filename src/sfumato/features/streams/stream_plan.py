"""The terms and plans of a stream (continual counting), fixed before any row is read.

All of it depends on the owner's terms and the card alone. The proof that the price holds for all
periods is dp/mechanisms/continual_counting.proof.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

from sfumato.dp.json_values import Json
from sfumato.dp.mechanisms import laplace
from sfumato.dp.mechanisms.binary_tree import tree_for_laplace
from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.mechanisms.running_count import Axis, TreeMechanism
from sfumato.dp.refusal import Refused
from sfumato.query.expression import All, Compare, Constant, DateTrunc, Expr, Predicate, Ref, Unit
from sfumato.query.grouping_keys import LISTED
from sfumato.query.model import Aggregate, Output, Query, query_json
from sfumato.query.plan import Plan, make_plan
from sfumato.query.plan_text import plan_text
from sfumato.query.query_from_json import read_query
from sfumato.query.time_periods import day_of, first_of_period, period_of_day, period_of_text
from sfumato.vault.card.columns import read_constant
from sfumato.vault.card.data_card import NAME, NAMED, Card

UNITS: Final[tuple[Unit, ...]] = ("day", "week", "month")
# the most rows per person: with them, noise can be drawn at the smallest epsilon
MAX_ROWS: Final = 10**6
LATEST: Final = 7000  # the last year in which a stream may start, so that every period has a date


@dataclass(frozen=True)
class Stream:
    """The fixed terms of a stream: question, horizon, contribution bound and price."""

    data_set: str
    name: str
    question: Query  # RUNNING_COUNT(*) by one period, in the card's spelling
    start: str  # the day on which the first period begins
    periods: int
    rows: int  # the most rows of a person that count, over all periods together
    epsilon: Fraction

    @property
    def unit(self) -> Unit:
        """Return the length of a period: day, week or month."""
        return _period_of(self.question).unit

    @property
    def running(self) -> TreeMechanism:
        """Return the tree mechanism with the noise of its blocks; one price covers all periods."""
        tree = tree_for_laplace(self.periods)
        scale = laplace.scale_for(tree.l1(1, self.rows), self.epsilon)
        return TreeMechanism(Noise("laplace", scale), tree, Axis(1, self.periods, 1))

    def day(self, end: int) -> str:
        """Return the first day of period `end`, counted from 1.

        The period after the last one is allowed, too.
        """
        return first_of_period(self.unit, period_of_text(self.unit, self.start) + end - 1)

    def ends_by(self, until: str) -> int:
        """Return the number of periods that are over at the end of the day `until`."""
        after = day_of(read_constant("date", until, "until").text) + 1
        return period_of_day(self.unit, after) - period_of_text(self.unit, self.start)

    def first_of_block(self, end: int) -> int:
        """Return the first period of the tree's block that ends with period `end`."""
        return int(self.running.tree.before()[end - 1]) + 1

    def as_json(self) -> Json:
        """Return the terms as JSON, as the ledger stores them."""
        return {
            "data_set": self.data_set,
            "name": self.name,
            "question": query_json(self.question),
            "start": self.start,
            "periods": self.periods,
            "rows": self.rows,
            "epsilon": str(self.epsilon),
        }


def stream_of(shape: Json) -> Stream:
    """Read a stream's terms from the ledger's JSON."""
    body: dict[str, Any] = shape  # Any: JSON of our own ledger
    return Stream(
        body["data_set"],
        body["name"],
        read_query(body["question"]),
        body["start"],
        body["periods"],
        body["rows"],
        Fraction(body["epsilon"]),
    )


@dataclass(frozen=True)
class Terms:
    """A stream's terms besides its question: name, horizon, contribution bound and price."""

    name: str
    start: str
    periods: int
    rows: int
    epsilon: Fraction


def make_stream(card: Card, question: Query, terms: Terms) -> Stream:
    """Build a stream from the owner's question and terms; or refuse, by the card alone."""
    _check_card(card, terms)
    period = _period_of(question)
    start = read_constant("date", terms.start, "start").text
    if int(start[:4]) > LATEST or _rounded(period.unit, start) != start:
        raise Refused(
            "stream-not-possible",
            f"A stream by the {period.unit} cannot start on {start}.",
            f"Start on the first day of a {period.unit}, in the year {LATEST} or before.",
        )
    made = Stream(card.name, terms.name, question, start, terms.periods, terms.rows, terms.epsilon)
    return replace(made, question=_spelled(card, made))


def plan_of_period(card: Card, stream: Stream, end: int) -> Plan:
    """Plan the count of one period's rows, on this version of the card; or refuse.

    It does not matter which of a person's rows count, only how many of them may still count.
    """
    of = _period_of(stream.question).of
    from_, until = stream.day(end), stream.day(end + 1)
    within: tuple[Predicate, ...] = (
        Compare(of, ">=", Constant("text", from_)),
        Compare(of, "<", Constant("text", until)),
    )
    asked = stream.question.where
    where = All(within if asked is None else (asked, *within))
    outputs = (Output("n", Aggregate("count")),)
    question = Query(stream.data_set, outputs, where, max_rows=stream.rows)
    return make_plan(card, question)


def stream_in_words(card: Card, stream: Stream) -> str:
    """Describe what the stream counts, as a sentence without a full stop."""
    counted = Query(stream.data_set, (Output("n", Aggregate("count")),), stream.question.where)
    along = _period_of(stream.question)
    column = along.of.column if isinstance(along.of, Ref) else ""
    return (
        f"{plan_text(make_plan(card, counted))}, running along the {stream.unit} of {column}, "
        f"{stream.periods:,} {stream.unit}s from {stream.start}"
    )


def bound_in_words(stream: Stream) -> str:
    """Describe the contribution bound of a person over the whole stream."""
    rows = "row" if stream.rows == 1 else "rows"
    return f"at most {stream.rows} {rows} of a person count over the whole stream"


def _check_card(card: Card, terms: Terms) -> None:
    if not NAME.fullmatch(terms.name):
        raise _not_possible(f"A stream's {NAMED}.", "Choose another name.")
    if not card.by_person:
        raise _not_possible(
            "The privacy unit of the data card is a row, and rows cannot be recognised in later "
            "versions of the data.",
            "Use a data set whose privacy unit is a person: only these can have a stream "
            "(running count).",
        )
    for what, value, most in (("periods", terms.periods, LISTED), ("rows", terms.rows, MAX_ROWS)):
        if type(value) is not int or not 1 <= value <= most:
            raise _not_possible(
                f"{what} must be a whole number from 1 to {most:,}.",
                "Choose a number in that range.",
            )


def _period_of(question: Query) -> DateTrunc:
    """Return the period of the question's running count; refuse any other kind of question."""
    keys = question.group_by
    if len(keys) == 1 and isinstance(keys[0], DateTrunc) and isinstance(keys[0].of, Ref):
        key = keys[0]
        if key.unit in UNITS and _asks_only(question, key):
            return key
    raise _not_possible(
        "A stream is one running count by day, week or month, of the card's own table. It may "
        "have a filter, but no other keys, tables, HAVING, ORDER BY or LIMIT.",
        "Write SELECT date_trunc('day', COLUMN) AS day, RUNNING_COUNT(*) AS so_far FROM ... "
        "WHERE ... GROUP BY day.",
    )


def _asks_only(question: Query, key: Expr) -> bool:
    bare = Query(question.data_set, question.outputs, question.where, question.group_by)
    of = [output.of for output in question.outputs]
    counts = [one for one in of if isinstance(one, Aggregate)]
    is_running = counts in ([Aggregate("running_count")], [Aggregate("running_count", (key,))])
    rest = [one for one in of if not isinstance(one, Aggregate)]
    shown = all(output.is_shown for output in question.outputs)
    return question == bare and is_running and rest == [key] and shown


def _rounded(unit: Unit, day: str) -> str:
    return first_of_period(unit, period_of_text(unit, day))


def _spelled(card: Card, stream: Stream) -> Query:
    """Return the question with names spelled as on the data card, after checking it."""
    key = _period_of(stream.question)
    checked = plan_of_period(card, stream, 1).question  # refuses a column that is no date
    name = key.of.column if isinstance(key.of, Ref) else ""
    along = DateTrunc(key.unit, Ref(card.column(name).name))
    where = None
    if stream.question.where is not None:
        counted = Query(card.name, (Output("n", Aggregate("count")),), stream.question.where)
        where = make_plan(card, counted).question.where
    outputs = tuple(
        Output(
            o.name, Aggregate("running_count", (along,)) if isinstance(o.of, Aggregate) else along
        )
        for o in stream.question.outputs
    )
    return Query(checked.data_set, outputs, where, (along,))


def _not_possible(cause: str, next_step: str) -> Refused:
    return Refused("stream-not-possible", cause, next_step)
