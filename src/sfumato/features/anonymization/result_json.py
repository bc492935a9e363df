"""What the service found, as JSON; a number that has no end is null and named in words."""

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
    """Return a check as JSON."""
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
    """Return risks as JSON."""
    return asdict(found)


def recoded_json(found: Recoded, utility: Utility, quasi: Sequence[str]) -> Json:
    """Return what a recoding comes to."""
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
    """Return what a look-alike has kept."""
    return asdict(found)


def rows_in_order(table: Table, names: Sequence[str]) -> list[list[str]]:
    """Return the rows as texts, in the order of what they say."""
    columns = table.of(names)
    texts = [np.array([*c.written] or [""], dtype=object)[c.codes] for c in columns]
    ranks = [_rank(c.written)[c.codes] if table.rows else c.codes for c in columns]
    order = np.lexsort(ranks[::-1]) if ranks else np.zeros(0, np.int64)
    return [list(row) for row in zip(*(text[order].tolist() for text in texts), strict=True)]


def formulas_in(table: Table, names: Sequence[str]) -> list[str]:
    """Return which columns have a cell, or a name, that a spreadsheet would compute."""
    return [
        column.name
        for column in table.of(names)
        if any(_is_formula(text) for text in (column.name, *column.written))
    ]


def _is_formula(text: str) -> bool:
    """Say whether a text begins like a formula and is no number, blanks around it aside."""
    begun = text.strip()
    return begun[:1] in {"=", "+", "-", "@"} and not NUMERAL.fullmatch(begun)


def _rank(texts: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the place of each text in their own order."""
    place = {text: rank for rank, text in enumerate(sorted(set(texts)))}
    return np.array([place[text] for text in texts], np.int64)


def _finite(numbers: Mapping[str, float]) -> Json:
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}
