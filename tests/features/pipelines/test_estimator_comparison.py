"""Mean, trimmed mean or median of blocks: what is proposed is what comes nearer, on synthetic rows.

What is expected of each is compared with the mechanisms themselves, on the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.client.display import BlocksPlan
from sfumato.dp.mechanisms.median_of_blocks import choose_median, mean_square_error
from sfumato.dp.ports import IntegerArray
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.estimator_comparison import (
    Combination,
    best_of,
    combinations_of,
    compare,
)
from sfumato.features.pipelines.model import TrialChoice
from sfumato.features.pipelines.program_plan import MEDIAN, Program, Run, read_run
from sfumato.features.pipelines.program_trial import Table, TrialReport
from sfumato.features.pipelines.schema import PipelinePlan
from sfumato.features.pipelines.store import SqlPipelines
from sfumato.release.guarantees.central_dp import noisy_sums_of_blocks
from sfumato.sandbox.ports import SandboxLimits
from sfumato.sandbox.program_outputs import read_outputs
from sfumato.vault.sealed import Sealed
from support.sandbox_blocks import needs_bubbles
from support.seeded_dice import SeededDice
from support.small_vaults import card, make_vault, write_csv

STEPS, DRAWS = 1000, 4000


def run(blocks: int = 100, epsilon: Fraction = Fraction(1), outputs: int = 1) -> Run:
    made = read_outputs(
        [{"name": f"m{n}", "lower": 0, "upper": 100, "step": "0.1"} for n in range(outputs)]
    )
    program = Program("d", "function", "def f(rows): ...", "f", ("h",), made)
    return Run(program, blocks, 0, epsilon, SandboxLimits())


def found(asked: Run, whole: int, tried: list[int]) -> dict[tuple[str, int], float]:
    """Return the expected error of each combination, in steps."""
    blocks = np.array(tried, dtype=np.int64).reshape(-1, 1)
    places = np.random.default_rng(7).integers(len(tried), size=(64, asked.blocks))
    made = compare(asked, np.array([whole]), blocks, places)
    return {(one.take, one.trim): 10 * one.error["m0"] for one in made}


def best(asked: Run, whole: int, tried: list[int]) -> tuple[str, int]:
    blocks = np.array(tried, dtype=np.int64).reshape(-1, 1)
    places = np.random.default_rng(7).integers(len(tried), size=(64, asked.blocks))
    one = best_of(compare(asked, np.array([whole]), blocks, places))
    return one.take, one.trim


def test_the_ways_to_combine_are_the_mean_trimmed_means_and_the_median() -> None:
    assert [(one.take, one.trim) for one in combinations_of(run(100))] == [
        ("mean", 0), ("mean", 5), ("mean", 10), ("mean", 20), ("median", 0),
    ]  # fmt: skip
    assert [one.trim for one in combinations_of(run(2))] == [0, 0]
    assert [one.trim for one in combinations_of(run(10))] == [0, 1, 2, 0]


def test_blocks_that_differ_on_both_sides_are_averaged() -> None:
    assert best(run(), 500, [250, 350, 450, 500, 550, 650, 750, 500]) == ("mean", 0)


def test_blocks_that_agree_have_a_median_with_less_error_than_the_noise_of_a_mean() -> None:
    assert best(run(), 500, [490, 505, 500, 495, 510, 500, 497, 503]) == ("median", 0)


def test_one_wild_block_in_eight_is_trimmed_or_passed_over() -> None:
    take, trim = best(run(), 500, [499, 500, 501, 500, 499, 501, 500, 0])
    assert (take, trim > 0) in (("mean", True), ("median", False))
    assert best(run(epsilon=Fraction(20)), 500, [500] * 6 + [0, 0])[0] == "median"


def test_little_epsilon_leaves_the_median_no_chance() -> None:
    errors = found(run(20, Fraction(1, 2)), 500, [490, 505, 500, 495, 510, 500, 497, 503])
    assert errors["median", 0] > 1.5 * errors["mean", 0]


def test_the_expected_error_of_a_mean_is_that_of_the_mechanism() -> None:
    for trim in (0, 20):
        asked = replace(run(), trim=trim)
        values = np.array([400, 500, 500, 520, 480, 500, 510, 900])
        blocks = values[np.random.default_rng(7).integers(8, size=(400, asked.blocks))]
        (noise,) = asked.noises
        drawn = noise.sample(400, SeededDice(6))
        far = [
            noisy_sums_of_blocks(Sealed(one.reshape(-1, 1)), trim, [np.array([more])])[0]
            / asked.counted - 500
            for one, more in zip(blocks, drawn, strict=True)
        ]  # fmt: skip
        said = found(asked if not trim else run(), 500, values.tolist())["mean", trim]
        assert np.sqrt(np.mean(np.square(far))) == pytest.approx(said, rel=0.25)


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(3), Fraction(8)])
def test_the_expected_error_of_a_median_is_that_of_the_mechanism(epsilon: Fraction) -> None:
    values: IntegerArray = np.array([100] * 3 + [480, 490, 500, 500, 500, 510, 520, 700])
    dice = SeededDice(5)
    far = [choose_median(values, STEPS, epsilon, dice) - 520 for _ in range(DRAWS)]
    squares = np.square(np.array(far, dtype=np.float64))
    error = 5 * squares.std() / np.sqrt(DRAWS)
    assert abs(squares.mean() - mean_square_error(values, STEPS, epsilon, 520)) < error + 1e-6


def test_another_way_than_the_mean_has_to_be_clearly_better() -> None:
    def combined(take: str, relative: float) -> Combination:
        return Combination(take, 0, {}, relative)

    assert best_of([combined("mean", 1.0), combined("median", 0.91)]).take == "mean"
    assert best_of([combined("mean", 1.0), combined("median", 0.89)]).take == "median"


def test_a_median_has_the_shares_of_the_price_that_it_will_be_charged() -> None:
    many = {"name": "i", "lower": 0, "upper": 1, "step": "0.001", "shape": [40]}
    made = read_outputs([many, {"name": "m", "lower": 0, "upper": 1}])
    program = Program("d", "function", "def f(rows): ...", "f", ("h",), made)
    terms = {"blocks": 20, "epsilon": 1, "split": {"m": 5}}
    asked = read_run(program, terms, Fraction(1, 10**6))
    assert asked.mechanism == "gaussian"
    *_, median = combinations_of(asked)
    paid = read_run(program, {**terms, "take": MEDIAN}, Fraction(1, 10**6))
    assert (median.losses, median.event) == (paid.losses, paid.event)


# --- the trial proposes, and the run does it ------------------------------------------------------

CARD = """
unit = "who"
people = "town"
budget = { epsilon = 1000, delta = 0 }
[caps]
user = { epsilon = 1000 }
[columns.height]
type = "number"
lower = 100
upper = 200
step = 0.5
"""
OUTPUT = {"m": (0, 200, 1)}
TRIED: dict[str, Any] = {"outputs": OUTPUT, "people": 400}
QUICK: dict[str, Any] = {"outputs": OUTPUT, "epsilon": 900, "cpu_s": 3}


def often_wild(rows: Any) -> float:
    return 0.0 if len(rows) and rows["height"].iloc[0] < 125 else 150.0


def steady(rows: Any) -> float:
    return 150.0


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    rows = [(f"n{place:03d}", 101 + place % 90) for place in range(300)]
    source = write_csv(tmp_path / "t.csv", ("who", "height"), rows)
    with sfumato.open(make_vault(tmp_path)) as made:
        made.add("town", source, card(CARD))
        made.house.desk.pipelines.door.sandbox._sleep = lambda _: None  # type: ignore[attr-defined]  # of SandboxPool
        yield made


def plan(vault: OpenVault, function: Any, epsilon: int = 900, seed: str = "s") -> BlocksPlan:
    submitted = vault["town"].submit(function, outputs=OUTPUT)
    body = {"data_set": "town", "pipeline": submitted["digest"], "epsilon": epsilon, "people": 400,
            "seed": seed}  # fmt: skip
    return BlocksPlan(vault.call("plan-pipeline", body))


def chosen_by(answer: Any) -> str:
    return str(cast("Any", answer.receipt).get("chosen_by", ""))


def refused(act: Any) -> Refused:
    with pytest.raises(Refused) as found:
        act()
    assert found.value.code == "bad-pipeline"
    return found.value


@needs_bubbles
def test_a_run_does_what_its_last_trial_proposed(vault: OpenVault) -> None:
    town = vault["town"]
    assert "sfumato pipeline plan" in str(
        refused(lambda: town.run(often_wild, take="auto", **QUICK))
    )
    found = plan(vault, often_wild)
    choice = found["choice"]
    assert found["proposed"] == choice["blocks"]
    assert msgspec.convert(found.shape, PipelinePlan).proposed == choice["blocks"]
    assert (choice["take"], choice["trim"] > 0) in (("median", False), ("mean", True))
    shown = str(found)
    assert f"Proposed: the {choice['says']} of {choice['blocks']} blocks (--take auto)." in shown
    assert "Expected errors there (noise, bias and spread)" in shown
    answer = town.run(often_wild, take="auto", **QUICK)
    terms = cast("Any", answer.receipt)["pipeline"]
    assert (terms["blocks"], terms["trim"], terms.get("take", "mean")) == (
        choice["blocks"], choice["trim"], choice["take"],
    )  # fmt: skip
    assert chosen_by(answer) == (
        f"Chosen by the program's last trial: {choice['says']} of {choice['blocks']} blocks "
        "(400 synthetic people, epsilon 900, seed s)."
    )
    same = town.run(
        often_wild, take=choice["take"], trim=choice["trim"], blocks=choice["blocks"], **QUICK
    )
    assert same.rows == answer.rows  # the same question, and free
    assert chosen_by(same) == ""
    refused(lambda: town.run(often_wild, take="auto", trim=1, **QUICK))
    assert "proposed something for" in str(
        refused(lambda: town.run(often_wild, take="auto", blocks=33, **QUICK))
    )
    body = {"data_set": "town", "pipeline": terms["digest"], "epsilon": 900, "take": "auto"}
    assert vault.call("price-pipeline", body)["chosen_by"] == chosen_by(answer)


@needs_bubbles
def test_a_proposal_depends_on_card_program_and_seed_and_on_no_row(
    vault: OpenVault, tmp_path: Path
) -> None:
    first = plan(vault, often_wild)
    source = write_csv(tmp_path / "u.csv", ("who", "height"), [("ann", 199)])
    other = tmp_path / "other"
    other.mkdir()
    with sfumato.open(make_vault(other)) as made:
        made.add("town", source, card(CARD))
        again = plan(made, often_wild)
    assert (again["choice"], again["at"]) == (first["choice"], first["at"])
    assert not any(a.spent.epsilon for a in vault.house.ledger.store.accounts())


@needs_bubbles
def test_the_last_trial_counts(vault: OpenVault) -> None:
    town = vault["town"]
    plan(vault, steady)
    plan(vault, steady, epsilon=10, seed="later")
    answer = town.run(steady, take="auto", blocks=20, **QUICK)
    assert "of 20 blocks (400 synthetic people, epsilon 10, seed later)" in chosen_by(answer)


def test_choices_are_those_of_the_last_trial(vault: OpenVault) -> None:
    store = cast("SqlPipelines", vault.house.desk.pipelines.store)
    first = TrialChoice(20, "mean", 2, 1, "a"), TrialChoice(50, "median", 0, 0, "a")
    store.set_choices("town", "d", first)
    store.set_choices("town", "other", first[:1])
    assert store.choices("town", "d") == first[::-1]
    store.set_choices("town", "d", ())
    assert store.choices("town", "d") == ()
    assert store.choices("town", "other") == first[:1]


def test_the_proposed_number_of_blocks_is_that_of_the_first_choice() -> None:
    """Its noise and bias together need not be the least: spread counts too."""
    lines = tuple(
        TrialReport(
            run(blocks), {"m0": 0.0}, {"m0": 0.0}, {"m0": 0}, {"m0": 0},
            (Combination("mean", 0, {"m0": 100 * relative}, relative),), {},
        )
        for blocks, relative in ((10, 0.01), (100, 0.02))
    )  # fmt: skip
    table = Table(lines, (), (), (), 0.0)
    assert min(lines, key=lambda line: line.together) is lines[1]
    assert (table.proposed, table.likely.blocks) == (10, 10)
    assert table.warnings() == []
    silent = replace(table, silent=("m0",))
    assert (silent.proposed, silent.choices) == (None, ())
    assert silent.warnings() == [
        "No number of blocks is proposed, because everybody together gave no number for m0."
    ]
