"""Draw a synthetic table like the Adult census data set: its columns, domains and hierarchies.

It contains no real person. Shares and dependencies are invented, but of the same kind. Nearly all
people are from one country, and some work classes are rare. Age decides marriage, and education
decides occupation.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.anonymity.coded_table import Column, Table
from sfumato.dp.anonymity.generalization_hierarchy import Hierarchy
from sfumato.dp.anonymity.hierarchy_rules import EVERYTHING, Intervals, Rule, Taxonomy, built

ROWS: Final = 30_162
SENSITIVE: Final = "salary"
Draws = NDArray[np.int64]

_RACES: Final = ("White", "Black", "Asian-Pac", "Amer-Indian", "Other")
_WORK: Final = {
    "Private": "Non-government",
    "Self-emp-not-inc": "Non-government",
    "Self-emp-inc": "Non-government",
    "Without-pay": "Unemployed",
    "Local-gov": "Government",
    "State-gov": "Government",
    "Federal-gov": "Government",
}
_MARITAL: Final = {
    "Married-civ": "Spouse present",
    "Married-AF": "Spouse present",
    "Never-married": "Spouse not present",
    "Divorced": "Spouse not present",
    "Separated": "Spouse not present",
    "Widowed": "Spouse not present",
    "Married-absent": "Spouse not present",
}
_SCHOOL: Final = {
    **dict.fromkeys(("Preschool", "1st-4th", "5th-6th"), ("Primary", "Low")),
    **dict.fromkeys(("7th-8th", "9th", "10th", "11th", "12th"), ("Secondary", "Low")),
    **dict.fromkeys(("HS-grad", "Some-college"), ("High school", "Middle")),
    **dict.fromkeys(("Assoc-voc", "Assoc-acdm"), ("Professional", "Middle")),
    **dict.fromkeys(("Bachelors",), ("Undergraduate", "High")),
    **dict.fromkeys(("Masters", "Prof-school", "Doctorate"), ("Graduate", "High")),
}
_JOBS: Final = {
    **dict.fromkeys(("Tech-support", "Craft-repair", "Prof-specialty", "Machine-op"), "Technical"),
    **dict.fromkeys(("Sales", "Exec-managerial", "Adm-clerical", "Handlers"), "Nontechnical"),
    **dict.fromkeys(
        ("Transport", "Farming", "Priv-house", "Protective", "Other-service", "Armed-Forces"),
        "Other",
    ),
}
_CONTINENTS: Final = {"North America": 13, "Europe": 12, "Asia": 11, "South America": 5}
_COUNTRIES: Final = {
    f"{continent} {number}": continent
    for continent, count in _CONTINENTS.items()
    for number in range(1, count + 1)
}
RULES: Final[dict[str, Rule]] = {
    "sex": EVERYTHING,
    "age": Intervals((5, 10, 20), 0),
    "race": EVERYTHING,
    "marital": Taxonomy({value: (group,) for value, group in _MARITAL.items()}),
    "education": Taxonomy(_SCHOOL),
    "country": Taxonomy({value: (group,) for value, group in _COUNTRIES.items()}),
    "workclass": Taxonomy({value: (group,) for value, group in _WORK.items()}),
    "occupation": Taxonomy({value: (group,) for value, group in _JOBS.items()}),
}
QUASI: Final = tuple(RULES)


def adult_like(rows: int = ROWS, seed: int = 1) -> Table:
    """Draw a synthetic census table of `rows` people; the same seed draws the same table."""
    dice = np.random.default_rng(seed)
    age = 17 + (73 * dice.beta(1.45, 3.1, rows)).astype(np.int64)
    sex = (dice.random(rows) < 0.32).astype(np.int64)
    school = _school(dice, age)
    country = _skewed(dice, rows, len(_COUNTRIES), 0.91)
    race = np.where(
        (country > 24) & (country < 36) & (dice.random(rows) < 0.8),
        2,
        dice.choice(5, rows, p=[0.875, 0.095, 0.012, 0.01, 0.008]),
    )
    marital = _marital(dice, age)
    job = _job(dice, school)
    work = _pick(dice, rows, [0.74, 0.083, 0.036, 0.0006, 0.068, 0.042, 0.0304])
    high = (school >= 12) * 1.6 + (marital < 2) * 1.9 + (age > 30) * 0.7 - 3.2
    salary = (dice.random(rows) < 1 / (1 + np.exp(-high))).astype(np.int64)
    drawn = {
        "sex": (sex, ("Male", "Female")),
        "age": (age - 17, tuple(range(17, 91))),
        "race": (race, _RACES),
        "marital": (marital, tuple(_MARITAL)),
        "education": (school, tuple(_SCHOOL)),
        "country": (country, tuple(_COUNTRIES)),
        "workclass": (work, tuple(_WORK)),
        "occupation": (job, tuple(_JOBS)),
        SENSITIVE: (salary, ("<=50K", ">50K")),
    }
    columns = {name: Column(name, codes, values) for name, (codes, values) in drawn.items()}
    return Table(columns, rows)


def hierarchies(table: Table) -> dict[str, Hierarchy]:
    """Return the generalisation hierarchies (for k-anonymity) of the eight quasi-identifiers.

    Their levels combine in 6,480 ways.
    """
    return {name: built(table.columns[name], rule) for name, rule in RULES.items()}


def _school(dice: np.random.Generator, age: Draws) -> Draws:
    shares = [
        .0015, .005, .01, .018, .015, .027, .035, .0125, .326, .221, .043, .033, .167, .054, .018,
        .0135,
    ]  # fmt: skip
    drawn = _pick(dice, len(age), shares)
    return np.where((age < 22) & (drawn > 9), 9, drawn)


def _marital(dice: np.random.Generator, age: Draws) -> Draws:
    old = _pick(dice, len(age), [0.56, 0.0007, 0.13, 0.19, 0.04, 0.065, 0.0143])
    return np.where(dice.random(len(age)) < np.clip((34 - age) / 16, 0, 0.95), 2, old)


def _job(dice: np.random.Generator, school: Draws) -> Draws:
    low = _pick(dice, len(school), [
        .02, .18, .02, .1, .1, .07, .12, .07, .08, .05, .007, .02, .162, .001,
    ])  # fmt: skip
    high = _pick(dice, len(school), [
        .04, .04, .42, .01, .12, .24, .07, .005, .01, .01, .0004, .01, .0236, .001,
    ])  # fmt: skip
    return np.where(school >= 12, high, low)


def _skewed(dice: np.random.Generator, rows: int, count: int, first: float) -> Draws:
    """Draw one of `count` codes for each row, in unequal shares, as in a real census.

    The first code has the share `first`. The others have unequal shares of the rest, in a mixed
    order.
    """
    rest = 1.0 / np.arange(1, count) ** 1.1
    order = np.argsort(_scrambled(count - 1))
    return _pick(dice, rows, [first, *(rest[order] * (1 - first) / rest.sum())])


def _scrambled(count: int) -> Draws:
    return (np.arange(count) * 17 + 5) % count


def _pick(dice: np.random.Generator, rows: int, shares: Any) -> Draws:  # Any: any row of numbers
    p = np.asarray(shares, np.float64)
    ends = np.cumsum(p / p.sum())
    return np.searchsorted(ends, dice.random(rows), side="right").clip(max=len(p) - 1)
