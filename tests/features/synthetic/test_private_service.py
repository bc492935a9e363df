"""A DP twin through the whole door: what it costs, what it learns, and what it never sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pytest

import sfumato
from sfumato import Refused
from sfumato.app.vault import OpenVault
from sfumato.dp.accounting.privacy_events import PureEvent, privacy_cost
from sfumato.dp.accounting.zcdp_conversion import rho_within
from sfumato.dp.budget import EPSILON_UNITS, RHO_UNITS
from sfumato.features.synthetic.column_categories import coded
from sfumato.features.synthetic.measurement_port import unmerged
from sfumato.features.synthetic.measurement_release import PrivateDevice, price_of
from sfumato.release.guarantees.k_anonymity import hand_out
from sfumato.release.release_order import Asker
from support.small_vaults import (
    PATIENTS_CARD,
    card,
    make_vault,
    open_with,
    run,
    write_csv,
    write_patients,
)

CARD = """
unit = "who"
budget = { epsilon = 500, delta = 1e-4 }
[columns.zip]
type = "text"
keys = ["a", "b", "c"]
[columns.sick]
type = "boolean"
[columns.age]
type = "integer"
lower = 0
upper = 99
[columns.day]
type = "date"
lower = 2026-01-01
upper = 2026-12-31
[columns.note]
type = "text"
"""
HEADER = ("who", "zip", "sick", "age", "day", "note")


def rows(people: int = 2000) -> list[tuple[object, ...]]:
    """Return people whose age and health hang on where they live; a third of c has no age."""
    dice = Random(1)
    made: list[tuple[object, ...]] = []
    for n in range(people):
        place = dice.randrange(3)
        sick = dice.random() < 0.1 + 0.4 * place
        age: object = "" if place == 2 and n % 3 == 0 else 20 + 25 * place + dice.randrange(10)
        day = f"2026-{1 + 4 * place + dice.randrange(4):02d}-11"
        made.append((f"real-{n}", "abc"[place], "yes" if sick else "no", age, day, "secret"))
    return made


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    folder = tmp_path_factory.mktemp("private")
    source = write_csv(folder / "x.csv", HEADER, [*rows(), ("real-x", "zz", "no", 5, "", "x")])
    with open_with(folder, "clinic", source, CARD) as opened:
        yield opened


def spent(vault: OpenVault) -> Any:
    return dict(vault["clinic"].budget["spent"])


def shares(found: list[dict[str, str]], *names: str) -> dict[tuple[str, ...], float]:
    counts = Counter(tuple(row[name] for name in names) for row in found)
    return {key: count / len(found) for key, count in counts.items()}


@pytest.mark.parametrize("method", ["mst", "aim"])
@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_a_twin_looks_like_the_rows(vault: OpenVault, method: str, delta: str) -> None:
    twin = vault["clinic"].dp_twin(epsilon=3, delta=Fraction(delta), method=method, seed="s")
    found = twin.rows()
    assert len(found) == pytest.approx(2000, abs=150)
    real = [dict(zip(HEADER, map(str, row), strict=True)) for row in rows()]
    words = {"yes": "true", "no": "false"}
    wanted = shares([{**row, "sick": words[row["sick"]]} for row in real], "zip", "sick")
    drawn = shares(found, "zip", "sick")
    assert all(drawn.get(key, 0) == pytest.approx(share, abs=0.05) for key, share in wanted.items())
    ages = [int(row["age"]) for row in found if row["zip"] == "a" and row["age"]]
    assert sum(ages) / len(ages) == pytest.approx(24.5, abs=5)
    empty = sum(row["age"] == "" for row in found if row["zip"] == "c") / sum(
        row["zip"] == "c" for row in found
    )
    assert empty == pytest.approx(1 / 3, abs=0.12)


def test_without_pairs_what_hangs_together_is_lost(vault: OpenVault) -> None:
    found = vault["clinic"].dp_twin(epsilon=3, method="independent", seed="s").rows()
    drawn, sick = shares(found, "zip", "sick"), shares(found, "sick")[("true",)]
    of_c = drawn["c", "true"] / (drawn["c", "true"] + drawn["c", "false"])
    assert of_c == pytest.approx(sick, abs=0.08)


@pytest.mark.parametrize("method", ["independent", "mst", "aim"])
def test_a_pure_twin_costs_its_epsilon_and_no_more(vault: OpenVault, method: str) -> None:
    before = spent(vault)
    vault["clinic"].dp_twin(epsilon=0.75, delta=0, method=method)
    after = spent(vault)
    assert 0.7499 < after["epsilon"] - before["epsilon"] <= 0.75
    assert after["delta"] == before["delta"]


@pytest.mark.parametrize("method", ["independent", "mst", "aim"])
def test_a_twin_with_a_delta_costs_its_rho_and_no_more(vault: OpenVault, method: str) -> None:
    before, delta = spent(vault), Fraction(1, 10**6)
    vault["clinic"].dp_twin(epsilon=0.5, delta=delta, method=method)
    after = spent(vault)
    whole = float(rho_within(Fraction(1, 2), delta))
    assert 0.99 * whole < after["rho"] - before["rho"] <= whole
    assert after["delta"] - before["delta"] <= float(delta)


def test_what_is_counted_twice_in_one_twin_has_noise_of_its_own_each_time(
    vault: OpenVault,
) -> None:
    """One column of pairs: AIM counts the same again and again, and pays each time."""
    listing = vault.house.catalogue.find("clinic")
    assert listing is not None
    columns = [coded(listing.card.column(name)) for name in ("zip", "sick")]
    device = PrivateDevice(
        vault.house.queries.door,
        listing,
        Asker("owner"),
        "twice",
        price_of(Fraction(1, 100), Fraction(0)),
        tuple(one for one in columns if one is not None),
        "clinic",
        lambda _: listing.card,
        lambda: None,
        lambda _: None,
    )
    before = spent(vault)["epsilon"]
    whole = unmerged(device.sizes)
    one, other = (device.count((0,), whole, Fraction(1, 2)) for _ in range(2))
    assert (one != other).any()
    assert spent(vault)["epsilon"] - before == pytest.approx(0.01, abs=1e-5)


def test_the_same_operation_again_is_free_and_the_same_twin(vault: OpenVault) -> None:
    one = vault["clinic"].dp_twin(epsilon=1, op="mine")
    before = spent(vault)
    assert vault["clinic"].dp_twin(epsilon=1, op="mine").files == one.files
    assert spent(vault) == before


def test_another_twin_under_the_same_operation_is_refused(vault: OpenVault) -> None:
    vault["clinic"].dp_twin(epsilon=1, op="taken")
    with pytest.raises(Refused) as refused:
        vault["clinic"].dp_twin(epsilon=2, op="taken")
    assert refused.value.code == "op-reused"


def test_what_does_not_fit_is_refused_before_anything_is_paid(tmp_path: Path) -> None:
    source = write_patients(tmp_path / "p.csv")
    with open_with(tmp_path, "clinic", source, PATIENTS_CARD) as opened:
        for delta in (0, 1e-7):
            with pytest.raises(Refused) as refused:
                opened["clinic"].dp_twin(epsilon=1.5, delta=delta)
            assert refused.value.code == "budget-exceeded"
            assert spent(opened)["rho"] == 0
        opened["clinic"].dp_twin(epsilon=1, delta=0)  # the whole of what a user has
        assert spent(opened)["epsilon"] <= 1


def test_categories_come_from_the_card_and_never_from_the_rows(vault: OpenVault) -> None:
    found = vault["clinic"].dp_twin(epsilon=100, delta=0, seed="s").rows()
    assert {row["zip"] for row in found} <= {"a", "b", "c", ""}
    assert all(row["age"] == "" or 0 <= int(row["age"]) <= 99 for row in found)
    text = str(vault["clinic"].dp_twin(epsilon=100, delta=0, seed="s").files)
    assert "secret" not in text
    assert "real-" not in text
    assert "zz" not in text


def test_what_it_is_and_what_was_measured_stand_in_its_stamp(vault: OpenVault) -> None:
    twin = vault["clinic"].dp_twin(epsilon=1, delta=0, op="stamped")
    stamp: Any = twin.stamp
    assert (stamp["twin"], stamp["guarantee"], stamp["epsilon"]) == ("dp-twin", "central-dp", 1.0)
    assert stamp["from_the_card"] == ["clinic.note"]
    counted = [one["counted"] for one in stamp["measured"]["clinic"] if "counted" in one]
    assert sorted(len(columns) for columns in counted) == [1, 1, 1, 1, 2, 2, 2]
    assert all(one["std"] > 0 for one in stamp["measured"]["clinic"] if "std" in one)
    assert twin.name == "clinic.dp-twin"
    assert all("dp-twin" in name for name in twin.files if name.endswith(".csv"))


def test_a_twin_of_so_many_rows_has_them(vault: OpenVault) -> None:
    assert len(vault["clinic"].dp_twin(epsilon=1, op="few", rows=37).rows()) == 37


def test_noise_that_says_there_are_millions_makes_no_millions(vault: OpenVault) -> None:
    """At a price of next to nothing the noisy total is anything; the twin stays of a size."""
    twin = vault["clinic"].dp_twin(epsilon=1e-5, delta=0, method="independent")
    assert len(twin.rows()) <= 500_000 / 6
    with pytest.raises(Refused) as refused:
        vault["clinic"].dp_twin(epsilon=1, rows=10**6)
    assert refused.value.code == "too-large"


def test_the_price_is_told_and_nothing_is_spent(vault: OpenVault) -> None:
    before = spent(vault)
    body = {"data_set": "clinic", "epsilon": 2, "delta": 0}
    told: Any = vault.call("dp-twin-price", body)
    assert (told["fits"], told["spent"], told["epsilon"]) == (True, False, 2.0)
    assert told["from_the_card"] == ["clinic.note"]
    assert vault.call("dp-twin-price", {**body, "epsilon": 1000})["fits"] is False
    assert spent(vault) == before


def test_a_frozen_data_set_has_no_dp_twin(vault: OpenVault) -> None:
    vault.house.catalogue.freeze("clinic", "owner", "now")
    try:
        with pytest.raises(Refused) as refused:
            vault["clinic"].dp_twin(epsilon=1)
    finally:
        vault.house.catalogue.thaw("clinic")
    assert refused.value.code == "data-set-frozen"


def test_what_is_frozen_while_it_is_counted_is_not_counted_further(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, reads = type(vault.house.engine), []
    measure = kind.measure

    def freezing(engine: Any, *asked: Any) -> Any:
        vault.house.catalogue.freeze("clinic", "owner", "now")
        reads.append(asked)
        return measure(engine, *asked)

    with monkeypatch.context() as changed:
        changed.setattr(kind, "measure", freezing)
        with pytest.raises(Refused, match="data-set-frozen"):
            vault["clinic"].dp_twin(epsilon=0.125, delta=0, op="cold")
    vault.house.catalogue.thaw("clinic")
    assert len(reads) == 1
    before = spent(vault)["epsilon"]
    vault["clinic"].dp_twin(epsilon=0.125, delta=0, op="cold")
    assert 0 < spent(vault)["epsilon"] - before < 0.125


def test_a_table_with_nothing_declared_has_no_dp_twin(tmp_path: Path) -> None:
    text = 'unit = "who"\nbudget = { epsilon = 1 }\n[columns.note]\ntype = "text"\n'
    source = write_csv(tmp_path / "x.csv", ("who", "note"), [("a", "b")])
    with open_with(tmp_path, "notes", source, text) as opened, pytest.raises(Refused) as refused:
        opened["notes"].dp_twin(epsilon=1)
    assert refused.value.code == "twin-not-possible"


TABLES = """
unit = "who"
budget = { epsilon = 500 }
max_rows = 4
limits = { rows = 100000, rows_per_person = 50 }
[columns.ward]
type = "text"
keys = ["n", "s"]
[tables.people]
limits = { rows = 100000, rows_per_person = 1 }
columns = { sex = { type = "text", keys = ["f", "m"] } }
[tables.wards]
public = true
key = "ward"
columns = { ward = { type = "text", keys = ["n", "s"] } }
"""


def test_several_tables_meet_in_their_people_with_as_many_rows(tmp_path: Path) -> None:
    dice = Random(2)
    people = [(f"p{i}", "f" if i % 4 else "m") for i in range(900)]
    visits = [(f"p{i}", dice.choice("nnns")) for i in range(600) for _ in range(1 + i % 4)]
    paths = {
        "people": write_csv(tmp_path / "p.csv", ("who", "sex"), people),
        "wards": write_csv(tmp_path / "w.csv", ("ward",), [("n",), ("s",)]),
    }
    source = write_csv(tmp_path / "v.csv", ("who", "ward"), visits)
    with open_with(tmp_path, "visits", source, TABLES, tables=paths) as opened:
        before = opened["visits"].budget["spent"]["epsilon"]
        twin = opened["visits"].dp_twin(epsilon=20, delta=0, seed="s")
        paid = opened["visits"].budget["spent"]["epsilon"] - before
    mine, others = twin.rows("visits"), twin.rows("people")
    assert paid <= 20
    each = Counter(row["who"] for row in mine)
    assert set(each) <= {row["who"] for row in others}
    assert len(each) == pytest.approx(600, abs=20)
    assert len(others) == pytest.approx(900, abs=20)
    found = Counter(each.values())
    assert all(found[times] == pytest.approx(150, abs=45) for times in (1, 2, 3, 4))
    assert shares(others, "sex")[("f",)] == pytest.approx(0.75, abs=0.05)
    assert {row["ward"] for row in twin.rows("wards")} == {"n", "s"}


def test_a_person_with_many_rows_moves_each_count_by_one(tmp_path: Path) -> None:
    """Two hundred rows of one person weigh no more in a twin than one."""
    text = TABLES.split("[tables", maxsplit=1)[0]
    heavy = [("heavy", "s")] * 40
    light = [(f"p{i}", "n") for i in range(400)]
    source = write_csv(tmp_path / "v.csv", ("who", "ward"), [*heavy, *light])
    with open_with(tmp_path, "visits", source, text) as opened:
        found = opened["visits"].dp_twin(epsilon=50, delta=0, seed="s").rows()
    assert shares(found, "ward").get(("s",), 0) < 0.03


def test_rows_of_nobody_have_a_twin_too(tmp_path: Path) -> None:
    text = 'unit = "row"\nbudget = { epsilon = 50 }\n[columns.sick]\ntype = "boolean"\n'
    source = write_csv(tmp_path / "x.csv", ("sick",), [("yes",)] * 300 + [("no",)] * 100)
    with open_with(tmp_path, "rows", source, text) as opened:
        found = opened["rows"].dp_twin(epsilon=10, seed="s").rows()
    assert shares(found, "sick")[("true",)] == pytest.approx(0.75, abs=0.03)
    assert list(found[0]) == ["sick"]


def test_a_price_uses_what_it_says_and_keeps_what_is_rounded_up() -> None:
    pure, blurred = price_of(Fraction(1), Fraction(0)), price_of(Fraction(1), Fraction(1, 10**6))
    assert pure.rho == 0
    assert pure.usable < 1
    assert 0 < blurred.rho < rho_within(Fraction(1), Fraction(1, 10**6))


@pytest.mark.parametrize("events", [1, 1_000, 2_960])
@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 10**6)])
def test_however_many_events_there_are_what_they_are_rounded_up_by_is_kept(
    events: int, delta: Fraction
) -> None:
    for place in range(200):
        epsilon = 1 + Fraction(place, 997)
        price = price_of(epsilon, delta, events)
        each = privacy_cost(PureEvent(price.epsilon_of_pure(Fraction(1, events))))
        if delta:
            assert events * each.rho <= rho_within(epsilon, delta) * RHO_UNITS
            assert events * each.rho <= price.debt.rho
        else:
            assert events * each.epsilon <= epsilon * EPSILON_UNITS


def test_the_command_line_buys_a_twin(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    with sfumato.open(vault) as opened:
        opened.add("patients", write_patients(tmp_path / "p.csv"), card(PATIENTS_CARD))
    target = str(tmp_path / "t.zip")
    done = run(vault, "twin", "patients", "--epsilon", "0.5", "--op", "o", "-o", target)
    assert done.returncode == 0, done.stderr
    assert "central-dp" in done.stdout
    assert (tmp_path / "t.dp-twin.zip").stat().st_size > 500
    wrong = run(vault, "twin", "patients", "--op", "o", "-o", target)
    assert wrong.returncode == 2


def test_the_command_line_says_the_price_of_bins_first_and_the_error_last(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    with sfumato.open(vault) as opened:
        opened.add("patients", write_patients(tmp_path / "p.csv"), card(PATIENTS_CARD))
    terms = ("twin", "patients", "--epsilon", "0.5", "--delta", "0", "--private-bins", "age")
    told = run(vault, *terms, "--error-epsilon", "0.25", "--price")
    assert told.returncode == 0, told.stderr
    assert "private bins: patients.age, epsilon 0.05 of it" in told.stdout
    assert "its additional error: epsilon 0.25" in told.stdout
    assert "Nothing is spent." in told.stdout
    assert run(vault, *terms).returncode == 2  # no place to write it
    target = str(tmp_path / "t.zip")
    done = run(vault, *terms, "--error-epsilon", "0.25", "-o", target)
    assert done.returncode == 0, done.stderr
    assert "error of patients, 2 columns together: 0." in done.stdout


def test_a_twin_says_what_was_handed_out_without_noise(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "x.csv", HEADER, rows(50))
    with open_with(tmp_path, "clinic", source, CARD) as opened:
        listed = next(c for c in opened.house.catalogue.cards() if c.name == "clinic")
        before = opened["clinic"].dp_twin(epsilon=1, delta=0, method="independent")
        assert "not_dp" not in before.stamp
        hand_out(opened.house.ledger, listed, by="owner", says="a table")
        after = opened["clinic"].dp_twin(epsilon=1, delta=0, method="independent")
        assert after.stamp["not_dp"] == "DP releases only; 1 non-DP releases exist"
