"""diffprivlib: its tools on each group of a pandas frame; it knows no people, no private keys."""

from __future__ import annotations

import numpy as np
import pandas as pd
from diffprivlib import mechanisms, tools

from bench.peers import script


def _load(file: str) -> pd.DataFrame:
    rows = pd.read_parquet(file, columns=["clinic", "cost"])
    return rows.assign(cost=rows["cost"].fillna(0.0))


def _declared(rows: pd.DataFrame) -> int:
    groups = dict(list(rows.groupby("clinic")["cost"]))
    answers = {clinic: _answer(groups[clinic].to_numpy()) for clinic in range(script.CLINICS)}
    return len(answers)


def _answer(costs: np.ndarray) -> tuple[int, float]:
    half = script.EPSILON / 2
    count = tools.count_nonzero(np.ones_like(costs), epsilon=half)
    return count, tools.sum(costs, epsilon=half, bounds=(0, script.LARGEST))


def _noise(_rows: object) -> int:
    mechanism = mechanisms.Geometric(epsilon=1 / script.SCALE, sensitivity=1)
    return len([mechanism.randomise(0) for _ in range(script.DRAWS)])


if __name__ == "__main__":
    script.answer(
        script.Peer(
            "diffprivlib",
            _load,
            {"declared": _declared, "noise": _noise},
            {
                "declared": "protects a row, not a person: nothing bounds a person; float noise",
                "noise": "one call a value; integers made of floats",
            },
        )
    )
