"""Every question in docs/reference/questions.md is answered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from sfumato.app.vault import OpenVault
from support.small_vaults import open_with, write_csv

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "questions.md").read_text("utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.S)
QUESTIONS = [line for kind, text in BLOCKS if kind == "sql" for line in text.splitlines()]


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    folder, dice = tmp_path_factory.mktemp("asked"), Random(3)
    header = ("patient", "zip", "sex", "age", "cost", "day", "sick")
    rows = [
        (
            f"p{dice.randrange(300)}",
            dice.choice(["10001", "10002", "20001"]),
            dice.choice("fm"),
            dice.randrange(100),
            dice.randrange(50000) / 100,
            f"2026-{dice.randrange(1, 13):02d}-{dice.randrange(1, 29):02d}",
            dice.choice(["yes", "no"]),
        )
        for _ in range(2000)
    ]
    (card,) = [text for kind, text in BLOCKS if kind == "toml"]
    born = [(f"p{i}", dice.randrange(1920, 2020)) for i in range(300)]
    zips = [("10001", "north"), ("10002", "north"), ("20001", "south")]
    drugs = [(row[0], dice.choice("ab"), dice.randrange(100), row[5]) for row in rows[::2]]
    tables = {
        "drugs": write_csv(folder / "d.csv", ("patient", "drug", "dose", "given"), drugs),
        "patients": write_csv(folder / "p.csv", ("patient", "born"), born),
        "zips": write_csv(folder / "z.csv", ("zip", "region"), zips),
    }
    source = write_csv(folder / "v.csv", header, rows)
    with open_with(folder, "visits", source, card, tables=tables) as made:
        yield made


@pytest.mark.parametrize("sql", QUESTIONS)
def test_a_question_of_the_page_is_answered(vault: OpenVault, sql: str) -> None:
    answer = vault["visits"].ask(sql, epsilon=5, delta=1e-6)
    assert len(answer) > 0
    assert "paid epsilon 5" in repr(answer)


def test_the_python_of_the_page_runs(
    vault: OpenVault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"vault": vault}
    for code in (text for kind, text in BLOCKS if kind == "python"):
        exec(code, names)  # noqa: S102  # the page's own code
    assert (tmp_path / "visits.svg").stat().st_size > 1000


def test_the_page_has_its_blocks() -> None:
    assert [kind for kind, _ in BLOCKS].count("sql") == 14
    assert len(QUESTIONS) >= 17
