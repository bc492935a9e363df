"""Lines and odds are fitted by ordinary questions, and what is claimed of them holds."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfumato import Refused, col
from sfumato.app.vault import OpenVault
from sfumato.client import Builder, DataSet
from sfumato.features.regression.fit_result import Fit
from support.k_anonymity_oracles import (
    CARD,
    XS,
    Floats,
    design,
    least_squares,
    opened,
    people,
    plain_odds,
)
from support.small_vaults import open_with

SURE = 100  # an epsilon at which the noise is small beside what sampling does
PEOPLE = people(6000, seed=5)


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    """Return a vault in which each row is a person; it has much to spend."""
    text = CARD.replace("epsilon = 500", "epsilon = 1000")
    with opened(tmp_path_factory.mktemp("fits"), PEOPLE, text) as made:
        yield made


def found(fit: Fit) -> tuple[Floats, Floats]:
    every = [fit.intercept, *fit.coefficients.values()]
    return np.array([c.value for c in every]), np.array([c.std for c in every])


def units(data_set: DataSet) -> int:
    spent: float = data_set.budget["spent"]["epsilon"]
    return round(spent * 10**9)


# --- agreement with what is fitted without privacy ------------------------------------------------


@pytest.mark.parametrize("terms", [{"epsilon": SURE}, {"epsilon": 20, "delta": 1e-5}])
def test_a_line_is_that_of_least_squares_but_for_its_noise(
    vault: OpenVault, terms: dict[str, Any]
) -> None:
    fit = vault["t"].linear("cost", XS, **terms)
    values, stds = found(fit)
    off = np.abs(values - least_squares(PEOPLE)) / stds
    assert off.max() < 6  # five coefficients: by chance once in 10^8 (Gaussian), 10^3 (Laplace)
    true = 1 - np.var(PEOPLE["cost"] - _line(values)) / np.var(PEOPLE["cost"])
    assert fit.r_squared == pytest.approx(true, abs=6 * (fit.r_squared_std or 0) + 0.01)
    assert all(c.sampling_std and c.sampling_std > 0 for c in fit.coefficients.values())


def _line(values: Floats) -> Floats:
    return design(PEOPLE) @ values


def test_odds_are_those_of_a_plain_fit_but_for_their_noise(vault: OpenVault) -> None:
    fit = vault["t"].logistic("sick", XS, epsilon=SURE)
    values, stds = found(fit)
    plain, sampling = plain_odds(PEOPLE)
    assert (np.abs(values - plain) / stds).max() < 6
    assert (np.abs(values - plain) / sampling).max() < 0.5
    assert fit.r_squared is None
    assert len(fit.answers) == 4


def test_a_fit_narrows_and_leaves_out_rows_with_a_null(tmp_path: Path) -> None:
    holed = {name: column.copy() for name, column in PEOPLE.items()}
    dice = np.random.default_rng(2)
    for name in ("dose", "cost", "male"):
        holed[name][dice.random(6000) < 0.1] = np.nan
    kept = (holed["age"] >= 30) & ~np.isnan(holed["dose"] + holed["cost"] + holed["male"])
    with opened(tmp_path, holed, CARD) as vault:
        fit = vault["t"].where(col("age") >= 30).linear("cost", ["dose", "male"], epsilon=SURE)
    values, stds = found(fit)
    some = {name: column[kept] for name, column in holed.items()}
    assert (np.abs(values - least_squares(some, ("dose", "male"))) / stds).max() < 6
    assert fit.answers[0].rows[0][0] == pytest.approx(kept.sum(), abs=5)


def test_what_a_fit_predicts_is_its_own_line(vault: OpenVault) -> None:
    line = vault["t"].linear("cost", ["age", "male"], epsilon=SURE)
    slope = line.coefficients["age"].value
    one, two = line.predict([{"age": 40, "male": 1}, {"age": 41, "male": 1}])  # type: ignore[misc]
    assert two - one == pytest.approx(slope)
    odds = vault["t"].logistic("sick", ["dose"], epsilon=SURE)
    low, high = odds.predict({"dose": 9}), odds.predict({"dose": 1})
    assert isinstance(low, float)
    assert isinstance(high, float)
    assert 0 < low < high < 1
    with pytest.raises(Refused) as refused:
        line.predict({"age": 40})
    assert refused.value.code == "unknown-column"


def test_a_fit_prints_itself(vault: OpenVault) -> None:
    fit = vault["t"].linear("cost", ["age"], epsilon=SURE)
    assert "(intercept)" in repr(fit)
    assert "for the noise alone" in repr(fit)
    assert "<table>" in fit._repr_html_()


# --- columns that tell nothing --------------------------------------------------------------------


def test_a_constant_column_is_steadied_and_said_so(vault: OpenVault) -> None:
    fit = vault["t"].linear("cost", ["age", "same"], epsilon=SURE)
    assert "ridge" in " ".join(fit.notes)
    values, _ = found(fit)
    assert np.isfinite(values).all()
    assert fit.coefficients["age"].value == pytest.approx(3, abs=0.5)


def test_columns_that_say_the_same_are_steadied_and_said_so(tmp_path: Path) -> None:
    twins = {**PEOPLE, "same": (PEOPLE["dose"]).round()}
    twins["dose"] = twins["same"]
    with opened(tmp_path, twins) as vault:
        fit = vault["t"].linear("cost", ["dose", "same"], epsilon=SURE)
        typed = vault["t"].linear("cost", ["dose", "same"], epsilon=SURE, ridge=50)
        odds = vault["t"].logistic("sick", ["dose", "same"], epsilon=SURE)
    assert "ridge" in " ".join(fit.notes)
    assert "A ridge penalty of 50 rows" in " ".join(typed.notes)
    for made in (fit, typed, odds):
        assert np.isfinite(found(made)[0]).all()
    for made in (fit, typed):
        assert all(c.sampling_std is None or c.sampling_std > 0 for c in made.coefficients.values())
    both = fit.coefficients["dose"].value + fit.coefficients["same"].value
    assert both == pytest.approx(least_squares(twins, ("dose",))[1], rel=0.05)


# --- what is paid ---------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1, 0.1, Fraction(1, 3), 0.7654321])
@pytest.mark.parametrize("delta", [0, 1e-6])
def test_a_fit_never_pays_more_than_was_typed(
    vault: OpenVault, epsilon: float | Fraction, delta: float
) -> None:
    town = vault["t"].where(col("age") > round(float(epsilon) * 10) + (delta > 0))
    before, spent_delta = units(vault["t"]), vault["t"].budget["spent"]["delta"]
    fit = town.logistic("sick", ["dose"], epsilon=epsilon, delta=delta)
    paid = units(vault["t"]) - before
    assert float(epsilon) * 10**9 - 10 <= paid <= Fraction(str(epsilon)) * 10**9
    assert vault["t"].budget["spent"]["delta"] - spent_delta <= delta + 1e-18
    assert fit.paid <= float(epsilon)


def test_the_same_fit_again_is_free(vault: OpenVault) -> None:
    first = vault["t"].logistic("sick", ["age", "dose"], epsilon=2)
    before = units(vault["t"])
    again = vault["t"].logistic("sick", ["age", "dose"], epsilon=2)
    assert units(vault["t"]) == before
    assert again.paid == 0
    assert again.coefficients == first.coefficients


def small(folder: Path, epsilon: str) -> OpenVault:
    text = CARD.replace("epsilon = 500, delta = 1e-3", f"epsilon = {epsilon}, delta = 0")
    return opened(folder, {name: column[:500] for name, column in PEOPLE.items()}, text)


def test_a_fit_that_does_not_fit_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    with small(tmp_path, "1") as vault:
        with pytest.raises(Refused) as refused:
            vault["t"].logistic("sick", ["age"], epsilon=1.001)
        assert refused.value.code == "budget-exceeded"
        assert vault["t"].price_logistic("sick", ["age"], epsilon=1.001).fits is False
        assert vault["t"].price_logistic("sick", ["age"], epsilon=1).fits is True
        assert units(vault["t"]) == 0
        vault["t"].logistic("sick", ["age"], epsilon=1)


def test_an_interrupted_fit_goes_on_and_pays_no_question_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small(tmp_path, "1") as vault:
        ask, asked = DataSet.ask, list[str | Builder]()

        def broken(self: DataSet, question: str | Builder, **terms: Any) -> Any:
            if len(asked) == 2:
                raise KeyboardInterrupt
            asked.append(question)
            return ask(self, question, **terms)

        monkeypatch.setattr(DataSet, "ask", broken)
        with pytest.raises(KeyboardInterrupt):
            vault["t"].logistic("sick", ["age"], epsilon=1)
        monkeypatch.setattr(DataSet, "ask", ask)
        part = units(vault["t"])
        assert 0 < part < 10**9
        with pytest.raises(Refused, match="resume=True"):
            vault["t"].logistic("sick", ["age"], epsilon=1)
        assert units(vault["t"]) == part
        fit = vault["t"].logistic("sick", ["age"], epsilon=1, resume=True)
        assert [bool(receipt["free"]) for receipt in fit.receipts] == [True, True, False, False]
        assert 10**9 - 10 <= units(vault["t"]) <= 10**9


def test_a_price_spends_nothing_and_says_what_it_assumes(vault: OpenVault) -> None:
    before = units(vault["t"])
    one = vault["t"].price_linear("cost", XS, epsilon=1, people=10_000)
    two = vault["t"].price_logistic("sick", XS, epsilon=1, people=20_000)
    none = vault["t"].price_logistic("sick", XS, epsilon=1)
    assert units(vault["t"]) == before
    assert set(one.error or {}) == set(XS)
    assert len(one.questions) == 1
    assert len(two.questions) == 4
    assert none.error is None
    assert "people=N" in none.why
    assert "evenly" in repr(two)


@pytest.mark.parametrize("people", [0, -1, 1.5, True, "9"])
def test_a_price_for_no_number_of_people_is_refused(vault: OpenVault, people: object) -> None:
    said: Any = {"epsilon": 1, "people": people}
    for price, y in ((vault["t"].price_linear, "cost"), (vault["t"].price_logistic, "sick")):
        with pytest.raises(Refused) as refused:
            price(y, ["age"], **said)
        assert "people has to be a whole number" in refused.value.cause


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "xs", "code"),
    [
        ("cost", ["age", "town"], "type-mismatch"),
        ("cost", ["free"], "no-bounds"),
        ("cost", ["nobody"], "unknown-column"),
        ("cost", ["age", "AGE"], "not-in-language"),
        ("cost", ["cost"], "not-in-language"),
        ("cost", [], "not-in-language"),
        ("cost", "age", "not-in-language"),
    ],
)
def test_columns_that_cannot_be_fitted_are_refused(
    vault: OpenVault, y: str, xs: list[str], code: str
) -> None:
    before = units(vault["t"])
    with pytest.raises(Refused) as refused:
        vault["t"].linear(y, xs, epsilon=1)
    assert refused.value.code == code
    assert units(vault["t"]) == before


def test_odds_of_a_number_are_refused(vault: OpenVault) -> None:
    with pytest.raises(Refused) as refused:
        vault["t"].logistic("cost", ["age"], epsilon=1)
    assert refused.value.code == "type-mismatch"


def test_groups_and_sums_are_refused(vault: OpenVault) -> None:
    town = vault["t"]
    for built in (town.group_by("male"), town.count(), town.limit(3), town.order_by("x")):
        with pytest.raises(Refused) as refused:
            built.linear("cost", ["age"], epsilon=1)
        assert refused.value.code == "not-in-language"


@pytest.mark.parametrize(
    "terms",
    [{}, *({"epsilon": one} for one in (0, float("nan"), Decimal("NaN"), Decimal("inf"), "1"))],
)
def test_a_fit_without_a_price_is_refused(vault: OpenVault, terms: dict[str, Any]) -> None:
    for fit in (vault["t"].linear, vault["t"].logistic):
        with pytest.raises(Refused) as refused:
            fit("sick", ["age"], **terms)
        assert refused.value.code == "bad-budget"


def test_strange_rounds_and_ridges_are_refused(vault: OpenVault) -> None:
    for terms in ({"rounds": 0}, {"rounds": 21}, {"rounds": True}):
        with pytest.raises(Refused):
            vault["t"].logistic("sick", ["age"], epsilon=1, **terms)
    with pytest.raises(Refused):
        vault["t"].linear("cost", ["age"], epsilon=1, ridge=-1)


# --- real people ----------------------------------------------------------------------------------

PARTICIPANTS = Path(__file__).parents[4] / "shared" / "data" / "participants.tsv"
REAL_CARD = """
unit = "participant_id"
people = "volunteers"
budget = { epsilon = 1000, delta = 0 }
nulls = ["n/a", " ", ""]
max_rows = 1
[columns.age]
type = "integer"
lower = 18
upper = 40
[columns.Height]
type = "integer"
lower = 140
upper = 200
[columns.Weight]
type = "integer"
lower = 40
upper = 120
"""


@pytest.mark.skipif(not PARTICIPANTS.exists(), reason="../shared/data/participants.tsv is absent")
def test_a_line_of_real_people_is_that_of_least_squares_but_for_its_noise(tmp_path: Path) -> None:
    with open_with(tmp_path, "real", PARTICIPANTS, REAL_CARD) as vault:
        fit = vault["real"].linear("Weight", ["Height"], epsilon=200)
    header, *lines = [line.split("\t") for line in PARTICIPANTS.read_text("utf-8").splitlines()]
    cells = [[line[header.index(name)] for name in ("Height", "Weight")] for line in lines]
    rows = [(float(h), float(w)) for h, w in cells if h != "n/a" and w != "n/a"]
    pairs = np.array([(min(max(h, 140), 200), min(max(w, 40), 120)) for h, w in rows])
    slope, start = np.polyfit(pairs[:, 0], pairs[:, 1], 1)
    values, stds = found(fit)
    assert (np.abs(values - [start, slope]) / stds).max() < 6
