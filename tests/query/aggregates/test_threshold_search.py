"""BOUNDS, FIRST_ABOVE and MODE: what is asked of the rows, what it costs, what comes out."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from sfumato import Refused
from sfumato.app.vault import OpenVault
from sfumato.dp.mechanisms.bounds_search import bin_starts, search_bounds
from sfumato.dp.mechanisms.exponential import rate_for
from sfumato.dp.mechanisms.permute_and_flip import permute_and_flip
from sfumato.dp.mechanisms.private_choice import FALSE_POSITIVE, PrivateChoice
from sfumato.dp.mechanisms.sparse_vector import first_above, sparse_vector_for_rows
from sfumato.query.plan import Plan, make_plan
from sfumato.query.price import price_at
from sfumato.query.sql.select import read_sql
from support.engine_rows import card_of, worth
from support.seeded_dice import SeededDice
from support.small_vaults import open_with, write_csv
from support.value_bins import bins_of

CARD = card_of(
    "who",
    {
        "free": {"type": "number", "step": Fraction(1, 10)},
        "pay": {"type": "integer", "lower": -100, "upper": 1000},
        "zip": {"type": "text", "keys": ["a", "b", "c"]},
        "name": {"type": "text"},
        "day": {"type": "date", "lower": "2026-01-01", "upper": "2026-12-31"},
    },
    max_groups=2,
    max_rows=3,
)


def plan(sql: str) -> Plan:
    return make_plan(CARD, read_sql(sql, "some"))


def chooser(sql: str, epsilon: int = 6) -> PrivateChoice:
    (found,) = price_at(plan(sql), Fraction(epsilon), Fraction(0)).noises
    assert isinstance(found, PrivateChoice)
    return found


# --- what is counted -----------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["free", "pay"])
def test_a_value_is_counted_between_its_powers_of_two(column: str) -> None:
    made = plan(f"SELECT BOUNDS({column}) FROM some")
    (tally,) = made.measure.tallies
    digits = tally.size // 2
    ends = [0, 1, -1, 2, 3, -2, -3, 4, 7, 8, 100, -100, 1000, 2**52, -(2**52)]
    dice = Random(3)
    values = ends + [dice.randint(-(2**40), 2**40) >> dice.randrange(40) for _ in range(200)]
    if column == "pay":
        values = [v for v in values if -100 <= v <= 1000]
    assert tally.value is not None
    place = 0 if column == "free" else 1
    found = [worth(tally.value, {f"v{place}": value}) for value in values]
    assert found == bins_of(np.array(values), digits).tolist()
    assert worth(tally.value, {f"v{place}": None}) is None
    assert bin_starts(digits)[0] <= -(2 ** (digits - 1))


def test_the_bins_reach_as_far_as_values_can() -> None:
    assert plan("SELECT BOUNDS(pay) FROM some").measure.tallies[0].size == 2 * 10 + 1
    assert plan("SELECT BOUNDS(free) FROM some").measure.tallies[0].size == 2 * 53 + 1


# --- what it costs, and which mechanism has the last word ----------------------------------------


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("SELECT BOUNDS(free) FROM some", "bounds"),
        ("SELECT FIRST_ABOVE(zip, 7) FROM some", "above"),
        ("SELECT MODE(zip) FROM some", "top"),
    ],
)
def test_each_group_of_a_person_has_its_share_of_the_price(sql: str, kind: str) -> None:
    alone, grouped = chooser(sql), chooser(sql + " GROUP BY zip")
    assert (alone.kind, alone.rows) == (kind, 3)
    assert alone.epsilon == 6
    assert grouped.epsilon == 3  # a person is in two groups


def test_the_first_above_is_found_by_noisy_counts_that_pay_for_all_rows_of_a_person() -> None:
    made = chooser("SELECT FIRST_ABOVE(zip, 7) FROM some")
    counts = np.array([[5, 7, 9], [0, 0, 0], [20, 1, 1]], dtype=np.int64)
    watch = sparse_vector_for_rows(Fraction(6), 1, 3)
    for seed in range(50):
        dice = SeededDice(seed)
        expected = [np.flatnonzero(first_above(row, 7, watch, dice)) for row in counts]
        found = made.choose(counts, SeededDice(seed))
        assert found.tolist() == [[e[0] if e.size else -1] for e in expected]


def test_bounds_are_those_of_the_noisy_search() -> None:
    made = chooser("SELECT BOUNDS(pay) FROM some")
    counts = np.zeros((3, 21), dtype=np.int64)
    counts[0, 12:16] = 300
    counts[1, 9:14] = 4  # as many as noise may be: how wide it is decides
    for seed in range(50):
        dice, expected = SeededDice(seed), []
        for row in counts:
            one = search_bounds(
                row, epsilon=Fraction(6), rows=3, false_positive=FALSE_POSITIVE, dice=dice
            )
            expected.append([0, 0, 0] if one is None else [1, *one])
        assert made.choose(counts, SeededDice(seed)).tolist() == expected
    assert expected[0] == [1, 2, 32]


def test_one_name_is_found_by_permute_and_flip() -> None:
    made = chooser("SELECT MODE(zip) FROM some", epsilon=1)
    counts = np.array([[5, 7, 9], [3, 4, 3]], dtype=np.int64)  # near enough for chance to decide
    rate = rate_for(Fraction(1), 3, monotone=True)
    for seed in range(50):
        dice = SeededDice(seed)
        expected = [[permute_and_flip(row, rate, dice)] for row in counts]
        assert made.choose(counts, SeededDice(seed)).tolist() == expected
    assert made.as_json()["kind"] == "permute-and-flip"
    assert chooser("SELECT APPROX_TOP_K(zip, 2) FROM some").as_json()["kind"] == (
        "exponential mechanism"
    )


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT BOUNDS(name) FROM some", "type-mismatch"),
        ("SELECT BOUNDS(day) FROM some", "type-mismatch"),
        ("SELECT BOUNDS(free, pay) FROM some", "not-in-language"),
        ("SELECT BOUNDS(*) FROM some", "not-in-language"),
        ("SELECT BOUNDS() FROM some", "not-in-language"),
        ("SELECT FIRST_ABOVE(name, 5) FROM some", "keys-needed"),
        ("SELECT FIRST_ABOVE(zip) FROM some", "not-in-language"),
        ("SELECT FIRST_ABOVE(zip, 0) FROM some", "not-in-language"),
        ("SELECT FIRST_ABOVE(zip, 1.5) FROM some", "not-in-language"),
        ("SELECT FIRST_ABOVE(zip, 2000000) FROM some", "not-in-language"),
        ("SELECT FIRST_ABOVE(zip, pay) FROM some", "not-in-language"),
        ("SELECT FIRST_ABOVE(zip, 5) AS f FROM some HAVING f = 'a'", "type-mismatch"),
        ("SELECT BOUNDS(free) AS b FROM some HAVING b > 1", "type-mismatch"),
        ("SELECT SUM(BOUNDS(free)) FROM some", "not-in-language"),
        ("SELECT first_below(zip, 5) FROM some", "not-in-language"),
        ("SELECT bounds(free) OVER () FROM some", "not-in-language"),
    ],
)
def test_what_is_no_search_is_refused(sql: str, code: str) -> None:
    with pytest.raises(Refused) as refused:
        price_at(plan(sql), Fraction(1), Fraction(0))
    assert refused.value.code == code


# --- from end to end -----------------------------------------------------------------------------

TEXT = """
unit = "who"
budget = { epsilon = 1000 }
limits = { rows = 100000, rows_per_person = 20 }
[columns.free]
type = "number"
step = 0.5
[columns.day]
type = "date"
lower = 2026-01-01
upper = 2026-12-31
"""


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    folder, dice = tmp_path_factory.mktemp("search"), Random(1)
    rows = [
        (f"p{i}", dice.randint(90, 400) / 2, f"2026-{1 + i % 5 * (i % 3 > 0):02d}-10")
        for i in range(600)
    ]
    source = write_csv(folder / "s.csv", ("who", "free", "day"), rows)
    with open_with(folder, "some", source, TEXT) as made:
        yield made


def test_bounds_of_a_column_without_any_are_found(vault: OpenVault) -> None:
    found = vault["some"].ask("SELECT BOUNDS(free) FROM some", epsilon=20)
    assert found.value == [32, 256]  # 45 to 200, in powers of two halves
    assert vault["some"].bounds("free").ask(epsilon=20).value == [32, 256]
    assert found.receipt["mechanism"] == "bound search"


def test_the_first_busy_month_is_found(vault: OpenVault) -> None:
    """January has 280 rows, February and later 80 each."""
    month = "date_trunc('month', day)"
    asked = vault["some"].ask(f"SELECT FIRST_ABOVE({month}, 150) FROM some", epsilon=50)
    assert asked.value == "2026-01-01"
    later = f"SELECT FIRST_ABOVE({month}, 50) FROM some WHERE day > '2026-01-31'"
    assert vault["some"].ask(later, epsilon=50).value == "2026-02-01"
    never = vault["some"].ask(f"SELECT FIRST_ABOVE({month}, 900) FROM some", epsilon=50)
    assert never.value is None
    assert repr(never)
