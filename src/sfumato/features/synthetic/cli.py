"""The `sfumato twin` command: create synthetic data (a twin) from a card or from counts."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from sfumato.cli.shell import Shell, command, number, show_elapsed
from sfumato.client import DataSet
from sfumato.features.anonymization import TableFile
from sfumato.features.anonymization.report_text import leak_lines
from sfumato.features.synthetic.client import Twin
from sfumato.system.temporary_folders import temporary_folder
from sfumato.wire.query_json import Json


@click.command("twin")
@click.argument("name")
@click.option(
    "--for", "question", metavar="SQL", help="Make only rows that pass this question's filters."
)
@click.option(
    "--rows",
    type=click.IntRange(1, 10**6),
    help="The approximate number of rows of the data set's own table.",
)
@click.option("--seed", metavar="TEXT", help="The same seed gives the same twin.")
@click.option("--epsilon", metavar="E", help="Make a DP twin from private counts, at this price.")
@click.option(
    "--delta", metavar="D", help="The delta of a DP twin; by default that of the data card."
)
@click.option(
    "--method", type=click.Choice(["independent", "mst", "aim"]), help="How a DP twin is made."
)
@click.option(
    "--op", metavar="ID", help="Your id for this DP twin. A retry with the same id is charged once."
)
@click.option(
    "--private-bins",
    multiple=True,
    metavar="COLUMN",
    help="For a DP twin: also measure this column's bins, for a tenth of its table's price. "
    "Repeatable.",
)
@click.option(
    "--error-epsilon",
    metavar="E",
    help="For a DP twin: also measure its error, at this additional price.",
)
@click.option("--price", is_flag=True, help="Show the price of a DP twin; nothing is spent.")
@click.option(
    "--original",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="The original rows: report what the twin has kept of them. For their owner only.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="A .zip file or a new folder; its name gets the kind of twin (schema-twin or dp-twin).",
)
@command
def twin(shell: Shell, name: str, output: str | None, **options: Any) -> None:
    """Make synthetic data: from the card alone (free), or from private counts (at a price).

    The result, called a twin, has the tables and columns of the data set. With --original, the
    command compares the written twin with the real rows. This comparison has no noise: it is for
    the owner of the rows only, and no file contains it.
    """
    _check(options)
    if options["price"]:
        _show_price(shell, name, options)
        return
    if output is None:
        raise click.UsageError(
            "The command needs -o: a .zip file or a new folder for the synthetic twin."
        )
    with shell.open() as vault, show_elapsed("Making the twin"):
        made = _made(DataSet(vault, name), options)
        person = str(DataSet(vault, name).card["unit"])
    place = made.save(output)
    shape: Json = {"file": str(place), "stamp": made.stamp}
    lines = [repr(made), f"Written to {place}" + _said(place, output)]
    if options["original"] is not None:
        found = _kept(shell, made, options["original"], person)
        shape, lines = {**shape, "leaks": found}, [*lines, "", *leak_lines(found)]
    shell.show(shape, "\n".join(lines))


def _said(place: Path, asked: str) -> str:
    """Return a note if the synthetic twin was saved under another name than `asked`, else "".

    The kind of twin is added to the name.
    """
    return "" if place == Path(asked) else " (the kind of twin was added to the name)"


def _kept(shell: Shell, made: Twin, original: str, person: str) -> Json:
    """Compare the synthetic twin's first table with the original rows; return how much it leaks.

    The column that identifies people is left out of the comparison.
    """
    rows = made.rows()
    names = [name for name in rows[0] if name.casefold() != person.casefold()]
    with temporary_folder() as folder, show_elapsed("Comparing"):
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
        raise click.UsageError(
            f"--{paid[0]} works only for a DP twin (synthetic data made from private "
            "counts): also give --epsilon E."
        )
    if options["epsilon"] is not None and options["question"] is not None:
        raise click.UsageError(
            "--for works only for a twin made from the data card alone: leave --epsilon out."
        )


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
    """Print the price of a DP twin (synthetic data), its measured columns, and its private bins."""
    with shell.open() as vault:
        told = DataSet(vault, name).dp_twin_price(**_terms(options))
    shell.show(told.shape, repr(told))


COMMANDS = (twin,)
