"""Golden pairs: a measure and the SQL printed for it; the SQL is run as well as compared."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import duckdb
import pytest

from sfumato.core.measure import KeyColumn, Measure, Tally
from sfumato.core.question import (
    OPERATORS,
    All,
    Among,
    AnyOf,
    Compare,
    Constant,
    IsNull,
    Not,
    Predicate,
)
from sfumato.core.refusal import Bug
from sfumato.plan.lower import Secret, lower

ROWS = Measure(None, (), (Tally("rows"),), False, 1, 1)
PEOPLE = Measure(None, (KeyColumn("k1", 3),), (Tally("people"),), True, 1, 2)

# person, person_key, row_key, v0 (steps), v1 (text), k1
TABLE = """
CREATE TABLE "rows" AS SELECT * FROM (VALUES
  (0, 7::UBIGINT, 10::UBIGINT, 5, 'a', 0), (0, 7, 11, NULL, 'b', 0), (0, 7, 12, 3, 'a', 1),
  (1, 9, 20, -2, NULL, 2), (1, 9, 21, 4, 'it''s', NULL), (NULL, NULL, 30, 9, 'a', 0)
) t(person, person_key, row_key, v0, v1, k1)
"""


def number(value: object) -> Constant:
    return Constant("number", str(Fraction(str(value))))


def run(measure: Measure) -> list[tuple[int, ...]]:
    statement = lower(measure, "duckdb")
    with duckdb.connect() as connection:
        connection.execute(TABLE)
        parameters = ["salt" if p is Secret.SALT else p for p in statement.parameters]
        return sorted(connection.execute(statement.sql, parameters).fetchall())


GOLDEN = [
    (
        ROWS,
        """\
WITH picked AS (
  SELECT CAST(0 AS BIGINT) AS cell
  FROM "rows"
)
SELECT cell, CAST(count(*) AS BIGINT) AS t0
FROM picked
GROUP BY cell""",
        (),
        [(0, 6)],
    ),
    (
        Measure(
            All((Compare("v1", "=", Constant("text", "a")), Compare("v0", ">", number("5/2")))),
            (KeyColumn("k1", 3), KeyColumn("k0", 2)),
            (Tally("values", "v0"), Tally("sum", "v0", 2, -7)),
            False,
            1,
            1,
        ),
        """\
WITH picked AS (
  SELECT (CAST(k1 AS BIGINT) * 2 + CAST(k0 AS BIGINT)) AS cell, v0
  FROM "rows"
  WHERE k1 IS NOT NULL AND k0 IS NOT NULL AND ((v1 = ?) AND (v0 >= 3))
)
SELECT cell, CAST(count(v0) AS BIGINT) AS t0, \
CAST(CAST(2 AS HUGEINT) * coalesce(sum(v0), 0) + CAST(-7 AS HUGEINT) * count(v0) AS BIGINT) AS t1
FROM picked
GROUP BY cell""",
        ("a",),
        None,
    ),
    (
        Measure(
            Not(IsNull("v1")),
            (KeyColumn("k1", 3),),
            (Tally("rows"), Tally("people"), Tally("values", "v0"), Tally("sum", "v0", 2, -1)),
            True,
            1,
            20,
        ),
        """\
