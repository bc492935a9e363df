"""One set of classes for a vault in a folder and one that is served; every test runs on both."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

import sfumato
from sfumato import Refused, col
from sfumato.client import Vault
from sfumato.client.ask_terms import Json
from support.sandbox_blocks import needs_bubbles
from support.served_vault import served
from support.small_vaults import card, make_vault, write_csv

CARD = """
unit = "who"
people = "patients"
budget = { epsilon = 50.0, delta = 1e-6 }
max_groups = 2
max_rows = 4
[caps]
user = { epsilon = 40.0 }
[ask]
who = ["staff"]
[columns.age]
type = "integer"
lower = 0
upper = 110
[columns.zip]
type = "text"
keys = ["10001", "10002"]
[columns.salary]
type = "number"
lower = 0
upper = 200000
step = 0.01
[columns.ill]
type = "boolean"
"""


@pytest.fixture(scope="module", params=["folder", "service"])
def vault(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Vault]:
    """Return the same vault, open in this process or served to it."""
    folder = tmp_path_factory.mktemp("vault")
    rows = [
        (f"p{n % 300:04}", 20 + n % 60, ("10001", "10002")[n % 2], f"{20000 + n}.25", n % 3 == 0)
        for n in range(600)
    ]
    source = write_csv(folder / "rows.csv", ("who", "age", "zip", "salary", "ill"), rows)
    made = make_vault(folder)
    with sfumato.open(made) as owner:
        owner.add("people", source, card(CARD))
        others = [(f"q{n}", 70 - n, "10002", f"{90000 + 7 * n}", False) for n in range(50)]
        source = write_csv(folder / "others.csv", ("who", "age", "zip", "salary", "ill"), others)
        hidden = CARD.replace("patients", "workers").replace('"staff"', '"board"')
        owner.add("payroll", source, card(hidden))
        owner.enrol("ada", "staff")
    if request.param == "folder":
        with sfumato.open(made, user="ada") as opened:
            yield opened
        return
    with served(made) as service:
        token = service.user("ada", "researcher")
        with sfumato.connect(service.url, token=token) as connected:
            yield connected


def test_the_data_sets_are_those_that_may_be_asked(vault: Vault) -> None:
    assert [data_set.name for data_set in vault] == ["people"]
    assert vault["people"].card["people"] == "patients"


def test_a_name_that_is_not_there_is_refused_with_those_that_may_be_asked(vault: Vault) -> None:
    said = set()
    for name in ("nobody", "payroll"):  # another's is as unknown as none
        assert name not in vault
        with pytest.raises(Refused) as refused:
            vault[name]
        assert refused.value.code == "unknown-data-set"
        assert refused.value.next_step == "You may ask: people."
        said.add(refused.value.cause.replace(name, ""))
    assert len(said) == 1
    assert ("people" in vault, len(vault), bool(vault)) == (True, 1, True)


def test_names_are_listed_once_and_again_for_one_that_is_not_on_the_list(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    fresh = Vault(vault._transport)

    def call(verb: str, body: Json) -> Json:
        called.append(verb)
        return vault.call(verb, body)

    monkeypatch.setattr(fresh, "call", call)
    for _ in range(5):
        fresh["people"]
    assert called == ["data-sets"]
    for _ in range(2):
        with pytest.raises(Refused):
            fresh["nobody"]
    assert called == ["data-sets", *["data-sets", "airlock"] * 2]


def test_sql_and_steps_are_the_same_question(vault: Vault) -> None:
    people = vault["people"]
    sql = people.ask("SELECT zip, COUNT(*) AS n FROM people GROUP BY zip", epsilon=1)
    built = people.group_by("zip").count(name="n").ask(epsilon=1)
    assert built.rows == sql.rows
    assert built.receipt["free"]


def test_a_decimal_price_is_charged_exactly(vault: Vault) -> None:
    people = vault["people"]
    before = people.budget["spent"]["epsilon"]
    people.ask("SELECT COUNT(*) FROM people WHERE age > 30", epsilon=Decimal("0.1"))
    people.ask("SELECT COUNT(*) FROM people WHERE age > 31", epsilon=Fraction(1, 5))
    assert people.budget["spent"]["epsilon"] == pytest.approx(before + 0.3, abs=1e-12)


def test_a_fraction_that_is_no_decimal_is_charged_rounded_up(vault: Vault) -> None:
    answer = vault["people"].ask(
        "SELECT COUNT(*) FROM people WHERE age > 32", epsilon=Fraction(1, 3)
    )
    assert answer.receipt["epsilon"] == pytest.approx(1 / 3)


def test_a_price_spends_nothing(vault: Vault) -> None:
    before = vault["people"].budget.shape
    price = vault["people"].price("SELECT AVG(age) FROM people", epsilon=0.5, people=300)
    assert price["fits"]
    assert vault["people"].budget.shape == before


def test_an_error_is_priced_and_met(vault: Vault) -> None:
    price = vault["people"].price("SELECT COUNT(*) AS n FROM people", error={"n": 12})
    assert price["error"]["n"] <= 12


def test_one_operation_pays_once_and_belongs_to_one_question(vault: Vault) -> None:
    people = vault["people"]
    first = people.ask("SELECT COUNT(*) FROM people WHERE age > 40", epsilon=0.1, op="mine")
    again = people.ask("SELECT COUNT(*) FROM people WHERE age > 40", epsilon=0.1, op="mine")
    assert again.value == first.value
    with pytest.raises(Refused) as refused:
        people.ask("SELECT COUNT(*) FROM people WHERE age > 41", epsilon=0.1, op="mine")
    assert refused.value.code == "op-reused"


def test_fresh_noise_is_paid_in_full(vault: Vault) -> None:
    people = vault["people"]
    before = people.budget["spent"]["epsilon"]
    for _ in range(2):
        people.ask("SELECT COUNT(*) FROM people WHERE age > 50", epsilon=0.1, fresh=True)
    assert people.budget["spent"]["epsilon"] == pytest.approx(before + 0.2)


def test_an_answer_is_raised_for_the_difference(vault: Vault) -> None:
    people = vault["people"]
    first = people.ask("SELECT COUNT(*) FROM people WHERE age > 60", epsilon=0.5)
    before = people.budget["spent"]["epsilon"]
    people.ask("SELECT COUNT(*) FROM people WHERE age > 60", epsilon=1, top_up=first)
    assert people.budget["spent"]["epsilon"] == pytest.approx(before + 0.5)


def test_the_price_is_split_as_asked(vault: Vault) -> None:
    answer = vault["people"].ask(
        "SELECT COUNT(*) AS n, SUM(salary) AS s FROM people", epsilon=1, split={"n": 1, "s": 3}
    )
    split = answer.receipt["split"]
    assert isinstance(split, list)
    assert sorted(part["share"] for part in split) == pytest.approx([0.25, 0.75])


def test_conditions_are_built_alike(vault: Vault) -> None:
    answer = vault["people"].where(age=(30, 50)).where(col("zip") == "10001").count().ask(epsilon=1)
    assert answer.columns == ("count",)


def test_fits_and_histograms_come_over_the_same_wire(vault: Vault) -> None:
    people = vault["people"]
    fit = people.linear("salary", ["age"], epsilon=2)
    assert fit.answers
    bins = people.histogram("age", 4, epsilon=1)
    assert bins.counts.columns


def test_a_refusal_has_its_code_and_its_facts(vault: Vault) -> None:
    with pytest.raises(Refused) as refused:
        vault["people"].ask("SELECT COUNT(*) FROM people", epsilon=49)
    assert refused.value.code == "budget-exceeded"
    assert str(refused.value.facts["account"]).startswith("people:")


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT * FROM people", "not-in-language"),
        ("SELEC COUNT(*)", "bad-sql"),
        ("SELECT COUNT(*) FROM people WHERE name = 'x'", "unknown-column"),
        ("x" * 17_000, "question-too-large"),
    ],
)
def test_what_is_outside_is_refused_alike(vault: Vault, sql: str, code: str) -> None:
    with pytest.raises(Refused) as refused:
        vault["people"].ask(sql, epsilon=0.1)
    assert refused.value.code == code


def test_no_number_that_is_none_is_a_price(vault: Vault) -> None:
    for epsilon in (0, -1, Decimal("1e-30"), True, "0.5"):
        with pytest.raises(Refused) as refused:
            vault["people"].ask("SELECT COUNT(*) FROM people", epsilon=epsilon)  # type: ignore[arg-type]  # so it is
        assert refused.value.code == "bad-budget"


def test_a_data_set_that_is_not_there_is_refused(vault: Vault) -> None:
    with pytest.raises(Refused) as refused:
        vault["nothing/../here"].ask("SELECT COUNT(*) FROM x", epsilon=0.1)
    assert refused.value.code == "unknown-data-set"


def test_what_was_asked_is_in_the_history_and_is_shown_again(vault: Vault) -> None:
    asked = vault["people"].ask("SELECT COUNT(*) AS n FROM people WHERE age > 70", epsilon=0.1)
    newest = vault.history()["questions"][0]
    assert newest["op"] == asked.receipt["op"]
    assert vault.answer(newest["op"]).rows == asked.rows


def test_everything_prints_itself_for_people_and_notebooks(vault: Vault) -> None:
    people = vault["people"]
    answer = people.ask("SELECT zip, AVG(age) AS a FROM people GROUP BY zip", epsilon=1)
    for shown in (vault, people, people.card, people.budget, answer, vault.history()):
        assert repr(shown)
        assert "<" in shown._repr_html_()


def test_a_twin_is_a_frame_as_a_program_gets_its_rows(vault: Vault) -> None:
    twin = vault["people"].twin(rows=40, seed="monday")
    frame = twin.to_pandas()
    rows = twin.rows("people")
    assert list(frame.columns) == list(rows[0])
    assert [str(age) for age in frame["age"]] == [row["age"] for row in rows]
    kinds = {name: frame[name].dtype.kind for name in ("who", "age", "zip", "salary", "ill")}
    assert kinds == {"who": "O", "age": "i", "zip": "i", "salary": "f", "ill": "b"}
    assert twin.to_pandas("people", nulls=[rows[0]["who"]])["who"].isna()[0]
    with pytest.raises(Refused, match="Its tables are: people"):
        twin.to_pandas("visits")


def test_without_pandas_a_twin_says_what_brings_it(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin = vault["people"].twin(rows=5, seed="monday")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(Refused, match=r"frames|dev\.done") as refused:
        twin.to_pandas()
    assert refused.value.code == "not-installed"
    assert twin.rows()


def mean_age(rows: Any) -> float:
    return float(rows["age"].mean())


def test_what_a_program_and_a_twin_would_cost_is_a_table_for_people(vault: Vault) -> None:
    people = vault["people"]
    handed_in = people.submit(mean_age, outputs={"mean": (0, 110)})
    digest = handed_in["digest"]
    assert repr(handed_in).startswith(f"Submitted mean_age, with the digest {digest}: it waits")
    assert "± mean" in repr(handed_in)
    priced = people.dp_twin_price(epsilon=1)
    assert priced["fits"]
    assert "counted in people: age" in repr(priced)
    for shown in (handed_in, priced):
        assert "{" not in repr(shown) + shown._repr_html_()


@needs_bubbles
def test_a_plan_is_a_table_for_people(vault: Vault) -> None:
    plan = vault["people"].plan(
        mean_age, outputs={"mean": (0, 110)}, epsilon=1, columns=["age"], people=40
    )
    first = plan["at"][0]
    assert f"± {first['noise']['mean']:.4g}" in repr(plan)
    assert f"of {plan['choice']['blocks']} blocks (--take auto)" in repr(plan)
    assert plan._repr_html_().count("<tr>") == 1 + len(plan["at"])
    assert "{" not in repr(plan) + plan._repr_html_()


def test_a_picture_is_drawn_of_what_came(vault: Vault) -> None:
    answer = vault["people"].ask("SELECT zip, COUNT(*) AS n FROM people GROUP BY zip", epsilon=1)
    assert answer.plot().summary
