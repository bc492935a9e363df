"""Where a program is only a mean, its plan offers the same mean in SQL, with less error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.client.display import BlocksPlan
from sfumato.features.pipelines.means_of_columns import (
    MeanOfColumn,
    SyntheticRows,
    means_of_columns,
)
from sfumato.sandbox.program_outputs import Output, read_outputs
from sfumato.vault.card.data_card import Card, read_card
from support.sandbox_blocks import needs_bubbles
from support.small_vaults import card, make_vault, write_csv

CARD = """
unit = "who"
people = "town"
size = 58
budget = { epsilon = 10, delta = 0 }
[columns.sex]
type = "text"
keys = ["f", "it's"]
[columns.height]
type = "number"
lower = 100
upper = 200
step = 0.5
[columns."years old"]
type = "integer"
lower = 0
upper = 100
"""
HEIGHTS = {"lower": 100, "upper": 200, "step": "0.5"}


def town() -> Card:
    import tomllib

    return read_card("town", tomllib.loads(CARD))


def rows(count: int = 60) -> SyntheticRows:
    """Return people with two rows each, of whom some have no height."""
    dice = np.random.default_rng(3)
    cells, people = [], []
    for place in range(2 * count):
        name = f"n{place // 2:02d}"
        height = "n/a" if place % 7 == 0 else str(100 + dice.integers(200) / 2)
        cells.append((name, ["f", "it's"][place % 2], height, str(dice.integers(100))))
        people.append(name)
    return SyntheticRows(("who", "sex", "height", "years old"), tuple(people), tuple(cells))


def found(
    function: Any, *outputs: dict[str, Any], made: SyntheticRows | None = None
) -> tuple[MeanOfColumn, ...]:
    """Return what is found where this function of rows gives each output of a block."""
    made, declared = rows() if made is None else made, read_outputs(list(outputs))
    names = sorted(set(made.people))
    groups = [names, names[:30], names[30:], names[:5], names[5:12], names[12:30], []]
    numbers = np.array([steps(declared, function(mine(made, set(group)))) for group in groups])
    return means_of_columns(town(), declared, made, groups, numbers)


def steps(outputs: tuple[Output, ...], values: Any) -> list[int]:
    return [
        number
        for output, value in zip(outputs, values, strict=True)
        for number in (
            [output.snapped(one) for one in value] if output.shape else [output.snapped(value)]
        )
    ]


def mine(made: SyntheticRows, group: set[str]) -> dict[str, Any]:
    is_in = np.array([name in group for name in made.people], dtype=bool)
    return {
        "sex": np.array(made.texts("sex"))[is_in],
        "height": made.numbers("height")[is_in],
        "age": made.numbers("years old")[is_in],
    }


def mean(values: Any) -> float:
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


def test_a_mean_is_found_whatever_the_output_is_called() -> None:
    (one,) = found(lambda r: [mean(r["height"])], {"name": "x", **HEIGHTS})
    assert (one.output, one.column, one.where, one.people) == ("x", "height", None, 60)
    assert one.sql(town()) == "SELECT AVG(height) FROM town"


def test_a_mean_of_some_rows_is_found_with_its_condition() -> None:
    (one,) = found(
        lambda r: [mean(r["age"][r["sex"] == "it's"])], {"name": "x", "lower": 0, "upper": 100}
    )
    assert one.where == ("sex", "it's")
    assert one.sql(town()) == """SELECT AVG("years old") FROM town WHERE sex = 'it''s'"""


def test_a_rounded_mean_is_still_one() -> None:
    assert found(lambda r: [np.round(mean(r["height"]) * 2) / 2], {"name": "x", **HEIGHTS})


def test_each_output_is_looked_at_alone_and_arrays_are_left_out() -> None:
    made = found(
        lambda r: [[1, 2, 3], mean(r["age"]), mean(r["height"])],
        {"name": "a", "lower": 0, "upper": 9, "shape": [3]},
        {"name": "b", "lower": 0, "upper": 100}, {"name": "c", **HEIGHTS},
    )  # fmt: skip
    assert [(one.output, one.column) for one in made] == [("b", "years old"), ("c", "height")]


@pytest.mark.parametrize("function", [
    lambda r: [float(np.nanmedian(r["height"])) if len(r["height"]) else 150.0],
    lambda r: [mean(r["height"]) + 2], lambda r: [150.0], lambda r: [float("nan")],
    lambda r: [mean(r["height"][: len(r["height"]) // 2])],
    lambda r: [mean(r["height"]) if len(r["height"]) > 20 else 150.0],
])  # fmt: skip
def test_what_is_no_mean_on_every_block_is_none(function: Any) -> None:
    assert found(function, {"name": "x", **HEIGHTS}) == ()


def test_an_agreement_that_is_chance_is_none() -> None:
    """A program that gives 150 always is no mean, also if everybody's height is near 150."""
    made = rows()
    cells = tuple((who, sex, f"{150 + place % 2 / 2}", age)
                  for place, (who, sex, _, age) in enumerate(made.cells))  # fmt: skip
    alike = replace(made, cells=cells)
    assert found(lambda r: [150.0], {"name": "x", **HEIGHTS}, made=alike) == ()


# --- what a plan offers ---------------------------------------------------------------------------


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    lines = [(f"n{n}", "f", 150, 40) for n in range(58)]
    source = write_csv(tmp_path / "t.csv", ("who", "sex", "height", "years old"), lines)
    with sfumato.open(make_vault(tmp_path)) as made:
        made.add("town", source, card(CARD))
        yield made


def average(rows: Any) -> float:
    return float(rows["height"].mean())


def spread(rows: Any) -> float:
    return float(rows["height"].std())


@needs_bubbles
def test_a_plan_offers_the_mean_in_sql_with_the_error_that_sql_has(vault: OpenVault) -> None:
    found = vault["town"].plan(average, outputs={"m": (100, 200, 0.5)}, epsilon=1)
    (offer,) = found["in_sql"]
    assert offer["sql"] == "SELECT AVG(height) FROM town"
    assert offer["times"] > 2
    price: Any = vault["town"].price(offer["sql"], epsilon=1, people=offer["people"])
    assert list(price["error"].values()) == [pytest.approx(offer["error"])]
    row = next(one for one in found["at"] if one["blocks"] == found["proposed"])
    empty = (1 - 1 / row["blocks"]) ** 58
    assert offer["error_of_program"] == pytest.approx(row["noise"]["m"] + 50 * empty)
    assert offer["times"] == pytest.approx(offer["error_of_program"] / offer["error"])
    shown = repr(BlocksPlan(cast("Any", found).shape))
    assert "`SELECT AVG(height) FROM town` has " in shown
    assert not any(a.spent.epsilon for a in vault.house.ledger.store.accounts())


@needs_bubbles
def test_a_plan_of_another_program_offers_nothing(vault: OpenVault) -> None:
    found = vault["town"].plan(spread, outputs={"s": (0, 100, 0.5)}, epsilon=1)
    assert found["in_sql"] == []
