"""Measure how often 95 % intervals contain the exact number, for each kind of question.

The data set has 200 equal groups of each size. Each question is asked ten times with new noise, so
each figure is about 2,000 intervals (standard error: half a percentage point). With Laplace noise,
the privacy unit is a row and epsilon is 1. With Gaussian noise, the privacy unit is a person in up
to 30 groups, epsilon is 3 and delta is 1e-6.

A figure in a column of rows is the percentage of the shown intervals that contain the exact number,
for groups of that many rows. If some intervals are not shown, the percentage of shown ones follows.
`width` compares intervals in groups of 3,000 rows with the released numbers: the median width of an
interval is divided by the width of the middle 95 % of those numbers. 1 is as narrow as possible.
The last rows are about 100 DP twins (synthetic data sets) of each number of people, with epsilon 1
for the twin and 1 for its error. They compare the stated error with the exact distance. No figure
here depends on the load of the machine.
"""

from __future__ import annotations

import csv
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import combinations, count
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, SupportsFloat, cast

import numpy as np
from numpy.typing import NDArray

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.client.answer import Answer
from sfumato.client.vault import DataSet

Floats = NDArray[np.float64]
SIZES: Final = (1, 3, 10, 30, 100, 300, 3000)
GROUPS: Final = 200  # of each size
TIMES: Final = 10  # that each question is asked
TERMS: Final[Mapping[str, Mapping[str, Decimal]]] = {
    "laplace": {"epsilon": Decimal(1), "delta": Decimal(0)},
    "gaussian": {"epsilon": Decimal(3), "delta": Decimal("1e-6")},
}
_UNITS: Final[Mapping[str, Mapping[str, object]]] = {
    "laplace": {"unit": "row"},
    "gaussian": {"unit": "who", "max_groups": 30, "max_rows": 1},
}
_CARD: Final[Mapping[str, object]] = {
    "budget": {"epsilon": 1000, "delta": Decimal("0.1")},
    "columns": {
        "g": {"type": "integer", "keys": list(range(GROUPS * len(SIZES)))},
        "a": {"type": "integer", "lower": 0, "upper": 100},
        "b": {"type": "number", "lower": -5, "upper": 5, "step": Decimal("0.1")},
    },
}
_TWIN_CARD: Final[Mapping[str, object]] = {
    "budget": {"epsilon": 1000},
    "columns": {
        "a": {"type": "integer", "keys": [0, 1, 2, 3, 4]},
        "b": {"type": "integer", "keys": [-3, -2, -1, 0, 1, 2]},
    },
}
TWINS: Final = (30, 100, 300)  # people of a twin
Key = tuple[str, str]
Truth = Callable[[Floats, Floats], SupportsFloat]
VERBS: Final[Sequence[tuple[str, Truth]]] = (
    ("COUNT(*)", lambda a, b: a.size),
    ("COUNT(DISTINCT a)", lambda a, b: np.unique(a).size),
    ("SUM(b)", lambda a, b: b.sum()),
    ("AVG(a)", lambda a, b: a.mean()),
    ("VAR_SAMP(a)", lambda a, b: a.var(ddof=1)),
    ("VAR_POP(a)", lambda a, b: a.var()),
    ("STDDEV_SAMP(a)", lambda a, b: a.std(ddof=1)),
    ("COVAR_SAMP(b, a)", lambda a, b: np.cov(b, a)[0, 1]),
    ("CORR(b, a)", lambda a, b: np.corrcoef(b, a)[0, 1]),
    ("REGR_SLOPE(b, a)", lambda a, b: np.cov(b, a)[0, 1] / a.var(ddof=1)),
    (
        "REGR_INTERCEPT(b, a)",
        lambda a, b: b.mean() - a.mean() * np.cov(b, a)[0, 1] / a.var(ddof=1),
    ),
    ("COUNT(*) * 2 + 500", lambda a, b: a.size * 2 + 500),
    ("SUM(a) / COUNT(*)", lambda a, b: a.mean()),
    (
        "100.0 * SUM(CASE WHEN a > 50 THEN 1 ELSE 0 END) / COUNT(*)",
        lambda a, b: 100 * np.mean(a > 50),
    ),
    ("SUM(b) / SUM(a)", lambda a, b: b.sum() / a.sum()),
    ("1000.0 / COUNT(*)", lambda a, b: 1000 / a.size),
    ("SQRT(COUNT(*))", lambda a, b: np.sqrt(a.size)),
    ("LN(COUNT(*))", lambda a, b: np.log(a.size)),
    ("SQRT(SUM(a) / COUNT(*))", lambda a, b: np.sqrt(a.mean())),
    ("LN(SUM(a) / COUNT(*))", lambda a, b: np.log(a.mean())),
    ("LN(AVG(a))", lambda a, b: np.log(a.mean())),
    ("AVG(a) - AVG(b)", lambda a, b: a.mean() - b.mean()),
    ("AVG(a) * AVG(b)", lambda a, b: a.mean() * b.mean()),
    ("ROUND(AVG(a) - SUM(b) / COUNT(*), 1)", lambda a, b: round(a.mean() - b.mean(), 1)),
    ("STDDEV_SAMP(a) / AVG(a)", lambda a, b: a.std(ddof=1) / a.mean()),
    ("SUM(a) * COUNT(*)", lambda a, b: a.sum() * a.size),
    ("COALESCE(SUM(a) / COUNT(*), 0)", lambda a, b: a.mean()),
    ("CASE WHEN COUNT(*) > 20 THEN AVG(a) ELSE 0 END", lambda a, b: a.mean() if a.size > 20 else 0),
)


