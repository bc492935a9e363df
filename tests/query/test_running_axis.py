"""Running counts as plans: how they are asked, what one person moves, what they cost."""

from __future__ import annotations

import tomllib
from decimal import Decimal
from fractions import Fraction
from typing import cast

import pytest

from sfumato.client.column_expressions import col
from sfumato.client.query_builder import Builder, Target
from sfumato.dp.accounting.privacy_events import GaussianEvent
from sfumato.dp.confidence.sum_of_draws import margin_95_of_sum
from sfumato.dp.mechanisms.binary_tree import Tree
from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.mechanisms.running_count import Axis, TreeMechanism
from sfumato.dp.refusal import Refused
from sfumato.query.expression import DateTrunc, Ref
from sfumato.query.model import Aggregate, Query, query_json
from sfumato.query.plan import Plan, make_plan
from sfumato.query.plan_text import plan_text, split_text
from sfumato.query.price import Priced, price_at, price_for_errors
from sfumato.query.query_from_json import read_query
from sfumato.query.sql.select import read_sql
from sfumato.vault.card.data_card import Card, read_card

CARD = """
unit = "who"
people = "p"
version = "1"
budget = { epsilon = 3, delta = 1e-6 }
max_groups = 3
max_rows = 5
[columns.zip]
type = "text"
keys = ["a", "b"]
[columns.town]
type = "text"
[columns.day]
type = "date"
lower = 2026-01-01
upper = 2026-12-31
[columns.late]
type = "date"
"""
MONTH = DateTrunc("month", Ref("day"))
BY_MONTH = "SELECT date_trunc('month', day) AS month, RUNNING_COUNT(*) FROM t GROUP BY 1"
BY_DAY = "SELECT date_trunc('day', day) AS d, RUNNING_COUNT(*) AS n FROM t GROUP BY d"
OVER = "SUM(COUNT(*)) OVER ({}ORDER BY date_trunc('month', day)) AS n"


def card(text: str = CARD) -> Card:
    return read_card("t", tomllib.loads(text, parse_float=Decimal))


def plan(sql: str, text: str = CARD, groups: int | None = None, rows: int | None = None) -> Plan:
    return make_plan(card(text), read_sql(sql, "t", max_groups=groups, max_rows=rows))


def running(priced: Priced) -> TreeMechanism:
    (found,) = [noise for noise in priced.noises if isinstance(noise, TreeMechanism)]
    return found


def builder() -> Builder:
    return Builder("t", cast("Target", None))


# --- how it is asked -----------------------------------------------------------------------------


def test_every_spelling_is_one_question() -> None:
    built = builder().group_by("zip", month=col("day").trunc("month")).running_count(name="n")
    month = "date_trunc('month', day)"
    spellings: list[Query] = [
        read_sql(f"SELECT zip, {month} AS m, RUNNING_COUNT(*) FROM t GROUP BY zip, m", "t"),
        read_sql(f"SELECT {month}, zip, running_count(*) n FROM T GROUP BY 1, ZIP", "t"),
        read_sql(f"SELECT {OVER.format('PARTITION BY zip ')} FROM t GROUP BY zip, {month}", "t"),
        built.question(),
        read_query(query_json(built.question())),
    ]
    found = [make_plan(card(), question).canonical() for question in spellings]
    assert all(one == found[0] for one in found)


def test_it_runs_along_the_last_period_unless_a_window_says_another() -> None:
    week = DateTrunc("week", Ref("day"))
    keys = "date_trunc('week', day), date_trunc('month', day)"
    last = plan(f"SELECT RUNNING_COUNT(*) FROM t GROUP BY {keys}")
    first = plan(
        "SELECT SUM(COUNT(*)) OVER (PARTITION BY date_trunc('month', day) "
        f"ORDER BY date_trunc('week', day)) FROM t GROUP BY {keys}"
    )
    assert last.question.aggregates == (Aggregate("running_count", (MONTH,)),)
    assert first.question.aggregates == (Aggregate("running_count", (week,)),)
    assert last.canonical() != first.canonical()


