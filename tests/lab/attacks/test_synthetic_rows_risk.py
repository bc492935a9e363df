"""The three risks of synthetic rows agree with another implementation, and tell copies apart."""

from __future__ import annotations

import csv
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfumato.dp.refusal import Refused
from sfumato.lab.attacks.synthetic_rows_risk import (
    Risk,
    Tables,
    Tally,
    inference,
    inferred,
    is_right,
    linkability,
    linked,
    predicates_of_extremes,
    predicates_of_rows,
    singled_out,
    singles_out,
    singling_out,
)
from sfumato.lab.column_tables import Condition, Table, fulfils, is_number, taken
from sfumato.lab.synthetic_rows import draw_town

GOLDEN = Path(__file__).parent / "golden"
# What anonymeter 1.1.0 found on the three tables beside it. It needs numba and numpy below 2, so
# it cannot stand in our environment; its answers can.
THEIRS: dict[str, Any] = json.loads((GOLDEN / "anonymeter_1.1.0.json").read_text())
HALVES = (("age", "area"), ("salary", "height", "job"))
COLUMNS = ("age", "area", "salary", "height", "job")


def dice() -> np.random.Generator:
    return np.random.default_rng(7)


def read(name: str) -> Table:
    with (GOLDEN / f"anonymeter_{name}.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    texts = {column: [line[column] for line in lines] for column in COLUMNS}
    return {
        name: np.array(values) if name in ("area", "job") else np.array(values, dtype=float)
        for name, values in texts.items()
    }


def about(table: Table, name: str, row: int) -> Condition:
    column = table[name]
    if not is_number(column):
        return Condition(name, "=", column[row])
    return Condition(name, ">=" if column[row] > np.median(column) else "<=", column[row])


def town_tables(make: str) -> Tables:
    original, control = draw_town(150, dice()), draw_town(150, np.random.default_rng(8))
    fresh = draw_town(150, np.random.default_rng(9))
    return Tables(original, original if make == "copy" else fresh, control)


@pytest.mark.parametrize("case", THEIRS["linked"])
def test_the_same_people_are_linked_as_by_anonymeter(case: str) -> None:
    name, neighbours = case.split("/")
    ours = linked(read(name), read("synthetic"), HALVES, int(neighbours))
    assert np.flatnonzero(ours).tolist() == THEIRS["linked"][case]


@pytest.mark.parametrize("case", THEIRS["inferred"])
def test_the_same_secrets_are_inferred_as_by_anonymeter(case: str) -> None:
    name, secret = case.split("/")
    known = [column for column in COLUMNS if column != secret]
    ours = inferred(read(name), read("synthetic"), known, secret)
    assert np.flatnonzero(ours).tolist() == THEIRS["inferred"][case]


def test_as_many_rare_values_single_out_as_by_anonymeter() -> None:
    found = predicates_of_extremes(read("synthetic"))
    ours = {
        "predicates": len(found),
        "original": int(singles_out(found, read("original")).sum()),
        "control": int(singles_out(found, read("control")).sum()),
    }
    assert ours == THEIRS["extremes"]


@pytest.mark.parametrize("columns", THEIRS["fitting"])
def test_a_description_of_a_row_fits_as_many_as_by_anonymeter(columns: str) -> None:
    synthetic, names = read("synthetic"), columns.split(",")
    for table in ("synthetic", "original"):
        rows = read(table)
        theirs = THEIRS["fitting"][columns][table]
        ours = [
            int(fulfils(tuple(about(synthetic, name, row) for name in names), rows).sum())
            for row in range(len(theirs))
        ]
        assert ours == theirs


def test_descriptions_made_from_rows_are_of_that_kind_and_fit_one_synthetic_row() -> None:
    synthetic = read("synthetic")
    found = predicates_of_rows(synthetic, 200, 3, dice())
    assert len(found) == len(set(found)) == 200
    for predicate in found:
        (row,) = np.flatnonzero(fulfils(predicate, synthetic)).tolist()
        assert predicate == tuple(about(synthetic, one.column, row) for one in predicate)


def test_who_is_singled_out_is_the_one_whom_a_description_fits_alone() -> None:
    people: Table = {"age": np.array([20.0, 30.0, 40.0])}
    ages = [(Condition("age", ">=", 35.0),), (Condition("age", ">=", 25.0),)]
    assert singles_out(ages, people).tolist() == [True, False]
    assert singled_out(ages, people).tolist() == [False, False, True]


def test_a_copy_has_every_risk_and_fresh_rows_have_none() -> None:
    for make, has_risk in (("copy", True), ("fresh", False)):
        tables = town_tables(make)
        for risk in (
            linkability(tables, (("age", "area"), ("salary", "ill")), dice()),
            inference(tables, ("age", "area", "ill"), "salary", dice()),
            singling_out(tables, dice(), attacks=200),
        ):
            low, high = risk.within()
            assert (low > 0.3) if has_risk else (low <= 0 <= high)
            assert low <= risk.value <= high


def test_without_a_control_generalising_would_be_taken_for_leaking() -> None:
    risk = inference(town_tables("fresh"), ("age", "salary"), "area", dice())
    assert risk.main.rate > 0.1
    assert abs(risk.value) < 0.2


def test_the_risk_is_what_is_left_beyond_the_control() -> None:
    risk = Risk(Tally(60, 100), Tally(1, 100), Tally(20, 100))
    assert risk.value == pytest.approx(0.5)
    assert "50.0%" in risk.finding


def test_the_interval_of_the_risk_holds_as_often_as_it_says() -> None:
    generator, truth = dice(), (0.5 - 0.2) / 0.8
    held = 0
    for _ in range(300):
        main, control = generator.binomial(80, 0.5), generator.binomial(80, 0.2)
        low, high = Risk(Tally(int(main), 80), Tally(0, 80), Tally(int(control), 80)).within()
        held += low <= truth <= high
    assert held >= 285


def test_a_control_that_is_always_right_leaves_no_risk_to_measure() -> None:
    assert Risk(Tally(9, 9), Tally(0, 9), Tally(9, 9)).value == 0


def test_a_number_is_right_within_a_twentieth_and_a_word_only_if_it_is_the_word() -> None:
    assert is_right(np.array([100.0, 100.0]), np.array([105.0, 105.1])).tolist() == [True, False]
    assert is_right(np.array(["a", "b"]), np.array(["a", "c"])).tolist() == [True, False]


def test_the_example_of_the_docs_runs() -> None:
    page = Path(__file__).parents[3] / "docs" / "tutorials" / "lab-attacks-models.md"
    (block,) = [
        one for one in re.findall(r"(?:^    .*\n)+", page.read_text("utf-8"), re.M)
        if "Tables(" in one
    ]  # fmt: skip
    rows = [dict(draw_town(60, np.random.default_rng(seed))) for seed in range(3)]
    for table in rows:
        table["zip"] = table["area"]
    names = dict(zip(("original", "synthetic", "control"), rows, strict=True))
    exec(textwrap.dedent(block), {**names, "dice": dice()})  # noqa: S102  # our own page


def test_a_smaller_control_is_refused_for_singling_out() -> None:
    tables = town_tables("copy")
    smaller = Tables(tables.original, tables.synthetic, taken(tables.control, np.arange(10)))
    with pytest.raises(Refused, match="fewer rows"):
        singling_out(smaller, dice())
