"""What contribution bounds cut is said by price, answer, receipt, plot and notebook; never judged.

The people here have three rows each, in two groups; the card counts three rows of a person in one
group, so the numbers are far from the truth and their error bars are not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sfumato.app.vault import OpenVault
from sfumato.client import Answer
from support.small_vaults import open_with, run, write_csv

CARD = """
unit = "who"
people = "smokers"
budget = { epsilon = 1000, delta = 1e-3 }
max_rows = 3
limits = { rows = 100000, rows_per_person = 3 }
[columns.smoker]
type = "boolean"
"""
SQL = "SELECT smoker, COUNT(*) AS n FROM town GROUP BY smoker"
BOTH = "a person counts in at most 1 of the 2 groups, with at most 3 rows"
SET = "raise max_groups (--max-groups)"
SURE = 60.0  # an epsilon at which the noise of one row is nothing


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bounds")


@pytest.fixture(scope="module")
def vault(folder: Path) -> Iterator[OpenVault]:
    rows = [(f"p{who}", ("yes", "no")[(who + row) % 2]) for who in range(400) for row in range(3)]
    with open_with(folder, "town", write_csv(folder / "t.csv", ("who", "smoker"), rows), CARD) as v:
        yield v


@pytest.fixture(scope="module")
def cut(vault: OpenVault) -> Answer:
    return vault["town"].ask(SQL, epsilon=SURE)


def test_far_fewer_are_counted_than_there_are_and_no_error_bar_says_so(cut: Answer) -> None:
    numbers = [int(str(row[1])) for row in cut.rows]
    assert all(number < 400 for number in numbers)  # of 600 in each group
    assert all(bar[1] is not None and bar[1][1] < 400 for bar in cut.interval)


def test_price_answer_receipt_plot_and_notebook_name_both_bounds_and_what_to_set(
    vault: OpenVault, cut: Answer
) -> None:
    price = vault["town"].price(SQL, epsilon=SURE)
    plot = cut.plot()
    receipt = json.dumps(cut.receipt)
    shown = [repr(price), price._repr_html_(), repr(cut), cut._repr_html_(), receipt]
    shown += [plot.summary, plot._repr_html_(), json.dumps(plot.spec)]
    for text in shown:
        assert BOTH in text
        assert SET in text
    assert cut.receipt["bounds"] == price["bounds"]
    assert cut.receipt["bounds"] == {
        "max_groups": 1, "max_rows": 3, "groups": 2, "may_cut": ["max_groups"],
    }  # fmt: skip


def test_the_picture_itself_names_the_bounds(cut: Answer, tmp_path: Path) -> None:
    """A saved picture is passed on without its words."""
    title = cut.plot().spec["title"]
    assert isinstance(title, dict)
    assert BOTH in " ".join(title["subtitle"])
    assert BOTH in cut.plot().save(tmp_path / "a.svg").read_text("utf-8")


def test_a_plot_of_what_may_be_cut_calls_no_pair_different(vault: OpenVault, cut: Answer) -> None:
    far = replace(cut, rows=((False, 10), (True, 90000)))
    for summary in (cut.plot().summary, far.plot().summary):
        assert "Differences are not judged: contribution bounds can affect" in summary
        assert "pairs differ" not in summary
        assert "by more than noise" not in summary


def test_with_the_bounds_set_the_truth_is_there_and_pairs_are_judged(vault: OpenVault) -> None:
    answer = vault["town"].ask(SQL, epsilon=SURE, max_groups=2)
    assert answer.rows == ((False, 600), (True, 600))
    assert answer.receipt["advice"] == []
    assert "0 of 1 pairs differ by more than their noise" in answer.plot().summary
    assert "max_groups" not in repr(answer)


def test_the_command_line_says_it_too(vault: OpenVault, folder: Path) -> None:
    vault["town"]
    shown = run(folder / "vault", "price", "town", SQL, "--epsilon", "1", SFUMATO_USER="owner")
    assert BOTH in shown.stdout
    assert "--max-groups" in shown.stdout


def test_cells_and_their_total_are_of_the_same_bounds(vault: OpenVault, cut: Answer) -> None:
    """They are said in other words, for a total has no groups."""
    rows = vault["town"].ask("SELECT COUNT(*) AS n FROM town", epsilon=SURE)
    assert rows.receipt["bounding"] != cut.receipt["bounding"]
    people = "COUNT(DISTINCT who) AS n FROM town"
    cells = vault["town"].ask(f"SELECT smoker, {people} GROUP BY smoker", epsilon=SURE)
    total = vault["town"].ask(f"SELECT {people}", epsilon=SURE)
    assert total.rows == ((400,),)
    assert sum(int(str(row[1])) for row in cells.rows) == 400
    assert sum(float(str(row[1])) for row in cells.tidy(total).rows) == pytest.approx(400)


def test_an_answer_of_an_older_service_says_what_it_said(cut: Answer) -> None:
    receipt = {k: v for k, v in cut.receipt.items() if k not in ("bounds", "advice")}
    old = replace(cut, receipt=receipt)
    assert BOTH in repr(old)
    assert "max_groups" not in repr(old)
    assert "pairs differ" in old.plot().summary


def test_what_is_said_of_the_bounds_is_the_same_whatever_the_rows_are(
    vault: OpenVault, cut: Answer, tmp_path: Path
) -> None:
    """Here nobody has more than one row, so nothing is cut; and nothing says so."""
    rows = [(f"p{who}", "yes") for who in range(7)]
    file = write_csv(tmp_path / "t.csv", ("who", "smoker"), rows)
    with open_with(tmp_path, "town", file, CARD) as opened:
        town = opened["town"]
        price, answer = town.price(SQL, epsilon=SURE), town.ask(SQL, epsilon=SURE)
    other = vault["town"].price(SQL, epsilon=SURE)
    for word in ("bounding", "bounds", "advice"):
        assert answer.receipt[word] == cut.receipt[word] == price[word] == other[word]
