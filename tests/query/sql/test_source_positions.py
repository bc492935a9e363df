"""A refusal of SQL says where in the text the part stands that it is about, card or no card."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from sfumato.dp.refusal import Refused
from sfumato.query.model import Query, query_json
from sfumato.query.query_from_json import read_query
from sfumato.query.request import Request, priced_request
from sfumato.query.sql.select import read_sql
from sfumato.vault.card.data_card import Card, read_card

HERE = "¦"  # stands before the letter that the refusal has to name
CLINIC: Mapping[str, Any] = {
    "unit": "patient",
    "budget": {"epsilon": 5, "delta": 1e-6},
    "limits": {"rows": 1000, "rows_per_person": 10},
    "columns": {
        "age": {"type": "integer", "lower": 0, "upper": 120},
        "pay": {"type": "number"},
        "zip": {"type": "text", "keys": ["a", "b"]},
        "note": {"type": "text"},
        "day": {"type": "date"},
        "sick": {"type": "boolean"},
        "two words": {"type": "integer", "lower": 0, "upper": 9},
        "far": {"type": "integer", "lower": 0, "upper": 10**15},
    },
    "tables": {
        "visits": {
            "limits": {"rows": 1000, "rows_per_person": 10},
            "unit": "patient",
            "columns": {
                "cost": {"type": "integer", "lower": 0, "upper": 9},
                "age": {"type": "text"},
            },
        },
        "places": {"public": True, "key": "zip", "columns": {"zip": {"type": "text"}}},
    },
}
CARD = read_card("clinic", CLINIC)
PLACED = (
    # what is called by its table, where tables of people stand beside others
    ("not-in-language", "SELECT p.¦zip, COUNT(*) FROM (SELECT patient, MAX(zip) AS zip FROM clinic"
                        " GROUP BY patient) c JOIN places p USING (zip)"),
    ("not-in-language", "SELECT COUNT(*) AS k, v.¦n FROM (SELECT patient, COUNT(*) AS n FROM clinic"
                        " GROUP BY patient) c JOIN (SELECT patient, COUNT(*) AS n FROM visits"
                        " GROUP BY patient) v USING (patient)"),
    # no such column, wherever it stands
    ("unknown-column", "SELECT COUNT(*), SUM(¦salary) FROM clinic"),
    ("unknown-column", "SELECT COUNT(*) FROM clinic\nWHERE age > 3 AND ¦salary > 2"),
    ("unknown-column", "SELECT zip, COUNT(*)\nFROM clinic\nGROUP BY zip, ¦city"),
    ("unknown-column", "SELECT AVG(CASE WHEN sick THEN age ELSE ¦height END) FROM clinic"),
    ("unknown-column", "SELECT COUNT(*) FILTER (WHERE ¦height > 2) FROM clinic"),
    ("unknown-column", 'SELECT COUNT(*), AVG(¦"three words") FROM clinic'),
    ("unknown-column", "SELECT AVG(c.age) FROM clinic c JOIN visits v ON c.patient = v.patient"
                       " WHERE v.cost > 1 AND v.¦paid > 2"),
    ("unknown-column", "SELECT SUM(¦age) FROM clinic JOIN visits v ON clinic.patient = v.patient"),
    ("unknown-column", "SELECT AVG(n), SUM(¦m) FROM (SELECT patient, COUNT(*) AS n FROM clinic"
                       " GROUP BY patient)"),
    ("unknown-column", "SELECT AVG(n) FROM (SELECT patient, SUM(¦salary) AS n FROM clinic"
                       " GROUP BY patient) WHERE n > 2"),
    ("unknown-column", "SELECT AVG(n) FROM (SELECT patient, COUNT(*) AS n FROM clinic"
                       " WHERE ¦height > 2 GROUP BY patient)"),
    ("unknown-column", "SELECT AVG(n) FROM (SELECT patient, MAX(age) AS n FROM clinic GROUP BY"
                       " patient) a JOIN (SELECT patient, MAX(¦zip) AS m FROM visits"
                       " GROUP BY patient) b USING (patient)"),
    ("unknown-column", "SELECT AVG(n) FROM (SELECT patient, MAX(age) AS n FROM clinic GROUP BY"
                       " patient) a JOIN (SELECT patient, COUNT(*) AS m FROM visits"
                       " WHERE ¦paid > 2 GROUP BY patient) b USING (patient)"),
    ("type-mismatch", "SELECT AVG(n) FROM (SELECT patient, MAX(age) AS n FROM clinic GROUP BY"
                      " patient) a JOIN (SELECT patient, ¦SUM(age) AS m FROM visits"
                      " GROUP BY patient) b USING (patient)"),
    ("not-in-language", "SELECT AVG(n) FROM (SELECT patient, COUNT(*) AS n FROM clinic GROUP BY"
                        " patient) a JOIN (SELECT ¦cost, COUNT(*) AS m FROM visits"
                        " GROUP BY cost) b ON a.patient = b.cost"),
    ("unknown-data-set", "SELECT AVG(n) FROM (SELECT patient, COUNT(*) AS n FROM clinic GROUP BY"
                         " patient) a JOIN (SELECT patient, COUNT(*) AS m FROM ¦drugs"
                         " GROUP BY patient) b USING (patient)"),
    ("unknown-data-set", "SELECT AVG(age) FROM clinic JOIN ¦drugs d ON clinic.patient = d.patient"),
    ("unknown-data-set", "SELECT COUNT(*) FROM clinic JOIN ¦drugs d ON clinic.patient = d.patient"),
    # another type than it needs
    ("type-mismatch", "SELECT COUNT(*), ¦SUM(zip) FROM clinic"),
    ("type-mismatch", "SELECT AVG(age),\n  ¦AVG(sick)\nFROM clinic"),
    ("type-mismatch", "SELECT SUM(¦age + zip) FROM clinic"),
    ("type-mismatch", "SELECT COUNT(*) FROM clinic WHERE age = 1 AND ¦zip > 'a'"),
    ("type-mismatch", "SELECT COUNT(*) FROM clinic WHERE ¦age = 'young'"),
    ("type-mismatch", "SELECT COUNT(*) FROM clinic WHERE sick OR ¦age LIKE 'x%'"),
    ("type-mismatch", "SELECT COUNT(*) FROM clinic WHERE ¦day = '2026-13-01'"),
    ("type-mismatch", "SELECT COUNT(*) FROM clinic GROUP BY ¦date_trunc('month', age)"),
    ("type-mismatch", "SELECT zip, COUNT(*) AS n FROM clinic GROUP BY zip HAVING ¦n > 'x'"),
    ("type-mismatch", "SELECT SUM(¦age / 0) FROM clinic"),
    ("type-mismatch", "SELECT AVG(n) FROM (SELECT patient, ¦SUM(note) AS n FROM clinic"
                      " GROUP BY patient)"),
    # no bounds, no keys
    ("no-bounds", "SELECT COUNT(*), AVG(age), ¦SUM(pay) FROM clinic"),
    ("no-bounds", "SELECT AVG(age), ¦MEDIAN(pay) FROM clinic"),
    ("no-bounds", "SELECT AVG(n) FROM (SELECT patient, ¦SUM(pay) AS n FROM clinic"
                  " GROUP BY patient)"),
    ("keys-needed", "SELECT MODE(zip), ¦MODE(note) FROM clinic"),
    ("keys-needed", "SELECT ¦note, COUNT(*) FROM clinic GROUP BY note"),
    ("keys-needed", "SELECT RUNNING_COUNT(*) FROM clinic GROUP BY zip, ¦date_trunc('day', day)"),
    # what does not go together
    ("not-in-language", "SELECT zip, ¦age, COUNT(*) FROM clinic GROUP BY zip"),
    ("not-in-language", "SELECT floor(age / 9) AS ¦far, age, COUNT(*) FROM clinic"
                        " GROUP BY far, age"),
    ("no-aggregate", "SELECT ¦zip FROM clinic GROUP BY zip"),
    ("not-in-language", "SELECT AVG(n) FROM (SELECT ¦sick, COUNT(*) AS n FROM clinic"
                        " GROUP BY sick)"),
    ("not-in-language", "SELECT COUNT(*) FROM ¦places"),
    ("numbers-too-large", "SELECT SUM(age), SUM(¦far * far * far) FROM clinic"),
    # computed columns that are in no grouping
    ("not-in-language", "SELECT COUNT(*), ¦age IS NULL FROM clinic"),
    ("not-in-language", "SELECT COUNT(*) AS k,\n FLOOR(¦age / 10) AS decade FROM clinic"
                        " GROUP BY zip"),
    ("not-in-language", "SELECT SUM(age), CASE WHEN ¦sick THEN 'x' ELSE zip END FROM clinic"),
    ("not-in-language", "SELECT COUNT(*), p.¦zip IS NULL FROM clinic c"
                        " JOIN places p ON c.zip = p.zip"),
    # the whole of it
    ("not-in-language", "SELECT ¦COUNT(*) AS n, AVG(age) AS n FROM clinic"),
    # no card is needed
    ("not-in-language", "SELECT COUNT(*) FROM clinic HAVING ¦age > 3"),
    ("not-in-language", "SELECT COUNT(*), QUANTILE_CONT(¦age,) FROM clinic"),
    ("not-in-language", "\n ¦DETACH clinic"),
    ("bad-sql", "SELECT COUNT(*) FROM clinic;\n¦SELECT AVG(age) FROM clinic"),
    ("question-too-large", "SELECT COUNT(*) FROM clinic WHERE " + "(" * 20 + "¦(sick" + ")" * 21),
    ("question-too-large", "SELECT COUNT(*) FROM clinic WHERE " + "sick\nOR " * 996 + "¦sick"
                           + " OR sick" * 20),
    ("question-too-large", "SELECT COUNT(*) FROM clinic WHERE ¦age IN (" + "1, " * 500 + "1)"),
    ("not-in-language", "SELECT COUNT(*), string_agg(¦note, ',') FROM clinic"),
    ("bad-sql", "SELECT COUNT(*) FROM clinic\nWHERE age ¦>"),
    ("bad-sql", "SELECT COUNT(*\n ¦FROM clinic"),
)  # fmt: skip


def asked(text: str, card: Card = CARD) -> Query:
    question = read_sql(text, card.name)
    priced_request(card, Request(question, epsilon=Fraction(1), delta=Fraction(0)))
    return question


def place_in(text: str) -> tuple[int, int]:
    before = text.partition(HERE)[0].split("\n")
    return len(before), len(before[-1]) + 1


@pytest.mark.parametrize(("code", "text"), PLACED)
def test_a_refusal_says_where_in_the_text(code: str, text: str) -> None:
    line, column = place_in(text)
    with pytest.raises(Refused) as refused:
        asked(text.replace(HERE, ""))
    assert refused.value.code == code
    assert refused.value.facts["place"] == [line, column]
    assert refused.value.cause.endswith(f" (line {line}, column {column}).")
    assert refused.value.cause.count("(line") == 1


@pytest.mark.parametrize(("code", "text"), PLACED)
def test_without_a_text_there_is_no_place(code: str, text: str) -> None:
    try:
        question = read_sql(text.replace(HERE, ""), "clinic")
    except Refused:
        return  # that text is no question
    if question.grouped_aliases:
        return  # it is refused for how the text names what it asks
    again = read_query(query_json(question))
    assert again == question
    with pytest.raises(Refused) as refused:
        priced_request(CARD, Request(again, epsilon=Fraction(1), delta=Fraction(0)))
    assert refused.value.code == code
    assert "place" not in refused.value.facts


def test_a_card_column_keeps_its_name_beside_the_place() -> None:
    with pytest.raises(Refused) as refused:
        asked("SELECT SUM(pay) FROM clinic")
    assert refused.value.facts == {"line": 1, "column": "pay", "place": [1, 8]}


def test_where_a_part_stands_is_no_part_of_the_question() -> None:
    near, far = (read_sql(f"SELECT{s}SUM(age){s}FROM clinic", "clinic") for s in (" ", "\n\n  "))
    assert near == far
    assert hash(near) == hash(far)
    assert repr(near) == repr(far)


def test_what_is_not_about_the_text_has_no_place() -> None:
    question = read_sql("SELECT AVG(age) FROM clinic", "clinic", max_rows=11)
    with pytest.raises(Refused) as refused:
        priced_request(CARD, Request(question, epsilon=Fraction(1)))
    assert "place" not in refused.value.facts
