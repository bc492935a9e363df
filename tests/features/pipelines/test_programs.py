"""Which kind of program an image may be."""

from __future__ import annotations

import tomllib

import pytest

from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.program_plan import Program, read_program
from sfumato.sandbox.program_environment import bound
from sfumato.vault.card.data_card import read_card
from support.pipeline_cards import AGES

IMAGE = bound("ours", "image-" + "a" * 64)
OUTPUT = {"name": "n", "lower": 0, "upper": 9, "step": 1}
WITH_FILES = AGES + '[bids]\npeople = 9\nfiles = ["anat/{sub}_T1w.nii.gz"]\n'


@pytest.mark.parametrize(
    ("kind", "card", "is_read"),
    [
        ("function", AGES, False),
        ("program", AGES, True),
        ("bids", AGES, False),
        ("bids", WITH_FILES, True),
    ],
)
def test_an_image_runs_a_program_over_a_folder(kind: str, card: str, is_read: bool) -> None:
    output = OUTPUT if kind == "function" else {**OUTPUT, "path": "out.json", "at": ["n"]}
    shape = {"source": "", "name": "it", "kind": kind, "outputs": [output]}
    made = read_card("cohort", tomllib.loads(card))
    if is_read:
        assert read_program(made, shape, IMAGE).kind == kind
    else:
        with pytest.raises(Refused, match="an image needs"):
            read_program(made, shape, IMAGE)


@pytest.mark.parametrize("kind", ["function", "program", "bids"])
@pytest.mark.parametrize("people", [0, 9])
def test_a_block_has_its_peoples_files_where_the_card_has_them_and_a_program_reads_them(
    kind: str, people: int
) -> None:
    made = Program("cohort", kind, "", "it", (), (), people=people, files=("anat/*",))
    assert made.is_study == (people > 0 and kind != "function")
    assert ("files" in made.as_json()) == made.is_study  # so it is part of what is approved
