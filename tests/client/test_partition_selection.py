"""Keys that nobody declared, end to end: what is not selected is nowhere, and what is, is paid."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from sfumato.app.vault import OpenVault
from sfumato.client.answer import Answer
from sfumato.dp.accounting.zcdp_conversion import rho_within
from sfumato.dp.mechanisms.gaussian_partition_selection import threshold_for
from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.mechanisms.partition_selection import ONE, keep_probabilities, per_key
from sfumato.dp.refusal import Refused
from sfumato.query.measure import Cells
from sfumato.query.partition_selection_price import PricedPartitionSelection, selection_for
from sfumato.release.guarantees.central_dp import PartitionSelection, select_partitions
from sfumato.system.randomness import SystemRandomSource
from sfumato.vault.sealed import Sealed
from support.noise_judge import accusations
from support.small_vaults import open_with, write_csv

HEADER = ("who", "town", "zip", "pay")
CARD = """
unit = "who"
people = "towns"
version = "1"
budget = { epsilon = 1000, delta = 1e-2 }
max_groups = 2
max_rows = 2
[columns.town]
type = "text"
[columns.zip]
type = "text"
keys = ["a", "b"]
[columns.pay]
type = "integer"
lower = 0
upper = 10
"""
TOWNS = {"Zwolle": 400, "Aachen": 300, "Metz": 200}
LONELY = [f"lonely-{n:03d}" for n in range(60)]
BY_TOWN = "SELECT town, COUNT(*) AS n FROM t GROUP BY town"
TERMS = {"epsilon": 4, "delta": 1e-8}  # sixty lonely keys may each be shown by it


def rows() -> list[Sequence[object]]:
    crowd = [town for town, people in TOWNS.items() for _ in range(people)]
    return [(f"p{n}", town, "ab"[n % 2], n % 11) for n, town in enumerate([*crowd, *LONELY])]


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    folder = tmp_path_factory.mktemp("private")
    source = write_csv(folder / "rows.csv", HEADER, rows())
    with open_with(folder, "t", source, CARD) as opened:
        yield opened


def ask(vault: OpenVault, sql: str, **more: Any) -> Answer:  # terms of an ask
    return vault["t"].ask(sql, **{**TERMS, **more})


def code_of(vault: OpenVault, sql: str, **terms: Any) -> str:  # terms of an ask
    try:
        ask(vault, sql, **terms)
    except Refused as refused:
        return refused.code
    return ""


def stored(vault: OpenVault, answer: Answer) -> dict[str, Any]:
    text = vault.house.ledger.answer_of("owner", str(answer.receipt["op"]))
    shape = json.loads(text or "{}")
    assert isinstance(shape, dict)
    return shape


def split(answer: Answer) -> list[dict[str, Any]]:
    lines = answer.receipt["split"]
    assert isinstance(lines, list)
    return lines


def test_keys_of_many_people_are_shown_in_the_order_of_their_values(vault: OpenVault) -> None:
    answer = ask(vault, BY_TOWN)
    assert [row[0] for row in answer.rows] == sorted(TOWNS)
    assert [row[1] for row in answer.rows] == pytest.approx([300, 200, 400], abs=60)


def test_a_key_that_was_not_selected_is_nowhere(vault: OpenVault) -> None:
    answer = ask(vault, BY_TOWN)
    kept = stored(vault, answer)
    assert [[key["text"] for key in cell] for cell in kept["keys"]] == [[t] for t in sorted(TOWNS)]
    assert {len(part) for part in kept["parts"]} == {len(TOWNS)}
    for estimate in kept["aggregates"].values():
        assert {len(estimate[name]) for name in ("values", "std", "low", "high")} == {len(TOWNS)}
    assert "lonely" not in json.dumps(kept)
    assert "lonely" not in repr(answer) + json.dumps(answer.receipt)


def test_no_file_of_the_ledger_names_a_key_that_was_not_selected(vault: OpenVault) -> None:
    ask(vault, BY_TOWN, fresh=True)
    files = [
        file for file in Path(vault.house.folder).iterdir()
        if file.is_file() and "catalogue" not in file.name
    ]  # fmt: skip
    assert any(b"Zwolle" in file.read_bytes() for file in files)
    assert not any(b"lonely" in file.read_bytes() for file in files)


def test_a_tuple_with_one_private_key_is_selected_as_a_whole(vault: OpenVault) -> None:
    answer = ask(vault, "SELECT zip, town, COUNT(*) FROM t GROUP BY zip, town")
    assert [row[:2] for row in answer.rows] == [(z, t) for z in "ab" for t in sorted(TOWNS)]
    turned = ask(vault, "SELECT town, zip, COUNT(*) FROM t GROUP BY town, zip")
    assert turned.receipt["free"] is True
    assert [row[:2] for row in turned.rows] == [(t, z) for t in sorted(TOWNS) for z in "ab"]


def test_a_repeat_is_free_and_the_same(vault: OpenVault) -> None:
    first, again = ask(vault, BY_TOWN), ask(vault, BY_TOWN.lower())
    assert again.receipt["free"] is True
    assert list(again.rows) == list(first.rows)


@pytest.mark.parametrize(
    ("rest", "towns"),
    [
        (" HAVING n > 250", ["Aachen", "Zwolle"]),
        (" HAVING COUNT(*) > 250 AND town <> 'Zwolle'", ["Aachen"]),
        (" ORDER BY n DESC", ["Zwolle", "Aachen", "Metz"]),
        (" ORDER BY n LIMIT 1", ["Metz"]),
        (" ORDER BY town DESC LIMIT 2", ["Zwolle", "Metz"]),
        (" LIMIT 2", ["Aachen", "Metz"]),
        (" HAVING town LIKE 'lonely%'", []),
    ],
)
def test_what_comes_after_the_noise_is_free(vault: OpenVault, rest: str, towns: list[str]) -> None:
    plain = {row[0]: row[1] for row in ask(vault, BY_TOWN).rows}
    answer = ask(vault, BY_TOWN + rest)
    assert answer.receipt["free"] is True
    assert list(answer.rows) == [(town, plain[town]) for town in towns]


def test_having_on_a_value_that_is_not_shown_is_paid_for(vault: OpenVault) -> None:
    ask(vault, BY_TOWN)
    answer = ask(vault, BY_TOWN + " HAVING SUM(pay) > 0")
    assert answer.receipt["free"] is False
    assert list(answer.columns) == ["town", "n"]
    assert "sum of pay" in [line["part"] for line in split(answer)]
    both = ask(vault, "SELECT town, COUNT(*), SUM(pay) FROM t GROUP BY town")
    assert both.receipt["free"] is True


def test_an_answer_chosen_by_its_values_says_so(vault: OpenVault) -> None:
    assert "not valid" not in str(ask(vault, BY_TOWN).receipt["interval"])
    assert "not valid" not in str(ask(vault, BY_TOWN + " LIMIT 2").receipt["interval"])
    for rest in (" HAVING n > 250", " ORDER BY n DESC LIMIT 1"):
        assert "not valid" in str(ask(vault, BY_TOWN + rest).receipt["interval"])


def test_the_receipt_says_what_choosing_keys_cost(vault: OpenVault) -> None:
    answer = ask(vault, BY_TOWN)
    choice, count = split(answer)
    assert choice["part"] == "choice of keys"
    assert choice["epsilon"] + count["epsilon"] == pytest.approx(TERMS["epsilon"])
    assert choice["share"] + count["share"] == pytest.approx(1)
    assert choice["delta"] == answer.receipt["delta"] == TERMS["delta"]
    half = choice["shown_from_people"]["half"]
    assert 1 < half < choice["shown_from_people"]["nearly always"] < 100
    odds = keep_probabilities(*per_key(Fraction(2), Fraction(1, 10**8), 2))
    assert odds[half - 1] < ONE // 2 <= odds[half]


def test_every_way_to_be_a_private_key_needs_a_delta(vault: OpenVault) -> None:
    spent = vault["t"].budget["spent"]
    for key in ("town", "zip, town", "pay", "COALESCE(town, 'x')"):
        sql = f"SELECT COUNT(*) FROM t GROUP BY {key}"
        assert code_of(vault, sql, delta=0) == "keys-needed"
    assert vault["t"].budget["spent"] == spent


def test_having_of_another_type_is_refused_before_it_is_paid(vault: OpenVault) -> None:
    spent = vault["t"].budget["spent"]
    sql = "SELECT town, SUM(pay) AS s FROM t WHERE zip = 'a' GROUP BY town HAVING s > 'x'"
    assert code_of(vault, sql) == "type-mismatch"
    assert vault["t"].budget["spent"] == spent


def test_another_bound_on_the_rows_of_a_person_is_another_answer(tmp_path: Path) -> None:
    visits = [(f"p{n}", "x", "a", 1) for n in range(200) for _ in range(5)]
    source = write_csv(tmp_path / "rows.csv", HEADER, visits)
    with open_with(tmp_path, "t", source, CARD) as opened:
        sql = "SELECT COUNT(*) FROM (SELECT who, COUNT(*) AS n FROM t GROUP BY who) WHERE n > 3"
        few = ask(opened, sql, delta=0, max_rows=2).value
        many = ask(opened, sql, delta=0, max_rows=10).value
    assert few == pytest.approx(0, abs=30)
    assert many == pytest.approx(200, abs=30)


def days_shown(folder: Path, days: Sequence[str]) -> list[object]:
    folder.mkdir()
    source = write_csv(folder / "rows.csv", ("who", "day"), list(enumerate(days)))
    card = CARD.split("[columns.town]", maxsplit=1)[0] + '[columns.day]\ntype = "date"\n'
    with open_with(folder, "t", source, card) as opened:
        return [row[0] for row in ask(opened, "SELECT day, COUNT(*) FROM t GROUP BY day").rows]


@pytest.mark.parametrize("odd", ["0000-01-01", "0000-12-31"])
def test_one_persons_odd_date_does_not_decide_whether_there_is_an_answer(
    tmp_path: Path, odd: str
) -> None:
    days = ["2026-01-02"] * 300
    assert days_shown(tmp_path / "without", days) == ["2026-01-02"]
    assert code_or(lambda: days_shown(tmp_path / "with", [*days, odd])) == ["2026-01-02"]


def test_the_first_and_the_last_day_that_python_knows_are_days(tmp_path: Path) -> None:
    days = ["0001-01-01", "9999-12-31"]
    assert days_shown(tmp_path / "days", days * 300) == days


def code_or(act: Callable[[], list[object]]) -> list[object]:
    """Return what it returns, or the code of its refusal."""
    try:
        return act()
    except Refused as refused:
        return [refused.code]


def test_nobody_is_shown_where_nobody_is_enough(tmp_path: Path) -> None:
    lonely = [(f"p{n}", town, "a", 1) for n, town in enumerate(LONELY)]
    source = write_csv(tmp_path / "rows.csv", HEADER, lonely)
    with open_with(tmp_path, "t", source, CARD) as opened:
        for columns in ("COUNT(*)", "AVG(pay)", "SUM(pay), COUNT(DISTINCT zip)"):
            answer = ask(opened, f"SELECT town, {columns} FROM t GROUP BY town")
            assert list(answer.rows) == []
            assert stored(opened, answer)["keys"] == []


def test_nulls_and_nobodys_rows_make_no_key(tmp_path: Path) -> None:
    crowd = [(f"p{n}", "", "a", 1) for n in range(300)] + [("", "ghost", "a", 1)] * 300
    source = write_csv(tmp_path / "rows.csv", HEADER, crowd)
    with open_with(tmp_path, "t", source, CARD) as opened:
        assert list(ask(opened, BY_TOWN).rows) == []


def test_one_person_with_many_rows_is_one_person(tmp_path: Path) -> None:
    visits = [("one", "here", "a", 10) for _ in range(900)]
    source = write_csv(tmp_path / "rows.csv", HEADER, visits)
    with open_with(tmp_path, "t", source, CARD) as opened:
        assert list(ask(opened, BY_TOWN, epsilon=20, delta=1e-7).rows) == []


def test_a_key_of_one_person_is_shown_with_the_delta_of_its_share() -> None:
    """At the lock itself, where 200,000 keys of one person each are one statement."""
    keys, delta, groups = 200_000, Fraction(1, 100), 2
    exact = Cells((np.ones(keys, dtype=np.int64),), tuple((n,) for n in range(keys)))

    def draw(_part: int, count: int) -> Any:  # integers, as the pool hands them out
        return np.zeros(count, dtype=np.int64)

    choosing = PartitionSelection(
        0, PricedPartitionSelection(Fraction(1), delta, groups), draw, SystemRandomSource()
    )
    kept = select_partitions(Sealed(exact), [0], choosing)
    assert kept.keys is not None
    expected = keys * float(delta) / groups
    assert len(kept.keys) == pytest.approx(expected, abs=6 * expected**0.5)
    assert len(kept.parts[0]) == len(kept.keys)


def test_kept_keys_are_in_an_order_of_their_own_whatever_the_engine_found_first() -> None:
    """Rows decide where an engine meets a key; each number stays with its own key."""

    def draw(_part: int, count: int) -> Any:
        return np.zeros(count, dtype=np.int64)

    many, names = 10**6, [f"key {n}" for n in range(40)]
    answers = []
    for _ in range(3):
        random.shuffle(names)
        people = np.array([many + int(name[4:]) for name in names], dtype=np.int64)
        exact = Cells((people,), tuple((name,) for name in names))
        selection = PricedPartitionSelection(Fraction(1), Fraction(1, 10**6), 1)
        kept = select_partitions(
            Sealed(exact), [0], PartitionSelection(0, selection, draw, SystemRandomSource())
        )
        answers.append((kept.keys, kept.parts[0].tolist()))
    assert len(answers[0][0] or ()) == 40
    assert answers[0] == answers[1] == answers[2]
    pairs = zip(answers[0][0] or (), answers[0][1], strict=True)
    assert all(number == many + int(str(key[0])[4:]) for key, number in pairs)


MANY = {"max_groups": 60, "epsilon": 4, "delta": 1e-5}


def test_many_groups_a_person_are_chosen_by_a_threshold(vault: OpenVault) -> None:
    answer = ask(vault, BY_TOWN, **MANY)
    choice, count = split(answer)
    assert answer.receipt["mechanism"] == "discrete gaussian, partition selection by a threshold"
    assert choice["threshold"] == choice["shown_from_people"]["half"]
    assert choice["epsilon"] + count["epsilon"] == pytest.approx(4)
    assert choice["delta"] == pytest.approx(0.5e-5)
    half, quarter = Fraction(2), Fraction(1, 4 * 10**5)
    found = threshold_for(half, 2 * quarter, 60)
    assert found is not None
    assert choice["threshold"] == found.threshold
    odds = keep_probabilities(*per_key(half, 2 * quarter, 60))
    assert odds[found.threshold] < ONE // 2  # the optimal choice would need more people
    assert Fraction(count["variance"]) == 4 * 60 / (2 * rho_within(half, 2 * quarter))


def test_few_groups_a_person_are_chosen_optimally(vault: OpenVault) -> None:
    for groups in (1, 2, 3):
        choice = split(ask(vault, BY_TOWN, **{**MANY, "max_groups": groups}))[0]
        assert "threshold" not in choice


def test_delta_is_spent_once_on_choosing_and_on_values(vault: OpenVault) -> None:
    for terms in (TERMS, MANY, {**MANY, "max_groups": 20}, {**MANY, "delta": 1e-3}):
        sql = BY_TOWN + " HAVING town > 'A'"
        before = vault.house.ledger.accounts(("data-set:t",))["data-set:t"].spent
        ask(vault, sql, fresh=True, **terms)
        after = vault.house.ledger.accounts(("data-set:t",))["data-set:t"].spent
        assert after.epsilon - before.epsilon == Fraction(str(terms["epsilon"])) * 10**9
        delta = Fraction(str(terms["delta"])) * 10**18
        assert 0 < after.rho_delta - before.rho_delta <= after.delta - before.delta
        assert after.delta - before.delta == delta
        whole = Fraction(str(terms["epsilon"])) ** 2 / 2
        assert after.rho - before.rho <= whole * 10**12


def test_keys_of_one_and_of_many_people_are_shown_as_often_as_a_threshold_says() -> None:
    keys, groups = 60_000, 30
    selection = selection_for(Fraction(2), Fraction(1, 10), groups)
    assert selection.threshold is not None

    def draw(_part: int, count: int) -> Any:  # integers, as the pool hands them out
        return np.zeros(count, dtype=np.int64)

    sigma = float(selection.threshold.variance) ** 0.5
    least = selection.threshold.threshold
    for people in (1, least - 9, least, least + 9):
        exact = Cells((np.full(keys, people, dtype=np.int64),), tuple((n,) for n in range(keys)))
        kept = select_partitions(
            Sealed(exact), [0], PartitionSelection(0, selection, draw, SystemRandomSource())
        )
        odds = float(norm.sf((least - people - 0.5) / sigma))
        assert kept.keys is not None
        assert len(kept.keys) == pytest.approx(keys * odds, abs=6 * (keys * odds) ** 0.5 + 3)


def test_private_keys_with_gaussian_values_can_be_raised(vault: OpenVault) -> None:
    first = ask(vault, BY_TOWN, **MANY)
    answer = ask(vault, BY_TOWN, **{**MANY, "epsilon": 9}, top_up=first)
    assert len(first.rows) == len(TOWNS)
    assert [row[0] for row in answer.rows] == [row[0] for row in first.rows]
    half, delta = Fraction(2), Fraction(1, 2 * 10**5)
    rho = rho_within(9 - half, delta)  # all but what choosing took
    for line in answer.std:
        assert line[1] == pytest.approx((4 * 60 / (2 * float(rho))) ** 0.5, rel=1e-3)


def test_the_noise_of_a_selected_key_is_as_wide_as_the_receipt_says(vault: OpenVault) -> None:
    answer = ask(vault, BY_TOWN)
    (line,) = [line for line in split(answer) if line["part"] == "count of rows"]
    assert line["std"] == pytest.approx(Noise("laplace", Fraction(line["scale"])).std())
    values = [int(str(ask(vault, BY_TOWN, fresh=True).rows[0][1])) - 300 for _ in range(40)]
    assert np.std(values) == pytest.approx(line["std"], rel=0.8)


def test_the_ledger_is_a_database_that_this_test_can_read(vault: OpenVault) -> None:
    files = [f for f in Path(vault.house.folder).iterdir() if f.suffix in (".db", ".sqlite")]
    assert files
    for file in files:
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as database:
            assert database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 0


def test_private_keys_of_many_groups_get_gaussian_noise_as_wide_as_said(tmp_path: Path) -> None:
    keys, people = 3000, 30
    crowd = [(f"p{k}-{n}", f"t{k:04d}", "a", 1) for k in range(keys) for n in range(people)]
    source = write_csv(tmp_path / "rows.csv", HEADER, crowd)
    with open_with(tmp_path, "t", source, CARD) as opened:
        answer = ask(opened, BY_TOWN, epsilon=60, max_groups=60, max_rows=2)
        choice, count = split(answer)
        assert choice["shown_from_people"]["nearly always"] < people
        assert len(answer) > 0.98 * keys
        noise = np.array([int(str(row[1])) for row in answer.rows]) - people
        assert accusations(noise, "gaussian", Fraction(count["variance"])) == []
