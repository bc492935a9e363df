"""No row decides whether a question fails: values far from zero, met by nobody, some and everybody.

A question that fails says so for any epsilon; what its own numbers may come to is proved before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product

import pytest

from sfumato import Refused
from sfumato.app.vault import OpenVault
from support.small_vaults import open_with, write_csv

CARD = """
unit = "person"
people = "far"
version = "1"
budget = { epsilon = 1000, delta = 0 }
[ask]
who = ["all"]
[columns.age]
type = "integer"
lower = 0
upper = 100
[columns.sick]
type = "boolean"
"""
VALUES = (
    "CASE WHEN sick THEN {0} END",
    "CASE WHEN NOT sick AND age > 98 THEN {0} ELSE {0} + 1 END",
    "CASE WHEN age > 95 THEN {0} WHEN age > 90 THEN {0} + 1 END",
    "CASE WHEN age > 60 THEN {0} WHEN age > 50 THEN {0} + 1 END",
    "age + {0}",
    "CASE WHEN age > 95 THEN age + {0} END",
    "CASE WHEN age > 10 THEN age + {0} END",
    "{0} - age",
    "NULLIF(age + {0}, {0})",
    "COALESCE(CASE WHEN age > 98 THEN {0} END, {0} + 1)",
)
AGGREGATES = (
    "AVG({0})", "SUM({0})", "VAR_POP({0})", "STDDEV_POP({0})", "MEDIAN({0})", "COUNT({0})",
    "MIN({0})", "CORR(age, {0})", "REGR_SLOPE(age, {0})",
)  # fmt: skip
WHERES = ("", "WHERE age < 95", "WHERE age > 97")  # the last is met by nobody
BEFOREHAND = {"numbers-too-large", "noise-out-of-range", "type-mismatch"}  # by the card alone


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    """Return a vault of people of 0 to 89 years, who may be 100."""
    folder = tmp_path_factory.mktemp("far")
    rows = [(f"p{n}", n % 90, str(n % 2 == 0).lower()) for n in range(400)]
    source = write_csv(folder / "rows.csv", ["person", "age", "sick"], rows)
    with open_with(folder, "t", source, CARD) as opened:
        yield opened


def told(vault: OpenVault, far: int) -> Counter[str]:
    """Return how often which code came, and "" for an answer."""
    found = Counter[str]()
    for value, aggregate, where, key in product(VALUES, AGGREGATES, WHERES, ("", "sick")):
        of = aggregate.format(value.format(far))
        sql = f"SELECT {key}{', ' if key else ''}{of} AS q FROM t {where}"
        try:
            vault["t"].ask(f"{sql} GROUP BY {key}" if key else sql, epsilon=0.01)
            found[""] += 1
        except Refused as refused:
            found[refused.code] += 1
    return found


def test_values_far_from_zero_stop_no_question(vault: OpenVault) -> None:
    found = told(vault, 10**18)
    assert set(found) <= {"", *BEFOREHAND}
    assert found[""] > 300


@pytest.mark.slow
def test_values_farther_and_below_zero_stop_none_either(vault: OpenVault) -> None:
    found = sum((told(vault, far) for far in (-(10**18), 2 * 10**18, 10**15)), Counter[str]())
    assert set(found) <= {"", *BEFOREHAND}
    assert found[""] > 1200
