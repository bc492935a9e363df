"""What a card shows of people's files, in text and in a notebook."""

from __future__ import annotations

from typing import Any

import pytest

from sfumato.client.display import CardView, file_kind, trace_lines
from sfumato.vault.card.card_json import card_json
from sfumato.vault.card.data_card import read_card


def shown(**bids: Any) -> CardView:  # Any: the part [bids] of a data card
    shape = {"unit": "participant_id", "budget": {"epsilon": 1}, "bids": bids, "columns": {}}
    return CardView(card_json(read_card("study", shape)))


def test_a_card_lists_the_files_of_each_person_with_their_limits() -> None:
    files = ["anat/{sub}_T1w.nii.gz", "func/{sub}_task-rest_events.tsv"]
    view = shown(files=files, people=40, person_mb=9)
    for text in ("\n".join(view.lines()), view._repr_html_()):
        assert "of 40 people at most, 9 MB each" in text
        assert all(file in text for file in files)
        assert "image, with a .json file" in text


def test_a_card_without_the_number_of_people_says_that_no_files_are_read() -> None:
    assert "Programs read no files of people" in "\n".join(shown(files=["{sub}_a.tsv"]).lines())


def test_a_card_of_a_table_says_nothing_of_files() -> None:
    view = CardView(card_json(read_card("plain", {"budget": {"epsilon": 1}, "columns": {}})))
    assert not any("file" in line for line in view.lines())


@pytest.mark.parametrize(
    ("pattern", "kind"),
    [("a.tsv.gz", "table"), ("a_eeg.vhdr", "recording"), ("a.bvec", "directions of diffusion"),
     ("a.json", "JSON"), ("a.xyz", "other")],
)  # fmt: skip
def test_a_kind_is_told_by_the_ending(pattern: str, kind: str) -> None:
    assert file_kind(pattern) == kind


def test_more_commands_and_files_than_are_shown_are_counted() -> None:
    files = [{"path": f"{n}", "size": n, "is_taken": False, "says": "why"} for n in range(1, 4)]
    commands = [{"command": f"sort {n}", "times": n} for n in range(1, 4)]
    said = {"commands": commands, "more_commands": 5, "files": files, "more_files": 7}
    assert trace_lines(said, 2) == [
        "  Commands, in the order in which they first ran:",
        "    $ sort 1",
        "    $ sort 2 (2 times)",
        "    and 8 more runs",
        "  Files in the output folder:",
        "    1 (1 byte): why",
        "    2 (2 bytes): why",
        "    and 8 more",
    ]


def test_what_a_service_lists_cannot_control_a_terminal() -> None:
    files = [{"path": "a\n\x1b[31m", "size": 0, "is_taken": False, "says": "why"}]
    commands = [{"command": "sort\n\x1b[31m\u202e", "times": 1}]
    assert all(
        line.isprintable() for line in trace_lines({"commands": commands, "files": files}, 9)
    )


def test_an_older_service_lists_no_commands_and_files() -> None:
    assert trace_lines({"of": "everybody together"}, 9) == []
