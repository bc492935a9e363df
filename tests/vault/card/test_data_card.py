"""The card is read strictly: nothing unknown, nothing contradictory, nothing guessed from rows."""

from __future__ import annotations

import tomllib
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from sfumato.dp.refusal import Refused
from sfumato.vault.card.card_json import card_json
from sfumato.vault.card.data_card import Card, check_unit, read_card
from support.small_vaults import PATIENTS_CARD


def read(text: str, name: str = "clinic") -> Card:
    return read_card(name, tomllib.loads(text, parse_float=Decimal))


def with_column(lines: str) -> str:
    return f'unit = "row"\nbudget = {{ epsilon = 1 }}\n[columns.x]\n{lines}\n'


def test_the_contracts_card_is_read() -> None:
    card = read(PATIENTS_CARD)
    assert (card.unit, card.people, card.version) == (
        "patient_id",
        "city-hospital-patients",
        "2026-11",
    )
    assert card.budget.epsilon == 3
    assert card.budget.delta == Fraction(1, 10**6)
    assert card.user_cap is not None
    assert card.user_cap.epsilon == 1
    assert [c.name for c in card.columns] == ["age", "zip", "salary"]
    assert card.hidden == ("name",)
    assert card.column("SALARY").bounds() == (0, 200000)
    assert card.who == ("researchers",)


def test_a_card_without_a_budget_is_told_what_to_write() -> None:
    with pytest.raises(
        Refused, match=r"There is no budget: write budget = \{ epsilon = 1\.0, delta = 0 \}"
    ):
        read('unit = "row"')


def test_people_are_called_like_the_data_set_unless_said_otherwise() -> None:
    assert read("budget = { epsilon = 1 }").people == "clinic"


def test_the_public_card_does_not_mention_hidden_columns() -> None:
    assert "name" not in [c["name"] for c in _columns(card_json(read(PATIENTS_CARD)))]


def _columns(shape: dict[str, object]) -> Any:
    return shape["columns"]


def test_bounds_become_whole_steps() -> None:
    card = read(with_column('type = "number"\nlower = -0.5\nupper = 2.25\nstep = 0.25'))
    assert card.column("x").bounds() == (-2, 9)
    assert card.column("x").step == Fraction(1, 4)


def test_a_step_is_proposed_from_the_bounds_alone() -> None:
    card = read(with_column('type = "number"\nlower = 0\nupper = 2.5'))
    assert card.column("x").step == Fraction(1, 10000)


