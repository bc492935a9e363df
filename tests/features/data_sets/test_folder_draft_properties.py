"""Whatever an owner's folder has: its files are whole on the card, name nobody, and stay the same.

What has somebody's id in it is known here, because the test itself has put it there.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.json_values import Json
from sfumato.engines.ingest.bids_draft import folder_draft
from sfumato.engines.ingest.source_errors import read_folder_draft
from sfumato.features.data_sets.card_proposal import proposed_folder_card
from sfumato.features.pipelines.program_plan import GROUP, PARTICIPANT, inside_at, read_program
from sfumato.features.synthetic.schema_twin import schema_tables
from sfumato.features.synthetic.twin_files import Stamp, twin_json
from sfumato.vault.card.data_card import Card, read_card
from support.whole_bids_folders import write_json, write_people

STAMPED = {"dataset_description.json", "TWIN.json", ".bidsignore"}
OUTPUTS = [{"name": "n", "lower": 0, "upper": 1, "step": 1, "path": "n.txt", "at": [0]}]
WORDS = st.text("abcdefgÄß \"'\\{}#=[]", min_size=0, max_size=12)
NAMES = st.text("ABCDEFG xyzß.\"'", min_size=1, max_size=8).filter(str.strip)
NUMBERS = st.integers(-(10**6), 10**6) | st.floats(-1e9, 1e9).filter(lambda n: n == n)
JSON = st.recursive(
    WORDS | NUMBERS | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.dictionaries(NAMES, JSON, max_size=4)
IDS = st.lists(
    st.text("0123456789abc", min_size=6, max_size=9).map("sub-q{}".format),
    min_size=6,
    max_size=9,
    unique=True,
)


@st.composite
def folders(draw: st.DrawFn) -> Json:
    """Return a folder's ids and files; those under `wrong` have an id in them and nothing else."""
    ids = draw(IDS)
    bad = draw(st.sampled_from(ids))
    said = draw(st.sampled_from([bad, bad.upper(), bad.removeprefix("sub-"), f"See {bad}."]))
    lines = draw(st.lists(WORDS, max_size=5))
    return {
        "ids": ids,
        "wrong": {"Wrong": draw(st.sampled_from([said, [1, said], [{"deep": {said: 1}}]]))},
        "description": draw(FIELDS),
        "task-rest_bold.json": draw(FIELDS),
        "age": draw(FIELDS),
        "lines": lines,
        "said": said,
        "place": draw(st.integers(0, len(lines))),
        "encoding": draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16"])),
    }


def drafted(found: Mapping[str, Any], ids: list[str]) -> Json:
    """Write the folder with these people, and return the card that is proposed for it."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "study")
        write_people(folder, ids, derivatives=False)
        wrong, encoding = found["wrong"], found["encoding"]
        write_json(folder / "dataset_description.json", {**found["description"], **wrong}, encoding)
        sidecar = found["task-rest_bold.json"]
        write_json(folder / "task-rest_bold.json", {**sidecar, "In": wrong}, encoding)
        write_json(folder / "participants.json", {"age": {**found["age"], **wrong}}, encoding)
        lines = list(found["lines"])
        lines.insert(found["place"], found["said"])
        (folder / "README").write_text("\n".join(lines), encoding, newline="\n")
        told = folder_draft({"folder": str(folder)})
    shape = proposed_folder_card("study", read_folder_draft(json.loads(json.dumps(told))))
    bids: Any = shape["bids"]
    return {**shape, "budget": {"epsilon": 1}, "bids": {**bids, "people": 20}}


def looks_alike(card: Card) -> dict[str, str]:
    stamp = Stamp("schema-twin", card.name, card.version, "schema-only", "made up", {})
    files: Any = twin_json(card, stamp, schema_tables(card, 3, "s"))["files"]
    return {path: text for path, text in files.items() if "sub-" not in path and path[-3:] != "tsv"}


def in_blocks(card: Card, level: str) -> dict[str, str]:
    shape = {"source": "1", "kind": "bids", "name": "group", "outputs": OUTPUTS}
    files: Any = inside_at(read_program(card, shape, ""), card, level)["study"]
    return dict(files)


def without_stamps(files: Mapping[str, str]) -> dict[str, str]:
    return {path: text for path, text in files.items() if path not in STAMPED}


@settings(max_examples=60)
@given(folders())
def test_a_folders_files_are_whole_name_nobody_and_are_the_same_everywhere(found: Json) -> None:
    asked: Any = found
    ids: list[str] = asked["ids"]
    card = read_card("study", drafted(asked, ids))
    twin, block = looks_alike(card), in_blocks(card, GROUP)
    assert block == in_blocks(card, PARTICIPANT)
    assert without_stamps(twin) == without_stamps(block)
    # whole
    description = json.loads(block["dataset_description.json"])
    own = {**{key: description[key] for key in ("Name", "BIDSVersion")}, **asked["description"]}
    assert {**own, "DatasetType": description["DatasetType"]} == description
    if asked["task-rest_bold.json"]:
        assert json.loads(block["task-rest_bold.json"]) == asked["task-rest_bold.json"]
    meaning = json.loads(block["participants.json"])["age"]
    assert {key: meaning[key] for key in asked["age"]} == asked["age"]
    if "".join(asked["lines"]).strip():
        assert block["README"] == "\n".join(asked["lines"])
    # of nobody
    everything = "\n".join([*twin, *twin.values(), *block, *block.values()]).casefold()
    assert not [one for one in ids if one in everything or one.removeprefix("sub-") in everything]
    # of the card alone: who leaves changes nothing
    left = [one for one in ids if one.removeprefix("sub-") not in asked["said"].casefold()]
    fewer = read_card("study", drafted(asked, [*left[1:], *set(ids).difference(left)]))
    assert in_blocks(fewer, GROUP) == block
    assert looks_alike(fewer) == twin
