"""Convolutions and tables learn from a prepared table: whoever is left out, nobody else moves."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from sfumato.dp.learning.integer_network import SUM_BITS
from sfumato.dp.learning.training_task import read_training_task
from sfumato.dp.secure_aggregation.round_terms import Member
from sfumato.engines.duckdb import training
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.duckdb.training import train
from sfumato.features.federated.agreement import Agreement
from sfumato.features.federated.training_plan import TrainPlan, plan_training
from sfumato.release.unseal import unseal
from sfumato.vault.card.data_card import Card, read_card
from support.engine_rows import prepare, write_source

MEMBERS = tuple(Member(name, name.encode() * 16) for name in ("ab", "cd", "ef", "gh"))
AGREEMENT = Agreement("clinics", bytes(32), MEMBERS, 3, 1)
INKS = [f"p{n}" for n in range(9)]
HEADER = ("who", *INKS, "ward", "town", "ill")
KINDS = ("a", "b", "c")


def row(who: str, seed: int, **changed: str) -> tuple[str, ...]:
    drawn = np.random.default_rng(seed)
    inks = [str(one) for one in drawn.integers(0, 17, 9)]
    said = {"ward": str(seed % 7 - 3), "town": KINDS[seed % 3], "ill": "true", **changed}
    return (who, *inks, said["ward"], said["town"], said["ill"])


ROWS = [
    row("p0", 1), row("p0", 1), row("p0", 2),
    row("p1", 3, ward=""), row("p1", 4, town=""), row("p1", 5, ill="false"),
    row("p2", 6, ward="-999999"), row("p3", 7, ward="1e17"),
    row("p4", 8, town="zz"), row("p5", 9, town="c", ill="false"), row("", 10),
    *(row(f"q{n}", n + 20, ill=str(n % 2 == 0).lower()) for n in range(20)),
]  # fmt: skip
FRONT: dict[str, Any] = {
    "image": [1, 3, 3], "conv": [{"channels": 2, "kernel": 2, "padding": 1, "pool": 2}],
    "embed": {"ward": 3, "town": 2},
}  # fmt: skip


def a_card() -> Card:
    columns: dict[str, Any] = {
        **{ink: {"type": "integer", "lower": 0, "upper": 16} for ink in INKS},
        "ward": {"type": "integer", "lower": -3, "upper": 3},
        "town": {"type": "text", "keys": list(KINDS)},
        "ill": {"type": "boolean"},
    }
    budget = {"epsilon": Fraction(90), "delta": Fraction(1, 1000)}
    shape = {"budget": budget, "columns": columns, "unit": "who", "max_rows": 2}
    return read_card("people", {**shape, "limits": {"rows": 1000}})


def a_plan(**changed: Any) -> TrainPlan:
    shape = {
        "name": "ab" * 32, "features": [*INKS, "ward", "town"], "target": "ill", "hidden": [4],
        "rounds": 1, "clip": Fraction(1, 2), "max_rows": 2, "activation": "tanh", **FRONT,
        **changed,
    }  # fmt: skip
    return plan_training(
        a_card(), read_training_task(shape), AGREEMENT, Fraction(9), Fraction(1, 10**6)
    )


PLANS = [
    a_plan(), a_plan(max_rows=1), a_plan(features=["ward", "town"], image=None, conv=None),
    a_plan(local=3, rate=1, each="person"),
]  # fmt: skip


def flat_of(plan: TrainPlan) -> bytes:
    return np.random.default_rng(1).normal(size=plan.size).astype("<f4").tobytes()


def sums_of(
    engine: DuckDBEngine, folder: Path, rows: list[Any], plans: list[TrainPlan]
) -> list[np.ndarray]:
    folder.mkdir()
    table, _ = prepare(engine, write_source(folder / "rows.csv", HEADER, rows), a_card())
    with duckdb.connect(table, read_only=True) as connection:
        return [train(connection, plan.order(table, flat_of(plan)), {}) for plan in plans]


def test_whoever_is_left_out_moves_the_sum_by_no_more_than_the_clip(tmp_path: Path) -> None:
    """Neighbours of soundness rule 1: rows twice, values that lack, are far out, or no key."""
    engine, longest = DuckDBEngine(bytes(32)), [0] * len(PLANS)
    try:
        whole = sums_of(engine, tmp_path / "whole", ROWS, PLANS)
        nobody = sums_of(engine, tmp_path / "nobody", [r for r in ROWS if not r[0]], PLANS)
        for who in ("p0", "p1", "p2", "p3", "p4", "q0"):
            others = [r for r in ROWS if r[0] != who]
            own = [r for r in ROWS if r[0] == who]
            rest = sums_of(engine, tmp_path / who, others, PLANS)
            alone = sums_of(engine, tmp_path / f"{who} alone", own, PLANS)
            for place in range(len(PLANS)):
                assert (whole[place] - rest[place] == alone[place]).all()
                squared = sum(int(one) ** 2 for one in alone[place])
                longest[place] = max(longest[place], squared)
    finally:
        engine.close()
    most = int(PLANS[0].lesson.clip * 2**SUM_BITS) ** 2
    assert max(longest) <= most
    assert min(longest) > 0.8 * most  # somebody is nearly as long as they may be
    assert not any(one.any() for one in nobody)


def test_a_value_far_out_chooses_the_edge_of_its_table(tmp_path: Path) -> None:
    """And one within chooses the entry of its whole number, by the card's least."""
    plan = a_plan(features=["ward"], image=None, conv=None, embed={"ward": 3}, max_rows=1)
    engine, chosen = DuckDBEngine(bytes(32)), {}
    try:
        for ward in ("-999999", "-3", "-2", "0", "2", "3", "1e17"):
            found = sums_of(engine, tmp_path / ward, [row("p0", 1, ward=ward)], [plan])[0]
            chosen[ward] = np.flatnonzero(found[:21].reshape(7, 3).any(axis=1)).tolist()
    finally:
        engine.close()
    assert chosen == {"-999999": [0], "-3": [0], "-2": [1], "0": [3], "2": [5], "3": [6],
                      "1e17": [6]}  # fmt: skip


