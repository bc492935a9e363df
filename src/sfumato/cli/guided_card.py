"""Propose a data card from column names and types, never from values."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from sfumato.cli.shell import Shell, show_elapsed
from sfumato.dp.refusal import Refused


def guided_card(shell: Shell, vault: Any, name: str, source: str, table: str | None) -> None:
    """Write a draft data card into the current folder, and print what to do next."""
    target = Path(f"{name}.card.toml")
    typed = f"sfumato add {name} {shlex.quote(source)} --card {target}{shell.named}"
    if target.exists():
        raise Refused(
            "data-set-exists",
            f"{target} exists already.",
            f"Fill it in and run: {typed}",
        )
    with show_elapsed("Reading the columns"):
        found = vault.proposed(name, source, *([table] if table else []))
    columns = [(column["name"], column["type"]) for column in found["columns"]]
    _write(target, proposed(name, columns, found["card"]))
    shell.show(
        {"proposed": str(target), "columns": [list(pair) for pair in columns]},
        f"Wrote {target} with {len(columns)} columns.\n"
        "Fill in the people, the budget and public bounds. Take them from what you know, "
        "never\n"
        f"from the rows. Then run: {typed}",
    )


def _write(target: Path, text: str) -> None:
    with suppress(OSError):
        target.write_text(text, "utf-8")
        return
    raise Refused(
        "bad-request",
        f"sfumato cannot write {target} here.",
        "Run the command in a folder where you may write.",
    )


def proposed(name: str, columns: list[tuple[str, str]], card: Mapping[str, Any]) -> str:
    """Return the text of a draft data card, with the file formats that were detected."""
    unit = str(card.get("unit", ""))
    lines = [
        f"# The data card of {name!r}. Everything in this file is public. Nobody can see or",
        "# query a column that is not listed here. Take bounds and keys from knowledge, "
        "never from rows.",
        *([] if unit else _OPEN),
        f"unit = {_quoted(unit)}        # privacy unit: the column that identifies a person, "
        'or "row"',
        f"people = {_quoted(name)}        # data sets about the same people need the same "
        "name; they share one budget",
        'version = "1"',
        "# budget = { epsilon = 1.0, delta = 0 }        # required; it holds for ever",
        'nulls = ["", "n/a", "NA"]',
    ]
    if "encoding" in card:
        lines += [f"encoding = {_quoted(card['encoding'])}        # of the file"]
    lines += [*_BOUNDS, "", "[ask]", 'who = ["researchers"]']
    lines += _folder(card["bids"]) if "bids" in card else []
    for column, kind in columns:
        lines += [
            "",
            f"[columns.{_quoted(column)}]",
            *_column(kind, card["columns"].get(column, {})),
        ]
    return "\n".join(lines) + "\n"


_OPEN: Final = [
    "# Which column identifies a person? sfumato cannot tell from the names. Write the column",
    '# here, or "row" if each row is a different person. Without it, the card is refused.',
]
_DOUBT: Final = (
    '        # 1.234 is read as about one; if it means 1,234, write: decimal = ",", thousands = "."'
)
_BOUNDS: Final = [
    "",
    "# Contribution bounds: rows of a person beyond them are dropped, and error bars do not show",
    "# that. Larger bounds mean more noise. A question can set its own (--max-groups).",
    "max_groups = 1        # groups of a GROUP BY per person",
    "max_rows = 1        # rows per person in each group",
    "# limits = { rows_per_person = 1 }        # if nobody has more rows, nothing is dropped",
]


def _folder(bids: Mapping[str, Any]) -> list[str]:
    """Return the lines of a draft card for a folder with files of each person."""
    files = ", ".join(map(_quoted, bids["files"]))
    return [
        "",
        "[bids]",
        f"files = [{files}]        # files of each person that programs may read",
        "# people =        # required: more people than this are refused; a public bound",
        "# person_mb = 4        # the most megabytes of one person's files",
    ]


def _column(kind: str, found: Mapping[str, Any]) -> list[str]:
    if found.get("hidden"):
        return ["hidden = true"]
    lines = [f"type = {_quoted(kind)}"]
    formats = ("decimal", "thousands", "format")
    lines += [f"{key} = {_quoted(found[key])}" for key in formats if key in found]
    if found.get("decimal") == "." and "thousands" not in found:
        lines[-1] += _DOUBT
    if kind in ("integer", "number"):
        lines += ["# lower =        # SUM needs both bounds", "# upper ="]
        lines += (
            ["# step =         # values are multiples of it: 1, 0.01, ..."]
            if kind == "number"
            else []
        )
    if kind == "text":
        lines += [
            '# keys = ["...", "..."]        # public keys; without them, only keys of '
            "many people are shown"
        ]
    return lines


def _quoted(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False)
