"""Plans and prices: what one person can do, how the price is split, what an error costs."""

from __future__ import annotations

import tomllib
from decimal import Decimal
from fractions import Fraction

import pytest

from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.mechanisms.private_choice import PrivateChoice
from sfumato.dp.refusal import Bug, Refused
from sfumato.query.contribution_bounds import bounds_text
from sfumato.query.model import Aggregate
from sfumato.query.plan import KEYS_AT_ONCE, MAX_COUNTS, PEOPLE, Plan, make_plan
from sfumato.query.plan_text import plan_text
from sfumato.query.price import Priced, price_at, price_at_rho, price_for_errors
from sfumato.query.sql.select import read_sql
from sfumato.vault.card.data_card import Card, read_card

CARD = """
unit = "who"
people = "p"
version = "1"
budget = { epsilon = 3, delta = 1e-6 }
max_groups = 3
max_rows = 20
[columns.zip]
type = "text"
keys = ["a", "b", "c", "d", "e"]
[columns.sick]
type = "boolean"
[columns.pay]
type = "number"
lower = -10
upper = 30
step = 0.5
[columns.free]
type = "number"
"""


def card(text: str = CARD) -> Card:
    return read_card("t", tomllib.loads(text, parse_float=Decimal))


def plan(sql: str, text: str = CARD, groups: int | None = None, rows: int | None = None) -> Plan:
    return make_plan(card(text), read_sql(sql, "t", max_groups=groups, max_rows=rows))


def noises(priced: Priced) -> list[Noise]:
    return [noise for noise in priced.noises if isinstance(noise, Noise)]


def reach(made: Plan) -> list[tuple[str, int, int]]:
    return [(b.part.tally.kind, b.l1, b.l2_squared) for b in made.parts]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT COUNT(*) FROM t", [("rows", 20, 400)]),
        ("SELECT zip, COUNT(*) FROM t GROUP BY zip", [("rows", 60, 1200)]),
        ("SELECT sick, COUNT(*) FROM t GROUP BY sick", [("rows", 40, 800)]),
        ("SELECT COUNT(DISTINCT who) FROM t", [("people", 1, 1)]),
        ("SELECT zip, COUNT(DISTINCT who) FROM t GROUP BY zip", [("people", 3, 3)]),
        ("SELECT SUM(pay) FROM t", [("sum", 20 * 60, 1200**2)]),
        ("SELECT AVG(pay) FROM t", [("sum", 20 * 80, 1600**2), ("values", 20, 400)]),
        ("SELECT COUNT(pay), AVG(pay) FROM t", [("values", 20, 400), ("sum", 1600, 1600**2)]),
    ],
)
def test_the_reach_of_one_person_is_what_the_bounds_leave(
    sql: str, expected: list[tuple[str, int, int]]
) -> None:
    assert sorted(reach(plan(sql))) == sorted(expected)


MEAN_OF_MEANS = "SELECT SUM(m) FROM (SELECT who, AVG(pay) AS m FROM t GROUP BY who)"


@pytest.mark.parametrize(("step", "parts"), [("0.5", 10_000), ("1e-4", 1_000), ("1e-5", 100)])
def test_a_persons_own_mean_is_as_fine_as_sums_of_it_leave_room_for(step: str, parts: int) -> None:
    limits = "[limits]\nrows = 100_000_000\n[columns.zip]"
    text = CARD.replace("step = 0.5", f"step = {step}").replace("[columns.zip]", limits)
    most = int(30 / Fraction(step)) * parts
    assert reach(plan(MEAN_OF_MEANS, text)) == [("sum", most, most**2)]


def test_a_row_moves_each_integer_by_its_own_bound() -> None:
    text = CARD.replace('unit = "who"', 'unit = "row"')
    assert reach(plan("SELECT SUM(pay) FROM t", text)) == [("sum", 60, 3600)]
    assert reach(plan("SELECT zip, COUNT(*) FROM t GROUP BY zip", text)) == [("rows", 1, 1)]


def test_the_whole_price_is_split_and_nothing_is_lost() -> None:
    made = plan("SELECT COUNT(*), SUM(pay), AVG(pay) FROM t")
    assert sum(b.weight for b in made.parts) == 1
    priced = price_at(made, Fraction(1, 2), Fraction(0))
    spent = sum(b.l1 / n.parameter for b, n in zip(made.parts, noises(priced), strict=True))
    assert spent == Fraction(1, 2)


