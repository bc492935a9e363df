"""A draft card says the same as the JSON files and texts that it was drafted from."""

from __future__ import annotations

import json
import tomllib
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from sfumato.cli.bids_card_text import bids_lines
from sfumato.vault.card.bids_metadata import is_plain_text

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
JSON = st.recursive(
    TEXTS | NUMBERS | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.dictionaries(TEXTS, JSON, min_size=1, max_size=3)
LINES = st.text("ab\"\\\n\t'{}=[]#Ä", max_size=30).filter(is_plain_text)


@given(
    st.lists(st.sampled_from(["anat/{sub}_T1w.nii.gz", "{sub}_a.tsv"]), unique=True),
    FIELDS,
    st.dictionaries(st.sampled_from(["README", "README.md", "LICENSE"]), LINES),
    st.dictionaries(TEXTS.map("{}.json".format), FIELDS, max_size=3),
)
@example([], {"a": 1}, {"README": '"""', "LICENSE": 'a"""""b\\"', "README.md": '\\"""'}, {})
def test_what_a_draft_says_is_what_the_folder_said(
    files: list[str], description: dict[str, Any], texts: dict[str, str], sidecars: dict[str, Any]
) -> None:
    bids = {"files": files, "description": description, "texts": texts, "sidecars": sidecars}
    read = tomllib.loads("\n".join(bids_lines(bids)))["bids"]
    assert read["files"] == files
    assert fields(read["description"]) == description
    assert read.get("texts", {}) == texts
    assert {path: fields(one) for path, one in read.get("sidecars", {}).items()} == sidecars


def fields(read: Any) -> Any:
    """Return the fields of a JSON file, which are JSON text if TOML cannot say them."""
    return json.loads(read) if isinstance(read, str) else read