def rows_of(size: int) -> tuple[Floats, Floats]:
    """Return the two columns of a group of that size: made up, correlated, the same every time."""
    place = np.arange(size) + 3
    a = ((place * 37) % 71 + 15).astype(np.float64)
    b = np.clip(np.round((a - 40) / 10 + ((place * 17) % 7 - 3) / 2) / 1.0, -5, 5)
    return a, b.astype(np.float64)


def run(times: int = TIMES) -> list[dict[str, object]]:
    """Return one row for each verb and kind of noise."""
    with tempfile.TemporaryDirectory() as folder:
        vaults = {kind: _vault(Path(folder), kind) for kind in TERMS}
        rows = [
            _row(vault["t"], sql, truth, kind, times)
            for kind, vault in vaults.items()
            for sql, truth in VERBS
        ]
        return [*rows, *_twins(Path(folder), 10 * times)]


def _vault(folder: Path, kind: str) -> OpenVault:
    source = folder / "rows.csv"
    with source.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(("who", "g", "a", "b"))
        people = count()
        for place, size in enumerate(SIZES):
            a, b = rows_of(size)
            for group in range(place * GROUPS, (place + 1) * GROUPS):
                pairs = zip(a, b, strict=True)
                lines.writerows((f"p{next(people)}", group, int(x), y) for x, y in pairs)
    sfumato.create(folder / kind, anchor=folder / f"{kind}-anchor" / "anchor")
    vault = sfumato.open(folder / kind, user="owner")
    vault.add("t", source, {**_UNITS[kind], **_CARD})
    return vault


def _row(data_set: DataSet, sql: str, truth: Truth, kind: str, times: int) -> dict[str, object]:
    text = f"SELECT g, {sql} AS r FROM t GROUP BY g"
    terms = TERMS[kind]
    answers = [
        data_set.ask(text, epsilon=terms["epsilon"], delta=terms["delta"], fresh=True)
        for _ in range(times)
    ]
    if kind not in str(answers[0].receipt["mechanism"]):
        raise AssertionError(f"the noise is not {kind}")
    made: dict[str, object] = {"number": sql, "noise": kind}
    for place, size in enumerate(SIZES):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            exact = float(truth(*rows_of(size)))
        made[f"{size:,} rows"] = _held(answers, place, exact)
    made["width"] = _width(answers)
    return made


