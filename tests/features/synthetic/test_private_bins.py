"""Private bins: cut at medians that were paid for, and better where values lie close together."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfumato.app.vault import OpenVault
from sfumato.dp.accounting.zcdp_conversion import rho_within
from sfumato.dp.refusal import Refused
from sfumato.features.synthetic.column_categories import BINS
from sfumato.features.synthetic.private_bins import LEVELS, is_wide, split_at_median, uncut
from sfumato.vault.card.columns import Column
from support.small_vaults import open_with, write_csv

COLUMN = Column("x", "integer", 0, 99)
CARD = """
unit = "who"
budget = { epsilon = 500, delta = 1e-4 }
[columns.income]
type = "integer"
lower = 0
upper = 1_000_000
[columns.weight]
type = "number"
lower = -5
upper = 5
step = 0.25
[columns.sick]
type = "boolean"
[columns.day]
type = "date"
lower = 2026-01-01
upper = 2026-12-31
[tables.more]
columns = { score = { type = "integer", lower = 0, upper = 50 } }
"""
HEADER = ("who", "income", "weight", "sick", "day")


def exact(values: list[int], levels: int = LEVELS) -> tuple[int, ...]:
    """Return where bins begin that are cut at the true medians."""
    made = uncut(COLUMN)
    for _ in range(levels):
        ends = (*made.begins[1:], 100)
        inside = [
            sorted(v for v in values if first <= v < end)
            for first, end in zip(made.begins, ends, strict=True)
        ]
        made = split_at_median(
            made, [some[(len(some) - 1) // 2] if some else -1 for some in inside]
        )
    return made.begins


def test_a_bin_is_cut_behind_its_median_and_in_the_middle_if_that_says_nothing() -> None:
    assert split_at_median(uncut(COLUMN), [9]).begins == (0, 10)
    assert split_at_median(uncut(COLUMN), [500]).begins == (0, 50)
    assert split_at_median(uncut(COLUMN), [99]).begins == (0, 99)
    assert split_at_median(split_at_median(uncut(COLUMN), [9]), [9, 9]).begins == (0, 9, 10, 55)


def test_a_value_that_many_have_gets_a_bin_of_its_own() -> None:
    dice = random.Random(3)
    begins = exact([40] * 600 + [dice.randrange(100) for _ in range(400)])
    assert {40, 41} <= set(begins)


def test_bins_hold_about_as_many_each() -> None:
    values = [int(99 * (n / 4000) ** 4) for n in range(4000)]
    begins = exact(values)
    counts = np.histogram(values, [*begins, 100])[0]
    assert counts[1:].max() < 3 * 4000 / BINS  # the first is one value that many have


def test_whatever_is_said_the_bins_are_in_order_within_the_bounds_and_no_more() -> None:
    dice = random.Random(4)
    for _ in range(300):
        upper = dice.randrange(1, 60)
        made = uncut(Column("x", "integer", -7, -7 + upper))
        for _ in range(LEVELS):
            made = split_at_median(made, [dice.randrange(-99, 99) for _ in made.begins])
        assert made.begins[0] == -7
        assert list(made.begins) == sorted(set(made.begins))
        assert made.begins[-1] <= -7 + upper
        assert len(made.begins) <= min(BINS, upper + 1)


def test_private_bins_are_for_numbers_between_bounds_with_more_steps_than_bins() -> None:
    assert is_wide(COLUMN)
    assert not is_wide(Column("x", "integer", 0, BINS - 1))
    assert not is_wide(Column("x", "integer"))
    assert not is_wide(Column("x", "date", 0, 999))


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    """Return a vault whose incomes lie close together, far below their bound."""
    folder = tmp_path_factory.mktemp("bins")
    dice = random.Random(1)
    rows = [
        (f"p{n}", int(dice.lognormvariate(8, 0.5)), dice.randrange(-20, 21) / 4, n % 2, "")
        for n in range(4000)
    ]
    source = write_csv(folder / "x.csv", HEADER, rows)
    other = write_csv(folder / "m.csv", ("who", "score"), [(f"p{n}", n % 50) for n in range(4000)])
    with open_with(folder, "clinic", source, CARD, tables={"more": other}) as opened:
        yield opened


def spent(vault: OpenVault) -> Any:
    return dict(vault["clinic"].budget["spent"])


def incomes(vault: OpenVault, bins: list[str] | None, **terms: Any) -> list[int]:
    twin = vault["clinic"].dp_twin(
        epsilon=4, method="independent", seed="s", private_bins=bins, **terms
    )
    return sorted(int(row["income"]) for row in twin.rows() if row["income"])


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_a_skewed_column_is_as_it_is_with_private_bins_and_is_not_without(
    vault: OpenVault, delta: str
) -> None:
    """The median income is near 2,980; an even bin is 62,500 wide."""
    even = incomes(vault, None, delta=Fraction(delta))
    private = incomes(vault, ["income"], delta=Fraction(delta))
    assert even[len(even) // 2] > 20_000
    for share, value in ((0.25, 2128), (0.5, 2981), (0.75, 4177)):
        assert private[int(share * len(private))] == pytest.approx(value, rel=0.25)


@pytest.mark.parametrize(("method", "more"), [("independent", 0), ("mst", 1)])
def test_the_bins_are_paid_out_of_the_price_and_it_is_not_passed(
    vault: OpenVault, method: str, more: int
) -> None:
    """Each at a price of its own, for the same medians at the same price are free."""
    before, price = spent(vault), Fraction(75 + more, 100)
    vault["clinic"].dp_twin(
        epsilon=price, delta=0, method=method, private_bins=["income", "weight", "more.score"]
    )
    after = spent(vault)
    assert float(price) - 1e-4 < after["epsilon"] - before["epsilon"] <= float(price)
    price, delta = price - Fraction(1, 4), Fraction(1, 10**6)
    vault["clinic"].dp_twin(epsilon=price, delta=delta, method=method, private_bins=["weight"])
    whole = float(rho_within(price, delta))
    assert 0.99 * whole < spent(vault)["rho"] - after["rho"] <= whole


def test_what_the_bins_take_is_told_before_and_charged_as_told(vault: OpenVault) -> None:
    before = spent(vault)
    terms: Any = {"epsilon": 2, "delta": 0, "private_bins": ["INCOME", "more.score"]}
    told: Any = vault["clinic"].dp_twin_price(**terms)
    assert spent(vault) == before
    assert told["private_bins"] == {
        "columns": ["clinic.income", "more.score"],
        "possible": ["clinic.income", "clinic.weight", "more.score"],
        "share": pytest.approx(0.1),
        "epsilon": pytest.approx(0.2, abs=1e-5),
    }
    vault["clinic"].dp_twin(**terms, op="told")
    charged = [e.body for e in vault.house.ledger.store.entries() if '"op":"told' in e.body]
    medians = [body for body in charged if '"at":"1/2"' in body]
    assert len(medians) == 2 * LEVELS
    paid = [float(Fraction(text.partition('"epsilon":"')[2].partition('"')[0])) for text in medians]
    assert sum(paid) == pytest.approx(0.2, abs=1e-5)


class NoEngine:
    """An engine that nobody may touch."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the engine's {name} was used")


