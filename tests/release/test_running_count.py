"""Running counts as they leave the door: 400 series of 60 days are 24,000 draws for blocks."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import apsw
import numpy as np
import pytest
from numpy.typing import NDArray

from sfumato import col
from sfumato.app.vault import OpenVault
from sfumato.client.tidy import RISEN
from sfumato.dp.confidence.sum_of_draws import margin_95_of_sum
from sfumato.dp.mechanisms.binary_tree import Tree
from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.refusal import Refused
from support.noise_judge import Kind, accusations
from support.small_vaults import open_with, write_csv

SERIES, DAYS = 400, 60
DAY = "date_trunc('day', day)"
SQL = f"SELECT cell, {DAY} AS d, RUNNING_COUNT(*) AS n FROM draws GROUP BY cell, d"
MANY = (  # so many parts that Gaussian noise is the narrower
    "RUNNING_COUNT(*) AS n, COUNT(*), COUNT(day), COUNT(cell), COUNT(DISTINCT who), "
    "COUNT(DISTINCT day), COUNT(DISTINCT cell)"
)
CARD = """
unit = "who"
people = "synthetic-runs"
version = "1"
budget = { epsilon = 1000, delta = 1e-3 }
max_groups = 3
max_rows = 2
[columns.cell]
type = "integer"
keys = [%s]
[columns.day]
type = "date"
lower = 2026-01-01
upper = 2026-03-01
"""


def rows_of(cell: int, day: int) -> int:
    """Return how many rows a cell has on a day: none to two."""
    return (cell + day * day) % 3


COUNTS = np.array([[rows_of(c, d) for d in range(DAYS)] for c in range(SERIES)], dtype=np.int64)
RUNNING = np.cumsum(COUNTS, axis=1)


def date_of(day: int) -> str:
    return str(np.datetime64("2026-01-01") + day)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def ledger(folder: Path) -> Path:
    return folder / "vault" / "ledger.sqlite"


@pytest.fixture(scope="module")
def vault(folder: Path) -> Iterator[OpenVault]:
    """Yield a vault where everyone has one row, so that no bound on people bites."""
    cells = [(c, d) for c in range(SERIES) for d in range(DAYS) for _ in range(rows_of(c, d))]
    Random(5).shuffle(cells)
    rows = [(f"p{i}", cell, date_of(day)) for i, (cell, day) in enumerate(cells)]
    source = write_csv(folder / "draws.csv", ("who", "cell", "day"), rows)
    card = CARD % ", ".join(map(str, range(SERIES)))
    with open_with(folder, "draws", source, card) as made:
        yield made


def released(
    vault: OpenVault, epsilon: float, sql: str = SQL, delta: float = 0
) -> tuple[NDArray[np.int64], Any]:
    """Return the running counts, series by days, and the answer."""
    answer = vault["draws"].ask(sql, epsilon=epsilon, delta=delta, fresh=True)
    assert [row[:2] for row in answer.rows[:2]] == [(0, date_of(0)), (0, date_of(1))]
    return np.array([row[2] for row in answer.rows]).reshape(SERIES, DAYS), answer


def split_of(answer: Any) -> Any:
    """Return what the receipt says of the running count's noise."""
    (found,) = [part for part in answer.receipt["split"] if part["kind"].endswith(" tree")]
    return found


def tree_of(answer: Any) -> Tree:
    return Tree(split_of(answer)["periods"], split_of(answer)["branching"])