def test_gaussian_noise_spends_the_whole_rho_and_no_more() -> None:
    made = plan("SELECT zip, COUNT(*), SUM(pay) FROM t GROUP BY zip", groups=5, rows=1)
    priced = price_at(made, Fraction(1), Fraction(1, 10**5))
    assert {n.kind for n in noises(priced)} <= {"gaussian", "laplace"}
    if priced.delta:
        pairs = zip(made.parts, noises(priced), strict=True)
        rho = sum(b.l2_squared / (2 * n.parameter) for b, n in pairs)
        assert rho == getattr(priced.event, "rho", None)


def test_a_delta_that_buys_nothing_is_not_spent() -> None:
    priced = price_at(plan("SELECT COUNT(DISTINCT who) FROM t"), Fraction(1), Fraction(1, 10**6))
    assert priced.delta == 0
    assert noises(priced)[0].kind == "laplace"


@pytest.mark.parametrize("margin", ["3", "40", "2500"])
@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("SELECT COUNT(*) AS n FROM t", "n"),
        ("SELECT SUM(pay) AS n, COUNT(*) AS m FROM t", "n"),
        ("SELECT zip, COUNT(*) AS n FROM t GROUP BY zip", "n"),
    ],
)
def test_an_error_costs_the_smallest_epsilon_that_reaches_it(
    sql: str, name: str, margin: str
) -> None:
    made = plan(sql, rows=1)
    priced = price_for_errors(made, {name: Fraction(margin)}, Fraction(0), None)
    of = next(o.of for o in made.question.outputs if o.name == name)
    assert isinstance(of, Aggregate)
    reached = priced.margin(of, None)
    assert reached is not None
    assert reached <= float(margin)
    below = price_at(made, priced.epsilon - Fraction(1, 10**6), Fraction(0)).margin(of, None)
    assert below is not None
    assert below > float(margin)


def test_the_error_of_a_mean_needs_a_size_and_takes_the_askers() -> None:
    made = plan("SELECT AVG(pay) AS m FROM t", rows=1)
    with pytest.raises(Refused) as refused:
        price_for_errors(made, {"m": Fraction(1)}, Fraction(0), None)
    assert refused.value.code == "error-needs-size"
    few = price_for_errors(made, {"m": Fraction(1)}, Fraction(0), 100).epsilon
    many = price_for_errors(made, {"m": Fraction(1)}, Fraction(0), 10_000).epsilon
    assert few > 50 * many


