"""Propose a data card from column names and types, never from values."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from sfumato.cli.bids_card_text import bids_lines
from sfumato.cli.shell import Shell, show_elapsed
from sfumato.cli.toml_text import quoted, toml_value
from sfumato.dp.refusal import Refused


def guided_card(shell: Shell, vault: Any, name: str, source: str, table: str | None) -> None:
    """Write a draft data card into the current folder, and print what to do next."""
    check_no_draft(shell, name, source, table)
    with show_elapsed("Reading the columns"):
        found = vault.proposed(name, source, *([table] if table else []))
    write_draft(shell, found, name, add_command(shell, name, source, table))


def draft_path(name: str) -> Path:
    """Return the path of the draft of a data card, in the current folder."""
    return Path(f"{name}.card.toml")


def check_no_draft(shell: Shell, name: str, source: str, table: str | None) -> None:
    """Refuse to propose a card if its draft is there already."""
    target = draft_path(name)
    if target.exists():
        raise Refused(
            "data-set-exists",
            f"{target} exists already.",
            f"Fill it in and run: {add_command(shell, name, source, table)}",
        )


def write_draft(shell: Shell, found: Mapping[str, Any], name: str, typed: str) -> None:
    """Write a proposed card as a draft, and print the next command, which is `typed`."""
    target = draft_path(name)
    columns = [(column["name"], column["type"]) for column in found["columns"]]
    card = _with_markers(found["card"], found["columns"])
    write_card(target, proposed(name, columns, card, found.get("tables", {})))
    notes = {key: found[key] for key in ("label", "notes") if found.get("notes")}
    shell.show(
        {"proposed": str(target), "columns": [list(pair) for pair in columns], **notes},
        f"Wrote {target} with {len(columns)} columns.\n"
        + _public(found["card"].get("bids", {}))
        + _notes(notes)
        + "Fill in the people, the budget and public bounds. Take them from what you know, "
        "never\n"
        f"from the rows. Then run: {typed}",
    )


def add_command(shell: Shell, name: str, source: str, table: str | None) -> str:
    """Return the command that adds the data set with the card of the draft."""
    within = "" if table is None else f" --table {shlex.quote(table)}"
    place = shlex.quote(source)
    return f"sfumato add {name} {place}{within} --card {draft_path(name)}{shell.named}"


def _with_markers(
    card: Mapping[str, Any], columns: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Add to the columns of a proposed card the words for missing values that were found."""
    odd = {one["name"]: one["markers"] for one in columns if one.get("markers")}
    shapes = {
        name: {**shape, **({"markers": odd[name]} if name in odd else {})}
        for name, shape in card["columns"].items()
    }
    return {**card, "columns": shapes}


def _public(bids: Mapping[str, Any]) -> str:
    """Return a line that names the files of a folder that the draft makes public; "" for none."""
    names = [*(["dataset_description.json"] if "description" in bids else [])]
    names += [*bids.get("texts", {}), *bids.get("sidecars", {})]
    if not names:
        return ""
    return f"These files become public with the card: {', '.join(names)}. Read them in the draft.\n"


def _notes(found: Mapping[str, Any]) -> str:
    """Return the owner's report of what was left out of the draft; "" if nothing was."""
    if not found:
        return ""
    lines = [f"  {note['where']}: {note['why']}" for note in found["notes"]]
    head = f"Left out of the draft, or to be checked ({found['label']}):"
    return "\n".join([head, *lines]) + "\n"


def write_card(target: Path, text: str) -> None:
    """Write a data card to a file; refuse a place where sfumato may not write."""
    with suppress(OSError):
        target.write_text(text, "utf-8")
        return
    raise Refused(
        "bad-request",
        f"sfumato cannot write {target} here.",
        "Run the command in a folder where you may write.",
    )


