"""On neighbouring data an answer has the same shape, code and charge, whoever joined."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from sfumato.app.vault import OpenVault
from sfumato.client.answer import Answer
from sfumato.dp.refusal import Refused
from sfumato.lab.audit import side_channels
from sfumato.lab.audit.side_channels import differences, said, times
from support.small_vaults import open_with, write_csv

Row = tuple[str, str, str, str]
CARD = """
unit = "who"
people = "p"
version = "1"
budget = { epsilon = 20, delta = 1e-6 }
max_groups = 2
max_rows = 2
nulls = [""]
[limits]
rows_per_person = 5
text_length = 20
[columns.zip]
type = "text"
keys = ["10001", "10002"]
[columns.pay]
type = "number"
lower = 0
upper = 100
step = 0.5
[columns.day]
type = "date"
lower = 2026-01-01
upper = 2026-03-31
"""
QUESTIONS = (
    "SELECT COUNT(*) AS n FROM t",
    "SELECT zip, COUNT(*) AS n, AVG(pay) AS m FROM t GROUP BY zip",
    "SELECT SUM(pay) AS s FROM t WHERE pay > 50",
    "SELECT MEDIAN(pay) AS m, MAX(pay) AS x FROM t",
    "SELECT VAR_SAMP(pay) AS v FROM t",
    "SELECT AVG(pay / (pay - pay)) AS odd FROM t",
    "SELECT date_trunc('month', day) AS m, RUNNING_COUNT(*) AS r FROM t GROUP BY m",
    "SELECT SUM(nothing) AS s FROM t",
    "SELECT pay FROM t",
    "SELECT COUNT(*) AS n FROM t WHERE zip = '99999'",
    "SELECT SUM(pay) AS s FROM t",
    "SELECT COUNT(DISTINCT who) AS n FROM t",
)
PEOPLE: list[Row] = [(f"p{n}", "10001", str(n % 100), "2026-01-05") for n in range(30)]
JOINING: dict[str, list[Row]] = {
    "one more": [("new", "10002", "40", "2026-02-01")],
    "somebody heavy": [("new", "10001", "99", "2026-02-01")] * 400,
    "not a number": [("new", "10001", "nan", "2026-02-01")],
    "infinite": [("new", "10001", "inf", "2026-02-01"), ("new", "10002", "-inf", "")],
    "a cast that fails": [("new", "10001", "secret-77", "yesterday")],
    "huge": [("new", "10001", "1e308", "9999-12-31")],
    "an unknown key": [("new", "99999", "5", "2026-02-01")],
    "nulls": [("new", "", "", "")],
    "a long text": [("new", "x" * 500, "5", "2026-02-01")],
}


def opened(folder: Path, rows: Sequence[Row]) -> OpenVault:
    folder.mkdir()
    source = write_csv(folder / "t.csv", ("who", "zip", "pay", "day"), rows)
    return open_with(folder, "t", source, CARD)


def asking(vault: OpenVault) -> Callable[[str], Answer]:
    return lambda question: vault["t"].ask(question, epsilon=1)


@pytest.mark.parametrize("who", JOINING)
def test_whoever_joins_changes_nothing_but_numbers(tmp_path: Path, who: str) -> None:
    with (
        opened(tmp_path / "without", PEOPLE) as one,
        opened(tmp_path / "with", [*PEOPLE, *JOINING[who]]) as other,
    ):
        assert differences(asking(one), asking(other), QUESTIONS) == ()
        last = said(asking(one), QUESTIONS[0])
        assert last.code == ""
        assert json.loads(last.charge)["free"] is True


def test_what_differs_is_found(tmp_path: Path) -> None:
    with opened(tmp_path / "one", PEOPLE) as vault:
        honest = asking(vault)

        def fussy(question: str) -> Answer:
            if "MEDIAN" in question:
                raise Refused("question-failed", "Too few.", "Ask less.")
            return honest(question)

        def dear(question: str) -> Answer:
            return vault["t"].ask(question, epsilon=2)

        question = QUESTIONS[3]
        assert differences(honest, honest, [question]) == (f"charge of {question}",)  # then free
        found = differences(honest, fussy, [question])
        assert f"code of {question}" in found
        assert f"charge of {question}" in differences(honest, dear, [question])


def test_times_that_differ_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that the calls themselves move: on a busy machine the real one says anything."""
    now, dice = [0.0], np.random.default_rng(1)
    monkeypatch.setattr(side_channels, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def takes(least: float) -> Callable[[], None]:
        def call() -> None:
            now[0] += dice.uniform(least, least + 1)

        return call

    same, apart = times(takes(1), takes(1), 60), times(takes(1), takes(2), 60)
    assert apart.apart == 1
    assert apart.chance < 1e-6
    assert same.apart < 0.5
    assert same.chance > 1e-3
    assert "median times" in same.finding