@pytest.mark.parametrize(
    "text",
    [
        "",
        'budget = { epsilon = "1" }',
        "budget = { epsilon = true }",
        "budget = { epsilon = nan }",
        "budget = { epsilon = inf }",
        "budget = { epsilon = -1 }",
        "budget = { epsilon = 0 }",
        "budget = { epsilon = 1e-320 }",
        "budget = { epsilon = 1, delta = 0.5 }",
        "budget = { epsilon = 1, delta = -1e-9 }",
        "budget = { epsilon = 1, gamma = 1 }",
        "budget = { delta = 1e-6 }",
        "budget = 1",
        "budget = { epsilon = 1 }\nunknown = 1",
        "budget = { epsilon = 1 }\nunit = 3",
        "budget = { epsilon = 1 }\npeople = ''",
        "budget = { epsilon = 1 }\nnulls = 'n/a'",
        "budget = { epsilon = 1 }\nmax_rows = 0",
        "budget = { epsilon = 1 }\nmax_rows = 1.5",
        "budget = { epsilon = 1 }\nmax_groups = true",
        "budget = { epsilon = 1 }\n[caps]\nnobody = { epsilon = 1 }",
        "budget = { epsilon = 1 }\n[limits]\nrows = 0",
        "budget = { epsilon = 1 }\n[limits]\nrows = 100000000000",
        with_column('type = "float"'),
        with_column("lower = 1\nupper = 2"),
        with_column('type = "number"\nlower = 1'),
        with_column('type = "number"\nlower = 2\nupper = 1'),
        with_column('type = "number"\nlower = 1\nupper = 1'),
        with_column('type = "number"\nlower = 0\nupper = 1\nstep = 0'),
        with_column('type = "number"\nlower = 0\nupper = 1\nstep = -1'),
        with_column('type = "number"\nlower = 0\nupper = 1\nstep = 0.3'),
        with_column('type = "number"\nlower = 0\nupper = 1\nstep = 1e-13'),
        with_column('type = "number"\nlower = 0\nupper = 1e17\nstep = 1'),
        with_column('type = "integer"\nlower = 0\nupper = 1\nstep = 0.5'),
        with_column('type = "number"\nlower = nan\nupper = 1'),
        with_column('type = "number"\nlower = "0"\nupper = 1'),
        with_column('type = "text"\nlower = 0\nupper = 1'),
        with_column('type = "text"\nkeys = []'),
        with_column('type = "text"\nkeys = ["a", "a "]'),
        with_column('type = "text"\nkeys = [1]'),
        with_column('type = "integer"\nkeys = [1, 1]'),
        with_column('type = "integer"\nkeys = ["1"]'),
        with_column('type = "number"\nlower = 0\nupper = 1\nstep = 1\nkeys = [0.5]'),
        with_column('type = "boolean"\nkeys = [true]'),
        with_column('type = "date"\nkeys = ["yesterday"]'),
        with_column('type = "text"\nhidden = "yes"'),
        with_column('type = "text"\nbounds = 1'),
        with_column('type = "text"') + '[columns.X]\ntype = "text"',
    ],
)
def test_a_card_that_is_wrong_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refused:
        read(text)
    assert refused.value.code in {"bad-card", "bad-budget", "type-mismatch"}


@pytest.mark.parametrize("name", ["", "1a", "a b", "a;b", "ä", "a" * 64, "a/b", 'a"b'])
def test_a_name_that_could_be_more_than_a_name_is_refused(name: str) -> None:
    with pytest.raises(Refused):
        read(PATIENTS_CARD, name)


def test_a_misspelt_column_is_told_what_was_meant_and_never_a_hidden_one() -> None:
    card = read(PATIENTS_CARD)
    assert card.hidden
    with pytest.raises(Refused, match="Did you mean 'salary'"):
        card.index("salery")
    for hidden in card.hidden:
        with pytest.raises(Refused) as refused:
            card.index(f"{hidden}s")
        assert "Did you mean" not in refused.value.next_step


def test_one_refusal_lists_all_faults_of_a_card() -> None:
    shape = {
        "unit": "participant_id",
        "owner": "me",
        "nulls": "n/a",
        "bids": {"files": ["anat/{sub}_T1w.nii"]},
        "columns": {
            "age": {"type": "integer", "lower": 1},
            "sex": {"type": "string"},
            "iq": {"type": "integer"},
        },
        "tables": {"moods": {"columns": {"score": {"type": "text", "step": 2}}}},
    }
    with pytest.raises(Refused) as refused:
        read_card("study", shape)
    said = refused.value.cause
    assert said.startswith("The data card has 6 faults. (1) Card does not know 'owner'")
    for one in (
        "There is no budget", "Nulls must be", "Column 'age' has one bound", "The type of column "
        "'sex'", "Column 'score' is text",
    ):  # fmt: skip
        assert said.count(one) == 1, one
    assert "iq" not in said
    assert "ids.people" not in said  # a card may leave it out


def test_a_card_without_a_unit_is_told_its_other_faults_too() -> None:
    with pytest.raises(Refused, match=r"has 2 faults.*the privacy unit.*There is no budget"):
        check_unit({"columns": {}})


def test_a_card_with_very_many_faults_names_the_first_of_them() -> None:
    columns = {f"c{n}": {"type": "?"} for n in range(50)}
    with pytest.raises(Refused) as refused:
        read_card("wide", {"budget": {"epsilon": 1}, "columns": columns})
    assert "has 50 faults" in refused.value.cause
    assert refused.value.cause.endswith("... and 30 more.")
