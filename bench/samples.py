"""What a sample saves one site in a round of a lesson, and what it costs all of them in noise."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Final

import duckdb
import numpy as np

from sfumato.app import vault as app
from sfumato.dp.learning.training_task import read_training_task
from sfumato.dp.secure_aggregation.round_terms import Member
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.features.federated.agreement import Agreement
from sfumato.features.federated.training_plan import TrainPlan, plan_training
from sfumato.release.guarantees.secure_aggregation import learning_share
from sfumato.system.randomness import BulkRandomSource
from sfumato.vault.card.data_card import Card

ROWS: Final = 60_000
FEATURES: Final = 128
HIDDEN: Final = 256
ROUNDS: Final = 100
SAMPLES: Final = (Fraction(1), Fraction(1, 10))
_SITES: Final = tuple(Member(name, name.encode() * 16) for name in ("ab", "cd", "ef", "gh"))


def lines() -> list[dict[str, object]]:
    """Return a line for all rows and one for a sample; the second stands beside the first."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("SFUMATO_BENCH_DIR")) as name:
        folder = Path(name)
        app.create(folder / "vault", anchor=folder / "anchor")
        with app.open(folder / "vault") as vault:
            vault.add("pictures", _parquet(folder / "rows.parquet"), _card())
            listing = vault.house.catalogue.find("pictures")
            if listing is None:
                raise LookupError("the data set is not there")
            plans = [_plan(listing.card, sample) for sample in SAMPLES]
            times = [_gradients_s(vault, listing.table, plan) for plan in plans]
            return _told(plans, times, [_noise_s(plan) for plan in plans])


def _told(
    plans: list[TrainPlan], gradients: list[float], noises: list[float]
) -> list[dict[str, object]]:
    what = f"one site of {ROWS:,} rows, {FEATURES}-{HIDDEN}-10"
    # of what is added up, over how many of it there are on average
    wide = [float(plan.sum.variance) ** 0.5 * plan.unit / float(plan.lesson.sample)
            for plan in plans]  # fmt: skip
    mean = f"the noise of a mean gradient, epsilon 1 in {ROUNDS} rounds, beside that with all rows"
    return [
        _beside(f"{what}, a tenth of its people a round: gradients, beside all rows", gradients),
        _beside("the same: its share of the noise, which is narrower", noises),
        {"figure": mean, "ratio": wide[1] / wide[0]},
    ]  # fmt: skip


def _beside(name: str, seconds: list[float]) -> dict[str, object]:
    whole, some = seconds
    return {"figure": name, "seconds": some, "beside": whole, "ratio": some / whole}


def _gradients_s(vault: app.OpenVault, table: str, plan: TrainPlan) -> float:
    """Return the median of rounds after the first, which fetches the rows."""
    flat = np.random.default_rng(1).normal(size=plan.size).astype("<f4").tobytes()
    dice, found, engine = BulkRandomSource(), [], vault.house.engine
    if not isinstance(engine, DuckDBEngine):
        raise TypeError("sites learn where rows lie in DuckDB")
    for _ in range(8):
        begun = time.perf_counter()
        engine.learn(plan.order(table, flat, plan.coins(dice)))
        found.append(time.perf_counter() - begun)
    return statistics.median(found[1:])


def _noise_s(plan: TrainPlan) -> float:
    """Return the same of a site's share of the noise; the first makes tables."""
    dice, found = BulkRandomSource(), []
    for _ in range(4):
        begun = time.perf_counter()
        learning_share(plan, dice)
        found.append(time.perf_counter() - begun)
    return statistics.median(found[1:])


def _plan(card: Card, sample: Fraction) -> TrainPlan:
    agreement = Agreement("pictures", bytes(32), _SITES, 3, 1)
    lesson = read_training_task({
        "name": "ab" * 32, "features": [f"p{n}" for n in range(FEATURES)], "target": "digit",
        "hidden": [HIDDEN], "rounds": ROUNDS, "clip": 1, "sample": sample,
    })  # fmt: skip
    return plan_training(card, lesson, agreement, Fraction(1), Fraction(1, 10**6))


def _card() -> dict[str, object]:
    ink = {"type": "integer", "lower": 0, "upper": 16}
    return {
        "unit": "row",
        "budget": {"epsilon": 1000, "delta": Decimal("1e-3")},
        "limits": {"rows": 2 * ROWS},
        "columns": {
            **{f"p{n}": ink for n in range(FEATURES)},
            "digit": {**ink, "upper": 9},
        },
    }


def _parquet(path: Path) -> Path:
    inks = ", ".join(f"(hash(r, {n}) % 17)::INTEGER AS p{n}" for n in range(FEATURES))
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT {inks}, (hash(r) % 10)::INTEGER AS digit FROM range({ROWS}) AS t(r))"
            f" TO '{path}' (FORMAT parquet)"
        )
    return path
