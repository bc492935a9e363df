"""Add an export in a standard (OMOP, FHIR, REDCap, BIDS) with a ready-made data card."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from sfumato.cli.guided_card import write_card
from sfumato.cli.shell import Shell, number, readable, show_elapsed
from sfumato.cli.toml_text import toml_key, toml_value
from sfumato.client.card_file import card_of
from sfumato.dp.refusal import Refused

if TYPE_CHECKING:
    from sfumato.client.ready_made import ExportTable, ReadExport, Terms

STANDARDS: Final = ("omop", "fhir", "redcap", "bids")
_CALLED: Final = {"redcap": "REDCap"}  # others are written in capitals
DELTA: Final = "1e-6"  # of a budget without one; private keys need a delta
_OWN: Final = "Computed from the rows; show it to nobody"
_INLINE: Final = ("budget", "limits")
_ONLY_HERE: Final = ("budget", "years", "missing", "only")
Publish = Callable[[str, Mapping[str, Any], Mapping[str, str]], None]


def check_no_export(options: Mapping[str, Any]) -> None:
    """Refuse options that only an export in a standard has."""
    if any(options[key] for key in _ONLY_HERE):
        raise click.UsageError("--budget, --years, --missing and --only are for --as")


def check_plain_source(options: Mapping[str, Any]) -> None:
    """Refuse options of `add` that an export in a standard does not have."""
    if options["table"] or options["tables"] or options["connections"]:
        raise click.UsageError("--table, --with and --connection do not go with --as")


def add_export(
    shell: Shell, name: str, source: str, options: Mapping[str, Any], publish: Publish
) -> None:
    """Read an export, and write its proposed card or publish it.

    Args:
        shell: The command's options.
        name: The name of the data set.
        source: The export: a folder, or a zip file.
        options: The options of `add`.
        publish: Adds files with a card: the main table's file, the card, the other tables' files.
    """
    from sfumato.client.ready_made import read_export, ready_made_card, terms_of_card

    check_plain_source(options)
    card = None if options["card"] is None else card_of(options["card"])
    if card is not None and any(options[key] for key in _ONLY_HERE):
        raise click.UsageError("with --card, the card says the budget, years, codes and tables")
    terms = _terms(options) if card is None else terms_of_card(card)
    if options["is_published"] and terms.budget is None:
        raise Refused(
            "bad-budget",
            "There is no budget, and only you can choose it.",
            "Add --budget EPSILON: 1 is strict, 10 is loose. It is for all answers together.",
        )
    target = Path(f"{name}.card.toml")
    is_draft = card is None and not options["is_published"]
    if is_draft and target.exists():
        raise Refused(
            "data-set-exists",
            f"{target} exists already.",
            f"Complete it and run: {_typed(shell, name, source, options)} --card {target}",
        )
    with (
        show_elapsed("Reading the export") as doing,
        read_export(options["standard"], source, terms) as export,
    ):
        made = ready_made_card(name, export, terms) if card is None else card
        if is_draft:
            write_card(target, draft_text(name, export, made))
            shell.show(*_proposed(shell, name, source, (options, export, made)))
            return
        if card is None:
            click.echo(readable(_text_of(name, export, made)), err=shell.as_json)
        doing.what = "Preparing the rows"
        own, tables = export.files(made)
        publish(own, made, tables)


def _terms(options: Mapping[str, Any]) -> Terms:
    from sfumato.client.ready_made import Terms

    budget = None
    if options["budget"]:
        epsilon, _, delta = options["budget"].partition(",")
        budget = number(epsilon, "--budget"), number(delta or DELTA, "--budget")
    first, last = 2000, datetime.now(UTC).year
    if options["years"]:
        found = re.fullmatch(r"(\d{4})-(\d{4})", options["years"])
        if found is None or found[1] > found[2]:
            raise click.BadParameter("write FIRST-LAST: 2010-2024", param_hint="--years")
        first, last = int(found[1]), int(found[2])
    return Terms(budget, (first, last), tuple(options["missing"]), tuple(options["only"]))


# --- what is shown -------------------------------------------------------------------------------


def _proposed(
    shell: Shell,
    name: str,
    source: str,
    found: tuple[Mapping[str, Any], ReadExport, Mapping[str, Any]],
) -> tuple[dict[str, object], str]:
    """Return as JSON and as text what was proposed, and what to do next."""
    options, export, card = found
    target, typed = f"{name}.card.toml", _typed(shell, name, source, options)
    has_budget = "" if "budget" in card else " --budget EPSILON"
    said: dict[str, object] = {
        "proposed": target,
        "standard": export.standard,
        "tables": [table.name or name for table in export.tables],
        "assumed": list(export.assumed),
        "left_out": list(export.left_out),
        "from_rows": list(export.from_rows),
    }
    text = (
        f"Wrote {target}.\n{_text_of(name, export, card)}\n"
        f"Publish it as it is: {typed}{_terms_typed(options)}{has_budget} --yes\n"
        f"Or change {target}, and then run: {typed} --card {target}"
    )
    return said, text


def _typed(shell: Shell, name: str, source: str, options: Mapping[str, Any]) -> str:
    return f"sfumato add {name} {shlex.quote(source)} --as {options['standard']}{shell.named}"


def _terms_typed(options: Mapping[str, Any]) -> str:
    """Return the options that were given, for the command that is proposed."""
    single = ((f"--{key}", options[key]) for key in ("budget", "years") if options[key])
    several = ((f"--{key}", one) for key in ("missing", "only") for one in options[key])
    return "".join(f" {option} {shlex.quote(one)}" for option, one in (*single, *several))


def _text_of(name: str, export: ReadExport, card: Mapping[str, Any]) -> str:
    """Return the proposed card in a few lines: its tables, what was assumed and left out."""
    lines = [
        f"A ready-made card for {_called(export)}. Everything on the card is public.",
        f"Privacy unit: the person, named by {export.unit} in every table of people.",
        f"A person counts in at most {card['max_groups']} groups of a GROUP BY.",
        "Tables:",
        *(f"  {line}" for line in _tables(name, export)),
    ]
    lines += _listed("Assumed; change it on the card if it is wrong:", export.assumed)
    lines += _listed("Not taken:", export.left_out)
    lines += _listed(f"{_OWN}:", export.from_rows)
    return "\n".join(lines)


def _called(export: ReadExport) -> str:
    return _CALLED.get(export.standard, export.standard.upper())


def _tables(name: str, export: ReadExport) -> Iterator[str]:
    own = export.tables[0]
    for table in export.tables:
        called = table.name if table is not own else name + (f" ({own.name})" if own.name else "")
        count = f"{called}: {len(table.columns)} columns"
        if table.key is not None:
            yield f"{count}, public, looked up by {table.key}"
        elif table.rows_per_person == 1:
            yield f"{count}, one row for each person"
        else:
            yield (
                f"{count}, {table.max_rows} rows of a person count in a group, of "
                f"{table.rows_per_person} that are kept"
            )


def _listed(title: str, lines: tuple[str, ...]) -> list[str]:
    return [title, *(f"  - {line}" for line in lines)] if lines else []


# --- the draft card ------------------------------------------------------------------------------


def draft_text(name: str, export: ReadExport, card: Mapping[str, Any]) -> str:
    """Return the text of the proposed card, with comments for its owner."""
    own, *others = export.tables
    lines = [
        f"# The data card of {name!r}, made for an export of {_called(export)}. All of it "
        "is public.",
        "# Take bounds and keys from knowledge, never from rows. Remove what should not be asked.",
        "# people: data sets about the same people need the same name; they share one budget.",
    ]
    if "budget" not in card:
        lines.append(f"# budget = {{ epsilon = 3, delta = {DELTA} }}        # required")
    lines += _plain(card)
    lines += ["", "[ask]", *_plain(card["ask"]), *_columns("columns", card["columns"], own)]
    for table in others:
        one, where = card["tables"][table.name], f"tables.{toml_key(table.name)}"
        lines += ["", f"[{where}]", *_plain(one)]
        lines += _columns(f"{where}.columns", one["columns"], table)
    return "\n".join(lines) + "\n"


def _plain(shape: Mapping[str, Any]) -> list[str]:
    return [
        f"{toml_key(key)} = {toml_value(value)}"
        for key, value in shape.items()
        if key in _INLINE or not isinstance(value, Mapping)
    ]


def _columns(where: str, columns: Mapping[str, Any], table: ExportTable) -> Iterator[str]:
    for column, body in columns.items():
        yield ""
        yield f"[{where}.{toml_key(column)}]"
        if column in table.comments:
            yield f"# {_one_line(table.comments[column])}"
        yield from _plain(body)


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
