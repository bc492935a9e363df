"""Studies: whose folder is in which block, and whose turn is which, is told by nobody else."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.ingest.prepare_order import path_of_turn
from sfumato.sandbox.block_columns import block_columns
from sfumato.sandbox.ports import MAX_KEPT, SplitOrder, StudyOrder, output_path
from support.small_vaults import card, make_vault

CARD = """
unit = "participant_id"
people = "cohort"
version = "%s"
budget = { epsilon = 1, delta = 0 }
[bids]
people = 16
files = ["anat/{sub}_T1w.nii.gz"]
[columns.age]
type = "integer"
lower = 0
upper = 100
"""
PEOPLE, TURNS, BLOCKS = 10, 16, 3


def add(vault: OpenVault, folder: Path, version: str, people: list[int]) -> None:
    study = folder / f"study-{version}"
    lines = ["participant_id\tage", *(f"sub-{one:02d}\t{20 + one}" for one in people)]
    for one in people:
        place = study / f"sub-{one:02d}" / "anat"
        place.mkdir(parents=True)
        (place / f"sub-{one:02d}_T1w.nii.gz").write_bytes(b"image of %d" % one)
    (study / "participants.tsv").write_text("\n".join(lines) + "\n")
    vault.add("cohort", study, card(CARD % version))


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    with sfumato.open(make_vault(tmp_path)) as made:
        add(made, tmp_path, "1", list(range(PEOPLE)))
        yield made


def order(vault: OpenVault, folder: Path, key: int, kept: str = "program") -> SplitOrder:
    found = vault.house.catalogue.find("cohort")
    assert found is not None
    folder.mkdir()
    secret = hashlib.sha256(str(key).encode()).digest()
    columns, study = block_columns(found.card, None), StudyOrder(TURNS, kept)
    return SplitOrder(
        found.table, "participant_id", columns, BLOCKS, secret, str(folder), 1000, study
    )


def engine_of(vault: OpenVault) -> DuckDBEngine:
    engine = vault.house.engine
    assert isinstance(engine, DuckDBEngine)
    return engine


def turns(vault: OpenVault, split: SplitOrder) -> list[bytes]:
    return [Path(path).read_bytes() for path in engine_of(vault).split_people(split)]


def test_everybody_has_one_turn_and_nobody_says_nothing(vault: OpenVault, tmp_path: Path) -> None:
    split = order(vault, tmp_path / "a", 1)
    found = turns(vault, split)
    assert len(found) == TURNS
    assert Counter(map(bool, found)) == {True: PEOPLE, False: TURNS - PEOPLE}
    assert all(one.count(b"image of") == 1 for one in found if one)


def test_what_is_in_a_turn_hangs_on_nobody_else(vault: OpenVault, tmp_path: Path) -> None:
    before = set(turns(vault, order(vault, tmp_path / "a", 1)))
    add(vault, tmp_path, "2", [one for one in range(PEOPLE) if one != 7])
    after = set(turns(vault, order(vault, tmp_path / "b", 1)))
    (gone,) = before - after
    assert (b"image of 7" in gone, after - before) == (True, set())


def test_whose_turn_is_which_is_drawn_anew_and_evenly(vault: OpenVault, tmp_path: Path) -> None:
    runs = [turns(vault, order(vault, tmp_path / f"r{key}", key)) for key in range(40)]
    assert {place for run in runs for place, one in enumerate(run) if one} == set(range(TURNS))
    mine = [next(place for place, one in enumerate(run) if b"image of 3" in one) for run in runs]
    assert max(Counter(mine).values()) <= 15  # of 40 in 16 places; 1e-7 by chance
    assert len(set(mine)) >= 8


def said_all(vault: OpenVault, split: SplitOrder) -> None:
    for path in engine_of(vault).split_people(split):
        if Path(path).stat().st_size:
            Path(output_path(path)).write_bytes(b"said: " + Path(path).read_bytes()[-4:])


def test_who_leaves_changes_one_block_with_their_files_and_what_was_kept(
    vault: OpenVault, tmp_path: Path
) -> None:
    def blocks(name: str) -> list[bytes]:
        split = order(vault, tmp_path / name, 5)
        said_all(vault, split)
        return [Path(path).read_bytes() for path in engine_of(vault).split(split)]

    before = blocks("a")
    assert sum(text.count(b"said: ") for text in before) == PEOPLE
    add(vault, tmp_path, "2", [one for one in range(PEOPLE) if one != 7])
    pairs = list(zip(before, blocks("b"), strict=True))
    (changed,) = (pair for pair in pairs if pair[0] != pair[1])
    assert [text.count(b"image of 7") for text in changed] == [1, 0]
    assert changed[0].count(b"said: ") - changed[1].count(b"said: ") == 1


def test_what_is_kept_leaves_the_turn_empty_for_that_program_and_that_person_alone(
    vault: OpenVault, tmp_path: Path
) -> None:
    first = order(vault, tmp_path / "a", 1)
    said_all(vault, first)
    engine_of(vault).split(first)
    assert not any(turns(vault, order(vault, tmp_path / "b", 2)))
    assert Counter(map(bool, turns(vault, order(vault, tmp_path / "c", 2, "other"))))[True] == 10
    (kept,) = list((vault.house.folder / "tables").glob("*.kept/program"))
    next(kept.iterdir()).write_bytes(b"")  # as the power leaves it: it is no answer
    assert Counter(map(bool, turns(vault, order(vault, tmp_path / "d", 3))))[True] == 1


def test_whoever_was_stopped_is_missing_this_time_and_nothing_of_them_is_kept(
    vault: OpenVault, tmp_path: Path
) -> None:
    split = order(vault, tmp_path / "a", 1)
    said_all(vault, split)
    next(tmp_path.glob("a/*.said")).unlink()
    texts = [Path(path).read_bytes() for path in engine_of(vault).split(split)]
    assert sum(text.count(b"said: ") for text in texts) == PEOPLE - 1
    assert sum(text.count(b"image of") for text in texts) == PEOPLE
    again = turns(vault, order(vault, tmp_path / "b", 2))
    assert Counter(map(bool, again))[True] == 1


def taken(vault: OpenVault) -> int:
    """Return the bytes of disk that lie beside tables for what is kept."""
    below = (vault.house.folder / "tables").glob("*.kept/**/*")
    return sum(path.stat().st_blocks * 512 for path in below if path.is_file())


def test_the_room_for_what_is_kept_is_taken_whole_before_a_run_and_says_nothing_of_it(
    vault: OpenVault, tmp_path: Path
) -> None:
    each = TURNS * (MAX_KEPT + 2 * 4096)
    for place, left in enumerate((0, 10, 300_000, MAX_KEPT), start=1):
        split = order(vault, tmp_path / f"{left}", place, f"program-{left}")
        turns(vault, split)
        assert abs(taken(vault) - place * each) < 100_000  # as a disk counts
        for turn in range(TURNS):
            Path(output_path(path_of_turn(split.target, turn))).write_bytes(b"x" * left)
        engine_of(vault).split(split)
        assert abs(taken(vault) - place * each) < 100_000


def test_of_a_data_set_only_the_programs_that_were_run_last_are_kept(
    vault: OpenVault, tmp_path: Path
) -> None:
    for place in (0, 1, 2, 3, 0, 4):
        turns(vault, order(vault, tmp_path / f"{len(list(tmp_path.iterdir()))}", 1, f"p{place}"))
    (kept,) = (vault.house.folder / "tables").glob("*.kept")
    names = {path.name for path in kept.iterdir()}
    assert names == {f"p{place}{end}" for place in (0, 2, 3, 4) for end in ("", ".room")}


@pytest.mark.parametrize("is_kept", [False, True], ids=["first run", "kept before"])
def test_programs_that_begin_meanwhile_take_nobody_out_of_a_run(
    is_kept: bool, vault: OpenVault, tmp_path: Path
) -> None:
    if is_kept:
        before = order(vault, tmp_path / "before", 1)
        said_all(vault, before)
        engine_of(vault).split(before)
    split = order(vault, tmp_path / "a", 2)
    said_all(vault, split)
    for name in "BCDE":
        turns(vault, order(vault, tmp_path / name, 3, name))
    (kept,) = (vault.house.folder / "tables").glob("*.kept")
    assert not (kept / "program").exists()
    texts = [Path(path).read_bytes() for path in engine_of(vault).split(split)]
    assert sum(text.count(b"said: ") for text in texts) == PEOPLE
