"""A lesson of 784 columns over real sites: vaults, ledgers and processes of their own."""

from __future__ import annotations

from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.learning import DATA_SET
from bench.local_sites import federated, parquet
from sfumato.app import site_demo
from sfumato.app import vault as app
from sfumato.features.federated.training.trained_model import TrainedModel
from sfumato.features.federated.training.training_rounds import Step
from support.drawn_digits import FEATURES, SIDE, TARGET, digits

pytestmark = pytest.mark.slow
ROWS, ROUNDS = 400, 8
NAMES = ("east", "north", "south", "west")
WIDE = 28  # each dot becomes nine, with an edge around all of them
INKS = [f"p{place}" for place in range(WIDE * WIDE)]


def pictures(count: int, seed: str) -> list[dict[str, int]]:
    """Made-up digits of 28 times 28 dots, which are nobody's."""
    made = list(digits(count, seed))
    small = np.array([[row[name] for name in FEATURES] for row in made]).reshape(-1, SIDE, SIDE)
    wide = np.kron(small, np.ones((1, 3, 3), dtype=np.int64))
    edge = (WIDE - 3 * SIDE) // 2
    dots = np.pad(wide, ((0, 0), (edge, edge), (edge, edge))).reshape(count, -1).tolist()
    return [
        {**dict(zip(INKS, row, strict=True)), TARGET: one[TARGET]}
        for row, one in zip(dots, made, strict=True)
    ]


def a_site(held: ExitStack, folder: Path) -> site_demo.LocalSite:
    """A vault of pictures, served in processes of its own."""
    folder.mkdir()
    rows: list[list[object]] = [list(row.values()) for row in pictures(ROWS, folder.name)]
    source = parquet(folder / "rows.parquet", [[*INKS, TARGET], *rows])
    ink = {"type": "integer", "lower": 0, "upper": 16}
    card: dict[str, Any] = {
        "unit": "row",
        "people": f"of-{folder.name}",
        "budget": {"epsilon": 100, "delta": Decimal("1e-3")},
        "limits": {"rows": 10 * ROWS},
        "ask": {"who": ["researchers"]},
        "columns": {**dict.fromkeys(INKS, ink), TARGET: {**ink, "upper": 9}},
    }
    app.create(folder / "vault", anchor=folder / "anchor")
    with app.open(folder / "vault") as vault:
        vault.add(DATA_SET, source, card)
    return held.enter_context(site_demo.served(folder.name, folder / "vault"))


def test_pictures_of_784_dots_are_learnt_over_real_sites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_demo, "START_S", 900.0)  # on a machine that does much else
    public, steps = pictures(300, "public"), list[Step]()
    with ExitStack() as held:
        sites = [a_site(held, tmp_path / name) for name in NAMES]
        fed = federated(held, tmp_path, sites, [DATA_SET])
        model = fed.train(
            DATA_SET, features=INKS, target=TARGET, hidden=[64], rounds=ROUNDS,
            people=len(NAMES) * ROWS, clip=1, rate=2.0, momentum=0.8, epsilon=40, delta=1e-5,
            public=public, heard=steps.append,
        )  # fmt: skip
        spent = fed.spent(DATA_SET)
    model.save(tmp_path / "digits.safetensors")
    again = TrainedModel.load(tmp_path / "digits.safetensors")
    assert again.network.widths == (784, 64, 10)
    assert [step.sites for step in steps] == [NAMES] * ROUNDS
    assert spent == model.card["paid"] == dict.fromkeys(NAMES, 40)
    assert again.predict(public) == model.predict(public)
    assert model.accuracy(public) > 0.35  # by chance 0.1; about 0.65 as a rule