def test_an_error_out_of_reach_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        price_for_errors(
            plan("SELECT AVG(pay) AS m FROM t"), {"m": Fraction(1, 1000)}, Fraction(0), 1
        )
    assert refused.value.code == "error-out-of-reach"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT COUNT(*) FROM t", "SELECT COUNT(*) AS n FROM t"),
        ("SELECT COUNT(*), SUM(pay) FROM t", "SELECT SUM(PAY) AS s, COUNT(*) FROM t"),
        (
            "SELECT COUNT(*) FROM t WHERE zip = 'a' AND sick",
            "SELECT COUNT(*) FROM t WHERE sick = TRUE AND 'a' = zip AND zip = 'a'",
        ),
        (
            "SELECT zip, sick, COUNT(*) FROM t GROUP BY zip, sick",
            "SELECT COUNT(*), sick, zip FROM t GROUP BY sick, zip",
        ),
        (
            "SELECT COUNT(*) FROM t WHERE pay IN (1, 2)",
            "SELECT COUNT(*) FROM t WHERE pay IN (2.0, 1, 2)",
        ),
        ("SELECT COUNT(*) FROM t WHERE NOT sick", "SELECT COUNT(*) FROM t WHERE sick = FALSE"),
        ("SELECT COUNT(*) FROM t WHERE sick IN (FALSE)", "SELECT COUNT(*) FROM t WHERE NOT sick"),
        (
            "SELECT COUNT(*) FROM t WHERE zip IN ('a', 'a')",
            "SELECT COUNT(*) FROM t WHERE zip = 'a'",
        ),
        ("SELECT COUNT(*) FROM t WHERE pay NOT IN (1)", "SELECT COUNT(*) FROM t WHERE pay <> 1"),
        ("SELECT COUNT(*) FROM t WHERE sick != TRUE", "SELECT COUNT(*) FROM t WHERE NOT sick"),
        ("SELECT COUNT(*) FROM t WHERE sick != FALSE", "SELECT COUNT(*) FROM t WHERE sick"),
        ("SELECT COUNT(*) FROM t WHERE NOT pay < 3", "SELECT COUNT(*) FROM t WHERE pay >= 3"),
        ("SELECT COUNT(*) FROM t WHERE NOT (pay >= 3)", "SELECT COUNT(*) FROM t WHERE pay < 3"),
        ("SELECT COUNT(*) FROM t WHERE NOT pay > 3", "SELECT COUNT(*) FROM t WHERE pay <= 3"),
        ("SELECT COUNT(*) FROM t WHERE NOT zip = 'a'", "SELECT COUNT(*) FROM t WHERE zip != 'a'"),
        (
            "SELECT SUM(CASE WHEN NOT sick THEN 1 ELSE 0 END) FROM t",
            "SELECT SUM(CASE WHEN sick = FALSE THEN 1 ELSE 0 END) FROM t",
        ),
    ],
)
def test_the_same_question_has_the_same_canonical_form(one: str, other: str) -> None:
    assert plan(one).canonical() == plan(other).canonical()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT COUNT(*) FROM t", "SELECT COUNT(pay) FROM t"),
        ("SELECT COUNT(*) FROM t WHERE sick", "SELECT COUNT(*) FROM t WHERE NOT sick"),
        ("SELECT SUM(pay) FROM t", "SELECT AVG(pay) FROM t"),
        ("SELECT COUNT(*) FROM t WHERE pay > 1", "SELECT COUNT(*) FROM t WHERE pay >= 1"),
    ],
)
def test_different_questions_have_different_canonical_forms(one: str, other: str) -> None:
    assert plan(one).canonical() != plan(other).canonical()


