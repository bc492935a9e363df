"""Results of the anonymity service as JSON; infinite numbers are null."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np

from sfumato.dp.anonymity.anonymity_check import Check
from sfumato.dp.anonymity.coded_table import NUMERAL, Table
from sfumato.dp.anonymity.leakage_check import Leaks
from sfumato.dp.anonymity.recoded_table import Recoded
from sfumato.dp.anonymity.reidentification_risk import Risks
from sfumato.dp.anonymity.table_utility import Utility
from sfumato.dp.json_values import Json


def check_json(found: Check) -> Json:
    """Return the measures of a table's anonymity as JSON: k, sensitive columns, worst classes."""
    return {
        "rows": found.rows,
        "quasi": list(found.quasi),
        "classes": found.classes,
        "k": found.k,
        "alone": found.alone,
        "sensitive": {name: _finite(numbers) for name, numbers in found.sensitive.items()},
        "worst": [
            {
                "values": dict(zip(found.quasi, one.written, strict=True)),
                "size": one.size,
                "held": {name: _finite(numbers) for name, numbers in one.held.items()},
            }
            for one in found.worst
        ],
    }


def risks_json(found: Risks) -> Json:
    """Return the re-identification risks of a table as JSON."""
    return asdict(found)


def recoded_json(found: Recoded, utility: Utility, quasi: Sequence[str]) -> Json:
    """Return what a recoding did and lost as JSON: goal, method, levels, utility."""
    levels = None if found.levels is None else dict(zip(quasi, found.levels, strict=True))
    return {
        "guarantee": found.guarantee,
        "goal": found.goal.in_words,
        "method": found.method,
        "levels": levels,
        "nodes": found.nodes,
        "looked": found.looked,
        "utility": asdict(utility),
    }


def leaks_json(found: Leaks) -> Json:
    """Return, as JSON, how much of its original a synthetic table reveals."""
    return asdict(found)


def rows_in_order(table: Table, names: Sequence[str]) -> list[list[str]]:
    """Return the rows of these columns as texts, sorted by content to hide their order."""
    columns = table.of(names)
    texts = [np.array([*c.written] or [""], dtype=object)[c.codes] for c in columns]
    ranks = [_rank(c.written)[c.codes] if table.rows else c.codes for c in columns]
    order = np.lexsort(ranks[::-1]) if ranks else np.zeros(0, np.int64)
    return [list(row) for row in zip(*(text[order].tolist() for text in texts), strict=True)]


def formulas_in(table: Table, names: Sequence[str]) -> list[str]:
    """Return the columns whose name or cells a spreadsheet would run as a formula."""
    return [
        column.name
        for column in table.of(names)
        if any(_is_formula(text) for text in (column.name, *column.written))
    ]


def _is_formula(text: str) -> bool:
    """Return True if a text begins like a spreadsheet formula and isn't a number.

    Blanks around the text are ignored.
    """
    begun = text.strip()
    return begun[:1] in {"=", "+", "-", "@"} and not NUMERAL.fullmatch(begun)


def _rank(texts: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return, for each text, its position in the sorted list of distinct texts, as a code."""
    place = {text: rank for rank, text in enumerate(sorted(set(texts)))}
    return np.array([place[text] for text in texts], np.int64)


def _finite(numbers: Mapping[str, float]) -> Json:
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}
