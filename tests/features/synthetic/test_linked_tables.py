"""Tables of the same people hang together in a DP twin: who has rows there, and with what."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sfumato.app.vault import OpenVault
from sfumato.features.synthetic.junction_tree import root_tree, tree_of
from sfumato.features.synthetic.linked_tables import Link, drawn_with, partners
from sfumato.features.synthetic.maximum_entropy_model import Measured, fit_model
from sfumato.features.synthetic.row_sampling import sample_given
from sfumato.features.synthetic.seeded_numbers import Seeded
from support.small_vaults import open_with, write_csv

CARD = """
unit = "who"
budget = { epsilon = 500, delta = 1e-4 }
max_rows = 4
limits = { rows = 100000, rows_per_person = 50 }
[columns.ward]
type = "text"
keys = ["n", "s"]
[columns.cost]
type = "integer"
lower = 0
upper = 15
[tables.people]
limits = { rows = 100000, rows_per_person = 1 }
[tables.people.columns.home]
type = "boolean"
[tables.people.columns.sex]
type = "text"
keys = ["f", "m"]
[tables.pills]
limits = { rows = 100000, rows_per_person = 1 }
columns = { pill = { type = "text", keys = ["x", "y", "z"] } }
"""


def study(folder: Path, text: str = CARD) -> OpenVault:
    """Return women who mostly visit the north and take x, and men of whom half visit nothing."""
    dice = random.Random(2)
    people, visits, pills = [], [], []
    for n in range(1600):
        sex = "f" if n % 2 else "m"
        people.append((f"p{n}", dice.choice(["yes", "no"]), sex))
        if sex == "f" or dice.random() < 0.5:
            north = dice.random() < (0.9 if sex == "f" else 0.1)
            for _ in range(1 + n % 4):
                visits.append((f"p{n}", "n" if north else "s", dice.randrange(8) + 8 * north))
        pills.append((f"p{n}", "x" if sex == "f" else dice.choice("yz")))
    pills += [(f"q{n}", "z") for n in range(400)]  # nobody knows these
    tables = {
        "people": write_csv(folder / "p.csv", ("who", "home", "sex"), people),
        "pills": write_csv(folder / "d.csv", ("who", "pill"), pills),
    }
    source = write_csv(folder / "v.csv", ("who", "ward", "cost"), visits)
    return open_with(folder, "visits", source, text, tables=tables)


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with study(tmp_path_factory.mktemp("linked")) as opened:
        yield opened


def strangers(vault: OpenVault, method: str, delta: str) -> int:
    """Return how many of another twin's visitors are none of its people."""
    twin = vault["visits"].dp_twin(epsilon=6, delta=float(delta), method=method, seed="s")
    people = {row["who"] for row in twin.rows("people")}
    return len({row["who"] for row in twin.rows("visits")} - people)


@pytest.mark.parametrize(("method", "delta"), [("mst", "0"), ("mst", "1e-6"), ("aim", "0")])
def test_what_goes_with_a_persons_own_columns_is_in_the_twin(
    vault: OpenVault, method: str, delta: str
) -> None:
    twin = vault["visits"].dp_twin(epsilon=6, delta=float(delta), method=method, seed="s")
    stamp: Any = twin.stamp
    assert stamp["linked"] == {"visits": "people", "pills": "people"}
    sex = {row["who"]: row["sex"] for row in twin.rows("people")}
    wards = Counter((sex.get(row["who"]), row["ward"]) for row in twin.rows("visits"))
    assert wards["f", "n"] / (wards["f", "n"] + wards["f", "s"]) == pytest.approx(0.9, abs=0.06)
    assert wards["m", "n"] / (wards["m", "n"] + wards["m", "s"]) == pytest.approx(0.1, abs=0.08)
    visitors = Counter(sex.get(who) for who in {row["who"] for row in twin.rows("visits")})
    assert visitors["m"] / visitors["f"] == pytest.approx(0.5, abs=0.1)
    # whoever visits is among the people; of a hundred twins one may say otherwise, by its noise
    assert visitors[None] == 0 or 0 in (strangers(vault, method, delta) for _ in range(2))
    times = Counter(Counter(row["who"] for row in twin.rows("visits")).values())
    assert set(times) == {1, 2, 3, 4}
    pills = Counter((sex.get(row["who"]), row["pill"]) for row in twin.rows("pills"))
    assert pills["f", "x"] / sum(n for (s, _), n in pills.items() if s == "f") > 0.9
    others = sum(n for (s, _), n in pills.items() if s is None)
    assert others == pytest.approx(400, abs=90)


def test_what_goes_with_the_linked_column_goes_with_the_rest_of_its_row(vault: OpenVault) -> None:
    twin = vault["visits"].dp_twin(epsilon=20, delta=0, seed="s")
    costs = [(row["ward"], int(row["cost"]) >= 8) for row in twin.rows("visits") if row["cost"]]
    north = [high for ward, high in costs if ward == "n"]
    south = [high for ward, high in costs if ward == "s"]
    assert sum(north) / len(north) > 0.85
    assert sum(south) / len(south) < 0.15


def test_links_are_paid_out_of_the_price_and_told_before(vault: OpenVault) -> None:
    spent = vault["visits"].budget["spent"]
    told: Any = vault["visits"].dp_twin_price(epsilon=1, delta=0)
    assert told["linked"]["tables"] == {"visits": "people", "pills": "people"}
    assert told["linked"]["share"] == pytest.approx(2 / 15)
    assert vault["visits"].budget["spent"] == spent
    twin = vault["visits"].dp_twin(epsilon=1, delta=0, op="paid")
    after = vault["visits"].budget["spent"]
    assert 0.9999 < after["epsilon"] - spent["epsilon"] <= 1
    measured: Any = twin.stamp["measured"]
    for name in ("visits", "pills"):
        pairs = [one["counted"] for one in measured[name] if "counted" in one][-1]
        assert pairs[0].startswith("people.")
        assert pairs[1].startswith(f"{name}.")
    assert vault["visits"].dp_twin(epsilon=1, delta=0, op="paid").files == twin.files
    assert vault["visits"].budget["spent"] == after


