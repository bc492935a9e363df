"""The noise of real answers, asked through the command line: 20,000 keys are 20,000 draws."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from support.noise_judge import accusations
from support.small_vaults import make_vault, run, write_csv

KEYS = 20_000
CARD = """
unit = "who"
people = "synthetic-draws"
version = "1"
budget = { epsilon = 100, delta = 1e-5 }
max_groups = 4
max_rows = 2
[columns.cell]
type = "integer"
keys = [%s]
[columns.size]
type = "number"
lower = -20
upper = 30
step = 0.5
"""


def rows_of(cell: int) -> list[float]:
    """Return the sizes in a cell: none to three, some beyond the bounds."""
    return [(-60.0, 7.5, 90.0)[i] for i in range(cell % 4)]


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a vault where everyone has one row, so that no bound on people bites."""
    folder = tmp_path_factory.mktemp("draws")
    rows = [(c, size) for c in range(KEYS) for size in rows_of(c)]
    source = write_csv(
        folder / "draws.csv",
        ("who", "cell", "size"),
        [(f"p{i}", cell, size) for i, (cell, size) in enumerate(rows)],
    )
    card = folder / "card.toml"
    card.write_text(CARD % ", ".join(map(str, range(KEYS))))
    vault = make_vault(folder)
    added = run(vault, "add", "draws", str(source), "--card", str(card))
    assert added.returncode == 0, added.stderr
    return vault


def asked(vault: Path, sql: str, epsilon: str, *options: str) -> Any:
    finished = run(vault, "ask", "draws", sql, "--epsilon", epsilon, "--json", *options)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return json.loads(finished.stdout)


def released_parts(vault: Path) -> list[NDArray[np.int64]]:
    """Return the noisy integers of the last answer, as the ledger keeps them."""
    with apsw.Connection(str(vault / "ledger.sqlite")) as connection:
        found = list(
            connection.execute("SELECT answer FROM ledger_answers ORDER BY rowid DESC LIMIT 1")
        )
        ((text,),) = found
    return [np.array(part, dtype=np.int64) for part in json.loads(str(text))["parts"]]


def clamped_steps(size: float) -> int:
    return int(min(max(size, -20), 30) / 0.5)


COUNTS = np.array([len(rows_of(c)) for c in range(KEYS)], dtype=np.int64)
SUMS = np.array([sum(map(clamped_steps, rows_of(c))) for c in range(KEYS)], dtype=np.int64)


def test_a_count_has_laplace_noise_of_the_promised_width(vault: Path) -> None:
    answer = asked(vault, "SELECT cell, COUNT(*) AS n FROM draws GROUP BY cell", "0.8")
    noise = np.array([row[1] for row in answer["rows"]]) - COUNTS
    assert [row[0] for row in answer["rows"]] == list(range(KEYS))
    assert accusations(noise, "laplace", Fraction(4 * 2) / Fraction("0.8")) == []
    assert answer["std"][0][1] == pytest.approx(np.std(noise), rel=0.05)


def test_a_sum_is_clamped_and_has_laplace_noise_of_the_promised_width(vault: Path) -> None:
    answer = asked(vault, "SELECT cell, SUM(size) AS s FROM draws GROUP BY cell", "2")
    noise = np.array([round(row[1] / 0.5) for row in answer["rows"]]) - SUMS
    assert accusations(noise, "laplace", Fraction(4 * 2 * 60, 2)) == []


def test_both_parts_of_a_mean_have_their_share_of_noise(vault: Path) -> None:
    asked(vault, "SELECT cell, AVG(size) AS s FROM draws GROUP BY cell", "4")
    centred, counted = released_parts(vault)
    middle = -40 + 60
    assert (
        accusations(centred - (2 * SUMS - middle * COUNTS), "laplace", Fraction(8 * 100, 2)) == []
    )
    assert accusations(counted - COUNTS, "laplace", Fraction(8, 2)) == []


def test_a_mean_and_its_interval_stay_within_the_public_range(vault: Path) -> None:
    answer = asked(vault, "SELECT cell, AVG(size) AS s FROM draws GROUP BY cell", "0.05")
    means = np.array([row[1] for row in answer["rows"]])
    bars = np.array([bar for _, bar in answer["interval"]])
    assert np.all((means >= -20) & (means <= 30))
    assert np.all((bars[:, 0] >= -20) & (bars[:, 1] <= 30))
    assert np.mean((means == -20) | (means == 30)) > 0.1  # the clamp is at work


def test_a_person_count_ignores_the_bound_on_rows(vault: Path) -> None:
    answer = asked(vault, "SELECT cell, COUNT(DISTINCT who) AS n FROM draws GROUP BY cell", "0.5")
    noise = np.array([row[1] for row in answer["rows"]]) - COUNTS
    assert accusations(noise, "laplace", Fraction(4) / Fraction("0.5")) == []


def test_a_delta_buys_gaussian_noise_of_the_promised_width(vault: Path) -> None:
    sql = "SELECT cell, COUNT(*) AS n FROM draws GROUP BY cell"
    options = ("--delta", "1e-6", "--max-groups", "100", "--max-rows", "1")
    answer = asked(vault, sql, "1", *options)
    assert answer["receipt"]["mechanism"] == "discrete gaussian"
    variance = Fraction(answer["receipt"]["split"][0]["variance"])
    assert float(variance) == pytest.approx(100 / (2 * 0.024356), rel=1e-3)
    noise = np.array([row[1] for row in answer["rows"]]) - COUNTS
    assert accusations(noise, "gaussian", variance) == []


def test_two_parts_of_one_answer_and_two_answers_share_no_noise(vault: Path) -> None:
    sql = "SELECT cell, COUNT(*) AS n, COUNT(size) AS m FROM draws GROUP BY cell"
    first = asked(vault, sql, "1", "--fresh")
    second = asked(vault, sql, "1", "--fresh")
    columns = [
        np.array([row[c] for row in a["rows"]]) - COUNTS for a in (first, second) for c in (1, 2)
    ]
    for i, one in enumerate(columns):
        for other in columns[:i]:
            assert abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(KEYS)


def test_the_interval_covers_the_truth_as_often_as_it_says(vault: Path) -> None:
    sql = "SELECT cell, SUM(size) AS s FROM draws GROUP BY cell"
    answer = asked(vault, sql, "2", "--fresh")
    truth = SUMS * 0.5
    inside = [
        low <= true <= high
        for (_, (low, high)), true in zip(answer["interval"], truth, strict=True)
    ]
    low, high = binom.ppf([5e-7, 1 - 5e-7], KEYS, 0.95)  # 0.9 of the noise would hold 0.964
    assert low <= np.sum(inside) <= high
