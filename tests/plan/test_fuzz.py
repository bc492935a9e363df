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
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from plan.test_attacks_sql import CLINIC, LONG, corpus
from sfumato.core.question import Question, question_json, read_question
from sfumato.core.refusal import Refused
from sfumato.plan.plan import make_plan
from sfumato.plan.read_sql import read_sql

DEADLINE_S = 2.0
TEXTS = [*corpus(accepted=True) * 4, *corpus(accepted=False)]
WORDS = [
    "SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "WITH", "AS", "(", ")",
    ",", "*", "COUNT(*)", "SUM(", "AVG(", "DISTINCT", "FILTER (WHERE", "CASE", "WHEN", "THEN",
    "ELSE", "END", "NOT", "AND", "OR", "IN", "BETWEEN", "LIKE", "IS NULL", "=", "<", "/", "-", "+",
    "t", "who", "zip", "pay", "age", "day", "name", "'a'", "''", "1", "0", "-1", "1e9", "0.5",
    "1e40", "NULL", "TRUE", "date_trunc('month',", "LEAST(", "GREATEST(", "COALESCE(", "FLOOR(",
    "[", "]", "{", "}", ";", "--", "/*", "*/", "::", "$1", "?", ":x", "UNION", "JOIN", "OVER (",
    "\u202e", "\u0000", "\ud800", "\U0001f600",
]  # fmt: skip
DEPTHS = [0, 1, -1, 2**31, 2**63, 10**30, 0.5, 1e308, "", "x", "1/0", "-", None, True, [], {}, [[]]]


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


def is_planned(act: Callable[[], Question]) -> bool:
    """Say whether there is a plan; whatever else comes than a refusal is an error of ours."""
    try:
        with deadline(DEADLINE_S):
            question = act()
            plan = make_plan(CLINIC, question)
            plan.canonical()
            plan.shape()
            asked = replace(question, called=frozenset())  # names of a text are not in the shape
            assert read_question(json.loads(json.dumps(question_json(question)))) == asked
    except Refused:  # its code is in the table, or it could not have been made
        return False
    return True


# --- texts ---------------------------------------------------------------------------------------


def mutated(rng: random.Random, text: str) -> str:
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        text = rng.choice((_letters, _words, _words, _words, _spliced))(rng, text)
    return text


def _letters(rng: random.Random, text: str) -> str:
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


def _words(rng: random.Random, text: str) -> str:
    words = re.findall(r"\s+|\w+|.", text, re.DOTALL) or [" "]
    place, kind = rng.randrange(len(words)), rng.randint(0, 4)
    if kind == 0:
        words[place] = rng.choice(WORDS)
    elif kind == 1:
        words.insert(place, f" {rng.choice(WORDS)} ")
    elif kind == 2:
        del words[place]
    elif kind == 3:
        other = rng.randrange(len(words))
        words[place], words[other] = words[other], words[place]
    else:
        end = min(len(words), place + rng.randint(1, 8))
        words[place:end] = words[place:end] * rng.randint(2, 4)
    return "".join(words)


def _spliced(rng: random.Random, text: str) -> str:
    other = rng.choice(TEXTS)
    return text[: rng.randint(0, len(text))] + other[rng.randint(0, len(other)) :]


def fuzz_texts(seed: int, count: int) -> int:
    rng, planned = random.Random(seed), 0
    for place in range(count):
        text = mutated(rng, rng.choice(TEXTS))
        try:
            planned += is_planned(lambda t=text: read_sql(t, "t"))  # type: ignore[misc]  # a default
        except Exception as error:
            raise AssertionError(f"seed {seed}, text {place}: {text!r}") from error
    return planned


# --- JSON ----------------------------------------------------------------------------------------


def shapes() -> list[Any]:
    questions = [read_sql(text, "t") for text in corpus(accepted=True)]
    made = [copied(question_json(question)) for question in questions]
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


def fuzz_json(seed: int, count: int) -> int:
    rng, planned, every = random.Random(seed), 0, shapes()
    for place in range(count):
        shape = knocked(rng, rng.choice(every), every)
        try:
            planned += is_planned(lambda s=shape: read_question(s))  # type: ignore[misc]  # a default
        except Exception as error:
            raise AssertionError(f"seed {seed}, shape {place}: {json.dumps(shape)}") from error
    return planned


# --- the runs ------------------------------------------------------------------------------------


def test_a_text_that_was_knocked_about_is_planned_or_refused() -> None:
    assert 10 < fuzz_texts(seed=1, count=2000) < 1900


def test_json_that_was_knocked_about_is_planned_or_refused() -> None:
    assert 50 < fuzz_json(seed=1, count=1000) < 950


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
    planned = fuzz_texts(seed, count * 2 // 3) + fuzz_json(seed, count - count * 2 // 3)
    took = time.monotonic() - started
    print(f"seed {seed}: {count} inputs, {planned} planned, {took:.0f} s")