@pytest.mark.parametrize(
    "changed",
    [
        CARD.replace('version = "1"', 'version = "2"'),
        CARD.replace("upper = 30", "upper = 31"),
        CARD.replace("step = 0.5", "step = 0.25"),
        CARD.replace('"e"]', '"f"]'),
        CARD.replace("max_rows = 20", "max_rows = 19"),
        CARD.replace('people = "p"', 'people = "q"'),
    ],
)
def test_a_card_that_promises_otherwise_is_another_question(changed: str) -> None:
    sql = "SELECT zip, SUM(pay) FROM t GROUP BY zip"
    assert plan(sql).canonical() != plan(sql, changed).canonical()


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT zip FROM t GROUP BY zip", "no-aggregate"),
        ("SELECT zip, COUNT(*) FROM t", "not-in-language"),
        ("SELECT COUNT(*) AS n, SUM(pay) AS n FROM t", "not-in-language"),
        ("SELECT COUNT(*) FROM t GROUP BY zip, zip", "not-in-language"),
        ("SELECT SUM(free) FROM t", "no-bounds"),
        ("SELECT AVG(free) FROM t", "no-bounds"),
        ("SELECT SUM(zip) FROM t", "type-mismatch"),
        ("SELECT SUM(sick) FROM t", "type-mismatch"),
        ("SELECT COUNT(*) FROM t WHERE zip > 'a'", "type-mismatch"),
        ("SELECT COUNT(*) FROM t WHERE pay = 'a'", "type-mismatch"),
        ("SELECT COUNT(*) FROM t WHERE sick = 2", "type-mismatch"),
        ("SELECT COUNT(*) FROM t WHERE zip = 1", "type-mismatch"),
        ("SELECT COUNT(nobody) FROM t", "unknown-column"),
        ("SELECT zip, COUNT(*) n FROM t GROUP BY zip HAVING n > 'a'", "type-mismatch"),
        ("SELECT zip, COUNT(*) n FROM t GROUP BY zip HAVING zip > 3", "type-mismatch"),
        ("SELECT APPROX_TOP_K(zip, 2) n FROM t HAVING n = 'a'", "type-mismatch"),
        ("SELECT APPROX_TOP_K(zip, 9) n FROM t", "not-in-language"),
        ("SELECT APPROX_TOP_K(free, 2) n FROM t", "keys-needed"),
        ("SELECT MEDIAN(free) FROM t", "no-bounds"),
        ("SELECT MEDIAN(zip) FROM t", "type-mismatch"),
        ("SELECT QUANTILE_CONT(pay, 0.123456) FROM t", "not-in-language"),
        ("SELECT SUM(free * free) FROM t", "no-bounds"),
        ("SELECT SUM(" + " * ".join(["pay"] * 12) + ") FROM t", "numbers-too-large"),
        ("SELECT SUM(pay / 0) FROM t", "type-mismatch"),
        ("SELECT AVG(pay" + " / 1e-30" * 11 + ") FROM t", "numbers-too-large"),
        ("SELECT VAR_SAMP(pay" + " / -1e-30" * 6 + ") FROM t", "numbers-too-large"),
        ("SELECT SUM(pay" + " / 1e30" * 11 + ") FROM t", "numbers-too-large"),
        ("SELECT SUM(CASE WHEN sick THEN 1 ELSE 'a' END) FROM t", "type-mismatch"),
        ("SELECT COUNT(*) FROM t WHERE date_trunc('month', pay) = 1", "type-mismatch"),
        ("SELECT AVG(n) FROM (SELECT zip, COUNT(*) AS n FROM t GROUP BY zip)", "not-in-language"),
        ("SELECT AVG(m) FROM (SELECT who, COUNT(*) AS n FROM t GROUP BY who)", "unknown-column"),
        ("SELECT SUM(s) FROM (SELECT who, SUM(free) AS s FROM t GROUP BY who)", "no-bounds"),
        ("SELECT SUM(who) FROM t", "unknown-column"),
    ],
)
def test_a_question_that_does_not_fit_the_card_is_refused(sql: str, code: str) -> None:
    with pytest.raises(Refused) as refused:
        plan(sql)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("condition", "is_refused"),
    [
        ("zip = ' '", True),
        ("zip IN ('a', '')", True),
        ("zip LIKE ''", True),
        ("NOT (zip <> '' OR sick)", True),
        ("CASE WHEN zip = '' THEN sick ELSE FALSE END", True),
        ("zip <> ''", False),
        ("NULLIF(zip, '') IS NULL", False),
        ("COALESCE(zip, '') = ''", False),
        ("zip NOT IN ('a', '')", False),
    ],
)
def test_a_text_that_says_that_there_is_no_value_is_nobodys(
    condition: str, is_refused: bool
) -> None:
    text = f"SELECT COUNT(*) FROM t WHERE {condition}"
    if not is_refused:
        plan(text)
        return
    with pytest.raises(Refused, match="marks a missing value") as refused:
        plan(text)
    assert "IS NULL" in refused.value.next_step


@pytest.mark.parametrize(
    ("ends", "is_refused"),
    [
        ("3 AND 2.5", True), ("3 AND 3", False), ("-3 AND -2", False),
        ("'2026-01-02' AND DATE '2026-01-01'", True), ("'2026-01-01' AND '2026-01-01'", False),
    ],
)  # fmt: skip
def test_between_ends_between_which_nothing_is_nobody_is(ends: str, is_refused: bool) -> None:
    column = "day" if "'" in ends else "pay"
    with_days = CARD + '[columns.day]\ntype = "date"\n'
    for word in ("", "NOT "):
        text = f"SELECT COUNT(*) FROM t WHERE {column} {word}BETWEEN {ends}"
        if is_refused:
            with pytest.raises(Refused, match="No value is between"):
                plan(text, with_days)
        else:
            plan(text, with_days)


@pytest.mark.parametrize("of", ["AVG", "SUM", "VAR_SAMP", "STDDEV_POP"])
@pytest.mark.parametrize("by", ["1e30", "-1e30", "1e-30", "-1e-30"])
def test_what_is_divided_often_is_priced_as_long_as_it_is_planned(of: str, by: str) -> None:
    made = plan(f"SELECT {of}(pay{f' / {by}' * 3}) AS x FROM t")
    margin = price_at(made, Fraction(1), Fraction(0)).margin(made.question.aggregates[0], 100)
    assert margin is not None
    assert 0 < margin < float("inf")


def test_a_plan_can_be_said_in_words() -> None:
    made = plan("SELECT zip, AVG(pay) FROM t WHERE sick AND pay > 2 GROUP BY zip")
    assert plan_text(made) == "the mean of pay, for each zip, where pay > 2 and sick = true"
    assert bounds_text(made) == (
        "a person counts in at most 3 of the 5 groups, with at most 20 rows in each, chosen at "
        "random"
    )


