"""What of an owner's texts names a participant, or has a value that few people have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sfumato.engines.ingest.values_of_few import ValuesOfFew, people_of, values_of_few


def few_of(folder: Path, rows: Sequence[tuple[str, ...]], kinds: dict[str, str]) -> ValuesOfFew:
    head = "\t".join(("participant_id", *kinds))
    lines = "\n".join("\t".join(row) for row in rows)
    (folder / "participants.tsv").write_text(f"{head}\n{lines}\n")
    ids = people_of(folder, [folder / "participants.tsv"])
    return values_of_few(folder, {"participants.tsv": kinds}, ids)


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("sub-01 moved", True),
        ("SUB-01_T1w.nii.gz", True),
        ("Subject 1 moved", True),
        ("participants #001", True),
        ("version 1.0.1, in 2019-01-01", False),
        ("01", False),
        ("the label pix042.", True),
        ("PIX042", True),
        ("pix0421", False),
        ("spix042", False),
        ("sub-02", False),
        ("subject 2", False),
    ],
)
def test_a_participant_is_found_by_id_and_by_label(
    tmp_path: Path, text: str, is_found: bool
) -> None:
    found = few_of(tmp_path, [("sub-01",), ("sub-pix042",)], {})
    assert (found.why_not(text) is not None) is is_found
    assert (found.within(f"before\n{text}\nafter").why_not(text) is not None) is is_found


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("He is a Tall\n  ship captain", True),
        ("by Jose\u0301 Di\u0301az", True),  # accents as letters of their own
        ("tall shipping", False),
        ("a cook", False),  # five people are cooks
        ("it is xy", False),  # too short to look for in texts
        ("n/a", False),
        ("number 4711", False),  # of a column of numbers, where people share values
        ("record 9900003", True),  # of a column of numbers that name people
        ('they said "hoi an"', True),  # an odd quotation mark hides no row
    ],
)
def test_a_value_of_few_people_is_found_in_running_text(
    tmp_path: Path, text: str, is_found: bool
) -> None:
    jobs = ["cook"] * 5 + ["tall ship captain", "xy", "n/a", '"hoi an', "cook", "José Díaz"]
    rows = [
        (f"sub-{at:02d}", job, "4711" if at else "12", str(9_900_000 + at))
        for at, job in enumerate(jobs)
    ]
    found = few_of(tmp_path, rows, {"job": "text", "weight": "integer", "record": "integer"})
    assert (found.why_not(text) is not None) is is_found


def test_people_are_counted_and_not_rows(tmp_path: Path) -> None:
    rows = [("sub-01", "gardener")] * 9 + [(f"sub-{at:02d}", "cook") for at in range(2, 8)]
    found = few_of(tmp_path, rows, {"job": "text"})
    assert found.rare["participants.tsv", "job"] == {"gardener": "gardener"}


def test_folders_name_people_who_are_in_no_table(tmp_path: Path) -> None:
    (tmp_path / "sub-left").mkdir()
    (tmp_path / "derivatives" / "a" / "sub-gone").mkdir(parents=True)
    found = few_of(tmp_path, [("sub-01",)], {})
    assert found.ids == {"sub-01", "sub-left", "sub-gone"}