def test_bins_follow_from_the_released_medians_alone(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that was released stands in the ledger: the same again needs no rows, and is the same."""
    terms: Any = {"epsilon": 1, "delta": 0, "private_bins": ["income"], "op": "again"}
    one = vault["clinic"].dp_twin(**terms)
    measured: Any = one.stamp["measured"]
    (begins,) = [m["begins"] for m in measured["clinic"] if m.get("binned") == "income"]
    assert begins[0] == 0
    assert len(begins) <= BINS
    before = spent(vault)
    monkeypatch.setattr(type(vault.house.engine), "measure", NoEngine().__getattr__)
    assert vault["clinic"].dp_twin(**terms).files == one.files
    assert spent(vault) == before


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("nobody", "unknown-column"),
        ("score", "unknown-column"),  # of another table: more.score
        ("sick", "twin-not-possible"),
        ("day", "twin-not-possible"),
    ],
)
def test_what_has_no_private_bins_is_refused_unpaid(vault: OpenVault, name: str, code: str) -> None:
    before = spent(vault)
    for call in (vault["clinic"].dp_twin, vault["clinic"].dp_twin_price):
        with pytest.raises(Refused) as refused:
            call(epsilon=1, private_bins=[name])
        assert refused.value.code == code
    assert spent(vault) == before


def test_a_person_is_in_one_bin_with_one_row_whatever_they_have(tmp_path: Path) -> None:
    """Forty rows of one person do not pull the median to them."""
    heavy = [("heavy", 900_000, 0, 0, "")] * 40
    light = [(f"p{n}", 1000 + n, 0, 0, "") for n in range(60)]
    text = CARD.partition("[tables")[0].replace("budget", "max_rows = 40\nbudget", 1)
    source = write_csv(tmp_path / "x.csv", HEADER, [*heavy, *light])
    with open_with(tmp_path, "clinic", source, text) as opened:
        twin = opened["clinic"].dp_twin(epsilon=500, delta=0, private_bins=["income"])
    measured: Any = twin.stamp["measured"]
    (begins,) = [m["begins"] for m in measured["clinic"] if m.get("binned") == "income"]
    assert sum(begin < 1100 for begin in begins) >= 8
