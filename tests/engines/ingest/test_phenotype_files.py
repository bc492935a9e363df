"""Tables beside participants.tsv: a block and a turn have the rows of their own people, no others.

Everybody's rows say who they are, so that a row in a wrong place is seen.
"""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Refused
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.features.pipelines.approval_rule import read_rule
from sfumato.sandbox.block_columns import folder_columns, folder_tables, listed_column
from sfumato.sandbox.ports import SplitOrder, StudyOrder
from sfumato.vault.card.data_card import read_card
from support.small_vaults import card, make_vault

CARD = """
unit = "participant_id"
people = "cohort"
version = "%s"
budget = { epsilon = 1, delta = 0 }
nulls = ["n/a"]
[bids]
people = 16
files = ["anat/{sub}_T1w.nii.gz"]
[columns.age]
type = "integer"
lower = 0
upper = 100
[tables.moods]
max_rows = 3
[tables.moods.columns.score]
type = "integer"
lower = 0
upper = 1000
[tables.moods.columns.note]
type = "text"
[tables.sites]
public = true
key = "site"
[tables.sites.columns.site]
type = "text"
keys = ["a", "b"]
"""
PEOPLE, TURNS, BLOCKS = 10, 16, 3
ALONE = 11  # who is in no other table than moods
RECORD = struct.Struct("<cHQ")


def add(vault: OpenVault, folder: Path, version: str, people: list[int]) -> None:
    study = folder / f"study-{version}"
    (study / "phenotype").mkdir(parents=True)
    lines = ["participant_id\tage", *(f"sub-{p:02d}\t{20 + p}" for p in people if p != ALONE)]
    (study / "participants.tsv").write_text("\n".join(lines) + "\n")
    moods = [f"sub-{p:02d}\t{100 * (p % 10) + n}\tn{p}" for p in people for n in range(p % 4)]
    (study / "phenotype" / "moods.tsv").write_text(
        "\n".join(("participant_id\tscore\tnote", *moods)) + "\n"
    )
    (study / "phenotype" / "sites.tsv").write_text("site\na\nb\n")
    vault.add("cohort", study, card(CARD % version))


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    with sfumato.open(make_vault(tmp_path)) as made:
        add(made, tmp_path, "1", [*range(PEOPLE), ALONE])
        yield made


def order(vault: OpenVault, folder: Path, key: int, *columns: str) -> SplitOrder:
    found = vault.house.catalogue.find("cohort")
    assert found is not None
    folder.mkdir()
    own, *beside = folder_tables(found.card, columns)
    secret = hashlib.sha256(str(key).encode()).digest()
    study = StudyOrder(TURNS, "program", tuple(beside))
    return SplitOrder(
        found.table, own.person, own.columns, BLOCKS, secret, str(folder), 1000, study
    )


def engine_of(vault: OpenVault) -> DuckDBEngine:
    engine = vault.house.engine
    assert isinstance(engine, DuckDBEngine)
    return engine


def files_of(path: str) -> dict[str, bytes]:
    """Return the files of a laid-out folder; what people's own runs have said by their names."""
    found, text = {}, io.BytesIO(Path(path).read_bytes())
    while head := text.read(RECORD.size):
        _, length, size = RECORD.unpack(head)
        name = text.read(length).decode()
        found[name] = text.read(size)
    return found


def blocks(vault: OpenVault, split: SplitOrder) -> list[dict[str, bytes]]:
    return [files_of(path) for path in engine_of(vault).split(split)]


ALL = ("age", "moods.score", "moods.note")
MOODS, ROWS = "phenotype/moods.tsv", "participants.tsv"


def column(files: dict[str, bytes], table: str, name: str) -> list[str]:
    head, *lines = files[table].decode().splitlines()
    place = head.split("\t").index(name)
    return [line.split("\t")[place] for line in lines]


def test_every_row_of_a_table_is_in_the_block_of_its_person_and_in_no_other(
    vault: OpenVault, tmp_path: Path
) -> None:
    found = blocks(vault, order(vault, tmp_path / "a", 1, *ALL))
    scores = sorted(int(one) for files in found for one in column(files, MOODS, "score"))
    expected = [100 * (p % 10) + n for p in [*range(PEOPLE), ALONE] for n in range(p % 4)]
    assert scores == sorted(expected)
    for files in found:
        names = {path.split("/")[0] for path in files if path.startswith("sub-")}
        assert set(column(files, MOODS, "participant_id")) <= names
        assert set(column(files, ROWS, "participant_id")) <= names
    people = [set(column(files, ROWS, "participant_id")) for files in found]
    assert sum(map(len, people)) == len(set().union(*people)) == PEOPLE


