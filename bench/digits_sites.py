"""Measure how well four real sites together recognise digits.

The pictures, splits and training schedules are those of `python -m bench digits`. Here, four vaults
in separate processes train the model over HTTP with secure sums. Each vault has its own rows,
ledger and door. One of the four sites may drop out. The sites are started once. Each holds a data
set for each seed, and all of them pay for each training.

No training leaves a vault without noise (soundness rule 36). So the first line has a price that
protects nothing, in place of no noise: no gradient is clipped, and the noise is tiny compared with
the rows.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.digits import (
    CLIP,
    DELTA,
    EPSILONS,
    RATE,
    ROUNDS,
    SEEDS,
    SITES,
    WIDE,
    Pictures,
    learnt,
    percent,
    plan_for,
    pooled,
    read_pictures,
    split,
)
from bench.local_sites import federated, parquet
from sfumato.app import vault as app
from sfumato.app.federation import FederatedVault
from sfumato.app.site_demo import LocalSite, served
from sfumato.dp.learning.integer_network import Numbers
from sfumato.features.federated.training.training_rounds import Step
from support.drawn_digits import FEATURES, TARGET, digits_card  # where bench.digits looks for it

AS_GOOD_AS_NONE: Final = 900
FLOOR: Final = 3
MOST: Final = 1000  # that a card may allow
_INKS: Final = 16


@dataclass(frozen=True)
class Learnt:
    """What came of one lesson, and of one that had all rows."""

    sites: float
    beside: float
    whole_rounds: int  # that all sites were in
    paid: tuple[float, ...]
    seconds: float


def run(seeds: int = SEEDS, epsilons: Sequence[int] = EPSILONS) -> list[dict[str, object]]:
    """Return a line for each price: mean accuracies over the seeds, in percent."""
    inks, shown, where = read_pictures()
    parts = [split(inks, shown, seed) for seed in range(seeds)]
    within = os.environ.get("SFUMATO_BENCH_DIR")
    with tempfile.TemporaryDirectory(dir=within) as name, ExitStack() as held:
        root = Path(name)
        sites = [_site(held, root / f"site{place}", place, parts) for place in range(SITES)]
        fed = federated(held, root, sites, [_data_set(seed) for seed in range(seeds)])
        lines = []
        for epsilon in (AS_GOOD_AS_NONE, *epsilons):
            found = [_lesson(fed, one, seed, epsilon) for seed, one in enumerate(parts)]
            lines.append(_line(found, epsilon, where))
        return lines


def _line(lessons: Sequence[Learnt], epsilon: int, where: str) -> dict[str, object]:
    sites, beside = ([getattr(one, name) for one in lessons] for name in ("sites", "beside"))
    seeds, off = len(lessons), np.subtract(beside, sites)
    return {
        "pictures": where, "seeds": seeds, "epsilon": epsilon,
        "paid by each site": " or ".join(f"{paid:g}" for paid in sorted(_paid(lessons))),
        "4 real sites": percent(float(np.mean(sites))),
        "beside": percent(float(np.mean(beside))),
        "which is": "pooled, no DP" if epsilon == AS_GOOD_AS_NONE else "central, same accountant",
        "points below": percent(float(np.mean(off))),
        "give or take": percent(float(np.std(off, ddof=min(1, seeds - 1)) / np.sqrt(seeds))),
        "rounds of all sites": f"{sum(one.whole_rounds for one in lessons)} of {ROUNDS * seeds}",
        "seconds a lesson": float(np.mean([one.seconds for one in lessons])),
    }  # fmt: skip


def _paid(lessons: Sequence[Learnt]) -> set[float]:
    return {paid for one in lessons for paid in (*one.paid, *[0.0] * (SITES - len(one.paid)))}


def _lesson(fed: FederatedVault, pictures: Pictures, seed: int, epsilon: int) -> Learnt:
    """Return what the sites learn of one split, and what one learns that has all of its rows."""
    is_calm = epsilon == AS_GOOD_AS_NONE
    clip, steps = WIDE if is_calm else CLIP, list[Step]()
    begun = time.perf_counter()
    model = fed.train(
        _data_set(seed), features=list(FEATURES), target=TARGET, rounds=ROUNDS,
        people=len(pictures.rows), clip=float(clip), rate=RATE, momentum=0.0, epsilon=epsilon,
        delta=float(DELTA), heard=steps.append,
    )  # fmt: skip
    seconds = time.perf_counter() - begun
    return Learnt(
        model.accuracy(_rows(pictures.test_rows, pictures.test_target)),
        pooled(pictures, seed) if is_calm else _central(pictures, seed, epsilon, clip),
        sum(len(step.sites) == SITES for step in steps),
        tuple(model.card["paid"].values()),
        seconds,
    )


def _central(pictures: Pictures, seed: int, epsilon: int, clip: Fraction) -> float:
    return learnt(pictures, plan_for(pictures, epsilon, clip, FLOOR), 1, seed)


def _site(held: ExitStack, folder: Path, place: int, parts: Sequence[Pictures]) -> LocalSite:
    """Make a vault of every split's rows of one site, and serve it in processes of its own."""
    folder.mkdir()
    app.create(folder / "vault", anchor=folder / "anchor")
    with app.open(folder / "vault") as vault:
        for seed, one in enumerate(parts):
            own = slice(place, None, SITES)
            rows = _rows(one.rows[own], one.target[own])
            lines = [[*FEATURES, TARGET], *([*row.values()] for row in rows)]
            card = digits_card(f"of-{folder.name}-{seed}", len(one.rows), MOST)
            source = parquet(folder / f"{_data_set(seed)}.parquet", lines)
            vault.add(_data_set(seed), source, card)
    return held.enter_context(served(folder.name, folder / "vault"))


def _rows(inks: Numbers, shown: Numbers) -> list[dict[str, Any]]:
    """Return pictures as the rows of a table: whole inks, and a digit."""
    whole = np.rint(inks * _INKS).astype(int).tolist()
    digits = shown.astype(int).tolist()
    return [
        {**dict(zip(FEATURES, row, strict=True)), TARGET: digit}
        for row, digit in zip(whole, digits, strict=True)
    ]


def _data_set(seed: int) -> str:
    return f"digits{seed}"
