"""The `sfumato twin` command: create synthetic data."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from sfumato.cli.shell import Shell, command, number, working
from sfumato.client import DataSet
from sfumato.features.anonymization import TableFile
from sfumato.features.anonymization.report_text import leak_lines
from sfumato.features.synthetic.client import Twin
from sfumato.system.temporary_folders import temporary_folder
from sfumato.wire.query_json import Json


@click.command("twin")
@click.argument("name")
@click.option("--for", "question", metavar="SQL", help="Rows that pass this question's filters.")
@click.option("--rows", type=click.IntRange(1, 10**6), help="About so many in its own table.")
@click.option("--seed", metavar="TEXT", help="The same seed gives the same twin.")
@click.option("--epsilon", metavar="E", help="Make a DP twin at this price, from private counts.")
@click.option("--delta", metavar="D", help="Of a DP twin; left out, it is the card's.")
@click.option("--method", type=click.Choice(["independent", "mst", "aim"]), help="Of a DP twin.")
@click.option("--op", metavar="ID", help="Of a DP twin: a retry with it pays once.")
@click.option(
    "--private-bins",
    multiple=True,
    metavar="COLUMN",
    help="Of a DP twin: measure this column's bins too; a tenth of its table's price. Repeatable.",
)
@click.option(
    "--error-epsilon",
    metavar="E",
    help="Of a DP twin: measure besides, at this price, how far it is off.",
)
@click.option("--price", is_flag=True, help="Say what a DP twin would cost; nothing is spent.")
@click.option(
    "--original",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="The owner's own file of rows: say, to the owner alone, what the twin has kept of them.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="A .zip, or a new folder; what the twin is (schema-twin, dp-twin) is put into its name.",
)
@command
def twin(shell: Shell, name: str, output: str | None, **options: Any) -> None:
    """Make a look-alike of a data set: from its card alone, free; or at a price, from counts.

    With --original the twin is compared, once it is written, with real rows. What that says was
    computed without noise: it is for whoever owns the rows, and stands in no file.
    """
    _check(options)
    if options["price"]:
        _show_price(shell, name, options)
        return
    if output is None:
        raise click.UsageError("-o says where the twin is written: a .zip, or a new folder.")
    with shell.open() as vault, working("Making the twin"):
        made = _made(DataSet(vault, name), options)
        person = str(DataSet(vault, name).card["unit"])
    place = made.save(output)
    shape: Json = {"file": str(place), "stamp": made.stamp}
    lines = [repr(made), f"written: {place}" + _said(place, output)]
    if options["original"] is not None:
        found = _kept(shell, made, options["original"], person)
        shape, lines = {**shape, "leaks": found}, [*lines, "", *leak_lines(found)]
    shell.show(shape, "\n".join(lines))


def _said(place: Path, asked: str) -> str:
    """Return a note if the twin was written to another name than asked for."""
    return "" if place == Path(asked) else " (its name says what it is)"


def _kept(shell: Shell, made: Twin, original: str, person: str) -> Json:
    """Compare the twin's first table with the original rows, without the person column."""
    rows = made.rows()
    names = [name for name in rows[0] if name.casefold() != person.casefold()]
    with temporary_folder() as folder, working("Comparing"):
        place = folder / "twin.csv"
        with place.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, names, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
        found: Json = shell.app.anonymity().leaks(TableFile(original), TableFile(str(place)), None)
    return found


def _check(options: Mapping[str, Any]) -> None:
    words = ("delta", "method", "op", "private-bins", "error-epsilon", "price")
    paid = [word for word in words if options[word.replace("-", "_")]]
    if options["epsilon"] is None and paid:
        raise click.UsageError(f"--{paid[0]} is for a DP twin: give --epsilon E too.")
    if options["epsilon"] is not None and options["question"] is not None:
        raise click.UsageError("--for is for a twin made from the card: leave --epsilon out.")


def _made(data_set: DataSet, options: Mapping[str, Any]) -> Twin:
    if options["epsilon"] is None:
        return data_set.twin(options["question"], rows=options["rows"], seed=options["seed"])
    return data_set.dp_twin(**_terms(options, ("rows", "seed", "op")))


def _terms(options: Mapping[str, Any], more: tuple[str, ...] = ()) -> Any:  # Any: of click
    terms: Any = {word: options[word] for word in ("method", *more)}
    for word in ("epsilon", "delta", "error_epsilon"):
        terms[word] = None if options[word] is None else number(options[word], word)
    terms["private_bins"] = list(options["private_bins"]) or None
    return {word: value for word, value in terms.items() if value is not None}


def _show_price(shell: Shell, name: str, options: Mapping[str, Any]) -> None:
    """Print a DP twin's price, its measured columns, and the share for private bins."""
    with shell.open() as vault:
        told = DataSet(vault, name).dp_twin_price(**_terms(options))
    shell.show(told.shape, repr(told))


COMMANDS = (twin,)