def test_without_pairs_tables_meet_by_chance(vault: OpenVault) -> None:
    twin = vault["visits"].dp_twin(epsilon=6, delta=0, method="independent", seed="s")
    assert twin.stamp["linked"] == {}
    sex = {row["who"]: row["sex"] for row in twin.rows("people")}
    wards = Counter((sex.get(row["who"]), row["ward"]) for row in twin.rows("visits"))
    of_f, of_m = (wards[s, "n"] / (wards[s, "n"] + wards[s, "s"]) for s in "fm")
    assert abs(of_f - of_m) < 0.1


def test_tables_whose_card_lets_nothing_be_joined_are_not_linked(tmp_path: Path) -> None:
    text = CARD.replace("limits = { rows = 100000, rows_per_person = 50 }\n", "")
    text = text.replace("limits = { rows = 100000, rows_per_person = 1 }\n", "")
    with study(tmp_path, text) as opened:
        told: Any = opened["visits"].dp_twin_price(epsilon=1, delta=0)
        assert told["linked"] == {"tables": {}, "share": 0}
        twin = opened["visits"].dp_twin(epsilon=1, delta=0, rows=20)
        assert twin.stamp["linked"] == {}
        assert 0.9999 < opened["visits"].budget["spent"]["epsilon"] <= 1


# --- what is made of released numbers -------------------------------------------------------------

PAIR = np.array([[60.0, 0.0], [10.0, 30.0], [-5.0, -4.0]])
LINK = Link("people", 0, (0, 1, 2), 1, PAIR)


def test_as_many_of_each_kind_have_rows_as_were_counted_and_others_come_after() -> None:
    codes = np.repeat([0, 1, 2], 100).reshape(-1, 1)
    found = partners(LINK, (np.arange(300), codes), (150, 1.0), Seeded("s"))
    assert len(set(found.people.tolist())) == 150
    assert Counter(found.kinds.tolist()) == {0: 60, 1: 40, 3: 50}
    assert all(found.kinds[found.people >= 300] == 3)
    assert all(found.kinds[found.people < 300] == codes[found.people[found.people < 300], 0])


def test_where_the_noise_could_hide_that_there_are_no_others_there_are_none() -> None:
    codes = np.repeat([0, 1, 2], 100).reshape(-1, 1)
    near = Link("people", 0, (0, 1, 2), 1, PAIR, slack=20)
    found = partners(near, (np.arange(300), codes), (110, 1.0), Seeded("s"))
    assert len(set(found.people.tolist())) == 110
    assert found.people.max() < 300


def test_a_twin_of_another_size_has_them_in_the_same_shares() -> None:
    codes = np.repeat([0, 1, 2], 10).reshape(-1, 1)
    found = partners(LINK, (np.arange(30), codes), (15, 0.1), Seeded("s"))
    assert Counter(found.kinds.tolist()) == {0: 6, 1: 4, 3: 5}


def test_the_linked_column_is_drawn_by_kind_and_alone_for_others() -> None:
    kinds = np.repeat([0, 1, 2, 3], 1000)
    drawn = drawn_with(LINK, kinds, np.array([30.0, 70.0]), Seeded("s"))
    shares = [drawn[kinds == kind].mean() for kind in range(4)]
    assert shares == pytest.approx([0, 0.75, 0.7, 0.7], abs=0.01)


SIZES = (3, 2, 4, 2)


@pytest.mark.parametrize("column", range(4))
def test_what_is_drawn_beside_a_given_column_is_as_the_model_has_it(column: int) -> None:
    dice = np.random.default_rng(3)
    cliques = ((0, 1), (1, 2), (2, 3))
    measured = [
        Measured(c, dice.dirichlet(np.ones(SIZES[c[0]] * SIZES[c[1]])).reshape(
            SIZES[c[0]], SIZES[c[1]]) * 5000 + 50, 1.0)
        for c in cliques
    ]  # fmt: skip
    model = fit_model(SIZES, measured, 5000.0)
    given = np.repeat(np.arange(SIZES[column]), 3000)
    drawn = sample_given(model, column, given, Seeded("s"))
    assert (drawn[:, column] == given).all()
    for other in (c for c in range(4) if c != column):
        pair = model.marginal(tuple(sorted((column, other))))
        table = pair if column < other else pair.T
        for value in range(SIZES[column]):
            found = np.bincount(drawn[given == value, other], minlength=SIZES[other])
            expected = table[value] / table[value].sum() * 3000
            assert stats.chisquare(found, expected).pvalue > 1e-6, (other, value)


@pytest.mark.parametrize("column", range(5))
def test_a_tree_branches_from_any_column_with_what_is_shared_on_the_way(column: int) -> None:
    tree = tree_of((2, 3, 4, 2, 3), ((0, 1), (1, 2), (0, 2), (2, 3), (3, 4)))
    turned = root_tree(tree, column)
    assert turned.cliques == tree.cliques
    assert turned.branches[0].shared == (column,)
    seen = {column}
    for branch in turned.branches:
        clique = set(turned.cliques[branch.clique])
        assert clique & seen == set(branch.shared) or branch is turned.branches[0]
        if branch.above is not None:
            assert set(branch.shared) <= set(turned.cliques[branch.above])
        seen |= clique
