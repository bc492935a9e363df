"""Propose a data card from column names and types, never from values."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from sfumato.cli.shell import Shell, working
from sfumato.dp.refusal import Refused


def guided_card(shell: Shell, vault: Any, name: str, source: str, table: str | None) -> None:
    """Write a draft card into the current folder, and print what to do next."""
    target = Path(f"{name}.card.toml")
    typed = f"sfumato add {name} {shlex.quote(source)} --card {target}{shell.named}"
    if target.exists():
        raise Refused(
            "data-set-exists",
            f"{target} is there already.",
            f"Fill it in and run: {typed}",
        )
    with working("Reading the columns"):
        found = vault.proposed(name, source, *([table] if table else []))
    columns = [(column["name"], column["type"]) for column in found["columns"]]
    _write(target, proposed(name, columns, found["card"]))
    shell.show(
        {"proposed": str(target), "columns": [list(pair) for pair in columns]},
        f"Wrote {target} with {len(columns)} columns.\n"
        "Fill in who the people are, the budget, and public bounds: from knowledge, never by\n"
        f"looking at the rows. Then: {typed}",
    )


def _write(target: Path, text: str) -> None:
    with suppress(OSError):
        target.write_text(text, "utf-8")
        return
    raise Refused(
        "bad-request", f"{target} cannot be written here.", "Do it in a folder of your own."
    )


def proposed(name: str, columns: list[tuple[str, str]], card: Mapping[str, Any]) -> str:
    """Return the text of a draft card; file formats are filled in as detected."""
    unit = str(card.get("unit", ""))
    lines = [
        f"# The card of {name!r}. What stands here is public; a column that is not here does not",
        "# exist for anyone. Bounds and keys come from what you know, never from the rows.",
        *([] if unit else _OPEN),
        f'unit = {_quoted(unit)}        # a column that names the person, or "row"',
        f"people = {_quoted(name)}        # whose budget is spent; the same people, the same name",
        'version = "1"',
        "# budget = { epsilon = 1.0, delta = 0 }        # for ever; the card is refused without",
        'nulls = ["", "n/a", "NA"]',
    ]
    if "encoding" in card:
        lines += [f"encoding = {_quoted(card['encoding'])}        # of the file"]
    lines += [*_BOUNDS, "", "[ask]", 'who = ["researchers"]']
    for column, kind in columns:
        lines += [
            "",
            f"[columns.{_quoted(column)}]",
            *_column(kind, card["columns"].get(column, {})),
        ]
    return "\n".join(lines) + "\n"


_OPEN: Final = [
    "# Who is protected? No name of a column tells for sure which one names the person. Write it",
    '# here; or "row", if each row is another person. The card is refused until you do.',
]
_DOUBT: Final = (
    "        # 1.234 is read as about one; if it is a thousand and more: "
    'decimal = ",", thousands = "."'
)
_BOUNDS: Final = [
    "",
    "# How much does one person have? What is beyond these bounds is cut, and no error bar says",
    "# by how much; larger ones mean more noise. A question may set its own (--max-groups).",
    "max_groups = 1        # groups of a GROUP BY that a person counts in",
    "max_rows = 1        # rows of a person that count, in each group",
    "# limits = { rows_per_person = 1 }        # if nobody has more rows: then nothing can be cut",
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
        lines += ["# lower =        # without both bounds it cannot be summed", "# upper ="]
        lines += ["# step =         # the grid: 1, 0.01, ..."] if kind == "number" else []
    if kind == "text":
        lines += [
            '# keys = ["...", "..."]        # public; without them only keys of many people show'
        ]
    return lines


def _quoted(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False)