def block_noise(tree: Tree, noise: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return what each block got: the noise of its prefix without that of the prefix before."""
    before = np.concatenate([np.zeros((SERIES, 1), dtype=np.int64), noise], axis=1)
    made: NDArray[np.int64] = noise - before[:, tree.before()]
    return made


def shared_blocks(tree: Tree) -> NDArray[np.int64]:
    """Return how many blocks each two prefixes share."""
    uses = np.zeros((DAYS, DAYS), dtype=np.int64)
    for end, start in enumerate(tree.before().tolist()):
        uses[end] = uses[start - 1] if start else 0
        uses[end, end] = 1
    shared: NDArray[np.int64] = uses @ uses.T
    return shared


def check_blocks_and_prefixes(
    found: NDArray[np.int64], answer: Any, kind: Kind, parameter: Fraction, variance: float
) -> None:
    """Compare the noise of blocks and of prefixes, and what is shown of it, with what is true."""
    tree, noise = tree_of(answer), found - RUNNING
    assert tree.levels > 1
    assert accusations(block_noise(tree, noise).ravel(), kind, parameter) == []
    check_covariance(noise, variance * shared_blocks(tree))
    shown = np.array([row[2] for row in answer.std]).reshape(SERIES, DAYS)
    assert shown[7] == pytest.approx(np.sqrt(variance * tree.blocks_of_prefixes()), rel=1e-9)
    assert np.array_equal(shown[7], shown[0])


def check_covariance(noise: NDArray[np.int64], promised: NDArray[np.floating]) -> None:
    """Compare variances, pairs that share noise and pairs that share none with the promise.

    Each is one number of every series, so that their mean is judged by their own spread; six
    deviations leave room for tails that are heavier than normal ones.
    """
    scaled = noise / np.sqrt(np.diag(promised))
    shares = promised / np.sqrt(np.outer(np.diag(promised), np.diag(promised)))
    is_pair = ~np.eye(DAYS, dtype=bool)
    for chosen in (~is_pair, is_pair & (shares > 0), is_pair & (shares == 0)):
        assert chosen.any()
        seen = np.einsum("si,ij,sj->s", scaled, chosen.astype(float), scaled)
        off = seen.mean() - shares[chosen].sum()
        assert abs(off) < 6 * seen.std() / math.sqrt(SERIES)


def test_blocks_have_laplace_noise_and_prefixes_share_it_as_the_tree_says(vault: OpenVault) -> None:
    found, answer = released(vault, 0.8)
    scale = Fraction(3 * 2 * 2) / Fraction("0.8")  # cells, rows, levels
    variance = 1 / (2 * math.sinh(1 / (2 * scale)) ** 2)
    assert tree_of(answer) == Tree(DAYS, 8)
    assert split_of(answer)["scale"] == str(scale)
    check_blocks_and_prefixes(found, answer, "laplace", scale, variance)


def test_blocks_have_gaussian_noise_and_prefixes_share_it_as_the_tree_says(
    vault: OpenVault,
) -> None:
    found, answer = released(vault, 1, SQL.replace("RUNNING_COUNT(*) AS n", MANY), 1e-6)
    tree = tree_of(answer)
    squares = 2**2 * (3 + 3**2 * (tree.levels - 1))  # three cells: apart in leaves alone
    rho = 0.024356 / 7
    variance = Fraction(split_of(answer)["variance"])
    assert float(variance) == pytest.approx(squares / (2 * rho), rel=1e-3)
    check_blocks_and_prefixes(found, answer, "gaussian", variance, float(variance))


def test_without_noise_to_speak_of_it_is_the_running_count(vault: OpenVault) -> None:
    found, _ = released(vault, 500)
    assert np.array_equal(found, RUNNING)


def test_the_interval_is_the_margin_of_as_many_draws_as_the_prefix_has(vault: OpenVault) -> None:
    """How often such sums lie within it: tests/dp/confidence/test_approximate_sum_of_draws.py."""
    found, answer = released(vault, 0.3)
    bars = np.array([bar[2] for bar in answer.interval]).reshape(SERIES, DAYS, 2)
    noise = Noise("laplace", Fraction(3 * 2 * 2) / Fraction("0.3"))
    blocks = tree_of(answer).blocks_of_prefixes().tolist()
    margins = np.array([margin_95_of_sum(noise, count) for count in blocks])
    assert np.array_equal(bars[:, :, 0], found - margins)
    assert np.array_equal(bars[:, :, 1], found + margins)


def test_a_count_beside_it_has_noise_of_its_own(vault: OpenVault) -> None:
    both = SQL.replace("RUNNING_COUNT(*) AS n", "RUNNING_COUNT(*) AS n, COUNT(*) AS k")
    answer = vault["draws"].ask(both, epsilon=1, fresh=True)
    n = np.array([row[2] for row in answer.rows]).reshape(SERIES, DAYS) - RUNNING
    k = np.array([row[3] for row in answer.rows]).reshape(SERIES, DAYS) - COUNTS
    assert accusations(k.ravel(), "laplace", Fraction(3 * 2) / Fraction(1, 2)) == []
    tree = Tree(DAYS, 8)
    of_blocks = block_noise(tree, n).ravel()
    assert accusations(of_blocks, "laplace", Fraction(3 * 2 * 2) / Fraction(1, 2)) == []
    assert abs(np.corrcoef(of_blocks, k.ravel())[0, 1]) < 5 / math.sqrt(k.size)


def test_two_releases_share_no_noise(vault: OpenVault) -> None:
    one, _ = released(vault, 1)
    other, answer = released(vault, 1)
    tree = tree_of(answer)
    noises = [block_noise(tree, found - RUNNING).ravel() for found in (one, other)]
    assert abs(np.corrcoef(noises[0], noises[1])[0, 1]) < 5 / math.sqrt(noises[0].size)


def spent(vault: OpenVault) -> float:
    return float(vault["draws"].budget["spent"]["epsilon"])


def test_it_is_charged_once_and_the_same_question_is_free_however_it_is_spelled(
    vault: OpenVault,
) -> None:
    before = spent(vault)
    first = vault["draws"].ask(SQL, epsilon=0.25)
    over = f"SUM(COUNT(*)) OVER (PARTITION BY cell ORDER BY {DAY})"
    again = vault["draws"].ask(SQL.replace("RUNNING_COUNT(*)", over), epsilon=0.25)
    built = vault["draws"].group_by("cell", d=col("day").trunc("day")).running_count(name="n")
    assert spent(vault) == pytest.approx(before + 0.25)
    assert first.rows == again.rows == built.ask(epsilon=0.25).rows
    counted = vault["draws"].ask(SQL.replace("RUNNING_COUNT", "COUNT"), epsilon=0.25)
    assert counted.rows != first.rows
    assert spent(vault) == pytest.approx(before + 0.5)


def test_what_stands_in_the_ledger_is_noisy_running_counts(vault: OpenVault, ledger: Path) -> None:
    answer = vault["draws"].ask(SQL, epsilon=0.125)
    with apsw.Connection(str(ledger)) as connection:
        found = list(
            connection.execute("SELECT answer FROM ledger_answers ORDER BY rowid DESC LIMIT 1")
        )
    (part,) = json.loads(str(found[0][0]))["parts"]
    assert part == [row[2] for row in answer.rows]


def test_having_and_order_work_on_released_values(vault: OpenVault) -> None:
    before = vault["draws"].ask(SQL, epsilon=0.375)
    spent_before = spent(vault)
    rest = " HAVING RUNNING_COUNT(*) > 40 ORDER BY n DESC LIMIT 5"
    after = vault["draws"].ask(SQL + rest, epsilon=0.375)
    largest = np.sort([row[2] for row in before.rows])[::-1][:5].tolist()
    assert [row[2] for row in after.rows] == largest
    assert spent(vault) == spent_before


def test_a_filter_narrows_the_rows(vault: OpenVault) -> None:
    where = f"SELECT {DAY} AS d, RUNNING_COUNT(*) FROM draws WHERE cell < 9 GROUP BY d"
    answer = vault["draws"].ask(where, epsilon=300)
    assert [row[1] for row in answer.rows] == RUNNING[:9].sum(axis=0).tolist()


def test_a_running_count_does_not_add_up_and_says_so(vault: OpenVault) -> None:
    answer = vault["draws"].ask(SQL, epsilon=0.25)
    with pytest.raises(Refused) as refused:
        answer.total("cell")
    assert refused.value.code == "not-in-language"


def test_tidy_running_counts_never_fall_and_keep_their_ranges(vault: OpenVault) -> None:
    answer = vault["draws"].ask(SQL, epsilon=0.25)
    tidy = answer.tidy()
    found = np.array([row[2] for row in tidy.rows]).reshape(SERIES, DAYS)
    raw = np.array([row[2] for row in answer.rows]).reshape(SERIES, DAYS)
    assert np.any(np.diff(raw, axis=1) < 0)
    assert np.all(np.diff(found, axis=1) >= 0)
    assert np.all(found >= 0)
    assert ((found - RUNNING) ** 2).mean() < ((raw - RUNNING) ** 2).mean()
    assert tidy.std == answer.std
    assert tidy.interval[7][2] == tuple(max(end, 0) for end in answer.interval[7][2] or ())
    assert RISEN in tidy.notes


def test_a_picture_over_time_is_a_line_with_a_band(vault: OpenVault) -> None:
    sql = f"SELECT {DAY} AS d, RUNNING_COUNT(*) AS n FROM draws GROUP BY d"
    spec = json.dumps(vault["draws"].ask(sql, epsilon=1).plot().spec)
    assert '"temporal"' in spec
    assert '"line"' in spec