def test_a_delta_too_small_to_buy_any_rho_buys_laplace_noise() -> None:
    made = plan("SELECT COUNT(*) FROM t")
    priced = price_at(made, Fraction(1, 10**6), Fraction(1, 10**9))
    assert noises(priced)[0].kind == "laplace"


@pytest.mark.parametrize("delta", ["0", "1e-5"])
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT MEDIAN(pay) FROM t",
        "SELECT zip, MEDIAN(pay), QUANTILE_CONT(pay, [0.1, 0.9]), COUNT(*) FROM t GROUP BY zip",
        "SELECT sick, MIN(pay), MAX(pay), MODE(zip), AVG(pay) FROM t GROUP BY sick",
        "SELECT APPROX_TOP_K(zip, 2), COUNT(DISTINCT zip) FROM t",
        "SELECT MEDIAN(n) FROM (SELECT who, COUNT(*) AS n FROM t GROUP BY who)",
    ],
)
def test_choices_and_noise_spend_the_whole_price_and_no_more(sql: str, delta: str) -> None:
    """A choice is made in each cell that a person is in, and moves by each of their rows."""
    made = plan(sql)
    priced = price_at(made, Fraction(1), Fraction(delta))
    assert priced.delta == 0
    spent = Fraction(0)
    for bounded, mechanism in zip(made.parts, priced.noises, strict=True):
        if isinstance(mechanism, Noise):
            assert mechanism.kind == "laplace"
            spent += bounded.l1 / mechanism.parameter
        else:
            assert isinstance(mechanism, PrivateChoice)
            spent += bounded.cells * mechanism.epsilon
            assert mechanism.rows == made.measure.max_rows
            assert bounded.cells == made.measure.max_groups
    assert spent == 1


def test_choosing_keys_and_their_values_share_one_price() -> None:
    made = plan("SELECT free, COUNT(*), SUM(pay) FROM t GROUP BY free")
    priced = price_at(made, Fraction(1), Fraction(1, 10**4))
    assert priced.selection is not None
    assert priced.selection.delta == priced.delta == Fraction(1, 10**4)
    assert priced.selection.groups == made.measure.max_groups
    values = sum(b.l1 / n.parameter for b, n in zip(made.parts, noises(priced), strict=True))
    assert values + priced.selection.epsilon == 1


WIDE = "MEDIAN(LEAST(GREATEST(free, 0), 1000000))"


@pytest.mark.parametrize("verb", ["MODE(zip)", WIDE, f"{WIDE}, MAX(pay)"])
def test_lists_of_private_keys_leave_room_for_so_many_keys_at_once(verb: str) -> None:
    """How much memory it takes hangs on the card alone, however many keys the rows have."""
    made = plan(f"SELECT free, {verb} FROM t GROUP BY free")
    lists = [b.part.tally.size for b in made.parts]
    assert 0 < KEYS_AT_ONCE * sum(lists) <= MAX_COUNTS
    assert made.measure.without_histograms.tallies == (PEOPLE,)
    with pytest.raises(Refused) as refused:
        price_at(made, Fraction(1), Fraction(0))
    assert refused.value.code == "keys-needed"


def test_a_choice_by_private_keys_is_paid_by_every_group_of_a_person() -> None:
    made = plan("SELECT free, MEDIAN(pay) AS m FROM t GROUP BY free", groups=3)
    priced = price_at(made, Fraction(1), Fraction(1, 10**4))
    assert priced.selection is not None
    (chooser,) = priced.noises
    assert isinstance(chooser, PrivateChoice)
    assert 3 * chooser.epsilon + priced.selection.epsilon == 1
    assert priced.selection.groups == 3


def test_all_histograms_of_an_answer_share_one_bound() -> None:
    wide = " * ".join(["pay"] * 4)
    many = ", ".join(f"QUANTILE_CONT(LEAST({wide}, {i + 1}), 0.5)" for i in range(30))
    made = plan(f"SELECT zip, {many} FROM t GROUP BY zip")
    sizes = [tally.size for tally in made.measure.tallies if tally.kind == "histogram"]
    assert len(sizes) == 30
    assert sum(sizes) * made.measure.cells <= MAX_COUNTS


# --- how the price is split ---------------------------------------------------------------------


