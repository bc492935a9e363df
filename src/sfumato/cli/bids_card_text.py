"""Write the part of a draft data card that publishes a BIDS folder, and say what is public."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
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


def public_files(public: Fields, own: Fields) -> str:
    """Return lines that tell an owner which files of a BIDS folder a card has made public.

    Args:
        public: The data card, as everybody who may ask sees it.
        own: The owner's data card, as it was given.
    """
    fields, files = public.get("dataset_description"), public.get("bids_files", {})
    lines = []
    if fields:
        names = ", ".join(fields)
        lines.append(
            f"dataset_description.json is public, as part of the card. It contains {names}."
        )
    if files:
        lines.append(f"These files are public, as part of the card: {', '.join(files)}.")
    sidecars = own.get("bids", {}).get("sidecars", {})
    left_out = [
        f"{path}: {column}: {level}"
        for path, meanings in sidecars.items()
        for column, level in _levels(meanings)
        if (column, level) not in set(_levels(files.get(path, {})))
    ]
    if left_out:
        lines.append(f"Levels that are no keys of the card are left out: {'; '.join(left_out)}.")
    return "".join(f"{line}\n" for line in lines)


def _levels(meanings: Any) -> Iterator[tuple[str, str]]:  # Any: JSON of the owner's files
    """Yield each column of a sidecar with each of its levels."""
    read = json.loads(meanings) if isinstance(meanings, str) else meanings
    for column, meaning in read.items():
        levels = meaning.get("Levels") if isinstance(meaning, Mapping) else None
        yield from ((column, level) for level in levels or () if isinstance(levels, Mapping))
