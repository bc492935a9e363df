"""A price says what was paid for before, to who paid for it; nobody hears what another asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from support.small_vaults import patients_vault, run

SQL = "SELECT zip, COUNT(*) AS n FROM patients GROUP BY zip"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return patients_vault(tmp_path, "ada", "bob")


@pytest.fixture
def ada(folder: Path) -> Iterator[OpenVault]:
    with sfumato.open(folder, user="ada") as vault:
        yield vault


def test_what_was_answered_before_is_free_though_nothing_is_left(ada: OpenVault) -> None:
    patients = ada["patients"]
    before = patients.price(SQL, epsilon=1)
    assert (before["free"], before["fits"]) == (False, True)
    answer = patients.ask(SQL, epsilon=1)
    price = patients.price(SQL, epsilon=1)
    assert (price["free"], price["fits"], price["left"]["next_epsilon"]) == (True, True, 0)
    assert price["odds"] == answer.receipt["odds"]
    assert "already paid: asking the same question again is free" in repr(price)
    assert "NOT fit" not in repr(price)
    assert patients.ask(SQL, epsilon=1).rows == answer.rows


@pytest.mark.parametrize(
    "other",
    [
        {"sql": SQL, "epsilon": 0.5},
        {"sql": SQL, "epsilon": 1, "max_rows": 2},
        {"sql": SQL, "epsilon": 1, "fresh": True},
        {"sql": SQL.replace("*", "DISTINCT patient_id"), "epsilon": 1},
    ],
)
def test_another_question_is_not_free(ada: OpenVault, other: dict[str, object]) -> None:
    patients = ada["patients"]
    patients.ask(SQL, epsilon=1)
    sql = str(other.pop("sql"))
    price = patients.price(sql, **other)  # type: ignore[arg-type]
    assert (price["free"], price["fits"]) == (False, False)
    assert "it does NOT fit: nothing is left" in repr(price)


def test_nobody_is_told_what_another_has_asked(ada: OpenVault, folder: Path) -> None:
    """The price of a question is the same to bob whether ada has asked it or one like it."""
    ada["patients"].ask(SQL, epsilon=0.4)
    like = SQL.replace("n FROM", "n, AVG(age) AS a FROM")
    with sfumato.open(folder, user="bob") as vault:
        asked, unasked = (vault["patients"].price(q, epsilon=0.4) for q in (SQL, like))
        for word in ("free", "fits", "left", "odds"):
            assert asked[word] == unasked[word]
        assert asked["free"] is False
        vault["patients"].ask(SQL, epsilon=0.4)
        assert vault["patients"].price(SQL, epsilon=0.4)["free"] is True


def test_the_command_line_says_that_it_is_free(ada: OpenVault, folder: Path) -> None:
    ada["patients"].ask(SQL, epsilon=1)
    said = run(folder, "price", "patients", SQL, "--epsilon", "1", SFUMATO_USER="ada").stdout
    assert "asking the same question again is free" in said
    assert "fit" not in said.splitlines()[-1]
