"""Measure what clamping and contribution bounds cut off, by priced questions (soundness rule 4).

Values are stored clamped to the card's bounds, so a value at a bound counts for all beyond it.
A question over one row per person tells how many people have more rows than `max_rows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from sfumato.client.answer import Answer
from sfumato.client.ask_terms import FitTerms
from sfumato.client.budget_shares import check_all_fits, shares
from sfumato.client.card_columns import card_columns
from sfumato.client.column_expressions import case, col
from sfumato.client.text_tables import table_html, table_text
from sfumato.dp.refusal import Refused

if TYPE_CHECKING:
    from sfumato.client.display import CardView
    from sfumato.client.query_builder import Builder

Range = tuple[float, float]
HALF: Final = Fraction(1, 2)


@dataclass(frozen=True)
class ClampedShare:
    """The share of values or people that one bound affects, with its 95 % interval.

    The bound is a clamping bound of a column, or `max_rows`.
    """

    says: str
    share: float
    interval: Range


@dataclass(frozen=True)
class ClampingReport:
    """The shares that a column's bounds cut off, and the paid answers that give these shares."""

    cuts: tuple[ClampedShare, ...]
    answers: tuple[Answer, ...]

    @property
    def epsilon(self) -> float:
        """Return the total epsilon of the clamping check."""
        return sum(float(str(answer.receipt["epsilon"])) for answer in self.answers)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the header and the rows of the table of shares, as text."""
        return ["cut off", "share", "at 95 %"], [
            [cut.says, _percent(cut.share), " to ".join(map(_percent, cut.interval))]
            for cut in self.cuts
        ]

    def __repr__(self) -> str:
        paid = f"epsilon {self.epsilon:g} in all; ranges are for the noise alone"
        return "\n".join([*table_text(*self.table()), paid])

    def _repr_html_(self) -> str:
        return table_html(*self.table())


def clamping_report(built: Builder, of: str, terms: FitTerms) -> ClampingReport:
    """Measure what the bounds of a column cut off, by one or two paid questions; or refuse."""
    if built.outputs or built.keys or built.source is not None:
        raise Refused(
            "not-in-language",
            "A clamping check (what the bounds of a column cut off) asks its own questions.",
            "Call it on the data set, after where(...) at most, without columns, keys or "
            "each_person(...).",
        )
    card = built.target.card
    values = _values(built, of, card_columns(card, built))
    questions, parts = [values], [Fraction(1)]
    most = built.rows or _max_rows(card, built.table)
    if card["unit"] != "row":
        questions, parts = [values, _people(built, most)], [HALF, HALF]
    paid = shares(card, terms, parts)
    check_all_fits(
        built.target, list(zip(questions, paid, strict=True)), resume=terms.get("resume", False)
    )
    answers = [
        question.ask(epsilon=share.epsilon, delta=share.delta)
        for question, share in zip(questions, paid, strict=True)
    ]
    cuts = [
        _cut(answers[0], f"{of} at the lower bound or below", "at_lower", "values"),
        _cut(answers[0], f"{of} at the upper bound or above", "at_upper", "values"),
    ]
    if len(answers) > 1:
        rows = "row" if most == 1 else "rows"
        cuts.append(_cut(answers[1], f"people with more than {most} {rows}", "cut", "people"))
    return ClampingReport(tuple(cuts), tuple(answers))


def _max_rows(card: CardView, table: str) -> int:
    """Return the contribution bound `max_rows` of the question's table, from the card."""
    named = [t for t in card["tables"] if t["name"].casefold() == table.casefold()]
    return int(str((named[0] if named else card)["max_rows"]))


def _values(built: Builder, of: str, columns: Sequence[Any]) -> Builder:  # Any: JSON
    """Build the question of how many values a column has, and how many are at each bound."""
    declared = [c for c in columns if c["name"].casefold() == str(of).casefold()]
    if not declared or declared[0]["lower"] is None or declared[0]["step"] is None:
        raise Refused(
            "no-bounds",
            f"The data card declares no column {of!r} of numbers with bounds.",
            "Name a column of type integer or number with a lower and an upper bound.",
            column=of,
        )
    lower, upper = (Fraction(str(declared[0][end])) for end in ("lower", "upper"))
    column = col(of)
    return (
        built.count(of, name="values")
        .sum(case((column <= lower, 1), otherwise=0), name="at_lower")
        .sum(case((column >= upper, 1), otherwise=0), name="at_upper")
    )


def _people(built: Builder, most: int) -> Builder:
    """Build the question of how many people there are, and how many have more than `most` rows."""
    each = built.each_person(n="count")
    return each.people(name="people").sum(case((col("n") > most, 1), otherwise=0), name="cut")


def _cut(answer: Answer, says: str, part: str, whole: str) -> ClampedShare:
    """Return the share `part` / `whole` of two noisy counts, with the widest range they allow.

    The range follows from the intervals of both counts.
    """
    places = [answer.columns.index(name) for name in (part, whole)]
    value, count = (float(str(answer.rows[0][place])) for place in places)
    (low, high), (least, largest) = (_interval(answer, place) for place in places)
    return ClampedShare(says, _share(value, count), (_share(low, largest), _share(high, least)))


def _interval(answer: Answer, place: int) -> Range:
    found = answer.interval[0][place]
    if found is None:
        value = float(str(answer.rows[0][place]))
        return value, value
    return found


def _share(part: float, whole: float) -> float:
    if whole <= 0:
        return 0.0 if part <= 0 else 1.0
    return min(max(part / whole, 0.0), 1.0)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
