"""SQL becomes a question by an allow-list; everything else is refused with a code."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.core.question import (
    Aggregate,
    All,
    Among,
    AnyOf,
    Compare,
    Constant,
    IsNull,
    Not,
    Output,
    Question,
)
from sfumato.core.refusal import Refused
from sfumato.plan.read_sql import MAX_TEXT, read_sql


def number(value: int | Fraction) -> Constant:
    return Constant.of(value)


def where(condition: str) -> object:
    return read_sql(f"SELECT COUNT(*) FROM clinic WHERE {condition}", "clinic").where


@pytest.mark.parametrize(
    ("text", "outputs", "groups"),
    [
        ("SELECT COUNT(*) FROM clinic", [("count", Aggregate("count"))], ()),
        ("select count(*) as n from CLINIC;", [("n", Aggregate("count"))], ()),
        ('SELECT COUNT(age) FROM "clinic"', [("count_age", Aggregate("count_values", "age"))], ()),
        (
            "SELECT COUNT(DISTINCT patient_id) FROM clinic AS c",
            [("people", Aggregate("count_people", "patient_id"))],
            (),
        ),
        (
            "SELECT zip, AVG(salary), SUM(c.salary) AS total FROM clinic c GROUP BY zip",
            [
                ("zip", "zip"),
                ("avg_salary", Aggregate("mean", "salary")),
                ("total", Aggregate("sum", "salary")),
            ],
            ("zip",),
        ),
        (
            "SELECT zip AS z, sex, COUNT(*), COUNT(*) FROM clinic GROUP BY z, 2",
            [
                ("z", "zip"),
                ("sex", "sex"),
                ("count", Aggregate("count")),
                ("count_2", Aggregate("count")),
            ],
            ("zip", "sex"),
        ),
    ],
)
def test_a_question_is_read(
    text: str, outputs: list[tuple[str, Aggregate | str]], groups: tuple[str, ...]
) -> None:
    expected = Question("clinic", tuple(Output(n, of) for n, of in outputs), None, groups)
    assert read_sql(text, "clinic") == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("age >= 65", Compare("age", ">=", number(65))),
        ("65 <= age", Compare("age", ">=", number(65))),
        ("age <> -2.5", Compare("age", "!=", number(Fraction(-5, 2)))),
        ("age = 1e3", Compare("age", "=", number(1000))),
        ("sick", Compare("sick", "=", Constant.of(True))),
        ("NOT sick", Not(Compare("sick", "=", Constant.of(True)))),
        ("sick = FALSE", Compare("sick", "=", Constant.of(False))),
        ("zip IN ('a', 'b')", Among("zip", (Constant.of("a"), Constant.of("b")))),
        ("zip NOT IN ('a')", Not(Among("zip", (Constant.of("a"),)))),
        ("zip IS NULL", IsNull("zip")),
        ("zip IS NOT NULL", Not(IsNull("zip"))),
        ("day > DATE '2026-01-02'", Compare("day", ">", Constant("text", "2026-01-02"))),
        (
            "age BETWEEN 1 AND 2",
            All((Compare("age", ">=", number(1)), Compare("age", "<=", number(2)))),
        ),
        (
            "(a = 1 AND b = 2) OR c = 3",
            AnyOf(
                (
                    All((Compare("a", "=", number(1)), Compare("b", "=", number(2)))),
                    Compare("c", "=", number(3)),
                )
            ),
        ),
        (
            "name = 'O''Brien; DROP TABLE x'",
            Compare("name", "=", Constant.of("O'Brien; DROP TABLE x")),
        ),
    ],
)
def test_a_condition_is_read(condition: str, expected: object) -> None:
    assert where(condition) == expected


OUTSIDE = [
    "SELECT * FROM clinic",
    "SELECT clinic.* FROM clinic",
    "SELECT age + 1 FROM clinic",
    "SELECT COUNT(*) + 1 FROM clinic",
    "SELECT SUM(age * 2) FROM clinic",
    "SELECT SUM(DISTINCT age) FROM clinic",
    "SELECT AVG(DISTINCT age) FROM clinic",
    "SELECT COUNT(DISTINCT a, b) FROM clinic",
    "SELECT COUNT(*) FILTER (WHERE age > 3) FROM clinic",
    "SELECT COUNT(*) OVER () FROM clinic",
    "SELECT SUM(age) OVER (PARTITION BY zip) FROM clinic",
    "SELECT DISTINCT zip, COUNT(*) FROM clinic GROUP BY zip",
    "SELECT COUNT(*) FROM clinic HAVING COUNT(*) > 3",
    "SELECT COUNT(*) FROM clinic ORDER BY 1",
    "SELECT COUNT(*) FROM clinic LIMIT 1",
    "SELECT COUNT(*) FROM clinic OFFSET 1",
    "SELECT COUNT(*) FROM clinic TABLESAMPLE 10%",
    "SELECT COUNT(*) FROM clinic USING SAMPLE 10",
    "SELECT COUNT(*) FROM clinic QUALIFY TRUE",
    "SELECT COUNT(*) FROM clinic, clinic c2",
    "SELECT COUNT(*) FROM clinic JOIN clinic c2 ON TRUE",
    "SELECT COUNT(*) FROM clinic CROSS JOIN range(3)",
    "SELECT COUNT(*) FROM (SELECT * FROM clinic)",
    "SELECT COUNT(*) FROM clinic PIVOT (COUNT(*) FOR zip IN ('a'))",
    "SELECT COUNT(*) FROM main.clinic",
    "SELECT COUNT(*) FROM vault.main.clinic",
    "SELECT COUNT(*) FROM other",
    "SELECT COUNT(*) FROM read_csv('/etc/passwd')",
    "SELECT COUNT(*) FROM '/etc/passwd'",
    "SELECT COUNT(*) FROM glob('*')",
    "SELECT COUNT(*) FROM duckdb_tables()",
    "SELECT COUNT(*) FROM information_schema.tables",
    "SELECT COUNT(*) FROM query('select 1')",
    "SELECT COUNT(*) FROM clinic AS c(a, b)",
    "SELECT COUNT(other.age) FROM clinic AS c",
    "WITH x AS (SELECT 1) SELECT COUNT(*) FROM clinic",
    "WITH a AS (DELETE FROM clinic RETURNING *) SELECT count(*) FROM a",
    "SELECT COUNT(*)",
    "SELECT 1",
    "SELECT error('x')",
    "SELECT COUNT(*) FROM clinic WHERE age > (SELECT 1)",
    "SELECT COUNT(*) FROM clinic WHERE age IN (SELECT 1)",
    "SELECT COUNT(*) FROM clinic WHERE EXISTS (SELECT 1)",
    "SELECT COUNT(*) FROM clinic WHERE age > salary",
    "SELECT COUNT(*) FROM clinic WHERE age + 1 > 3",
    "SELECT COUNT(*) FROM clinic WHERE CAST(name AS INT) = 1",
    "SELECT COUNT(*) FROM clinic WHERE name::INT = 1",
    "SELECT COUNT(*) FROM clinic WHERE age = '1'::INT",
    "SELECT COUNT(*) FROM clinic WHERE name LIKE 'a%'",
    "SELECT COUNT(*) FROM clinic WHERE name SIMILAR TO 'a'",
    "SELECT COUNT(*) FROM clinic WHERE regexp_matches(name, '(a+)+$')",
    "SELECT COUNT(*) FROM clinic WHERE length(repeat('x', 1000000000)) > 1",
    "SELECT COUNT(*) FROM clinic WHERE CASE WHEN age = 1 THEN error('x') END",
    "SELECT COUNT(*) FROM clinic WHERE age IS TRUE",
    "SELECT COUNT(*) FROM clinic WHERE age IS DISTINCT FROM 1",
    "SELECT COUNT(*) FROM clinic WHERE age IN (1, age)",
    "SELECT COUNT(*) FROM clinic WHERE 1 = 1",
    "SELECT COUNT(*) FROM clinic WHERE TRUE",
    "SELECT COUNT(*) FROM clinic WHERE age = NULL",
    "SELECT COUNT(*) FROM clinic WHERE age = ?",
    "SELECT COUNT(*) FROM clinic WHERE age = $1",
    "SELECT COUNT(*) FROM clinic WHERE age = CURRENT_DATE",
    "SELECT COUNT(*) FROM clinic WHERE getenv('HOME') = 'x'",
    "SELECT zip, COUNT(*) FROM clinic GROUP BY ALL",
    "SELECT zip, COUNT(*) FROM clinic GROUP BY ROLLUP (zip)",
    "SELECT zip, COUNT(*) FROM clinic GROUP BY CUBE (zip)",
    "SELECT zip, COUNT(*) FROM clinic GROUP BY GROUPING SETS ((zip), ())",
    "SELECT zip, COUNT(*) FROM clinic GROUP BY lower(zip)",
    "SELECT zip, COUNT(*) FROM clinic GROUP BY 9",
    "SELECT COUNT(*) INTO x FROM clinic",
    "SELECT COUNT(*) FROM clinic FOR UPDATE",
    "SELECT COUNT(*) FROM clinic UNION SELECT COUNT(*) FROM clinic",
    "SELECT COUNT(*) FROM clinic; SELECT COUNT(*) FROM clinic",
    "SELECT COUNT(*) FROM clinic; DROP TABLE clinic",
    "INSERT INTO clinic VALUES (1)",
    "UPDATE clinic SET age = 1",
    "DELETE FROM clinic",
    "DROP TABLE clinic",
    "CREATE TABLE x AS SELECT * FROM clinic",
    "COPY clinic TO '/tmp/x'",
    "ATTACH '/tmp/x'",
    "DETACH x",
    "INSTALL httpfs",
    "LOAD httpfs",
    "PRAGMA database_list",
    "SET memory_limit = '1GB'",
    "RESET memory_limit",
    "CALL pragma_version()",
    "EXPLAIN ANALYZE SELECT COUNT(*) FROM clinic",
    "DESCRIBE clinic",
    "SUMMARIZE clinic",
    "SHOW TABLES",
    "EXPORT DATABASE '/tmp/x'",
    "VACUUM",
    "FROM clinic",
    "TABLE clinic",
    "VALUES (1)",
    "",
    ";",
    "--",
    "/* */",
    "SELECT",
    "SELECT COUNT(* FROM clinic",
    "\x00",
    "SELECT COUNT(*) FROM clinic WHERE 'a",
    "🙂",
    "SELECT " + "(" * 21 + "COUNT(*)" + ")" * 21 + " FROM clinic",
    "SELECT COUNT(*) FROM clinic WHERE " + "NOT " * 500 + "sick",
    "SELECT COUNT(*) FROM clinic WHERE " + "- " * 900 + "1 = age",
    "SELECT COUNT(*) FROM clinic WHERE age IN (" + ",".join("1" * 501) + ")",
    "SELECT COUNT(*) FROM clinic WHERE age = " + "9" * 400,
    "SELECT COUNT(*) FROM clinic WHERE age = 1e999",
    "SELECT " + "COUNT(*), " * 1900 + "COUNT(*) FROM clinic",
    "SELECT COUNT(*) FROM clinic --" + "x" * MAX_TEXT,
    "SELECT COUNT(*) FROM clinic WHERE " + " OR ".join(["age = 1"] * 700),
]


@pytest.mark.parametrize("text", OUTSIDE)
def test_what_is_outside_the_language_is_refused_with_a_code(text: str) -> None:
    with pytest.raises(Refused) as refused:
        read_sql(text, "clinic")
    assert refused.value.code in {"bad-sql", "not-in-language", "question-too-large", "bad-budget"}
    assert refused.value.next_step


def test_a_refusal_says_where_in_the_text_the_trouble_stands() -> None:
    with pytest.raises(Refused) as refused:
        read_sql("SELECT COUNT(*)\nFROM clinic WHERE lower(zip) = 'a'", "clinic")
    assert (refused.value.facts["line"], refused.value.facts["column"]) == (2, 19)


def test_a_long_chain_of_conditions_is_read_without_deep_recursion() -> None:
    text = " OR ".join(f"age = {n}" for n in range(300))
    found = where(text)
    assert isinstance(found, AnyOf)
    assert found.predicates[0] == Compare("age", "=", number(0))
    assert found.predicates[-1] == Compare("age", "=", number(299))


WORDS = st.sampled_from(
    (
        "SELECT COUNT ( * ) FROM clinic WHERE GROUP BY age zip , = < 3 'a' AND OR NOT IN IS NULL "
        "AS x SUM AVG DISTINCT ; -- /* */ \" ' JOIN ON UNION WITH CASE WHEN END :: [ ] { } $1 ? % ."
    ).split(" ")
)


@settings(max_examples=400, deadline=None)
@given(st.lists(WORDS, max_size=30))
def test_random_words_are_read_or_refused_and_nothing_else(words: list[str]) -> None:
    try:
        question = read_sql("SELECT COUNT(*) FROM clinic " + " ".join(words), "clinic")
    except Refused:
        return
    assert question.data_set == "clinic"