def shares(sql: str, **split: int) -> dict[str, Fraction]:
    wanted = {name: Fraction(share) for name, share in split.items()}
    made = make_plan(card(), read_sql(sql, "t"), wanted)
    assert sum(b.weight for b in made.parts) == 1
    return {b.part.says: b.weight for b in made.parts}


THREE = "SELECT COUNT(*) AS n, SUM(pay) AS s, AVG(pay) AS m FROM t"


def test_every_part_has_the_same_share_and_one_that_two_need_has_more() -> None:
    alone = shares("SELECT COUNT(*), SUM(pay) FROM t")
    assert set(alone.values()) == {Fraction(1, 2)}
    both = shares("SELECT AVG(pay), COUNT(pay), COUNT(*) FROM t")
    assert both["count of pay"] / both["count of rows"] == Fraction(126, 100)


def test_the_split_has_the_least_total_error() -> None:
    """No step of a hundredth from one part to another lowers the sum of variances."""
    sql = "SELECT AVG(pay), COUNT(pay), VAR_SAMP(pay), COUNT(*), SUM(pay) FROM t"
    made = plan(sql)
    uses = [sum(place in made.parts_of(a) for a in made.question.aggregates)
            for place in range(len(made.parts))]  # fmt: skip
    weights = [float(b.weight) for b in made.parts]

    def total(split: list[float]) -> float:
        return sum(c / w**2 for c, w in zip(uses, split, strict=True))

    assert max(uses) == 3
    for one in range(len(weights)):
        for other in range(len(weights)):
            moved = list(weights)
            moved[one] += 0.01
            moved[other] -= 0.01
            assert total(moved) >= total(weights)


def test_a_split_that_is_asked_for_is_given() -> None:
    made = shares(THREE, n=2, m=6)
    assert made["count of rows"] == Fraction(2, 9)
    assert made["sum of pay"] == Fraction(1, 9)  # what is not named has one share
    assert made["count of pay"] == made["sum of pay about its middle"] == Fraction(3, 9)


def test_the_price_is_the_same_however_it_is_split() -> None:
    for split in ({}, {"n": Fraction(1000)}, {"n": Fraction(1, 1000), "m": Fraction(7, 3)}):
        made = make_plan(card(), read_sql(THREE, "t"), split)
        priced = price_at(made, Fraction(1, 2), Fraction(0))
        spent = sum(b.l1 / n.parameter for b, n in zip(made.parts, noises(priced), strict=True))
        assert spent == Fraction(1, 2)


@pytest.mark.parametrize(
    ("split", "code"),
    [({"x": 1}, "unknown-column"), ({"n": 1001}, "bad-budget"), ({"n": 0}, "bad-budget")],
)
def test_a_bad_split_is_refused(split: dict[str, int], code: str) -> None:
    with pytest.raises(Refused) as refused:
        shares(THREE, **split)
    assert refused.value.code == code


def test_a_price_at_which_no_private_key_could_be_shown_is_refused_before_it_is_paid() -> None:
    made = plan("SELECT free, COUNT(*) AS n FROM t GROUP BY free", groups=1)
    with pytest.raises(Refused, match="for choosing keys is too small for any key to be shown"):
        price_at(made, Fraction(1, 10**5), Fraction(1, 10**12))


@pytest.mark.parametrize("what", ["MEDIAN(pay)", "COUNT(*), MEDIAN(pay)", "MEDIAN(pay), COUNT(*)"])
def test_what_has_a_choice_in_it_has_no_price_in_rho(what: str) -> None:
    with pytest.raises(Bug, match="counts and sums"):
        price_at_rho(plan(f"SELECT {what} FROM t"), Fraction(1), Fraction(1, 10**6))
    of_counts = price_at_rho(plan("SELECT COUNT(*) FROM t"), Fraction(1), Fraction(1, 10**6))
    assert [noise.kind for noise in noises(of_counts)] == ["gaussian"]


def test_an_error_that_rests_on_a_size_says_so() -> None:
    made = plan("SELECT COUNT(*), AVG(pay) FROM t")
    count, mean = (asked.aggregate for asked in made.asked)
    priced = price_at(made, Fraction(1), Fraction(0))
    assert priced.assumes_size(mean, 100)
    assert not priced.assumes_size(mean, None)  # there is no error to tell
    assert not priced.assumes_size(count, 100)
