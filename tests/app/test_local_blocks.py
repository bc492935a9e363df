"""The people of local data are split into blocks by person; nobody is in two of them."""

from __future__ import annotations

import pytest

from sfumato.app.local_blocks import block_of, split_files
from sfumato.dp.refusal import Refused

NAMES = [f"sub-{n}" for n in range(40)]
PEOPLE = "participant_id\theight\n" + "".join(f"{name}\t{170}\n" for name in NAMES)
VISITS = "day,participant_id\n" + "".join(f'"{n}, a",{one}\n' for n in (1, 2) for one in NAMES)
FILES = {
    "participants.tsv": (PEOPLE + "n/a\t180\n").encode(),
    "visits.csv": VISITS.encode(),
    "dataset_description.json": b"{}",
    **{f"{name}/anat/{name}_T1w.nii": name.encode() for name in NAMES},
}


def rows(text: bytes) -> list[str]:
    return text.decode().splitlines()[1:]


def test_all_of_a_person_is_in_one_block_and_files_about_nobody_are_in_all() -> None:
    split = split_files(FILES, 4, None)
    seen: list[str] = []
    for people, files in split:
        own = [line.split("\t")[0] for line in rows(files["participants.tsv"])]
        seen += own
        assert len(own) == people > 0
        assert sorted(line.split(",")[-1] for line in rows(files["visits.csv"])) == sorted(2 * own)
        assert rows(files["visits.csv"])[0].startswith('"1, a",')
        assert {path for path in files if "/" in path} == {f"{n}/anat/{n}_T1w.nii" for n in own}
        assert files["dataset_description.json"] == b"{}"
    assert sorted(seen) == sorted(NAMES)  # the row of nobody is in no block


def test_the_same_data_have_the_same_blocks_and_a_block_may_be_empty() -> None:
    assert split_files(FILES, 4, None) == split_files(FILES, 4, None)
    few = split_files({"participants.tsv": b"who\tx\nann\t1\nann\t2\nbob\t3\n"}, 50, None)
    assert sum(people for people, _ in few) == 2
    people, files = few[block_of("ann", 50)]
    assert (people, files["participants.tsv"]) == (1, b"who\tx\nann\t1\nann\t2\n")
    assert (0, {"participants.tsv": b"who\tx\n"}) in few


def test_the_column_of_people_can_be_named() -> None:
    table = {"participants.tsv": "x\twho\n1\tjosé\n2\tann\n".encode()}
    blocks = split_files(table, 2, "who")
    assert sum(people for people, _ in blocks) == 2
    assert "josé" in blocks[block_of("josé", 2)][1]["participants.tsv"].decode()
    for files, count, person, says in (
        (table, 2, "nobody", "no table has a column 'nobody'"),
        ({"a.txt": b"1"}, 2, None, "nobody is named in a column 'participant_id'"),
        (table, 0, None, "there must be 1 to"),
    ):
        with pytest.raises(Refused, match=says):
            split_files(files, count, person)