def test_the_axis_is_where_the_period_stands_among_the_canonical_keys() -> None:
    made = plan("SELECT RUNNING_COUNT(*) FROM t GROUP BY zip, date_trunc('month', day)")
    sizes = [key.key.size for key in made.keys]
    place = [key.of for key in made.keys].index(MONTH)
    assert sorted(size or 0 for size in sizes) == [2, 12]
    assert made.parts[0].axis == (Axis(2, 12, 1) if place else Axis(1, 12, 2))


def test_the_stored_answer_is_filed_under_the_number_of_periods() -> None:
    made = plan(BY_MONTH.replace("RUNNING_COUNT(*)", "RUNNING_COUNT(*), COUNT(*)"))
    assert sorted(made.canonical()["reach"], key=len) == [["rows", 3, 5], ["rows", 3, 5, 12]]  # type: ignore[call-overload]  # JSON


def test_words_say_up_to_which_period() -> None:
    assert plan_text(plan(BY_MONTH)).startswith("the number of rows up to the month of day, for")


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT RUNNING_COUNT(*) FROM t", "not-in-language"),
        ("SELECT zip, RUNNING_COUNT(*) FROM t GROUP BY zip", "not-in-language"),
        ("SELECT day, RUNNING_COUNT(*) FROM t GROUP BY day", "not-in-language"),
        ("SELECT RUNNING_COUNT(*) FROM t GROUP BY date_trunc('month', late)", "keys-needed"),
        (
            "SELECT town, RUNNING_COUNT(*) FROM t GROUP BY town, date_trunc('day', day)",
            "keys-needed",
        ),
        ("SELECT RUNNING_COUNT(day) FROM t GROUP BY date_trunc('month', day)", "not-in-language"),
        ("SELECT RUNNING_COUNT() FROM t GROUP BY date_trunc('month', day)", "not-in-language"),
        ("SELECT RUNNING_COUNT(*, *) FROM t GROUP BY date_trunc('month', day)", "not-in-language"),
        ("SELECT RUNNING_SUM(*) FROM t GROUP BY date_trunc('month', day)", "not-in-language"),
        (
            "SELECT RUNNING_COUNT(*) FILTER (WHERE zip = 'a') FROM t "
            "GROUP BY date_trunc('month', day)",
            "not-in-language",
        ),
        (
            "SELECT AVG(n) FROM (SELECT who, RUNNING_COUNT(*) AS n FROM t GROUP BY who)",
            "not-in-language",
        ),
    ],
)
def test_what_is_no_running_count_is_refused(sql: str, code: str) -> None:
    with pytest.raises(Refused) as refused:
        plan(sql)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "window",
    [
        "SUM(COUNT(*)) OVER (ORDER BY date_trunc('month', day))",  # across zip: another number
        "SUM(COUNT(*)) OVER (PARTITION BY zip ORDER BY date_trunc('week', day))",
        "SUM(COUNT(*)) OVER (PARTITION BY zip ORDER BY date_trunc('month', day) DESC)",
        "SUM(COUNT(*)) OVER (PARTITION BY date_trunc('month', day) ORDER BY zip)",
        "SUM(COUNT(*)) OVER (PARTITION BY zip, date_trunc('month', day) "
        "ORDER BY date_trunc('month', day))",  # the count itself
        "SUM(DISTINCT COUNT(*)) OVER (PARTITION BY zip ORDER BY date_trunc('month', day))",
        "RUNNING_COUNT(*) OVER (PARTITION BY zip ORDER BY date_trunc('month', day))",
        "SUM(COUNT(*)) OVER (PARTITION BY zip ORDER BY date_trunc('month', day), zip)",
        "SUM(COUNT(*)) OVER (PARTITION BY zip ORDER BY date_trunc('month', day) "
        "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
        "SUM(COUNT(day)) OVER (PARTITION BY zip ORDER BY date_trunc('month', day))",
        "SUM(COUNT(DISTINCT who)) OVER (PARTITION BY zip ORDER BY date_trunc('month', day))",
        "AVG(COUNT(*)) OVER (PARTITION BY zip ORDER BY date_trunc('month', day))",
        "COUNT(*) OVER (PARTITION BY zip ORDER BY date_trunc('month', day))",
        "SUM(SUM(1)) OVER (PARTITION BY zip ORDER BY date_trunc('month', day))",
    ],
)
def test_no_other_window_is_answered(window: str) -> None:
    with pytest.raises(Refused) as refused:
        plan(f"SELECT {window} AS n FROM t GROUP BY zip, date_trunc('month', day)")
    assert refused.value.code == "not-in-language"


