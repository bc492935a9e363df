"""Texts and JSON that were knocked about: each is planned or refused, soon, and nothing else."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import pytest

from query.sql.test_hostile_queries import CLINIC, LONG, corpus
from query.test_public_lookup_tables import CARD, REFUSED, D, P
from sfumato.dp.refusal import Refused
from sfumato.query.model import Query, query_json
from sfumato.query.plan import make_plan
from sfumato.query.plan_text import plan_text
from sfumato.query.printing.expressions import Dialect
from sfumato.query.printing.statements import lower
from sfumato.query.query_from_json import read_query
from sfumato.query.sql.select import read_sql
from sfumato.vault.card.data_card import Card

DEADLINE_S = 2.0
DIALECTS: tuple[Dialect, ...] = ("duckdb", "postgres", "spark")
WORDS = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "WITH", "AS", "(", ")",
    ",", "*", "COUNT(*)", "SUM(", "AVG(", "DISTINCT", "FILTER (WHERE", "CASE", "WHEN", "THEN",
    "ELSE", "END", "NOT", "AND", "OR", "IN", "BETWEEN", "LIKE", "IS NULL", "=", "<", "/", "-", "+",
    "t", "who", "zip", "pay", "age", "day", "name", "'a'", "''", "1", "0", "-1", "1e9", "0.5",
    "1e40", "NULL", "TRUE", "date_trunc('month',", "LEAST(", "GREATEST(", "COALESCE(", "FLOOR(",
    "[", "]", "{", "}", ";", "--", "/*", "*/", "::", "$1", "?", ":x", "UNION", "JOIN", "OVER (",
    "\u202e", "\u0000", "\ud800", "\U0001f600",
)  # fmt: skip
DEPTHS = [0, 1, -1, 2**31, 2**63, 10**30, 0.5, 1e308, "", "x", "1/0", "-", None, True, [], {}, [[]]]


@dataclass(frozen=True)
class Ground:
    """A card, texts that are asked of it and others that are not, and words to put into them."""

    card: Card
    accepted: tuple[str, ...]
    refused: tuple[str, ...]
    words: tuple[str, ...] = WORDS

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the texts to knock about; most of them are answered as they stand."""
        return self.accepted * max(1, 2 * len(self.refused) // len(self.accepted)) + self.refused


ALONE = Ground(CLINIC, tuple(corpus(accepted=True)), tuple(corpus(accepted=False)))
SEVERAL = Ground(
    CARD,
    (
        f"SELECT z.region, AVG(p.n) FROM {P} JOIN zips z ON z.code = p.code GROUP BY z.region",
        f"SELECT region, AVG(n) FROM {P} LEFT JOIN zips USING (code) GROUP BY region",
        f"SELECT band, SUM(size) FROM {P} JOIN zips z USING (code) JOIN ages a"
        " ON a.years = z.decade GROUP BY band",
        f"SELECT COUNT(*), COUNT(DISTINCT p.who), MEDIAN(size) FROM {P} JOIN {D} USING (who)"
        " LEFT JOIN zips z ON z.code = d.drug LEFT JOIN ages ON p.y = ages.years"
        " WHERE m > 1 AND size IS NOT NULL HAVING COUNT(*) > 3",
        "WITH p AS (SELECT who, ANY_VALUE(zip) AS code, SUM(dose) AS n FROM t JOIN more"
        " USING (who) GROUP BY who HAVING COUNT(*) > 1) SELECT CASE WHEN size > 1 THEN 'x'"
        " ELSE region END AS k, COUNT(*) AS c FROM p JOIN zips USING (code) GROUP BY k"
        " ORDER BY c LIMIT 3",
        "SELECT code, COUNT(*) FROM (SELECT who, MIN(town) AS code FROM t GROUP BY who) p"
        " GROUP BY code",
        "SELECT m.drug, AVG(t.age), SUM(m.dose) FROM t JOIN more m ON m.who = t.who"
        " AND m.dose = t.age WHERE t.pay > 1 GROUP BY m.drug",
        "SELECT region, COUNT(*), SUM(size) FROM t LEFT JOIN zips ON zips.code = t.town"
        " GROUP BY region",
        "SELECT AVG(x.a) FROM (SELECT who, age + 1 AS a FROM t WHERE pay > 0) x LEFT JOIN more"
        " USING (who)",
    ),
    tuple(text.format(P=P) for text, _ in REFUSED),
    (
        *WORDS, "p.", "z.", "d.", "m.", "zips", "ages", "more", "code", "region", "size",
        "decade", "years", "band", "USING (code)", "LEFT JOIN", "ON", P, D, "MAX(town)",
        "ANY_VALUE(", "n", "m", "zips.", '"zips.size"', "ON z.code = p.code", "GROUP BY who",
    ),
)  # fmt: skip


class TooLongError(Exception):
    """An input took longer than any may."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Stop what runs longer, wherever it is."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def refusal_of(act: Callable[[], Query], card: Card) -> Refused | None:
    """Return why there is no plan; whatever else comes than a refusal is an error of ours."""
    refused = None
    try:
        with deadline(DEADLINE_S):
            question = act()
            plan = make_plan(card, question)
            plan.shape()
            asked = replace(
                question, grouped_aliases=frozenset(), unqualified_columns=frozenset()
            )  # not in the shape
            assert read_query(copied(query_json(question))) == asked
            again = make_plan(card, read_query(copied(query_json(plan.question))))
            assert again.canonical() == plan.canonical()
            assert again.measure == plan.measure
            assert plan_text(plan)
            measure = plan.measure if plan.measure.is_public else plan.measure.without_histograms
            assert all(lower(measure, dialect) for dialect in DIALECTS)
    except Refused as found:  # its code is in the table, or it could not have been made
        refused = found
    assert refused is None or refused.next_step
    return refused


def is_planned(act: Callable[[], Query], card: Card = CLINIC) -> bool:
    return refusal_of(act, card) is None


def is_read(text: str, card: Card) -> bool:
    """Say whether the text is planned; a text that is not is told where."""
    refused = refusal_of(lambda: read_sql(text, "t"), card)
    assert refused is None or "place" in refused.facts, refused
    return refused is None


# --- texts ---------------------------------------------------------------------------------------


def mutated(rng: random.Random, text: str, ground: Ground) -> str:
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        text = rng.choice((_letters, _words, _words, _words, _spliced))(rng, text, ground)
    return text


def _letters(rng: random.Random, text: str, _ground: Ground) -> str:
    raw = bytearray(text.encode("utf-8", "surrogatepass") or b" ")
    for _ in range(rng.randint(1, 3)):
        place, kind = rng.randrange(len(raw)), rng.randint(0, 2)
        if kind == 0:
            raw[place] = rng.randrange(256)
        elif kind == 1:
            raw.insert(place, rng.choice(b"'\"()[]{};,.-*/\\$%0123456789 \n"))
        elif len(raw) > 1:
            del raw[place]
    return raw.decode("utf-8", "replace")


def _words(rng: random.Random, text: str, ground: Ground) -> str:
    words = re.findall(r"\s+|\w+|.", text, re.DOTALL) or [" "]
    place, kind = rng.randrange(len(words)), rng.randint(0, 4)
    if kind == 0:
        words[place] = rng.choice(ground.words)
    elif kind == 1:
        words.insert(place, f" {rng.choice(ground.words)} ")
    elif kind == 2:
        del words[place]
    elif kind == 3:
        other = rng.randrange(len(words))
        words[place], words[other] = words[other], words[place]
    else:
        end = min(len(words), place + rng.randint(1, 8))
        words[place:end] = words[place:end] * rng.randint(2, 4)
    return "".join(words)


def _spliced(rng: random.Random, text: str, ground: Ground) -> str:
    other = rng.choice(ground.texts)
    return text[: rng.randint(0, len(text))] + other[rng.randint(0, len(other)) :]


def fuzz_texts(seed: int, count: int, ground: Ground = ALONE) -> int:
    rng, planned, texts = random.Random(seed), 0, ground.texts
    for place in range(count):
        text = mutated(rng, rng.choice(texts), ground)
        try:
            planned += is_read(text, ground.card)
        except Exception as error:
            raise AssertionError(f"seed {seed}, text {place}: {text!r}") from error
    return planned


# --- JSON ----------------------------------------------------------------------------------------


def shapes(ground: Ground) -> list[Any]:
    questions = [read_sql(text, "t") for text in ground.accepted]
    made = [copied(query_json(question)) for question in questions]
    sums = [shape for shape in made if any(o.get("verb") == "sum" for o in shape["outputs"])]
    bounds = [{"kind": "number", "text": text} for text in ("-2", "4")]
    for shape in sums:
        for output in shape["outputs"]:
            if output.get("verb") == "sum":
                output["within"] = bounds
    return made


def places(shape: Any) -> list[tuple[Any, Any]]:
    """Return every place in the JSON: a container and where in it."""
    found: list[tuple[Any, Any]] = []
    inner = list(shape.items()) if isinstance(shape, dict) else list(enumerate(shape))
    for key, value in inner:
        found.append((shape, key))
        found += places(value) if isinstance(value, dict | list) else []
    return found


def copied(shape: Any) -> Any:  # JSON
    return json.loads(json.dumps(shape))


def knocked(rng: random.Random, shape: Any, others: list[Any]) -> Any:
    shape = copied(shape)
    for _ in range(rng.choice((1, 1, 2, 4))):
        every = places(shape)
        if not every:
            break
        container, key = rng.choice(every)
        other, place = rng.choice(places(rng.choice(others)))
        kind = rng.randint(0, 4)
        if kind == 0:
            container[key] = copied(rng.choice(DEPTHS))
        elif kind == 1:
            container[key] = copied(other[place])
        elif kind == 2:
            del container[key]
        elif kind == 3 and isinstance(container, list):
            container[:] = copied(container * 3)[:600]
        elif isinstance(container[key], str):
            container[key] = rng.choice((str(other[place]), container[key] + "\u0000", "x" * 1001))
    return shape


def fuzz_json(seed: int, count: int, ground: Ground = ALONE) -> int:
    rng, planned, every = random.Random(seed), 0, shapes(ground)
    for place in range(count):
        shape = knocked(rng, rng.choice(every), every)
        try:
            planned += is_planned(lambda s=shape: read_query(s), ground.card)  # type: ignore[misc]  # a default
        except Exception as error:
            raise AssertionError(f"seed {seed}, shape {place}: {json.dumps(shape)}") from error
    return planned


# --- the runs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ground", [ALONE, SEVERAL], ids=["alone", "several"])
def test_a_text_that_was_knocked_about_is_planned_or_refused(ground: Ground) -> None:
    assert 10 < fuzz_texts(1, 1500, ground) < 1400


@pytest.mark.parametrize("ground", [ALONE, SEVERAL], ids=["alone", "several"])
def test_json_that_was_knocked_about_is_planned_or_refused(ground: Ground) -> None:
    assert 50 < fuzz_json(1, 800, ground) < 750


def test_the_deadline_is_kept() -> None:
    with pytest.raises(TooLongError):
        _never_end()


def _never_end() -> None:
    with deadline(0.05):
        while True:
            pass


@pytest.mark.parametrize("text", LONG)
def test_a_long_text_takes_no_longer_than_any_may(text: str) -> None:
    is_planned(lambda: read_sql(text, "t"))


@pytest.mark.slow
def test_a_million_inputs_are_planned_or_refused() -> None:
    seed = int(os.environ.get("SFUMATO_FUZZ_SEED", "2"))
    count = int(os.environ.get("SFUMATO_FUZZ_COUNT", "1000000"))
    started = time.monotonic()
    planned = 0
    for ground in (ALONE, SEVERAL):
        planned += fuzz_texts(seed, count // 3, ground) + fuzz_json(seed, count // 6, ground)
    took = time.monotonic() - started
    print(f"seed {seed}: {count} inputs, {planned} planned, {took:.0f} s")
