"""A histogram whose bins come from private quantiles: two questions for one price."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from sfumato import col
from sfumato.app.vault import OpenVault
from sfumato.client.histogram import edges_of, labels_of
from sfumato.dp.refusal import Refused
from support.small_vaults import open_with, write_csv

CARD = """
unit = "who"
people = "payers"
version = "1"
budget = { epsilon = 60, delta = 1e-6 }
[columns.pay]
type = "number"
lower = 0
upper = 1000
step = 0.5
[columns.sex]
type = "text"
keys = ["f", "m"]
"""
PEOPLE = 4000


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    pays: list[object] = [(n / PEOPLE) ** 2 * 1000 for n in range(PEOPLE)] + [""] * 500
    rows = [(f"p{n}", pay, "fm"[n % 2]) for n, pay in enumerate(pays)]
    source = write_csv(tmp_path / "rows.csv", ("who", "pay", "sex"), rows)
    with open_with(tmp_path, "pays", source, CARD) as opened:
        yield opened


def spent(vault: OpenVault) -> float:
    return float(vault["pays"].budget["spent"]["epsilon"])


def test_bins_follow_the_quantiles_and_counts_are_even(vault: OpenVault) -> None:
    made = vault["pays"].histogram("pay", bins=5, epsilon=20)
    assert made.edges == tuple(sorted(made.edges))
    for edge, share in zip(made.edges, (0.2, 0.4, 0.6, 0.8), strict=True):
        assert float(edge) == pytest.approx(share**2 * 1000, abs=25)
    counts = [int(str(row[1])) for row in made.counts.rows]
    assert counts == pytest.approx([PEOPLE / 5] * 5, rel=0.15)
    assert sum(counts) == pytest.approx(PEOPLE, abs=30)  # those without a value are left out
    assert [row[0] for row in made.counts.rows] == labels_of(made.edges)


def test_both_questions_cost_what_was_named_and_no_more(vault: OpenVault) -> None:
    made = vault["pays"].histogram("pay", epsilon=0.7)
    assert spent(vault) == pytest.approx(0.7, abs=1e-12)
    assert made.epsilon == pytest.approx(0.7)
    receipts: list[Any] = [made.quantiles.receipt, made.counts.receipt]
    assert [receipt["epsilon"] for receipt in receipts] == [0.35, 0.35]
    assert receipts[0]["op"] != receipts[1]["op"]
    assert "epsilon 0.7 in all" in repr(made)


def test_the_same_histogram_again_is_free_and_the_same(vault: OpenVault) -> None:
    first = vault["pays"].where(sex="f").histogram(col("pay") * 2, bins=4, epsilon=Fraction(1, 3))
    before = spent(vault)
    again = vault["pays"].where(sex="f").histogram(col("pay") * 2, bins=4, epsilon=Fraction(1, 3))
    assert again.counts.rows == first.counts.rows
    assert spent(vault) == before


def test_what_only_half_fits_is_refused_and_not_paid(vault: OpenVault) -> None:
    with pytest.raises(Refused, match="budget-exceeded"):
        vault["pays"].histogram("pay", epsilon=70)
    with pytest.raises(Refused, match="bad-budget"):
        vault["pays"].histogram("pay")
    assert spent(vault) == 0


@pytest.mark.parametrize("bins", [1, 0, 101])
def test_a_histogram_has_at_least_two_bins_and_not_too_many(vault: OpenVault, bins: int) -> None:
    with pytest.raises(Refused, match="not-in-language"):
        vault["pays"].histogram("pay", bins=bins, epsilon=1)


def test_a_histogram_asks_nothing_else(vault: OpenVault) -> None:
    for built in (vault["pays"].count(), vault["pays"].group_by("sex"), vault["pays"].limit(2)):
        with pytest.raises(Refused, match="not-in-language"):
            built.histogram("pay", epsilon=1)


def test_edges_that_cross_or_are_equal_make_fewer_bins() -> None:
    assert edges_of((5, 3, 5, 4.5)) == (Fraction(3), Fraction(9, 2), Fraction(5))
    assert labels_of(edges_of((1500, 3))) == ["below 3", "3 to below 1,500", "1,500 and above"]
    assert labels_of(edges_of((7,))) == ["below 7", "7 and above"]


def test_a_histogram_can_be_drawn(vault: OpenVault) -> None:
    made = vault["pays"].histogram("pay", bins=3, epsilon=9)
    assert "<svg" in made.counts.plot()._repr_html_()


def test_a_histogram_whose_counts_would_not_fit_is_refused_unpaid(tmp_path: Path) -> None:
    """Quantiles are pure, but many counts may be Gaussian, and this card has no delta to spend."""
    text = """
unit = "who"
budget = { epsilon = 5 }
limits = { rows = 10000, rows_per_person = 60 }
columns = { age = { type = "integer", lower = 0, upper = 110 } }
"""
    source = write_csv(tmp_path / "a.csv", ("who", "age"), [(i, i % 90) for i in range(300)])
    with open_with(tmp_path, "t", source, text) as vault:
        terms = {"epsilon": 1, "delta": 1e-6, "max_groups": 50, "max_rows": 1}
        with pytest.raises(Refused, match="budget-exceeded"):
            vault["t"].histogram("age", bins=20, **terms)  # type: ignore[arg-type]
        assert vault["t"].budget["spent"]["epsilon"] == 0


@pytest.mark.parametrize(
    ("bins", "epsilon", "code"),
    [(5.5, 1, "not-in-language"), ("x", 1, "not-in-language"), (5, "a", "bad-budget"),
     (5, True, "bad-budget"), (51, 1, "not-in-language")],
)  # fmt: skip
def test_terms_that_are_none_are_refused(
    vault: OpenVault, bins: Any, epsilon: Any, code: str
) -> None:
    with pytest.raises(Refused) as refused:
        vault["pays"].histogram("pay", bins=bins, epsilon=epsilon)
    assert refused.value.code == code
