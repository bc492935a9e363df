"""Raising an answer: only the difference is paid, with noise of its own, and the mean is given."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.client.answer import Answer
from sfumato.dp.accounting.privacy_events import GaussianEvent, PrivacyCost, PureEvent, privacy_cost
from sfumato.dp.accounting.zcdp_conversion import epsilon_at, rho_within
from sfumato.dp.refusal import Refused
from sfumato.query.measure import Cells, Measure
from sfumato.query.request import Request
from sfumato.query.sql.select import read_sql
from sfumato.release.guarded_release import release
from sfumato.release.release_order import Asker, Order, ReleaseContext
from sfumato.vault.sealed import Sealed
from support.noise_judge import accusations
from support.scripted_engine import ScriptedEngine
from support.small_vaults import PATIENTS_CARD, card, open_with, write_csv, write_patients

KEYS = 12_000
CELLS = """
unit = "who"
people = "synthetic-raised"
version = "1"
budget = { epsilon = 1000, delta = 1e-2 }
[columns.cell]
type = "integer"
keys = [%s]
[columns.size]
type = "number"
lower = -20
upper = 30
step = 0.5
"""
BY_CELL = "SELECT cell, COUNT(*) AS n FROM cells GROUP BY cell"
TRUTH = np.array([cell % 3 for cell in range(KEYS)], dtype=np.int64)
Floats = NDArray[np.float64]


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    folder = tmp_path_factory.mktemp("cells")
    rows = [(f"p{c}-{n}", c, 7.5) for c in range(KEYS) for n in range(c % 3)]
    source = write_csv(folder / "cells.csv", ("who", "cell", "size"), rows)
    text = CELLS % ", ".join(map(str, range(KEYS)))
    with open_with(folder, "cells", source, text) as vault:
        yield vault


@pytest.fixture
def clinic(tmp_path: Path) -> Iterator[OpenVault]:
    text = PATIENTS_CARD.replace("3.0", "1000").replace("1.0", "1000").replace("1e-6", "1e-2")
    with open_with(tmp_path, "clinic", write_patients(tmp_path / "p.csv"), text) as vault:
        yield vault


def numbers(answer: Answer, column: int = 1) -> Floats:
    return np.array([row[column] for row in answer.rows], dtype=np.float64)


def stored(vault: OpenVault, answer: Answer, user: str = "owner") -> dict[str, Any]:
    text = vault.house.ledger.answer_of(user, str(answer.receipt["op"]))
    shape = json.loads(text or "{}")
    assert isinstance(shape, dict)
    return shape


def spent(vault: OpenVault, account: str) -> PrivacyCost:
    return vault.house.ledger.accounts((account,))[account].spent


def code_of(vault: OpenVault, sql: str, **terms: Any) -> str:  # terms of an ask
    with pytest.raises(Refused) as refused:
        vault["clinic"].ask(sql, **terms)
    return refused.value.code


def less(after: PrivacyCost, before: PrivacyCost) -> PrivacyCost:
    return PrivacyCost(
        after.epsilon - before.epsilon,
        after.delta - before.delta,
        after.rho - before.rho,
        after.rho_delta - before.rho_delta,
    )


COUNT = "SELECT COUNT(*) AS n FROM clinic"
ACCOUNTS = ("people:city-hospital-patients", "data-set:clinic", "user:clinic/owner")


def test_a_top_up_is_charged_exactly_the_difference_everywhere(clinic: OpenVault) -> None:
    first = clinic["clinic"].ask(COUNT, epsilon=0.7, delta=0)
    before = {name: spent(clinic, name) for name in ACCOUNTS}
    answer = clinic["clinic"].ask(COUNT, epsilon=1.9, delta=0, top_up=first)
    paid = privacy_cost(PureEvent(Fraction("1.2")))
    assert {less(spent(clinic, name), before[name]) for name in ACCOUNTS} == {paid}
    assert answer.receipt["epsilon"] == 1.2
    assert spent(clinic, ACCOUNTS[0]).epsilon == 1_900_000_000


def test_a_gaussian_top_up_is_charged_the_difference_in_rho(clinic: OpenVault) -> None:
    terms: dict[str, Any] = {"delta": 1e-6, "max_rows": 1}
    sql = "SELECT zip, FLOOR(age / 2) AS a, COUNT(*) AS n FROM clinic GROUP BY zip, a"
    first = clinic["clinic"].ask(sql, epsilon=1, max_groups=100, **terms)
    assert first.receipt["mechanism"] == "discrete gaussian"
    before = spent(clinic, ACCOUNTS[1])
    answer = clinic["clinic"].ask(sql, epsilon=2, max_groups=100, top_up=first, **terms)
    delta = Fraction(1, 10**6)
    rho = rho_within(Fraction(2), delta) - rho_within(Fraction(1), delta)
    event = GaussianEvent(rho, epsilon_at(rho, delta), delta)
    assert less(spent(clinic, ACCOUNTS[1]), before) == privacy_cost(event)
    one = clinic["clinic"].ask(sql, epsilon=2, max_groups=100, fresh=True, **terms)
    assert answer.std[0][2] == pytest.approx(one.std[0][2], rel=1e-6)  # nothing is lost in rho


def test_the_added_noise_is_its_own_and_as_wide_as_the_difference_buys(cells: OpenVault) -> None:
    first = cells["cells"].ask(BY_CELL, epsilon=0.5, delta=0)
    answer = cells["cells"].ask(BY_CELL, epsilon=2, delta=0, top_up=first)
    added = np.array(stored(cells, answer)["parts"][0], dtype=np.int64) - TRUTH
    assert accusations(added, "laplace", 1 / Fraction("1.5")) == []
    old = numbers(first) - TRUTH
    assert abs(np.corrcoef(added, old)[0, 1]) < 5 / math.sqrt(KEYS)


@pytest.mark.parametrize(("low", "high"), [("0.05", "0.1"), ("0.5", "2"), ("1", "1.1")])
def test_the_mean_is_as_wide_as_claimed(cells: OpenVault, low: str, high: str) -> None:
    sql = BY_CELL.replace("n FROM", f"n{low[-1]}{high[-1]} FROM")
    first = cells["cells"].ask(sql, epsilon=Fraction(low), delta=0, fresh=True)
    answer = cells["cells"].ask(sql, epsilon=Fraction(high), delta=0, top_up=first)
    noise, std = numbers(answer) - TRUTH, answer.std[0][1]
    assert std is not None
    variances = np.array([std, first.std[0][1]], dtype=np.float64) ** 2
    assert variances[0] < variances[1]
    fourth = float(np.mean(((noise / std) ** 2 - 1) ** 2))
    z = (np.mean((noise / std) ** 2) - 1) / math.sqrt(fourth / KEYS)
    assert 2 * stats.norm.sf(abs(z)) > 1e-6
    assert abs(noise.mean()) < 5 * std / math.sqrt(KEYS)
    inside = [
        row[1][0] <= true <= row[1][1]
        for row, true in zip(answer.interval, TRUTH, strict=True)
        if row[1] is not None
    ]
    assert len(inside) == KEYS
    assert np.mean(inside) > 0.95 - 5 * math.sqrt(0.05 * 0.95 / KEYS)


def test_gaussian_draws_are_each_their_own_and_their_mean_is_as_wide_as_claimed(
    cells: OpenVault,
) -> None:
    terms: dict[str, Any] = {"delta": 1e-6, "max_groups": 100}
    first = cells["cells"].ask(BY_CELL, epsilon=1, **terms)
    answer = cells["cells"].ask(BY_CELL, epsilon=3, top_up=first, **terms)
    assert answer.receipt["mechanism"] == "discrete gaussian + discrete gaussian"
    kept = stored(cells, answer)
    old, added = (
        np.array(draw["parts"][0], dtype=np.int64) - TRUTH for draw in (kept["before"][0], kept)
    )
    for draw, noise in ((kept["before"][0], old), (kept, added)):
        assert accusations(noise, "gaussian", Fraction(draw["noise"][0]["variance"])) == []
    assert abs(np.corrcoef(added, old)[0, 1]) < 5 / math.sqrt(KEYS)
    std = answer.std[0][1]
    rho = rho_within(Fraction(3), Fraction(1, 10**6))
    assert std == pytest.approx(math.sqrt(100 / (2 * rho)), rel=1e-6)
    z = (np.mean((numbers(answer) - TRUTH) ** 2) / float(std or 0) ** 2 - 1) / math.sqrt(2 / KEYS)
    assert 2 * stats.norm.sf(abs(z)) > 1e-6


def test_a_mean_over_people_covers_the_truth_after_a_top_up(cells: OpenVault) -> None:
    sql = "SELECT cell, AVG(size) AS m FROM cells WHERE cell < 3000 GROUP BY cell"
    first = cells["cells"].ask(sql, epsilon=4, delta=0)
    answer = cells["cells"].ask(sql, epsilon=8, delta=0, top_up=first)
    pairs = zip(answer.interval, TRUTH, strict=True)
    inside = [row[1][0] <= 7.5 <= row[1][1] for row, n in pairs if n and row[1] is not None]
    assert np.mean(inside) > 0.93


def test_a_repeated_top_up_is_free_and_the_very_same(clinic: OpenVault) -> None:
    first = clinic["clinic"].ask(COUNT, epsilon=1, delta=0)
    once = clinic["clinic"].ask(COUNT, epsilon=2, delta=0, top_up=first)
    before = spent(clinic, ACCOUNTS[0])
    again = clinic["clinic"].ask(COUNT, epsilon=1, delta=0)
    for earlier in (first, again, str(first.receipt["op"])):
        repeat = clinic["clinic"].ask(COUNT.lower(), epsilon=2, delta=0, top_up=earlier)
        assert repeat.rows == once.rows
        assert repeat.receipt["free"] is True
    assert spent(clinic, ACCOUNTS[0]) == before
    assert clinic["clinic"].ask(COUNT, epsilon=1, delta=0).rows == first.rows


def test_a_plain_answer_at_the_price_of_the_difference_is_another(clinic: OpenVault) -> None:
    first = clinic["clinic"].ask(COUNT, epsilon=1, delta=0)
    clinic["clinic"].ask(COUNT, epsilon=1.5, delta=0, top_up=first)
    plain = clinic["clinic"].ask(COUNT, epsilon=0.5, delta=0)
    assert plain.receipt["free"] is False
    assert "top_up" not in plain.receipt


def test_a_top_up_can_be_topped_up(clinic: OpenVault) -> None:
    answer = clinic["clinic"].ask(COUNT, epsilon=1, delta=0)
    deviations = [answer.std[0][0]]
    for epsilon in (2, 3, 10):
        answer = clinic["clinic"].ask(COUNT, epsilon=epsilon, delta=0, top_up=answer)
        deviations.append(answer.std[0][0])
    assert spent(clinic, ACCOUNTS[0]).epsilon == 10_000_000_000
    assert answer.receipt["top_up"]["paid_in_all"]["epsilon"] == 10  # type: ignore[index]
    assert len(answer.receipt["top_up"]["draws"]) == 4  # type: ignore[index]
    parts = [draw["noise"][0]["std"] for draw in answer.receipt["top_up"]["draws"]]  # type: ignore[index]
    assert deviations[-1] == pytest.approx(sum(s**-2 for s in parts) ** -0.5)
    assert deviations == sorted(deviations, key=lambda std: -float(std or 0))


def test_the_receipt_names_both_draws_and_what_was_paid_in_all(clinic: OpenVault) -> None:
    first = clinic["clinic"].ask(COUNT, epsilon=1, delta=0)
    answer = clinic["clinic"].ask(COUNT, epsilon=3, delta=0, top_up=first)
    said: Any = answer.receipt["top_up"]
    assert answer.receipt["mechanism"] == "discrete laplace + discrete laplace"
    assert said["of"] == first.receipt["op"]
    assert [draw["epsilon"] for draw in said["draws"]] == [1, 2]
    assert said["whole"]["epsilon"] == said["paid_in_all"]["epsilon"] == 3
    assert "less precise than one draw" in said["says"]
    assert "paid epsilon 2, 3 in all" in repr(answer)


def test_the_price_of_a_top_up_says_what_one_new_draw_would_give(clinic: OpenVault) -> None:
    first = clinic["clinic"].ask(COUNT, epsilon=1, delta=0)
    before = spent(clinic, ACCOUNTS[0])
    price = clinic["clinic"].price(COUNT, epsilon=2, delta=0, top_up=first)
    one = clinic["clinic"].price(COUNT, epsilon=2, delta=0)
    assert spent(clinic, ACCOUNTS[0]) == before
    assert price["epsilon"] == 1
    assert price["top_up"]["one_draw"]["error"] == one["error"]
    assert one["error"]["n"] < price["error"]["n"] < 3
    assert "one new answer for epsilon 2 would give n ±" in repr(price)
    answer = clinic["clinic"].ask(COUNT, epsilon=2, delta=0, top_up=first)
    low, high = answer.interval[0][0] or (0, 0)
    assert (high - low) / 2 == pytest.approx(price["error"]["n"])


@pytest.mark.parametrize(
    ("sql", "terms", "code"),
    [
        ("SELECT COUNT(*) AS n FROM clinic WHERE age > 3", {"epsilon": 2}, "top-up-unknown"),
        ("SELECT COUNT(*), COUNT(age) FROM clinic", {"epsilon": 2}, "top-up-unknown"),
        (COUNT, {"epsilon": 2, "max_rows": 3}, "top-up-unknown"),
        (COUNT, {"epsilon": 1}, "top-up-impossible"),
        (COUNT, {"epsilon": 0.5}, "top-up-impossible"),
        (COUNT, {"error": {"n": 1}}, "bad-budget"),
        (COUNT, {"epsilon": 2, "top_up": "nobody"}, "top-up-unknown"),
    ],
)
def test_what_is_not_the_same_question_is_refused_and_not_paid(
    clinic: OpenVault, sql: str, terms: dict[str, Any], code: str
) -> None:
    first = clinic["clinic"].ask(COUNT, epsilon=1, delta=0)
    before = spent(clinic, ACCOUNTS[0])
    assert code_of(clinic, sql, **{"top_up": first, "delta": 0, **terms}) == code
    assert spent(clinic, ACCOUNTS[0]) == before


def test_choices_cannot_be_topped_up(clinic: OpenVault) -> None:
    for sql in ("SELECT MEDIAN(age) FROM clinic", "SELECT COUNT(*), MODE(zip) FROM clinic"):
        first = clinic["clinic"].ask(sql, epsilon=1, delta=0)
        assert code_of(clinic, sql, epsilon=2, delta=0, top_up=first) == "top-up-impossible"


def test_another_version_needs_another_answer(tmp_path: Path) -> None:
    text = PATIENTS_CARD.replace("1.0", "3.0")
    with open_with(tmp_path, "clinic", write_patients(tmp_path / "p.csv"), text) as vault:
        first = vault["clinic"].ask(COUNT, epsilon=1, delta=0)
        kept = vault["clinic"].ask(COUNT, epsilon=1.5, delta=0, top_up=first, op="mine")
        source = write_patients(tmp_path / "q.csv", 230)
        vault.add("clinic", source, card(text.replace("2026-11", "2026-12")))
        assert code_of(vault, COUNT, epsilon=2, delta=0, top_up=first) == "top-up-unknown"
        again = vault["clinic"].ask(COUNT, epsilon=1.5, delta=0, top_up=first, op="mine")
        assert again.rows == kept.rows
        assert again.receipt["version"] == "2026-11"


def test_nobody_raises_an_answer_that_another_was_given(clinic: OpenVault) -> None:
    folder = clinic.house.folder
    first = clinic["clinic"].ask(COUNT, epsilon=1, delta=0)
    raised = clinic["clinic"].ask(COUNT, epsilon=2, delta=0, top_up=first)
    clinic.enrol("ann", "researchers")
    with sfumato.open(folder, user="ann") as hers:
        assert code_of(hers, COUNT, epsilon=2, delta=0, top_up=first) == "top-up-unknown"
        own = hers["clinic"].ask(COUNT, epsilon=1, delta=0)
        assert own.rows == first.rows
        before = spent(hers, ACCOUNTS[1])
        same = hers["clinic"].ask(COUNT, epsilon=2, delta=0, top_up=own)
        assert same.rows == raised.rows
        assert spent(hers, ACCOUNTS[1]) == before
        assert spent(hers, "user:clinic/ann").epsilon == 2_000_000_000


BY_TOWN = "SELECT town, COUNT(*) AS n, SUM(pay) AS s FROM t GROUP BY town"
TOWNS = """
unit = "who"
people = "towns"
version = "1"
budget = { epsilon = 1000, delta = 1e-2 }
[columns.town]
type = "text"
[columns.pay]
type = "integer"
lower = 0
upper = 10
"""


def test_private_keys_are_kept_and_not_chosen_again(tmp_path: Path) -> None:
    crowd = [t for t, n in {"Metz": 9, "Ulm": 60, "Brno": 12, "Graz": 14}.items() for _ in range(n)]
    rows = [(f"p{i}", town, 5) for i, town in enumerate(crowd)]
    source = write_csv(tmp_path / "t.csv", ("who", "town", "pay"), rows)
    with open_with(tmp_path, "t", source, TOWNS) as vault:
        for _ in range(6):
            first = vault["t"].ask(BY_TOWN, epsilon=3, delta=1e-5, fresh=True)
            before = spent(vault, "data-set:t")
            answer = vault["t"].ask(BY_TOWN, epsilon=103, delta=1e-5, top_up=first)
            paid = privacy_cost(PureEvent(Fraction(100)))
            assert less(spent(vault, "data-set:t"), before) == paid
            assert [row[0] for row in answer.rows] == [row[0] for row in first.rows]
            for town, n, total in answer.rows:
                assert n == pytest.approx(crowd.count(str(town)), abs=2)
                assert total == pytest.approx(5 * crowd.count(str(town)), abs=5)
            with pytest.raises(Refused, match="missing from the answer"):
                answer.total()


def test_what_the_choice_of_keys_has_taken_is_left_out_of_the_difference_in_rho(
    tmp_path: Path,
) -> None:
    rows = [(f"p{i}", ("Metz", "Ulm")[i % 2], 5) for i in range(400)]
    source = write_csv(tmp_path / "t.csv", ("who", "town", "pay"), rows)
    with open_with(tmp_path, "t", source, TOWNS) as vault:
        terms: dict[str, Any] = {"delta": 1e-3, "max_groups": 100}
        first = vault["t"].ask(BY_TOWN, epsilon=6, **terms)
        split: Any = first.receipt["split"]
        choice = split[0]
        assert (choice["part"], choice["epsilon"], choice["delta"]) == ("choice of keys", 2, 5e-4)
        before = spent(vault, "data-set:t")
        vault["t"].ask(BY_TOWN, epsilon=12, top_up=first, **terms)
        delta = Fraction(1, 2000)
        rho = rho_within(Fraction(10), delta) - rho_within(Fraction(4), delta)
        event = GaussianEvent(rho, epsilon_at(rho, delta), delta)
        assert less(spent(vault, "data-set:t"), before) == privacy_cost(event)


def test_an_answer_that_shows_no_key_has_nothing_to_raise(tmp_path: Path) -> None:
    rows = [(f"p{i}", f"alone-{i}", 5) for i in range(50)]
    source = write_csv(tmp_path / "t.csv", ("who", "town", "pay"), rows)
    with open_with(tmp_path, "t", source, TOWNS) as vault:
        first = vault["t"].ask(BY_TOWN, epsilon=1, delta=1e-9)  # each of fifty may show by it
        assert list(first.rows) == []
        with pytest.raises(Refused) as refused:
            vault["t"].ask(BY_TOWN, epsilon=2, delta=1e-9, top_up=first)
        assert refused.value.code == "top-up-impossible"


def test_a_fresh_top_up_pays_again_for_another_draw(clinic: OpenVault) -> None:
    first = clinic["clinic"].ask(COUNT, epsilon=1, delta=0)
    for _ in range(3):
        clinic["clinic"].ask(COUNT, epsilon=2, delta=0, top_up=first, fresh=True)
    assert spent(clinic, ACCOUNTS[0]).epsilon == 4_000_000_000


def test_what_comes_after_the_noise_works_on_a_mean(clinic: OpenVault) -> None:
    sql = "SELECT FLOOR(age / 5) AS fives, COUNT(*) AS n FROM clinic GROUP BY fives"
    first = clinic["clinic"].ask(sql, epsilon=1, delta=0)
    answer = clinic["clinic"].ask(sql, epsilon=2.5, delta=0, top_up=first)
    assert any(value != round(value) for value in numbers(answer))
    rest = " HAVING n > 0 ORDER BY n DESC LIMIT 1"
    best = clinic["clinic"].ask(sql + rest, epsilon=2.5, delta=0, top_up=first)
    assert best.receipt["free"] is True
    assert best.rows == (max(answer.rows, key=lambda row: float(str(row[1]))),)
    assert all(isinstance(n, int) for _, n in answer.tidy().rows)
    assert answer.total().value == pytest.approx(numbers(answer).sum())
    assert "<svg" in answer.plot()._repr_html_()
    whole = clinic["clinic"].ask(COUNT, epsilon=1, delta=0)
    more = clinic["clinic"].ask(COUNT, epsilon=2, delta=0, top_up=whole)
    assert sum(int(str(n)) for _, n in answer.tidy(more).rows) >= 0
    with pytest.raises(Refused, match="given twice"):
        answer.tidy([whole, more])


def test_a_top_up_that_was_killed_while_reading_pays_once(clinic: OpenVault) -> None:
    listing = clinic.house.catalogue.find("clinic")
    assert listing is not None
    first = clinic["clinic"].ask(COUNT, epsilon=1, delta=0, op="first")

    class Killed(BaseException):
        """The process ends here."""

    def kill(_measure: Measure) -> Sealed[Cells]:
        raise Killed

    def zeros(measure: Measure) -> Sealed[Cells]:
        return Sealed(
            Cells(tuple(np.zeros(measure.cells, dtype=np.int64) for _ in measure.tallies))
        )

    def door(reading: Any) -> ReleaseContext:  # a reading that may never return
        return replace(clinic.house.queries.door, engine=ScriptedEngine(reading))

    request = Request(read_sql(COUNT, "clinic"), Fraction(3), delta=Fraction(0), top_up="first")
    order = Order(
        listing.card, listing.table, request, Asker("owner"), "raise", lambda _: listing.card
    )
    with pytest.raises(Killed):
        release(door(kill), order)
    assert spent(clinic, ACCOUNTS[0]).epsilon == 3_000_000_000
    answers = [
        release(door(zeros), replace(order, op=op)).answer for op in ("another", "raise", "third")
    ]
    assert spent(clinic, ACCOUNTS[0]).epsilon == 3_000_000_000
    assert answers[0] == answers[1] == answers[2]
    with pytest.raises(Refused, match="op-reused"):
        release(door(zeros), replace(order, request=replace(request, epsilon=Fraction(4))))
    assert first.receipt["free"] is False
    assert clinic.house.ledger.verified()["ok"] is True


def test_running_counts_cannot_be_topped_up_alone_or_beside_others(tmp_path: Path) -> None:
    text = """
unit = "who"
budget = { epsilon = 20 }
ask = { who = ["owner"] }
columns = { day = { type = "date", lower = 2026-01-01, upper = 2026-03-31 } }
"""
    source = write_csv(tmp_path / "d.csv", ("who", "day"), [(i, "2026-02-01") for i in range(50)])
    with open_with(tmp_path, "clinic", source, text) as vault:
        month = "date_trunc('month', day) AS month"
        for more in ("", ", COUNT(*)"):
            sql = f"SELECT {month}, RUNNING_COUNT(*){more} FROM clinic GROUP BY month"
            first = vault["clinic"].ask(sql, epsilon=1)
            assert code_of(vault, sql, epsilon=2, top_up=first) == "top-up-impossible"
