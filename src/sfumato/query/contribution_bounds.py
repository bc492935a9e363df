"""Describe a query's contribution bounds: whether they can drop data, and what to set.

All of it depends on the query and the card, never on rows. Whether a bound *did* drop something is
private. Whether it *can* drop something is shown with every price and answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sfumato.dp.json_values import Json
from sfumato.query.expression import Case, Constant, LiteralValue
from sfumato.query.model import Aggregate
from sfumato.query.plan import Plan
from sfumato.query.price import Priced
from sfumato.query.public_keys import public_instead


@dataclass(frozen=True)
class ContributionBounds:
    """The contribution bounds of a query, and which of them can drop a person's rows or groups."""

    max_groups: int
    max_rows: int
    groups: int | None  # groups of the query; None if its keys are private
    cuts_groups: bool
    cuts_rows: bool

    @property
    def may_cut(self) -> tuple[str, ...]:
        """Return the names of the bounds that can drop some of a person's rows or groups."""
        pairs = (("max_groups", self.cuts_groups), ("max_rows", self.cuts_rows))
        return tuple(name for name, cuts in pairs if cuts)

    def as_json(self) -> Json:
        """Return the bounds as JSON, as prices and receipts show them."""
        return {
            "max_groups": self.max_groups,
            "max_rows": self.max_rows,
            "groups": self.groups,
            "may_cut": list(self.may_cut),
        }


def bounds_of(plan: Plan) -> ContributionBounds:
    """Return the contribution bounds of the plan, and which can drop a person's rows or groups.

    A person has at most the card's `limits.rows_per_person` rows, so at most that many groups.
    """
    measure, most = plan.measure, plan.card.limits.rows_per_person
    if not plan.card.by_person:
        return ContributionBounds(1, 1, None, cuts_groups=False, cuts_rows=False)
    if measure.source is not None:  # one row per person, computed from at most this many rows
        rows = measure.source.max_rows
        return ContributionBounds(1, rows, None, cuts_groups=False, cuts_rows=rows < most)
    groups = measure.cells if measure.is_public else None
    possible = min(most, most if groups is None else groups) if plan.keys else 1
    return ContributionBounds(
        measure.max_groups,
        measure.max_rows,
        groups,
        cuts_groups=measure.max_groups < possible,
        cuts_rows=measure.max_rows < most and not _counts_people_only(plan),
    )


def _counts_people_only(plan: Plan) -> bool:
    """Check whether the query only counts people, so that one row of a person is enough."""
    return all(asked.aggregate.verb == "count_people" for asked in plan.asked)


def bounds_text(plan: Plan) -> str:
    """Describe in words how much of one person's data can affect the answer."""
    if not plan.card.by_person:
        return "each row counts as one person"
    bounds = bounds_of(plan)
    rows = f"at most {bounds.max_rows} {_plural(bounds.max_rows, 'row')}"
    if plan.question.source is not None:
        of = f", with {rows} of theirs, {_choice(plan)}" if bounds.cuts_rows else ""
        return f"each person counts once{of}"
    made = _in_groups(bounds, "" if _counts_people_only(plan) else rows, _choice(plan))
    if not any(_is_of_people(asked.aggregate) for asked in plan.asked):
        return made
    return f"{made}; a person meets a condition if one of these rows does"


def _choice(plan: Plan) -> str:
    """Describe which of a person's rows and groups count, if there are more."""
    if plan.card.appended:
        return "those of earlier versions first, otherwise chosen at random"
    return "chosen at random"


def _in_groups(bounds: ContributionBounds, rows: str, choice: str) -> str:
    """Describe in how many groups a person counts, and with how many rows in each.

    If `rows` is empty, the person counts once in each group. `choice` says which rows and groups.
    """
    few = bounds.max_groups
    each = " in each" if few > 1 else ""
    if bounds.cuts_groups:
        of = f"{few} {_plural(few, 'group')}" if bounds.groups is None else _of_all(bounds)
        with_rows = f", with {rows}{each}" if rows else ""
        return f"a person counts in at most {of}{with_rows}, {choice}"
    where = f" in each of at most {few} {_plural(few, 'group')}" if few > 1 else ""
    if not rows:
        return f"each person counts once{where}"
    return f"{rows} of a person{where} count, {choice}"


def _of_all(bounds: ContributionBounds) -> str:
    return f"{bounds.max_groups} of the {bounds.groups:,} groups"


def _is_of_people(aggregate: Aggregate) -> bool:
    """Check whether the aggregate counts people who meet a condition.

    Such a count is a sum of ones, clamped to 1 per person (name_resolution.py).
    """
    ends = (Constant.of(0), Constant.of(1))
    match aggregate.operands:
        case (Case(whens=((_, LiteralValue(one)),), otherwise=None),):
            return (
                aggregate.verb == "sum" and aggregate.person_sum_bounds == ends and one == ends[1]
            )
        case _:
            return False


# --- advice: what to set, or to write ----------------------------------------------------------


def bounds_json(plan: Plan) -> Json:
    """Return the bounds in words and as numbers, and what to set if they can drop data."""
    bounds = bounds_of(plan)
    return {
        "bounding": bounds_text(plan),
        "bounds": bounds.as_json(),
        "advice": list(_to_set(bounds)),
    }


def bounds_advice(priced: Priced) -> list[str]:
    """Return advice on how to get a better answer, from the query and the card alone."""
    return [*_to_set(bounds_of(priced.plan)), *_public_instead(priced)]


def _to_set(bounds: ContributionBounds) -> Iterator[str]:
    what = {"max_groups": "in more groups", "max_rows": "with more rows"}
    if not bounds.may_cut:
        return
    people = " or ".join(what[name] for name in bounds.may_cut)
    options = [f"{name} (--{name.replace('_', '-')})" for name in bounds.may_cut]
    yield (
        f"A person {people} counts only in part, and no error bar says how much is missing. To "
        f"count more of them, raise {' and '.join(options)}; the noise grows too."
    )


def _public_instead(priced: Priced) -> Iterator[str]:
    """Advise to group by all whole numbers between public bounds, without partition selection.

    Partition selection costs the same share of the price as one more aggregate (price.py).
    """
    plan = priced.plan
    if priced.selection is None:
        return
    found = public_instead(plan)
    if found is None:
        return
    names, instead, cells = found
    share = len(plan.aggregates) / (len(plan.aggregates) + 1)
    noise = "half the noise" if share == 1 / 2 else f"about {100 * share:.0f} % of the noise"
    yield (
        f"GROUP BY {instead} instead of {', '.join(names)} shows all {cells:,} groups, with "
        f"{noise}. Its groups are public, because the data card declares the bounds, so "
        "partition selection is not needed."
    )


def _plural(count: int, word: str) -> str:
    return word if count == 1 else word + "s"
