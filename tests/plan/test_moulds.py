"""A text that is read by another's mould becomes the very question that it is read as alone."""

from __future__ import annotations

import random
import re
import tracemalloc

import pytest

from plan.test_attacks_sql import CLINIC, corpus
from sfumato.core.question import Question
from sfumato.core.refusal import Refused
from sfumato.plan import sql_moulds
from sfumato.plan.plan import make_plan
from sfumato.plan.read_sql import read_sql
from sfumato.plan.sql_moulds import Moulds

OURS = [
    "SELECT COUNT(*) AS n FROM t WHERE age > 30",
    "SELECT COUNT(*) AS n FROM t WHERE 30 < age AND pay <= 4 OR NOT (age = 12 OR pay != 1)",
    "SELECT COUNT(*) FROM t WHERE age > 10 AND age > 10",
    "SELECT COUNT(*) FROM t WHERE NOT NOT age >= 21",
    "SELECT FLOOR(age / 10) AS k, COUNT(*) FROM t WHERE FLOOR(age / 10) * 10 > 20 GROUP BY 1",
    "SELECT zip, COUNT(*) AS n FROM t WHERE age > 18 GROUP BY zip ORDER BY 2 DESC LIMIT 3",
    "SELECT zip, COUNT(*) AS n FROM t WHERE age > 18 GROUP BY zip HAVING COUNT(*) > 20",
    "SELECT COUNT(*) FILTER (WHERE age > 40) AS old, SUM(age) FROM t WHERE age < 90",
    "SELECT COUNT(*) FROM t WHERE CASE WHEN age > 30 THEN pay ELSE 2 END > 1",
    "SELECT COUNT(*) FROM t WHERE age BETWEEN 10 AND 20 AND pay > 1",
    "SELECT COUNT(*) FROM t WHERE age IN (10, 20) AND pay > 1",
    "SELECT COUNT(*) FROM t WHERE age > -5 AND pay > 1.5 AND age < 007",
    "SELECT COUNT(*) FROM t WHERE age > +5 AND pay > 1e1 AND age * 2 < 80",
    "SELECT COUNT(*) FROM t\nWHERE age > 30\n  AND nope > 12",
    "SELECT COUNT(*) FROM t WHERE zip > 12 AND age > 3",
    "SELECT COUNT(*) FROM t WHERE age > 30 -- of 12\n AND pay > 2",
    "SELECT COUNT(*) FROM t WHERE age > 30 /* 12 */ AND pay > 2",
    "SELECT COUNT(*) FROM t WHERE zip = '10' AND age > 30",
    "SELECT COUNT(*) FROM t WHERE day > '2026-01-10' AND age > 30",
    "SELECT COUNT(*) AS n FROM t WHERE age > 1234567890123456",
    "SELECT COUNT(*) AS n FROM t WHERE age > 10 > 20",
    "SELECT COUNT(*) AS n FROM t WHERE 5 > 3 AND age > 3",
    "SELECT COUNT(*), SUM(m) FROM (SELECT who, MAX(age) AS m FROM t WHERE age > 3 GROUP BY who)"
    " WHERE m > 40",
    "SELECT SUM(CASE WHEN old THEN pay ELSE 0 END) AS s FROM (SELECT age > 30 AS old, pay FROM t)"
    " AS i WHERE old",
    "SELECT COUNT(*) AS n FROM (SELECT age > 30 AS old, pay FROM t) AS i"
    " WHERE old AND (old OR pay > 2)",
    "SELECT SUM(CASE WHEN old THEN 1 ELSE 0 END) AS s FROM (SELECT who, MAX(age) > 30 AS old FROM t"
    " GROUP BY who) WHERE old",
    "WITH a AS (SELECT who, SUM(age) AS s FROM t GROUP BY who HAVING SUM(age) > 30)"
    " SELECT COUNT(*) AS n FROM a JOIN a AS b ON b.who = a.who",
    "SELECT QUANTILE(age, 0.5), ROUND(AVG(age), 2) AS a FROM t WHERE age > 30",
]
TEXTS = [*OURS, *corpus(accepted=True), *corpus(accepted=False)]


def other_numbers(text: str, luck: random.Random) -> str:
    """Return the text with other digits, as many of them."""
    return re.sub(r"[0-9]", lambda _: luck.choice("0123456789"), text)


def outcome(moulds: Moulds | None, text: str) -> object:
    """Return what the text becomes: a question with its places and its plan, or a refusal."""
    try:
        if moulds is None:
            question = read_sql(text, "t", max_groups=2)
        else:
            question = moulds.read(text, "t", 2, None)
    except Refused as refused:
        return refused.code, refused.cause, refused.facts
    return question, question.places, planned(question)


def planned(question: Question) -> object:
    try:
        return make_plan(CLINIC, question).canonical()
    except Refused as refused:
        return refused.code, refused.cause, refused.facts


def test_every_text_is_what_it_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    luck, moulds, filled = random.Random(5), Moulds(), []

    def noted(*values: object) -> Question:
        filled.append(values)
        return plain(*values)  # type: ignore[arg-type]  # passed on as they came

    plain = sql_moulds._filled
    monkeypatch.setattr(sql_moulds, "_filled", noted)
    for text in TEXTS:
        others = [other_numbers(text, luck) for _ in range(3 if text in OURS else 1)]
        for one in (text, *others, text):
            assert outcome(moulds, one) == outcome(None, one), one
    assert len(filled) > 50


@pytest.mark.parametrize("text", OURS)
def test_only_its_own_numbers_are_given_to_a_text(text: str) -> None:
    """Each number by itself, so that none can hide behind another that has changed too."""
    for number in re.finditer(r"(?<![\d.-])\d+", text):
        moulds, long = Moulds(), len(number.group())
        for digits in ("1" * long, "7" * long, "9" * long, "8" * (long + 3), "6"):
            other = text[: number.start()] + digits + text[number.end() :]
            assert outcome(moulds, other) == outcome(None, other), other


def test_a_mould_is_of_one_data_set_and_bounds_are_the_askers() -> None:
    moulds, text = Moulds(), "SELECT COUNT(*) FROM t WHERE age > {}"
    for name, number, groups, rows in (
        ("t", 10, None, None), ("t", 20, 3, None), ("u", 30, None, 4), ("t", 40, None, None),
    ):  # fmt: skip
        alone = outcome_in(name, text.format(number), groups, rows)
        try:
            found: object = moulds.read(text.format(number), name, groups, rows)
        except Refused as refused:
            found = refused.cause
        assert found == alone


def outcome_in(name: str, text: str, groups: int | None, rows: int | None) -> object:
    try:
        return read_sql(text, name, max_groups=groups, max_rows=rows)
    except Refused as refused:
        return refused.cause


def test_what_is_refused_leaves_no_mould_and_what_is_kept_is_bounded() -> None:
    moulds = Moulds(64 * 1024)
    with pytest.raises(Refused):
        moulds.read("SELECT age FROM t WHERE age > 10 AND", "t", None, None)
    assert moulds._moulds.size() == 0
    for width in range(300):
        moulds.read(f"SELECT COUNT(*) AS n{width} FROM t WHERE age > 10", "t", None, None)
    assert 0 < moulds._moulds.size() <= 64 * 1024
    assert moulds._free.size() <= 16 * 1024


def test_a_text_that_is_too_long_costs_no_more_than_its_refusal() -> None:
    moulds, text = Moulds(), "1 " * 200_000
    tracemalloc.start()
    try:
        with pytest.raises(Refused, match="16 KB"):
            moulds.read(text, "t", None, None)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 4 * len(text)
