"""The golden vectors hold for our randomisers, and for plain ones written from the page alone."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

from sfumato.dp.local.likelihood_ratio import epsilon_of
from sfumato.dp.local.randomiser_registry import BALLOTS, KINDS, NUMBERS, randomiser_of
from support.local_golden_vectors import PATH, vectors
from support.local_randomiser_oracles import PLAIN

WRITTEN: list[dict[str, Any]] = json.loads(PATH.read_text("utf-8"))


def test_the_written_vectors_are_those_that_the_code_makes() -> None:
    assert vectors() == WRITTEN


def test_every_kind_has_vectors_and_a_plain_twin() -> None:
    written = {one["parameters"]["kind"] for one in WRITTEN}
    assert written == {*KINDS, *NUMBERS, *BALLOTS} == set(PLAIN)


@pytest.mark.parametrize("kind", sorted(PLAIN))
def test_the_plain_randomiser_says_the_same(kind: str) -> None:
    for one in WRITTEN:
        if one["parameters"]["kind"] == kind:
            for case in one["cases"]:
                said = PLAIN[kind](one["parameters"], case["value"], case["words"])
                assert said.hex() == case["report"]


def test_parameters_lead_back_to_the_oracle_and_its_epsilon() -> None:
    for one in WRITTEN:
        made = randomiser_of(one["parameters"])
        assert dict(made.parameters) == one["parameters"]
        assert epsilon_of(Fraction(one["ratio"])) == made.epsilon
