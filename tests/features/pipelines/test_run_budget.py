"""A run that the budget left cannot pay says so beforehand, and names what would fit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.client.ask_terms import Json
from sfumato.client.display import BlocksPlan
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.program_warnings import default_blocks, default_words
from support.pipeline_cards import town_card
from support.sandbox_blocks import hurry, needs_bubbles
from support.small_vaults import card, make_vault, write_csv

CARD = town_card(40, epsilon=3)
SOURCE = "def means(rows):\n    return {'mean': rows['height'].mean(), 'top': 200, 'low': 120}\n"
OUTPUTS = [{"name": name, "lower": 100, "upper": 220, "step": 1} for name in ("mean", "top", "low")]


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    source = write_csv(tmp_path / "t.csv", ("who", "height"), [(f"n{n}", 170) for n in range(40)])
    with sfumato.open(make_vault(tmp_path)) as made:
        made.add("town", source, card(CARD))
        for name in ("ria", "eve"):
            made.enrol(name, "researchers")
        hurry(made)
        yield made


def submitted(vault: OpenVault) -> str:
    body: Json = {"data_set": "town", "source": SOURCE, "name": "means", "outputs": OUTPUTS}
    return str(vault.call("submit-pipeline", body)["digest"])


def called(vault: OpenVault, verb: str, digest: str, **terms: object) -> Any:
    return vault.call(verb, {"data_set": "town", "pipeline": digest, **terms})


def test_a_run_that_does_not_fit_says_what_is_left_and_what_would_fit(vault: OpenVault) -> None:
    digest = submitted(vault)
    priced = called(vault, "price-pipeline", digest, epsilon=4.5, blocks=8)
    assert (priced["fits"], priced["free"], priced["left"]["next_epsilon"]) == (False, False, 3)
    said = priced["warnings"][0]
    assert "It costs epsilon 4.5, and epsilon 3 is left." in said
    assert "a program with 2 of the 3 numbers, at the error that they have now." in said
    other = called(vault, "price-pipeline", digest, epsilon=3, blocks=8)
    assert other["fits"]
    assert f"epsilon 3, with the larger errors mean ± {other['error']['mean']:.4g}, top" in said
    assert not any("budget left" in one for one in other["warnings"])


def test_wanted_errors_that_do_not_fit_are_made_larger(vault: OpenVault) -> None:
    digest = submitted(vault)
    errors = dict.fromkeys(("mean", "top", "low"), 20)
    said = called(vault, "price-pipeline", digest, error=errors, blocks=8)["warnings"][0]
    found = {name: float(by) for name, by in re.findall(r"(mean|top|low) ± ([0-9.]+)", said)}
    assert set(found) == set(errors)
    wider = {name: by * 1.001 for name, by in found.items()}
    assert called(vault, "price-pipeline", digest, error=wider, blocks=8)["fits"]


@needs_bubbles
def test_each_balance_is_the_askers_and_a_paid_run_is_free(vault: OpenVault) -> None:
    digest = submitted(vault)
    terms = {"epsilon": 3, "blocks": 4, "cpu_s": 0.5}
    called(vault, "run-pipeline", digest, **terms)
    again = called(vault, "price-pipeline", digest, **terms)
    assert (again["free"], again["fits"]) == (True, True)
    assert not any("budget left" in one for one in again["warnings"])
    ria = OpenVault(vault.house, "ria")
    theirs = called(ria, "price-pipeline", digest, **terms)
    assert (theirs["free"], theirs["fits"]) == (False, False)
    assert "epsilon 0 is left. Repeat an earlier run for free" in theirs["warnings"][0]


@needs_bubbles
def test_a_plan_says_it_to_its_asker_and_does_not_keep_it(vault: OpenVault) -> None:
    digest = submitted(vault)
    plan = called(vault, "plan-pipeline", digest, epsilon=9, people=10)
    assert repr(BlocksPlan(plan)).startswith("Read first: The budget left is too small")
    kept: Any = called(vault, "pipeline", digest)
    assert not any("budget left" in one for one in kept["trial"]["plan"]["warnings"])


def test_the_default_number_of_blocks_follows_from_the_card(vault: OpenVault) -> None:
    digest = submitted(vault)
    priced = called(vault, "price-pipeline", digest, epsilon=1)
    assert priced["blocks"] == 4
    assert priced["chosen_by"] == (
        "No number of blocks was given: 4, because the data card declares 40 people, which are "
        "about 10 in each block."
    )
    assert "chosen_by" not in called(vault, "price-pipeline", digest, epsilon=1, blocks=4)
    opened = vault.house.desk.pipelines.catalogue.opened("town", "owner")
    assert opened is not None
    known = opened.listing.card
    sizes = {None: 50, 3: 2, 99: 9, 499: 49, 500: 50, 10_000: 50}
    assert {size: default_blocks(replace(known, size=size)) for size in sizes} == sizes
    assert default_words(replace(known, size=None)) == (
        "No number of blocks was given: 50, the default."
    )


WRONG: dict[str, dict[str, object]] = {
    "Give fewer blocks: 4 have about 10 people each": {"blocks": 500},
    "Change this term of the run. The submitted program stays": {"blocks": 4, "trim": 2},
    "Change this term": {"blocks": 4, "cpu_s": 9000},
    "Give fewer blocks, or less processor": {"blocks": 40, "cpu_s": 600},
    "Change this": {"epsilon": None, "error": {"mean": 1}},
}


@pytest.mark.parametrize("said", WRONG)
def test_a_wrong_term_of_a_run_is_not_called_a_wrong_declaration(
    vault: OpenVault, said: str
) -> None:
    digest = submitted(vault)
    terms = {name: one for name, one in {"epsilon": 1, **WRONG[said]}.items() if one is not None}
    with pytest.raises(Refused) as refused:
        called(vault, "price-pipeline", digest, **terms)
    assert refused.value.cause.startswith("The run cannot begin with these terms: ")
    assert refused.value.next_step.startswith(said)
