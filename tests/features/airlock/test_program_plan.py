"""The text of an airlock program is what its reviewers read."""

from __future__ import annotations

import tomllib

import pytest

from sfumato.dp.refusal import Refused
from sfumato.features.airlock.program_plan import AirlockProgram, read_submitted
from sfumato.vault.card.data_card import read_card
from support.pipeline_cards import town_card


def submitted(source: str) -> AirlockProgram:
    shape = {"source": source, "files": [{"path": "t.csv"}]}
    return read_submitted(read_card("town", tomllib.loads(town_card(41))), shape, "ours")


def test_its_text_may_be_in_any_language() -> None:
    assert submitted("# José – ±\r\n").source == "# José – ±\n"
    assert submitted("# José").digest != submitted("# Jose").digest


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("x = 1\n# \u202e", "line 2 has U\\+202E RIGHT-TO-LEFT OVERRIDE"),
        ("a\rb", "line 1 has U\\+000D CARRIAGE RETURN"),
        ("# coding: utf-7\n", "declares the encoding utf-7"),
        ("é" * 100_001, "1 to 200,000 bytes of UTF-8"),
    ],
)
def test_a_text_that_reads_as_something_else_is_refused(source: str, says: str) -> None:
    with pytest.raises(Refused, match=says):
        submitted(source)
