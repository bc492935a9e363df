"""Everything that ships has an audit, is not accused by it, and its planted twin is."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

import sfumato.dp.local
import sfumato.dp.mechanisms
import sfumato.features.regression
import sfumato.query.aggregates
from sfumato.dp.learning.poisson_sampling import PoissonSample
from sfumato.dp.mechanisms import laplace, partition_selection
from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.ports import RandomSource
from sfumato.lab.audit import audit, audit_order_2, audit_rho
from sfumato.lab.audit.audit_page import page
from sfumato.lab.audit.audit_suite import END_TO_END, audit_directly, audit_zoo, dice_of
from sfumato.lab.audit.canaries import AuditedQuestion
from sfumato.lab.audit.regression_audit import FITS
from sfumato.lab.audit.release_audit import QUESTIONS
from sfumato.lab.audit.shipped_mechanisms import CONTROL_FACTOR, NO_MECHANISM, SHIPPED, Shipped
from sfumato.lab.audit.stream_audit import STREAMS

THEORY = Path(sfumato.dp.local.__file__).parents[1]
HOMES = [THEORY / name for name in ("mechanisms", "sampling", "confidence", "local")]
ELSEWHERE = {"ratio_of_integers", "ratio_of_sums"}  # intervals, by arithmetic
VERBS = Path(sfumato.query.aggregates.__file__).parent
FITTING = Path(sfumato.features.regression.__file__).parent
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "audit.md"


def files_of(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.py")}


def test_every_mechanism_in_core_noise_and_core_local_has_an_audit() -> None:
    audited = {file for one in SHIPPED for file in one.files}
    found = set[str]().union(*map(files_of, HOMES))
    assert found == audited | set(NO_MECHANISM) | ELSEWHERE
    assert audited & set(NO_MECHANISM) == set()


def test_whatever_has_a_proof_has_an_audit_too() -> None:
    pages = [page for home in HOMES for page in home.glob("*.proof.md")]
    proved = {path.name.removesuffix(".proof.md") for path in pages}
    assert STREAMS  # the tree's noise, drawn a period at a time
    at_the_door = {
        "continual_counting",
        "sampling_in_blocks",
    }  # and Laplace noise, by "sums over blocks"
    after_it = {
        "sum_of_draws",
        "frequency_estimation",
        "shuffle_amplification",
        "ratio_of_sums",
    }  # worked out from numbers and reports, or of them
    assert proved - at_the_door - after_it <= {file for one in SHIPPED for file in one.files}


def test_every_mechanism_has_a_proof_beside_it() -> None:
    audited = {file for one in SHIPPED for file in one.files}
    pages = [page for home in HOMES for page in home.glob("*.proof.md")]
    proved = {path.name.removesuffix(".proof.md") for path in pages}
    # one picks a mechanism by its kind, the other carries out what binary_tree.proof.md says
    assert audited - proved == {"private_choice", "running_count"}


def test_every_verb_is_asked_at_the_door() -> None:
    asked = {verb for question in QUESTIONS for verb in question.verbs}
    assert (
        files_of(VERBS) - {"__init__", "result_ranges", "registry", "taylor_intervals", "aggregate"}
        == asked
    )


def test_every_fit_is_asked_at_the_door() -> None:
    texts = {path.stem: path.read_text("utf-8") for path in FITTING.glob("*.py")}
    makers = {name for name, text in texts.items() if re.search(r"\ndef fit_.*\) -> Fit:", text)}
    assert makers == {one.maker for one in FITS}


@pytest.mark.parametrize("one", SHIPPED, ids=lambda one: one.name)
def test_a_shipped_mechanism_is_not_accused_and_its_twin_is(one: Shipped) -> None:
    held = audit_directly(one, seed=1)
    assert held.audited.confidence == 0.9999
    assert not held.audited.is_violated, held.audited.finding
    assert held.is_well, held.positive_control.finding
    assert held.counts


@pytest.mark.slow
@pytest.mark.parametrize("one", SHIPPED, ids=lambda one: one.name)
def test_no_dice_make_the_auditor_accuse_what_ships(one: Shipped) -> None:
    """Twenty audits of each at alpha 1e-4: one alarm in all 700 has a chance of 1 in 14."""
    audits = [audit_directly(one, seed=seed) for seed in range(1000, 1020)]
    assert sum(held.audited.is_violated for held in audits) == 0
    assert all(held.counts for held in audits)


@pytest.mark.slow
@pytest.mark.parametrize("one", SHIPPED, ids=lambda one: one.name)
def test_what_ships_is_accused_no_more_often_than_alpha_in_two_hundred_audits(one: Shipped) -> None:
    """At alpha 5 %, where alarms are to be seen: no more of them than chance makes."""
    mechanism, price = one.make(one.price), float(one.price)
    most = 2048 if one.most > 16_384 else 512  # the others draw one answer at a time

    def accused(seed: int) -> bool:
        dice = dice_of(seed)
        if one.is_order_2:
            claim = {"divergence": price, "alpha": 0.05}
            found = audit_order_2(mechanism, *one.pair, **claim, most=most, dice=dice)
        elif one.is_rho:
            found = audit_rho(mechanism, *one.pair, rho=price, alpha=0.05, most=most, dice=dice)
        else:
            claim = {"epsilon": price, "delta": one.delta, "alpha": 0.05}
            found = audit(mechanism, *one.pair, **claim, most=most, dice=dice)
        return found.is_violated

    assert sum(map(accused, range(200))) <= binom.ppf(1 - 1e-5, 200, 0.05)


def by_name(name: str) -> Shipped:
    return next(one for one in SHIPPED if one.name == name)


def test_whatever_ships_has_a_twin_of_twice_its_epsilon() -> None:
    everything: list[Shipped | AuditedQuestion] = [*SHIPPED, *END_TO_END]
    assert [one.name for one in everything if one.factor != CONTROL_FACTOR] == []


def test_a_twin_of_more_than_twice_the_epsilon_makes_no_audit_of_the_constant() -> None:
    held = audit_directly(by_name("key selection"), seed=1)
    assert held.counts
    assert held.verdict == "not accused"
    more = replace(held, factor=3)
    assert more.is_well
    assert not more.counts
    assert more.verdict == "not accused; the constant was not audited"
    silent = replace(held, positive_control=held.audited)
    assert not silent.is_well
    assert silent.verdict.startswith("INCONCLUSIVE")


def test_noise_of_half_the_width_is_accused(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(noise: Noise, count: int, dice: RandomSource) -> object:
        return laplace.sample(noise.parameter / 2, count, dice)

    monkeypatch.setattr(Noise, "sample", half)
    for name in ("discrete Laplace", "discrete Laplace, wide", "running counts"):
        assert audit_directly(by_name(name), seed=1).audited.is_violated, name


def test_noise_that_repeats_is_accused(monkeypatch: pytest.MonkeyPatch) -> None:
    def stuck(noise: Noise, count: int, dice: RandomSource) -> object:
        return laplace.sample(noise.parameter, count, dice) * 0 + 3

    monkeypatch.setattr(Noise, "sample", stuck)
    assert audit_directly(by_name("discrete Laplace"), seed=1).audited.is_violated


def everybody(coins: PoissonSample, people: int) -> object:
    """A coin that is left out: whoever is there is in."""
    del coins
    return np.ones(people, dtype=np.bool_)


def biased(coins: PoissonSample, people: int) -> object:
    """Coins that say yes more often than they are priced for."""
    return np.frombuffer(np.random.default_rng(coins.key[0]).bytes(people), np.uint8) < 240


@pytest.mark.parametrize("toss", [everybody, biased])
def test_coins_that_are_left_out_or_biased_are_accused(
    toss: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PoissonSample, "tossed", toss)
    assert audit_directly(
        by_name("Skellam shares over a secret sample"), seed=1
    ).audited.is_violated


def test_keys_shown_by_their_true_count_are_accused(monkeypatch: pytest.MonkeyPatch) -> None:
    def bold(counts: object, epsilon: Fraction, delta: Fraction, dice: RandomSource) -> object:
        del epsilon, delta, dice
        return counts > 3  # type: ignore[operator]  # an array

    monkeypatch.setattr(partition_selection, "keep_partitions", bold)
    assert audit_directly(by_name("key selection"), seed=1).audited.is_violated


def test_the_page_has_a_line_for_everything() -> None:
    found = list(audit_zoo(1, ["F5", "L1"]))
    held = [audit_directly(by_name("key selection"), seed=1)]
    text = page(held, found)
    assert "| key selection | bare | epsilon 1, delta 0.01 |" in text
    assert text.count("caught |") == 3
    assert "not accused" in text


def test_a_page_that_is_made_in_part_keeps_its_other_lines() -> None:
    before = PAGE.read_text("utf-8")
    assert page([], [], before) == before
    held, found = audit_directly(by_name("key selection"), seed=2), next(audit_zoo(2, ["F5"]))
    lines = page([held], [found], before).splitlines()
    places = {place for place, line in enumerate(before.splitlines()) if line != lines[place]}
    assert len(lines) == len(before.splitlines())
    assert {lines[place].split(" | ")[0] for place in places} <= {"| key selection", "| F5"}
    assert (
        f"| key selection | bare | epsilon 1, delta 0.01 | {held.audited.lower:.3g} |"
        in "".join(lines)
    )


def test_a_page_that_is_none_yet_has_what_is_audited_alone() -> None:
    text = page([], list(audit_zoo(1, ["F5", "F3"])), "something else")
    assert [line[:4] for line in text.splitlines() if line.endswith("caught |")] == ["| F3", "| F5"]


def test_the_page_in_the_docs_has_every_question_at_every_door() -> None:
    text = PAGE.read_text("utf-8")
    doors = ("door, DuckDB", "door, PostgreSQL", "door, Spark")
    asked = {(one.name, where) for one in END_TO_END for where in doors}
    assert [one for one in asked if f"| {one[0]} | {one[1]} |" not in text] == []


def test_the_page_in_the_docs_names_all_that_ships_and_the_whole_zoo() -> None:
    text = PAGE.read_text("utf-8")
    names = [one.name for one in SHIPPED] + [one.name for one in END_TO_END]
    assert [name for name in names if f"| {name} |" not in text] == []
    assert "ACCUSED" not in text
    assert "INCONCLUSIVE" not in text
    assert len(re.findall(r"\| [3-9]x caught \|", text)) == text.count(
        "the constant was not audited"
    )
    assert "MISSED" not in text