# --- what one person moves, and what it costs ----------------------------------------------------


def test_the_sensitivity_is_cells_times_rows_times_levels() -> None:
    (bounded,) = plan(BY_DAY).parts
    priced = price_at(plan(BY_DAY), Fraction(1), Fraction(0))
    tree = running(priced).tree
    assert (tree.periods, tree.branching, tree.levels) == (365, 20, 2)
    assert bounded.l1 == 3 * 5 * 2
    assert running(priced).noise == Noise("laplace", Fraction(30))
    assert split_text(priced)[0]["sensitivity"] == 30


def test_a_row_is_in_one_block_of_each_level() -> None:
    text = CARD.replace('unit = "who"', 'unit = "row"')
    priced = price_at(plan(BY_DAY, text), Fraction(1), Fraction(0))
    assert running(priced).noise == Noise("laplace", Fraction(2))


def test_bounds_of_the_question_are_of_the_whole_horizon() -> None:
    priced = price_at(plan(BY_DAY, groups=7, rows=2), Fraction(1, 2), Fraction(0))
    assert running(priced).noise == Noise("laplace", Fraction(7 * 2 * 2 * 2))


def test_a_delta_buys_gaussian_noise_on_a_tree_of_its_own() -> None:
    others = ", COUNT(*), COUNT(day), COUNT(zip), COUNT(DISTINCT who), COUNT(DISTINCT zip)"
    made = plan(BY_DAY.replace("AS n", f"AS n{others}"))
    priced = price_at(made, Fraction(1), Fraction("1e-6"))
    (bounded,) = [b for b in made.parts if b.axis is not None]
    squares = 5**2 * (3 + 3**2 + 3**2)  # three cells: apart in leaves, in one block above
    assert running(priced).tree == Tree(365, 8)
    assert bounded.l2_squared == squares
    assert isinstance(priced.event, GaussianEvent)
    variance = Fraction(squares) / (2 * priced.event.rho / 6)
    assert running(priced).noise == Noise("gaussian", variance)
    (split,) = [part for part in split_text(priced) if "branching" in part]
    assert split["sensitivity"] == 3 * 5 * 3


def test_a_count_beside_it_has_its_own_noise_and_its_own_share() -> None:
    made = plan(BY_MONTH.replace("RUNNING_COUNT(*)", "RUNNING_COUNT(*), COUNT(*)"))
    priced = price_at(made, Fraction(1), Fraction(0))
    found = {type(noise): noise for noise in priced.noises}
    assert found[Noise] == Noise("laplace", Fraction(15 * 2))
    assert running(priced).noise == Noise("laplace", Fraction(made.parts[0].l1 * 2))
    assert len(made.measure.tallies) == 1  # the rows are read once


def test_the_error_is_the_one_of_the_least_certain_period() -> None:
    priced = price_at(plan(BY_DAY), Fraction(1), Fraction(0))
    (of,) = priced.plan.question.aggregates
    found = running(priced)
    assert priced.margin(of, None) == margin_95_of_sum(found.noise, found.tree.most_blocks)
    assert priced.margin(of, None) == max(found.margins())


def test_the_smallest_price_for_an_error_is_found() -> None:
    made = plan(BY_DAY)
    priced = price_for_errors(made, {"n": Fraction(900)}, Fraction(0), None)
    assert running(priced).margin() <= 900
    cheaper = price_at(made, priced.epsilon - Fraction(1, 10**6), Fraction(0))
    assert running(cheaper).margin() > 900


def test_the_receipt_names_the_tree() -> None:
    priced = price_at(plan(BY_DAY), Fraction(1), Fraction(0))
    assert priced.mechanism == "discrete laplace tree"
    assert running(priced).as_json() == {
        "kind": "discrete laplace tree",
        "scale": "30",
        "periods": 365,
        "branching": 20,
        "levels": 2,
    }