def test_who_leaves_takes_their_rows_out_of_one_block_and_changes_no_other(
    vault: OpenVault, tmp_path: Path
) -> None:
    keys = range(4)
    before = [blocks(vault, order(vault, tmp_path / f"a{key}", key, *ALL)) for key in keys]
    add(vault, tmp_path, "2", [*(p for p in range(PEOPLE) if p != 7), ALONE])
    for key in keys:
        pairs = zip(
            before[key], blocks(vault, order(vault, tmp_path / f"b{key}", key, *ALL)), strict=True
        )
        ((was, is_now),) = [pair for pair in pairs if pair[0] != pair[1]]
        gone = set(column(was, MOODS, "score")) - set(column(is_now, MOODS, "score"))
        assert gone == {"700", "701", "702"}


def test_who_is_in_a_table_beside_the_cards_own_alone_is_somebody_of_one_block(
    vault: OpenVault, tmp_path: Path
) -> None:
    found = blocks(vault, order(vault, tmp_path / "a", 5, *ALL))
    (theirs,) = (files for files in found if "100" in column(files, MOODS, "score")
                 and "n11" in column(files, MOODS, "note"))  # fmt: skip
    rows = zip(column(theirs, MOODS, "note"), column(theirs, MOODS, "participant_id"), strict=True)
    (name,) = {person for note, person in rows if note == "n11"}
    assert name in theirs
    assert name not in column(theirs, ROWS, "participant_id")


def test_a_persons_turn_has_their_own_rows_and_nobody_elses(
    vault: OpenVault, tmp_path: Path
) -> None:
    split = order(vault, tmp_path / "a", 1, *ALL)
    turns = [files_of(path) for path in engine_of(vault).split_people(split)]
    found = [sorted(column(files, MOODS, "score")) for files in turns if files]
    expected = [[str(100 * (p % 10) + n) for n in range(p % 4)] for p in [*range(PEOPLE), ALONE]]
    assert sorted(found) == sorted(expected)
    assert all(len(column(files, ROWS, "age")) <= 1 for files in turns if files)


def test_a_table_is_there_where_a_column_of_it_is_seen_and_has_no_other(
    vault: OpenVault, tmp_path: Path
) -> None:
    own = blocks(vault, order(vault, tmp_path / "a", 1, "age"))
    assert not any(path.startswith("phenotype") for files in own for path in files)
    notes = blocks(vault, order(vault, tmp_path / "b", 1, "moods.note"))
    heads = {files[MOODS].splitlines()[0] for files in notes}
    assert heads == {b"participant_id\tnote"}
    assert {files[ROWS].splitlines()[0] for files in notes} == {b"participant_id"}
    for files in notes:  # whoever is in a table has their folder; a block may be without people
        there = [*column(files, ROWS, "participant_id"), *column(files, MOODS, "participant_id")]
        assert bool(set(files) - {ROWS, MOODS}) == bool(there)
    assert {line.count(b"\t") for files in notes for line in files[ROWS].splitlines()} == {0}


def code_of(names: object) -> str:
    with pytest.raises(Refused) as refused:
        folder_columns(read_card("cohort", card(CARD % "1")), names)
    return refused.value.code


def test_columns_are_said_with_their_table_and_public_tables_have_none() -> None:
    read = read_card("cohort", card(CARD % "1"))
    assert folder_columns(read, None) == ALL
    assert folder_columns(read, ["MOODS.Score", "age"]) == ("moods.score", "age")
    assert listed_column(read, "moods.Note") == "moods.note"
    assert [code_of(one) for one in (["score"], ["sites.site"], ["moods.age"], [7])] == [
        "unknown-column"
    ] * 4
    assert [code_of(one) for one in (["age", "AGE"], [], "age")] == ["bad-pipeline"] * 3


def test_a_rule_of_the_owners_lists_them_by_the_same_names() -> None:
    read = read_card("cohort", card(CARD % "1"))
    shape = {
        "users": ["ria"], "columns": ["Moods.score", "age"], "most_epsilon": 1, "most_total": 1,
        "outputs": [{"name": "n", "lower": 0, "upper": 1}],
    }  # fmt: skip
    assert read_rule(read, shape, ("r", "owner", "")).columns == ("moods.score", "age")
    with pytest.raises(Refused):
        read_rule(read, {**shape, "columns": ["sites.site"]}, ("r", "owner", ""))
