"""Write the part of a draft data card that publishes the files of a BIDS folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from sfumato.cli.toml_text import has_null, quoted, toml_key, toml_lines, toml_value

Fields = Mapping[str, Any]  # Any: JSON of the owner's files
_HEAD: Final = (
    "",
    "# The BIDS folder. All of this becomes public. Take out what should not.",
    "[bids]",
    "# people = 100        # required: the most people, from knowledge, a little above the number",
    "# person_mb = 4        # the most megabytes of one person's files",
)
_FILES: Final = (
    "# people's files that programs read; those of an earlier program are in derivatives"
)


def bids_lines(bids: Fields) -> list[str]:
    """Return the lines of a draft card for [bids]: files, description, texts and sidecars."""
    description, texts = bids.get("description", {}), bids.get("texts", {})
    sidecars = bids.get("sidecars", {})
    lines = [*_HEAD, _FILES, "files = ["]
    lines += [f"    {quoted(pattern)}," for pattern in bids.get("files", [])] + ["]"]
    if has_null(description):
        lines.append(_as_json("description", description))
    elif description:
        lines += ["", "# dataset_description.json", "[bids.description]", *_fields(description)]
    if texts:
        lines += ["", "[bids.texts]"]
        lines += [f"{toml_key(name)} = {toml_lines(text)}" for name, text in texts.items()]
    if sidecars:
        lines += ["", "# JSON files of the whole data set: the fields that are public"]
        lines += ["[bids.sidecars]"]
        lines += [_as_json(path, one) for path, one in sidecars.items() if has_null(one)]
    for path, one in sidecars.items():
        if not has_null(one):
            lines += ["", f"[bids.sidecars.{quoted(path)}]", *_fields(one)]
    return lines


def _fields(fields: Fields) -> list[str]:
    return [f"{toml_key(name)} = {toml_value(value)}" for name, value in fields.items()]


def _as_json(name: str, fields: Fields) -> str:
    """Return the fields as JSON text, because TOML has no null."""
    text = json.dumps(fields, indent=1, ensure_ascii=False)
    return f"{toml_key(name)} = {toml_lines(text)}"