WITH picked AS (
  SELECT person, person_key, row_key, CAST(k1 AS BIGINT) AS cell, v0
  FROM "rows"
  WHERE person IS NOT NULL AND k1 IS NOT NULL AND (NOT (v1 IS NULL))
),
ranked AS (
  SELECT *, row_number() OVER (PARTITION BY person, cell ORDER BY row_key, v0) AS nth
  FROM picked
),
parts AS (
  SELECT person, person_key, cell, count(*) AS n, count(v0) AS n_v0, sum(v0) AS s_v0
  FROM ranked
  WHERE nth <= 20
  GROUP BY person, person_key, cell
),
chosen AS (
  SELECT *, row_number() OVER (PARTITION BY person ORDER BY \
md5_number(? || ':cell:' || CAST(person_key AS VARCHAR) || ':' || CAST(cell AS VARCHAR)) >> 64, \
cell) AS place
  FROM parts
)
SELECT cell, CAST(sum(n) AS BIGINT) AS t0, CAST(count(*) AS BIGINT) AS t1, \
CAST(sum(n_v0) AS BIGINT) AS t2, \
CAST(CAST(2 AS HUGEINT) * coalesce(sum(s_v0), 0) + CAST(-1 AS HUGEINT) * sum(n_v0) AS BIGINT) AS t3
FROM chosen
WHERE place <= 1
GROUP BY cell""",
        (Secret.SALT,),
        [(1, 1, 1, 1, 5)],
    ),
]


@pytest.mark.parametrize(("measure", "sql", "parameters", "rows"), GOLDEN)
def test_a_measure_has_one_text(
    measure: Measure, sql: str, parameters: tuple[object, ...], rows: list[tuple[int, ...]] | None
) -> None:
    statement = lower(measure, "duckdb")
    assert statement.sql == sql
    assert statement.parameters == parameters
    if rows is not None:
        assert run(measure) == rows


def counted(where: Predicate) -> int:
    return sum(row[1] for row in run(replace(ROWS, where=where)))


NUMBERS = [9, 5, 4, 3, -2]  # of v0; one row has none


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("value", ["7/2", "9/2", "-5/2", "-3/2", "4", "-2", "1e30", "-1e30", "5"])
def test_a_comparison_with_any_number_is_exact_and_null_stays_null(
    operator: str, value: str
) -> None:
    bound = Fraction(value)
    true = {
        "=": [v for v in NUMBERS if v == bound], "!=": [v for v in NUMBERS if v != bound],
        "<": [v for v in NUMBERS if v < bound], "<=": [v for v in NUMBERS if v <= bound],
        ">": [v for v in NUMBERS if v > bound], ">=": [v for v in NUMBERS if v >= bound],
    }[operator]  # fmt: skip
    where = next(Compare("v0", o, number(bound)) for o in OPERATORS if o == operator)
    assert counted(where) == len(true)
    assert counted(Not(where)) == len(NUMBERS) - len(true)
    assert counted(IsNull("v0")) == 1


def test_a_list_forgets_what_no_whole_number_can_be() -> None:
    assert counted(Among("v0", (number("9/2"), number(5), number(3)))) == 2
    assert counted(Not(Among("v0", (number("5/2"), number(5))))) == 4
    assert counted(Among("v0", (number("5/2"),))) == 0
    assert counted(Not(Among("v0", (number("5/2"),)))) == len(NUMBERS)


def test_texts_travel_beside_the_statement() -> None:
    nasty = "it's"
    where = AnyOf((Compare("v1", "=", Constant("text", nasty)), IsNull("v1")))
    statement = lower(replace(ROWS, where=where), "duckdb")
    assert nasty not in statement.sql
    assert statement.parameters == (nasty,)
    assert counted(where) == 2


def test_nothing_is_all_of_no_conditions_and_any_of_none() -> None:
    assert (counted(All(())), counted(AnyOf(()))) == (6, 0)


def test_a_person_without_a_name_is_in_no_cell() -> None:
    assert run(replace(PEOPLE, max_groups=3)) == [(0, 1), (1, 1), (2, 1)]


def test_the_secret_order_is_left_out_only_if_nobody_can_have_too_many_cells() -> None:
    assert Secret.SALT in lower(replace(PEOPLE, max_groups=2), "duckdb").parameters
    assert lower(replace(PEOPLE, max_groups=3), "duckdb").parameters == ()


@pytest.mark.parametrize(
    "measure",
    [
        replace(ROWS, tallies=()),
        replace(ROWS, max_rows=0),
        replace(PEOPLE, max_groups=-1),
        replace(ROWS, max_groups=True),
        replace(ROWS, tallies=(Tally("sum", "v0", 1, 0.5),)),  # type: ignore[arg-type]  # a liar
        replace(ROWS, tallies=(Tally("sum", "v0); DROP TABLE x --"),)),
        replace(ROWS, tallies=(Tally("values", "salary"),)),
        replace(ROWS, keys=(KeyColumn("k0 ", 2),)),
        replace(ROWS, keys=(KeyColumn("k0", 0),)),
        replace(ROWS, where=IsNull('v0"')),
        replace(ROWS, where=Compare("v0", "; --", number(1))),  # type: ignore[arg-type]  # a liar
    ],
)
def test_what_is_not_ours_is_never_printed(measure: Measure) -> None:
    with pytest.raises(Bug):
        lower(measure, "duckdb")


def test_no_text_has_a_float_a_volatile_function_or_a_ranking_without_an_order() -> None:
    for measure, *_ in GOLDEN:
        text = lower(measure, "duckdb").sql.lower()
        for word in ("random", "now(", "uuid", "double", "float", "rowid", "/", "any_value"):
            assert word not in text
        assert text.count("over (") == text.count(" order by ")