def proposed(
    name: str,
    columns: list[tuple[str, str]],
    card: Mapping[str, Any],
    tables: Mapping[str, list[list[str]]] | None = None,
) -> str:
    """Return the text of a draft data card, with the file formats that were detected.

    Args:
        name: The name of the data set.
        columns: The names and types of the main table's columns.
        card: The proposed card.
        tables: The names and types of the columns of a BIDS folder's further tables, by table.
    """
    unit = str(card.get("unit", ""))
    lines = [
        f"# The data card of {name!r}. Everything in this file is public. Nobody can see or",
        "# query a column that is not listed here. Take bounds and keys from knowledge, "
        "never from rows.",
        *([] if unit else _OPEN),
        f"unit = {quoted(unit)}        # privacy unit: the column that identifies a person, "
        'or "row"',
        f"people = {quoted(name)}        # data sets about the same people need the same "
        "name; they share one budget",
        'version = "1"',
        "# budget = { epsilon = 1.0, delta = 0 }        # required; it holds for ever",
        'nulls = ["", "n/a", "NA"]        # cells that count as empty; in BIDS, n/a',
        "# missing = 0.1 in a column says how many of its values are empty, from knowledge. In",
        "# synthetic data (twins), as many are missing: 5 % if you say nothing.",
    ]
    if "encoding" in card:
        lines += [f"encoding = {quoted(card['encoding'])}        # of the file"]
    lines += [*_BOUNDS, "", "[ask]", 'who = ["researchers"]']
    sidecars = card.get("bids", {}).get("sidecars", {})
    lines += bids_lines(card["bids"]) if "bids" in card else []
    meanings = sidecars.get("participants.json", {})
    lines += _columns("columns", columns, card["columns"], meanings)
    for table, pairs in (tables or {}).items():
        own = card["tables"][table]
        meanings = sidecars.get(f"phenotype/{table}.json", {})
        lines += ["", f"[tables.{quoted(table)}]", "max_rows = 1        # rows per person"]
        lines += [f"encoding = {quoted(own['encoding'])}"] if "encoding" in own else []
        kinds = [(column, kind) for column, kind in pairs]
        where = f"tables.{quoted(table)}.columns"
        lines += _columns(where, kinds, own["columns"], meanings)
    return "\n".join(lines) + "\n"


def _columns(
    where: str,
    columns: list[tuple[str, str]],
    card: Mapping[str, Any],
    meanings: Mapping[str, Any],
) -> list[str]:
    """Return the lines of a table's columns; `meanings` is what its BIDS sidecar says of them."""
    lines = []
    for column, kind in columns:
        levels = meanings.get(column, {})
        levels = levels.get("Levels", {}) if isinstance(levels, Mapping) else {}
        found = {**card.get(column, {}), "levels": list(levels)}
        lines += ["", f"[{where}.{quoted(column)}]", *_column(kind, found)]
    return lines


_OPEN: Final = [
    "# Which column identifies a person? sfumato cannot tell from the names. Write the column",
    '# here, or "row" if each row is a different person. Without it, the card is refused.',
]
_DOUBT: Final = (
    '        # 1.234 is read as about one; if it means 1,234, write: decimal = ",", thousands = "."'
)
_ASSUMED: Final = "        # assumed from the words of the sampled cells: correct it if it is wrong"
_FOUND: Final = "# cells say so: are they missing? Then remove the first #"
_BOUNDS: Final = [
    "",
    "# Contribution bounds: rows of a person beyond them are dropped, and error bars do not show",
    "# that. Larger bounds mean more noise. A question can set its own (--max-groups).",
    "max_groups = 1        # groups of a GROUP BY per person",
    "max_rows = 1        # rows per person in each group",
    "# limits = { rows_per_person = 1 }        # if nobody has more rows, nothing is dropped",
]


def _column(kind: str, found: Mapping[str, Any]) -> list[str]:
    if found.get("hidden"):
        return ["hidden = true"]
    lines = [f"type = {quoted(kind)}"]
    formats = ("decimal", "thousands", "format")
    lines += [f"{key} = {quoted(found[key])}" for key in formats if key in found]
    lines += [f"{key} = {toml_value(found[key])}" for key in ("true", "false") if key in found]
    if "true" in found:
        lines[-2] += _ASSUMED
    if found.get("decimal") == "." and "thousands" not in found:
        lines[-1] += _DOUBT
    if found.get("markers"):
        words = ", ".join(map(quoted, found["markers"]))
        lines += [f"# nulls = [{words}]        {_FOUND}"]
    if kind in ("integer", "number"):
        lines += ["# lower =        # SUM needs both bounds", "# upper ="]
        lines += (
            ["# step =         # values are multiples of it: 1, 0.01, ..."]
            if kind == "number"
            else []
        )
    if kind == "text" and found.get("levels"):
        keys = ", ".join(map(quoted, found["levels"]))
        lines += [f"# keys = [{keys}]        # the levels of the BIDS sidecar, as public keys"]
    elif kind == "text":
        lines += [
            '# keys = ["...", "..."]        # public keys; without them, only keys of '
            "many people are shown"
        ]
    return lines
