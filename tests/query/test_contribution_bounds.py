"""Contribution bounds are named wherever they can cut, with what to set; by the card alone."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from query.test_plan import CARD, plan
from sfumato.dp.mechanisms.noise import Noise
from sfumato.query.contribution_bounds import bounds_advice, bounds_of, bounds_text
from sfumato.query.plan import Plan
from sfumato.query.price import price_at

ONE = CARD.replace("max_groups = 3\nmax_rows = 20", "")
AGES = '[columns.age]\ntype = "integer"\nlower = 0\nupper = 110\n'
FEW = "limits = { rows_per_person = %d }\n"  # of a person's rows that are kept at all
BY_ZIP = "SELECT zip, COUNT(*) FROM t GROUP BY zip"
PEOPLE_BY_ZIP = "SELECT zip, COUNT(DISTINCT who) FROM t GROUP BY zip"
EACH = "SELECT AVG(n) FROM (SELECT who, COUNT(*) AS n FROM t GROUP BY who)"


def planned(sql: str, text: str = ONE, **bounds: int) -> Plan:
    """Return the plan on the card; limits stand before its first table."""
    before, _, after = text.partition("[columns.zip]")
    limits = FEW % bounds.pop("kept") if "kept" in bounds else ""
    return plan(sql, f"{before}{limits}[columns.zip]{after}{AGES}", **bounds)


SAID: list[tuple[str, dict[str, int], str, tuple[str, ...]]] = [
    ("SELECT COUNT(*) FROM t", {}, "at most 1 row of a person count, chosen at random",
     ("max_rows",)),
    (BY_ZIP, {}, "a person counts in at most 1 of the 5 groups, with at most 1 row, chosen at "
     "random", ("max_groups", "max_rows")),
    (BY_ZIP, {"groups": 2, "rows": 3}, "a person counts in at most 2 of the 5 groups, with at most "
     "3 rows in each, chosen at random", ("max_groups", "max_rows")),
    (BY_ZIP, {"groups": 5, "rows": 3}, "at most 3 rows of a person in each of at most 5 groups "
     "count, chosen at random", ("max_rows",)),
    (BY_ZIP, {"groups": 9, "rows": 3, "kept": 3}, "at most 3 rows of a person in each of at most 5 "
     "groups count, chosen at random", ()),
    (BY_ZIP, {"groups": 2, "rows": 2, "kept": 2}, "at most 2 rows of a person in each of at most 2 "
     "groups count, chosen at random", ()),
    (BY_ZIP, {"kept": 1}, "at most 1 row of a person count, chosen at random", ()),
    (BY_ZIP, {"rows": 2, "kept": 2}, "a person counts in at most 1 of the 5 groups, with at most "
     "2 rows, chosen at random", ("max_groups",)),
    ("SELECT free, COUNT(*) FROM t GROUP BY free", {"rows": 2}, "a person counts in at most 1 "
     "group, with at most 2 rows, chosen at random", ("max_groups", "max_rows")),
    ("SELECT COUNT(DISTINCT who) FROM t", {}, "each person counts once", ()),
    (PEOPLE_BY_ZIP, {}, "a person counts in at most 1 of the 5 groups, chosen at random",
     ("max_groups",)),
    (PEOPLE_BY_ZIP, {"groups": 5}, "each person counts once in each of at most 5 groups", ()),
    ("SELECT COUNT(DISTINCT who) FILTER (WHERE sick) FROM t", {}, "at most 1 row of a person "
     "count, chosen at random; a person meets a condition if one of these rows does",
     ("max_rows",)),
    (EACH, {}, "each person counts once", ()),
    (EACH, {"rows": 4}, "each person counts once, with at most 4 rows of theirs, chosen at random",
     ("max_rows",)),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "bounds", "words", "may_cut"), SAID)
def test_both_bounds_are_named_wherever_they_can_cut(
    sql: str, bounds: dict[str, int], words: str, may_cut: tuple[str, ...]
) -> None:
    made = planned(sql, ONE, **bounds)
    assert bounds_text(made) == words
    assert bounds_of(made).may_cut == may_cut


@pytest.mark.parametrize(("sql", "bounds", "words", "may_cut"), SAID)
def test_what_to_set_is_said_of_the_bounds_that_can_cut_and_of_no_others(
    sql: str, bounds: dict[str, int], words: str, may_cut: tuple[str, ...]
) -> None:
    priced = price_at(planned(sql, ONE, **bounds), Fraction(1), Fraction(1, 10**6))
    (said,) = bounds_advice(priced) or [""]
    for name in ("max_groups", "max_rows"):
        assert (f"{name} (--{name.replace('_', '-')})" in said) is (name in may_cut)
    assert ("no error bar says how much is missing" in said) is bool(may_cut)
    assert words


def test_by_default_nobody_is_in_more_groups_than_they_have_rows() -> None:
    several = f"max_groups = 5\n{ONE}"
    assert planned(BY_ZIP, several, kept=1).measure.max_groups == 1
    assert planned(BY_ZIP, several, kept=4).measure.max_groups == 4
    assert planned(BY_ZIP, several).measure.max_groups == 5
    assert planned(BY_ZIP, several, kept=1, groups=3).measure.max_groups == 3  # as it was asked


def test_rows_that_are_people_have_no_bounds() -> None:
    made = planned(BY_ZIP, ONE.replace('unit = "who"', 'unit = "row"'))
    assert bounds_text(made) == "each row counts as one person"
    assert bounds_of(made).may_cut == ()


@given(
    groups=st.integers(1, 7),
    rows=st.integers(1, 6),
    more=st.integers(0, 4),
    sql=st.sampled_from([BY_ZIP, PEOPLE_BY_ZIP, "SELECT COUNT(*) FROM t"]),
)
def test_a_bound_can_cut_if_and_only_if_some_table_is_cut(
    groups: int, rows: int, more: int, sql: str
) -> None:
    """Of all that a person's kept rows may be, by brute force: rows of each of the groups."""
    kept = rows + more
    made = planned(sql, groups=groups, rows=rows, kept=kept)
    cells = 5 if "GROUP" in sql else 1
    of_people = "DISTINCT" in sql
    tables = [(in_one, of) for of in range(1, cells + 1) for in_one in range(1, kept // of + 1)]
    few = made.measure.max_groups
    cut_by_groups = any(of > few for _, of in tables)
    cut_by_rows = any(in_one > rows for in_one, _ in tables) and not of_people
    names = (("max_groups", cut_by_groups), ("max_rows", cut_by_rows))
    assert bounds_of(made).may_cut == tuple(name for name, is_cut in names if is_cut)


# --- GROUP BY of whole numbers between public bounds ---------------------------------------------

COUNTS = ["COUNT(*)", "COUNT(*), SUM(pay)", "COUNT(*), SUM(pay), COUNT(DISTINCT who)"]


@pytest.mark.parametrize("of", COUNTS)
@pytest.mark.parametrize("delta", [Fraction(1, 10**9), Fraction(1, 10**4)])
def test_the_noise_of_public_whole_numbers_is_as_little_as_is_said(
    of: str, delta: Fraction
) -> None:
    private = price_at(planned(f"SELECT age, {of} FROM t GROUP BY age"), Fraction(1), delta)
    public = price_at(
        planned(f"SELECT FLOOR(age) AS years, {of} FROM t GROUP BY years"), Fraction(1), delta
    )
    (said,) = [line for line in bounds_advice(private) if line.startswith("GROUP BY")]
    assert said.startswith("GROUP BY FLOOR(age) instead of age shows all 111 groups, with ")
    share = {0: "half the noise", 1: "about 67 % of the noise", 2: "about 75 % of the noise"}
    assert share[of.count(",")] in said
    ratios = [
        new.std() / old.std()
        for new, old in zip(public.noises, private.noises, strict=True)
        if isinstance(new, Noise) and isinstance(old, Noise)
    ]
    wanted = (of.count(",") + 1) / (of.count(",") + 2)
    assert ratios == pytest.approx([wanted] * len(ratios), rel=0.05)
    assert public.plan.measure.cells == 111
    assert not any(line.startswith("GROUP BY") for line in bounds_advice(public))


@pytest.mark.parametrize(
    "sql",
    [
        BY_ZIP,
        "SELECT free, COUNT(*) FROM t GROUP BY free",  # no bounds
        "SELECT pay, COUNT(*) FROM t GROUP BY pay",  # no whole numbers
        "SELECT age, free, COUNT(*) FROM t GROUP BY age, free",
        "SELECT wide, COUNT(*) FROM t GROUP BY wide",  # too many to be shown
        "SELECT COUNT(*) FROM t",
    ],
)
def test_nothing_is_said_where_the_keys_cannot_all_be_shown(sql: str) -> None:
    wide = ONE + '[columns.wide]\ntype = "integer"\nlower = 0\nupper = 5000\n'
    said = bounds_advice(price_at(planned(sql, wide), Fraction(1), Fraction(1, 10**6)))
    assert not any(line.startswith("GROUP BY") for line in said)


def test_a_column_whose_name_is_no_word_is_quoted() -> None:
    spaced = ONE + '[columns."Age at visit"]\ntype = "integer"\nlower = 0\nupper = 9\n'
    made = planned('SELECT "Age at visit", COUNT(*) FROM t GROUP BY "Age at visit"', spaced)
    said = bounds_advice(price_at(made, Fraction(1), Fraction(1, 10**6)))
    assert any(line.startswith('GROUP BY FLOOR("Age at visit") instead') for line in said)


def test_of_appended_data_earlier_rows_count_first() -> None:
    later = ONE.replace("[columns.zip]", "appended = true\n[columns.zip]", 1)
    assert bounds_text(planned("SELECT COUNT(*) FROM t", later)) == (
        "at most 1 row of a person count, those of earlier versions first, otherwise chosen at "
        "random"
    )
    assert "chosen" not in bounds_text(planned("SELECT COUNT(DISTINCT who) FROM t", later))
