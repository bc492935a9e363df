"""Made-up people for the tests of regressions, and a vault of them that has no engine.

`Quick` answers the builder's questions by numpy, with the noise that the real planner prices, so
that a fit can be repeated hundreds of times.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.app.vault import OpenVault
from sfumato.client import Answer, Builder
from sfumato.client.display import Budget, CardView, Price
from sfumato.query.expression import (
    Arithmetic,
    Case,
    Clamp,
    Compare,
    Expr,
    Floor,
    LiteralValue,
    Ref,
)
from sfumato.query.model import Aggregate
from sfumato.query.price import Priced
from sfumato.query.request import Request, priced_request
from sfumato.vault.card.card_json import card_json
from sfumato.vault.card.data_card import read_card
from support.small_vaults import open_with, write_csv

Floats = NDArray[np.float64]
CARD = """
unit = "row"
budget = { epsilon = 500, delta = 1e-3 }
[limits]
rows = 1000000
[columns.age]
type = "integer"
lower = 0
upper = 100
[columns.pay]
type = "number"
lower = 0
upper = 100000
step = 1
[columns.dose]
type = "number"
lower = 0
upper = 10
step = 0.01
[columns.male]
type = "boolean"
[columns.cost]
type = "number"
lower = 0
upper = 1000
step = 0.1
[columns.sick]
type = "boolean"
[columns.same]
type = "integer"
lower = 0
upper = 10
[columns.free]
type = "number"
[columns.town]
type = "text"
"""
XS = ("age", "pay", "dose", "male")
HALVES = np.array([1, 50, 50000, 5, 0.5])


def people(count: int, seed: int) -> dict[str, Floats]:
    """Return columns of people: age and pay are far from even, cost and sickness follow them."""
    rng = np.random.default_rng(seed)
    age = np.clip(rng.normal(45, 18, count), 0, 100).round()
    pay = np.clip(rng.lognormal(10.3, 0.5, count), 0, 100000).round()
    dose, male = rng.uniform(0, 10, count).round(2), (rng.random(count) < 0.5) * 1.0
    cost = 100 + 3 * age + 0.002 * pay - 20 * dose + 50 * male + rng.normal(0, 60, count)
    odds = -1 + 0.03 * (age - 45) + 3e-5 * (pay - 30000) - 0.3 * (dose - 5) + 0.8 * male
    return {
        "age": age,
        "pay": pay,
        "dose": dose,
        "male": male,
        "cost": np.clip(cost, 0, 1000).round(1),
        "sick": (rng.random(count) < 1 / (1 + np.exp(-odds))) * 1.0,
        "same": np.full(count, 4.0),
    }


def design(columns: Mapping[str, Floats], xs: tuple[str, ...] = XS) -> Floats:
    """Return a one and the columns, row by row."""
    return np.column_stack([np.ones(len(columns["age"])), *(columns[x] for x in xs)])


def least_squares(columns: Mapping[str, Floats], xs: tuple[str, ...] = XS) -> Floats:
    """Return intercept and slopes of cost, without privacy."""
    return np.asarray(np.linalg.lstsq(design(columns, xs), columns["cost"])[0])


def plain_odds(columns: Mapping[str, Floats]) -> tuple[Floats, Floats]:
    """Return intercept and slopes of the odds of sickness without privacy, and sampling stds."""
    x, y = design(columns) / HALVES, columns["sick"]
    weights = np.zeros(x.shape[1])
    for _ in range(40):
        chance = 1 / (1 + np.exp(-x @ weights))
        steep = (x * (chance * (1 - chance))[:, None]).T @ x
        weights = weights + np.linalg.solve(steep, x.T @ (y - chance))
    return weights / HALVES, np.sqrt(np.diag(np.linalg.inv(steep))) / HALVES


def written(columns: Mapping[str, Floats]) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Return header and rows as a source has them; nothing is an empty cell."""
    header = (*columns, "free", "town")
    yes_no = {"male", "sick"}
    rows = [
        (
            *(
                "" if np.isnan(v) else ("no", "yes")[int(v)] if n in yes_no else f"{v:.2f}"
                for n, v in zip(columns, row, strict=True)
            ),
            1,
            "x",
        )
        for row in zip(*columns.values(), strict=True)
    ]  # fmt: skip
    return header, rows