def test_rows_that_were_kept_for_a_table_are_not_taken_for_numbers(tmp_path: Path) -> None:
    """The same columns with a table, with another, and without: each lesson fetches its own."""
    columns = {"features": ["ward"], "image": None, "conv": None}
    plans = [a_plan(**columns, embed={"ward": 3}), a_plan(**columns, embed=None)]
    engine = DuckDBEngine(bytes(32))
    try:
        table, _ = prepare(engine, write_source(tmp_path / "rows.csv", HEADER, ROWS), a_card())
        found = [unseal(engine.learn(plan.order(table, flat_of(plan)))) for plan in plans * 2]
    finally:
        engine.close()
    kept: training.Kept = {}
    with duckdb.connect(table, read_only=True) as connection:
        for plan, one in zip(plans * 2, found, strict=True):
            alone = train(connection, plan.order(table, flat_of(plan)), {})
            assert (train(connection, plan.order(table, flat_of(plan)), kept) == alone).all()
            assert (one == alone).all()
            assert alone.any()


@pytest.mark.parametrize("threads", [1, 3])
def test_neither_slices_nor_threads_move_a_sum(
    threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = [*PLANS, a_plan(local=2, rate=1)]
    engine = DuckDBEngine(bytes(32))
    try:
        whole = sums_of(engine, tmp_path / "whole", ROWS, plans)
        table, _ = prepare(engine, write_source(tmp_path / "again.csv", HEADER, ROWS), a_card())
    finally:
        engine.close()
    monkeypatch.setattr(training, "_CELLS", 30)
    monkeypatch.setattr(training, "_OWN", 1)
    monkeypatch.setattr(training, "_LONG", 1)
    with duckdb.connect(table, read_only=True) as connection:
        for plan, wanted in zip(plans, whole, strict=True):
            found = train(connection, plan.order(table, flat_of(plan)), {}, threads)
            assert (found == wanted).all()
