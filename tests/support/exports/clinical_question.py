"""A clinician's question of an export, its truth on the raw files, and which intervals hold it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import duckdb
from scipy import stats

CHANCE: Final = 1e-6  # with which a right program fails the check of many intervals


@dataclass(frozen=True)
class Question:
    """A question in SQL, and SQL of its true answer on the raw export.

    The first `keys` columns name the group. Cells of groups that the truth does not have are 0 if
    they are counts; of a mean, nothing is checked there.
    """

    asked: str
    truth: str
    keys: int = 0
    epsilon: float = 1
    terms: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One released number: its question, its group, the truth and its 95 % interval."""

    asked: str
    group: tuple[str, ...]
    truth: float
    low: float
    high: float

    @property
    def holds(self) -> bool:
        return self.low - 1e-6 <= self.truth <= self.high + 1e-6


def cells_of(
    data_set: Any, raw: duckdb.DuckDBPyConnection, question: Question
) -> list[Cell]:  # Any: a data set of a vault
    """Ask a question and return its numbers beside the truth."""
    answer = data_set.ask(question.asked, epsilon=question.epsilon, delta=1e-6, **question.terms)
    truth = {
        tuple(map(_spelled, row[: question.keys])): row[question.keys :]
        for row in raw.execute(question.truth).fetchall()
    }
    found = []
    for row, bars in zip(answer.rows, answer.interval, strict=True):
        group = tuple(map(_spelled, row[: question.keys]))
        values = truth.get(group, (0,) * (len(row) - question.keys))
        for value, bar in zip(values, bars[question.keys :], strict=True):
            if bar is None:
                continue
            is_mean_of_none = value is None or (group not in truth and "AVG" in question.asked)
            if not is_mean_of_none:
                found.append(Cell(question.asked, group, float(value), *bar))
    assert found, question.asked
    return found


def check_held(cells: Sequence[Cell]) -> None:
    """Assert that no fewer intervals hold the truth than 95 % ones do, but with a tiny chance."""
    missed = [cell for cell in cells if not cell.holds]
    allowed = int(stats.binom.isf(CHANCE, len(cells), 0.05))
    assert len(missed) <= allowed, (len(missed), allowed, len(cells), missed[:20])


def check_close(cells: Sequence[Cell], share: float, of: int) -> None:
    """Assert that the intervals of larger counts say something: they are a share wide at most."""
    large = [cell for cell in cells if cell.truth >= of]
    assert large
    narrow = [cell for cell in large if cell.high - cell.low <= share * cell.truth]
    assert len(narrow) >= 0.9 * len(large), [c for c in large if c not in narrow][:10]


def _spelled(key: object) -> str:
    if key is None:
        return ""
    if isinstance(key, bool):
        return str(key).lower()
    if isinstance(key, float) and key.is_integer():
        return str(int(key))
    return str(key)[:10] if hasattr(key, "isoformat") else str(key)