def opened(folder: Path, columns: Mapping[str, Floats], card: str = CARD) -> OpenVault:
    """Return a new vault with the people in it, as `t`."""
    header, rows = written(columns)
    return open_with(folder, "t", write_csv(folder / "t.csv", header, rows), card)


@dataclass
class Quick:
    """Stands for a data set: the real plan and price, sums by numpy, noise by a seeded numpy."""

    columns: Mapping[str, Floats]
    rng: np.random.Generator
    text: str = CARD

    def __post_init__(self) -> None:
        self.known: dict[object, tuple[str, list[float]]] = {}
        self.read = read_card("t", tomllib.loads(self.text, parse_float=Decimal))

    @property
    def card(self) -> CardView:
        return CardView(card_json(self.read))

    @property
    def budget(self) -> Budget:
        left = {
            "epsilon": 1e6,
            "tests": {"sums": {"epsilon": 1e6, "delta": 1.0}, "rho": {"rho": 0}},
        }
        return Budget({"left": left, "people": {"domain": "t", "left": left}, "yours": {}})

    def price(self, question: Builder, **terms: Any) -> Price:
        return Price({"delta": 0.0, "mechanism": "none", "error": {}})

    def ask(self, question: Builder, **terms: Any) -> Answer:
        outputs = question.question().outputs
        names = tuple(output.name for output in outputs)
        mechanism, stds = self._noise(question, names, terms)
        values = []
        for output, std in zip(outputs, stds, strict=True):
            assert isinstance(output.of, Aggregate)
            of, size = output.of.operands, len(self.columns["age"])
            true = float(evaluated(of[0], self.columns).sum()) if of else float(size)
            values.append(true + float(self.rng.laplace(0, std / np.sqrt(2))))
        receipt = {"mechanism": mechanism, "free": False, "epsilon": float(terms["epsilon"])}
        bars = (tuple((v, v) for v in values),)
        return Answer(names, (tuple(values),), (tuple(stds),), bars, "central-dp", receipt)

    def _noise(
        self, question: Builder, names: tuple[str, ...], terms: Mapping[str, Any]
    ) -> tuple[str, list[float]]:
        """Return what the planner prices; one round's noise is another's, whatever the weights."""
        known = (names, terms["epsilon"], terms["delta"])
        if known not in self.known:
            asked = question.question()
            request = Request(asked, epsilon=terms["epsilon"], delta=terms["delta"])
            priced = priced_request(self.read, request)
            stds = [_std(priced, output.of) for output in asked.outputs]
            self.known[known] = priced.mechanism, stds
        return self.known[known]

    def builder(self) -> Builder:
        return Builder("t", self)


def _std(priced: Priced, of: object) -> float:
    assert isinstance(of, Aggregate)
    (noise,), asked = priced.noises_of(of), priced.plan.asked_of(of)
    return noise.std() * (float(asked.operand.step) if asked.operands else 1.0)


def evaluated(expr: Expr, columns: Mapping[str, Floats]) -> Floats:
    """Return the expression of every row, in floats."""
    match expr:
        case Ref(column=name):
            return columns[name]
        case LiteralValue(constant=constant):
            return np.full(len(columns["age"]), float(constant.number))
        case Arithmetic(sign=sign, left=left, right=right):
            a, b = evaluated(left, columns), evaluated(right, columns)
            return {"+": a + b, "-": a - b, "*": a * b}[sign] if sign != "/" else a / b
        case Floor(of=of):
            return np.floor(evaluated(of, columns))
        case Clamp(of=of, lower=lower, upper=upper):
            low, high = (float(end.number) if end else None for end in (lower, upper))
            return np.asarray(np.clip(evaluated(of, columns), low, high))
        case Case(whens=((Compare(of=Ref(column=name)), then),), otherwise=other) if other:
            yes = columns[name] == 1
            return np.where(yes, evaluated(then, columns), evaluated(other, columns))
        case _:
            raise AssertionError(expr)
