"""A new version keeps the terms of the version before, unless the owner lets them go."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.features.data_sets.card_proposal import proposed_card
from sfumato.features.data_sets.card_steps import card_of, proposed_answers
from sfumato.features.data_sets.earlier_card import (
    as_new_version,
    earlier_answers,
    is_version_of,
    kept_terms,
    without_earlier,
    without_optional,
)
from sfumato.vault.card.card_json import card_json
from sfumato.vault.card.data_card import read_card
from sfumato.vault.engine_port import Described
from support.small_vaults import make_vault, write_csv
from support.typed_terminal import at_terminal

CARD = """
unit = "person"
people = "town"
version = "7"
size = 300
delta_per_request = 1e-7
budget = { epsilon = 3, delta = 1e-6 }
max_rows = 2
[caps]
raise = "two people"
user = { epsilon = 0.5, delta = 1e-7 }
group = { epsilon = 1.5 }
[ask]
who = ["nurses"]
[airlock]
reviewers = ["mia", "noa"]
days = 14
[secure_average]
releases = 3
[columns.age]
type = "integer"
lower = 0
upper = 110
"""
TERMS = ("caps", "delta_per_request", "airlock", "secure_average", "budget", "who", "size", "unit")


def shown(**changes: object) -> dict[str, Any]:
    return card_json(read_card("clinic", {**tomllib.loads(CARD), **changes}))


def answers() -> dict[str, str]:
    found = Described((("person", "integer"), ("age", "integer")))
    return proposed_answers({"columns": [], "card": proposed_card("visits 2026", found)})


def test_a_new_version_has_all_terms_of_the_earlier_card() -> None:
    made = {**as_new_version({**answers(), "name": "clinic"}, shown()), "version": "8"}
    again = card_json(read_card("clinic", card_of(made)))
    assert {key: again[key] for key in TERMS} == {key: shown()[key] for key in TERMS}
    assert (again["version"], again["people"], again["max_rows"]) == ("8", "town", 2)
    assert kept_terms(made) == [
        "each user may spend ε 0.5 and δ 1e-07", "each group may spend ε 1.5 and δ 1e-06",
        "a question may spend δ 1e-07", "at most 3 sums of sites without noise",
        "output checking (airlock) by mia, noa",
    ]  # fmt: skip


def test_a_window_stays_and_what_the_owner_typed_stays() -> None:
    typed = {**answers(), "name": "clinic", "epsilon": "2", "user_epsilon": "0.25"}
    made: Any = card_of(as_new_version(typed, shown(window="month")))
    assert made["window"] == "month"
    assert (str(made["budget"]["epsilon"]), str(made["caps"]["user"]["epsilon"])) == ("2", "0.25")


def test_another_name_has_none_of_these_terms() -> None:
    made = as_new_version({**answers(), "name": "clinic"}, shown())
    assert is_version_of(made, "clinic")
    assert not is_version_of(made, "clinic 7")
    left: Any = card_of(without_earlier(made))
    assert left["caps"] == {"raise": "two people"}
    assert not {"airlock", "delta_per_request", "window", "secure_average"} & set(left)


def test_a_card_without_such_terms_has_nothing_to_keep() -> None:
    plain = {key: value for key, value in tomllib.loads(CARD).items() if key in ("unit", "budget")}
    assert kept_terms(earlier_answers(card_json(read_card("clinic", plain)))) == []


def test_an_owner_who_raises_caps_alone_may_let_them_go() -> None:
    alone = shown(caps={"user": {"epsilon": 0.5}})
    made: Any = card_of(without_optional(as_new_version({**answers(), "name": "clinic"}, alone)))
    assert made["caps"] == {}
    assert "airlock" not in made


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    made, place = make_vault(tmp_path), tmp_path / "here"
    place.mkdir()
    write_csv(place / "rows.csv", ("person", "age"), [(n, 20 + n) for n in range(60)])
    (place / "clinic.toml").write_text(CARD)
    with sfumato.open(made) as opened:
        opened.add("clinic", place / "rows.csv", place / "clinic.toml")
    return made


@pytest.mark.parametrize(("said", "is_kept"), [("", True), ("no", False)])
def test_the_terminal_asks_whether_they_stay(vault: Path, said: str, is_kept: bool) -> None:
    typed = [*[""] * 9, "what", said, "done", "", "no"]
    made = at_terminal(vault, ["add", "clinic", "rows.csv"], typed, vault.parent / "here")
    assert made.status == 0, made.shown
    flat = made.shown.replace("\n  ", " ")
    assert "Keep these terms of the version before? each user may spend ε 0.5 and δ 1e-07" in flat
    with sfumato.open(vault) as opened:
        card: dict[str, Any] = opened.call("card", {"data_set": "clinic"})
    terms = ("airlock", "delta_per_request", "caps", "secure_average")
    assert card["version"] == "8"
    assert card["caps"]["raise"] == "two people"
    assert card["caps"] == shown()["caps"]  # a second person has to agree to raise them
    if is_kept:
        assert {key: card[key] for key in terms} == {key: shown()[key] for key in terms}
    else:
        assert "These stay, as raising a cap takes a second person" in flat
        assert not {"airlock", "secure_average"} & set(card)
        assert card["delta_per_request"] == 0