def _twins(folder: Path, times: int) -> list[dict[str, object]]:
    """Return how often the stated error of a DP twin of so many people holds; a twin each time."""
    made: list[dict[str, object]] = [
        {"number": f"error of a twin, {size} columns", "noise": "laplace"} for size in (1, 2)
    ]
    for people in TWINS:
        source = folder / f"people{people}.csv"
        a, b = rows_of(people)
        real = [(str(int(x)), str(int(y))) for x, y in zip(a // 20, b // 2, strict=True)]
        with source.open("w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(("who", "a", "b"))
            lines.writerows((f"p{place}", *row) for place, row in enumerate(real))
        sfumato.create(folder / f"twins{people}", anchor=folder / f"twins{people}-anchor" / "a")
        vault = sfumato.open(folder / f"twins{people}", user="owner")
        vault.add("t", source, {"unit": "who", **_TWIN_CARD})
        held = [_of_twin(vault["t"], real) for _ in range(times)]
        for row, share in zip(made, np.mean(held, axis=0).tolist(), strict=True):
            row[f"{people:,} rows"] = f"{100 * share:.1f}"
    return made


def _of_twin(data_set: DataSet, real: Sequence[Key]) -> list[bool]:
    """Return whether the errors of one and of two columns are as the twin's stamp has them."""
    twin = data_set.dp_twin(
        epsilon=1, delta=0, method="independent", rows=200, op=token_hex(8), error_epsilon=1
    )
    stamp = cast("dict[str, Any]", twin.stamp)  # Any: JSON of a stamp
    rows = [(row["a"], row["b"]) for row in twin.rows()]
    held = []
    for size in (1, 2):
        low, high = stamp["error"]["of"]["t"][str(size)]["interval"]
        off = [_distance(real, rows, of) for of in combinations(range(2), size)]
        held.append(low <= float(np.mean(off)) <= high)
    return held


def _distance(one: Sequence[Key], other: Sequence[Key], of: tuple[int, ...]) -> float:
    """Return the total variation between two tables' marginals."""
    found = [Counter(tuple(row[c] for c in of) for row in rows) for rows in (one, other)]
    keys = {*found[0], *found[1]}
    return sum(abs(found[0][k] / len(one) - found[1][k] / len(other)) for k in keys) / 2


def _held(answers: Sequence[Answer], place: int, exact: float) -> str:
    """Return how often the shown intervals hold, and how many are shown if some are not."""
    if not np.isfinite(exact):
        return "no value"
    group = slice(place * GROUPS, (place + 1) * GROUPS)
    bars = [row[1] for answer in answers for row in answer.interval[group]]
    shown = [bar for bar in bars if bar is not None]
    slack = 1e-9 * max(1.0, abs(exact))
    held = [bar[0] - slack <= exact <= bar[1] + slack for bar in shown]
    if not shown:
        return "none shown"
    text = f"{100 * np.mean(held):.1f}"
    share = len(shown) / len(bars)
    return text if share == 1 else f"{text} ({100 * share:.0f} shown)"


def _width(answers: Sequence[Answer]) -> object:
    """Return the median width in the largest groups, as a share of what the spread asks for."""
    group = slice((len(SIZES) - 1) * GROUPS, len(SIZES) * GROUPS)
    bars = [row[1] for answer in answers for row in answer.interval[group] if row[1] is not None]
    values = [float(str(row[1])) for answer in answers for row in answer.rows[group]]
    low, high = np.quantile(values, [0.025, 0.975])
    return float(np.median([bar[1] - bar[0] for bar in bars]) / (high - low)) if bars else None


if __name__ == "__main__":
    from bench.__main__ import main

    main(["coverage"])
