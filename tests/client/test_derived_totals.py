"""Sums of released cells: what adds up is added up for free, and the error bars hold."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from sfumato import Refused
from sfumato.app.vault import OpenVault
from sfumato.client.derived_totals import margin_of_sum
from sfumato.dp.mechanisms.noise import Noise
from support.seeded_dice import SeededDice
from support.small_vaults import open_with, write_csv

CARD = """
unit = "row"
budget = { epsilon = 100, delta = 1e-3 }
[columns.sex]
type = "text"
keys = ["f", "m"]
[columns.zip]
type = "text"
keys = ["a", "b", "c"]
[columns.free]
type = "text"
[columns.pay]
type = "integer"
lower = 0
upper = 10
"""


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    folder: Path = tmp_path_factory.mktemp("derive")
    rows = [("fm"[i % 2], "abc"[i % 3], "x", i % 11) for i in range(600)]
    source = write_csv(folder / "t.csv", ("sex", "zip", "free", "pay"), rows)
    with open_with(folder, "town", source, CARD) as made:
        yield made


def test_cells_are_summed_over_the_keys_that_are_not_kept(vault: OpenVault) -> None:
    answer = vault["town"].group_by("sex", "zip").count(name="n").sum("pay").ask(epsilon=1)
    by_sex = answer.total("sex")
    assert by_sex.columns == ("sex", "n", "sum_pay")
    for sex, count, pay in by_sex:
        mine = [row for row in answer.rows if row[0] == sex]
        assert count == sum(int(str(row[2])) for row in mine)
        assert pay == sum(int(str(row[3])) for row in mine)
    ((count, _),) = answer.total().rows
    assert count == sum(int(str(row[2])) for row in answer.rows)
    assert "already paid" in repr(by_sex)


def test_a_sum_of_one_cell_keeps_the_interval_of_the_cell(vault: OpenVault) -> None:
    answer = vault["town"].group_by("sex").count().ask(epsilon=1)
    same = answer.total("sex")
    assert same.rows == answer.rows
    assert same.interval == answer.interval


def test_the_deviation_of_a_sum_is_that_of_its_noises(vault: OpenVault) -> None:
    answer = vault["town"].group_by("sex", "zip").count(name="n").ask(epsilon=1)
    cell, total = answer.std[0][2], answer.total().std[0][0]
    assert cell is not None
    assert total == pytest.approx(cell * 6**0.5)


def test_what_does_not_add_up_is_refused(vault: OpenVault) -> None:
    town = vault["town"]
    for answer in (
        town.group_by("sex").mean("pay").ask(epsilon=1),
        town.group_by("sex").distinct("zip").ask(epsilon=1),
        town.group_by("sex").median("pay").ask(epsilon=1),
        town.group_by("free").count().ask(epsilon=1, delta=1e-6),
        town.group_by("sex").count(name="n").limit(1).ask(epsilon=1),
        town.ask("SELECT COUNT(*) AS n FROM town GROUP BY sex", epsilon=1),
    ):
        with pytest.raises(Refused):
            answer.total()
    with pytest.raises(Refused):
        town.group_by("sex").count().ask(epsilon=1).total("zip")


@pytest.mark.parametrize("count", [1, 2, 10, 100])
@pytest.mark.parametrize(
    "noise",
    [
        Noise("laplace", Fraction(1, 2)),
        Noise("laplace", Fraction(3)),
        Noise("laplace", Fraction(300)),
        Noise("gaussian", Fraction(30)),
    ],
)
def test_the_interval_of_a_sum_holds_its_noise(noise: Noise, count: int) -> None:
    drawn = noise.sample(20_000 * count, SeededDice(count)).reshape(-1, count).sum(axis=1)
    margin = margin_of_sum(noise.std(), count, noise.kind)
    inside = float(np.mean(np.abs(drawn) <= margin))
    assert inside >= 0.943  # 20,000 draws: six deviations below 95 % is 0.941


def test_what_was_tidied_is_not_added_up(vault: OpenVault) -> None:
    answer = vault["town"].group_by("sex", "zip").count(name="n").ask(epsilon=1)
    with pytest.raises(Refused, match="tidied") as refused:
        answer.tidy().total("sex")
    assert "Add up the original answer first" in refused.value.next_step
    assert answer.total("sex").tidy().rows == tuple(
        (sex, max(round(float(str(n))), 0)) for sex, n in answer.total("sex")
    )


def test_a_key_is_kept_once(vault: OpenVault) -> None:
    answer = vault["town"].group_by("sex", "zip").count(name="n").ask(epsilon=1)
    with pytest.raises(Refused, match="twice"):
        answer.total("sex", "sex")


def test_a_frame_loses_no_column_to_an_error_of_its_name(vault: OpenVault) -> None:
    asked = vault["town"].count(name="n").sum("pay", name="n_std").sum("pay", name="n_std_")
    answer = asked.ask(epsilon=1)
    frame = answer.frame()
    assert [frame[name][0] for name in answer.columns] == list(answer.rows[0])
    assert frame["n_std__"] == [answer.std[0][0]]
    assert len(frame) == 4 * len(answer.columns)


@pytest.mark.parametrize(
    ("sql", "is_chosen"),
    [
        ("SELECT sex, COUNT(*) AS n FROM town GROUP BY sex", False),
        ("SELECT sex, COUNT(*) AS n FROM town GROUP BY sex ORDER BY sex LIMIT 1", False),
        ("SELECT sex, COUNT(*) AS n FROM town GROUP BY sex HAVING n > 5", True),
        ("SELECT sex, COUNT(*) AS n FROM town GROUP BY sex ORDER BY n DESC LIMIT 1", True),
    ],
)
def test_an_answer_says_where_rows_were_chosen_by_their_noise(
    vault: OpenVault, sql: str, is_chosen: bool
) -> None:
    answer = vault["town"].ask(sql, epsilon=1)
    shown = (repr(answer), answer._repr_html_(), answer.plot().summary)
    assert [("do not hold for rows that were chosen" in text) for text in shown] == [is_chosen] * 3
