"""The researcher's commands: data sets, card, price, ask, budget, history, answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import click

from sfumato.cli.shell import Shell, command, number, pairs_of, show_elapsed
from sfumato.client import Answer, DataSet
from sfumato.client.plot import check_picture
from sfumato.client.text_tables import table_text
from sfumato.dp.refusal import Refused

_NO_DATA_SET: Final = (
    "There is no data set that you may ask. A researcher asks the owner of a data set for access. "
    "An owner publishes one with `sfumato add`."
)


@click.command("datasets")
@command
def data_sets(shell: Shell) -> None:
    """List the data sets that you may ask."""
    with shell.open() as vault:
        cards = vault.call("data-sets", {})["data_sets"]
    rows = [[c["name"], c["version"], c["people"], f"{c['budget']['epsilon']:g}"] for c in cards]
    text = "\n".join(table_text(["data set", "version", "people", "epsilon"], rows))
    shell.show({"data_sets": cards}, text if rows else _NO_DATA_SET)


@click.command("card")
@click.argument("name")
@command
def card(shell: Shell, name: str) -> None:
    """Show the data card: what the owner declared about a data set."""
    with shell.open() as vault:
        shown = DataSet(vault, name).card
    shell.show(shown.shape, repr(shown))


def terms(function: Callable[..., None]) -> Callable[..., None]:
    """Add to a command the arguments of a question and the options of its price."""
    for option in reversed(
        (
            click.argument("name"),
            click.argument("sql"),
            click.option(
                "--epsilon", metavar="E", help="The price of the whole question, in epsilon."
            ),
            click.option(
                "--error",
                multiple=True,
                metavar="COLUMN=X",
                help="Instead of --epsilon, the error that you want: +-X at 95 %.",
            ),
            click.option(
                "--delta",
                metavar="D",
                help="The delta that may be spent, only where it reduces noise.",
            ),
            click.option(
                "--people",
                type=int,
                help="Your guess of a group's size, to predict the error of means.",
            ),
            click.option("--max-groups", type=int, help="Contribution bound: groups per person."),
            click.option(
                "--max-rows", type=int, help="Contribution bound: rows per person and group."
            ),
            click.option(
                "--split",
                multiple=True,
                metavar="COLUMN=X",
                help="The share of the price for this column, relative to the other columns.",
            ),
            click.option(
                "--top-up",
                metavar="ID",
                help="Raise your earlier answer with this operation id to --epsilon in all.",
            ),
        )
    ):
        function = option(function)
    return function


@click.command("price")
@terms
@command
def price(shell: Shell, **options: Any) -> None:
    """Predict the price and the error of a question; nothing is spent."""
    body = _body(options)
    with shell.open() as vault:
        shown = DataSet(vault, options["name"]).price(options["sql"], **body)
    shell.show(shown.shape, repr(shown))


@click.command("ask")
@terms
@click.option(
    "--op", metavar="ID", help="Your id for this request. A retry with the same id is charged once."
)
@click.option(
    "--fresh", is_flag=True, help="Draw new noise and pay, even if the question has a free answer."
)
@click.option(
    "--plot", metavar="FILE", help="Also save a picture of the answer: .svg, .png or .html."
)
@command
def ask(shell: Shell, **options: Any) -> None:
    """Ask a question in SQL; the private answer is charged to the budget."""
    body = _body(options)
    if options["plot"]:
        check_picture(options["plot"])
    with shell.open() as vault, show_elapsed("Asking"):
        answer = DataSet(vault, options["name"]).ask(
            options["sql"], **body, op=options["op"], fresh=options["fresh"]
        )
    shell.show(answer_shape(answer), repr(answer))
    if options["plot"]:
        draw(answer, options["plot"])


def answer_shape(answer: Answer) -> dict[str, object]:
    """Return an answer as JSON: columns, rows, errors, intervals and receipt."""
    return {
        "columns": answer.columns,
        "rows": answer.rows,
        "std": answer.std,
        "interval": [[_ends(bar) for bar in row] for row in answer.interval],
        "guarantee": answer.guarantee,
        "receipt": answer.receipt,
        **({"arrays": answer.arrays} if answer.arrays else {}),
        **({"warnings": answer.warnings} if answer.warnings else {}),
    }


def _ends(bar: tuple[float, float] | None) -> list[float | None] | None:
    """Return the ends of a confidence interval as JSON; an infinite end becomes null."""
    return None if bar is None else [end if math.isfinite(end) else None for end in bar]


def draw(answer: Answer, path: str) -> None:
    """Save the plot of an answer, and print its path.

    A failure is only printed, because the answer is already paid.
    """
    try:
        answer.plot().save(path)
        click.echo(f"picture: {path}", err=True)
    except (Refused, OSError) as error:
        click.echo(f"no picture: {error}", err=True)


@click.command("budget")
@click.argument("name")
@command
def budget(shell: Shell, name: str) -> None:
    """Show the privacy budget: cap, spent and left."""
    with shell.open() as vault:
        shown = DataSet(vault, name).budget
    shell.show(shown.shape, repr(shown))


def _body(options: dict[str, Any]) -> dict[str, Any]:
    if (options["epsilon"] is None) == (not options["error"]):
        raise click.UsageError("Give either --epsilon E or --error COLUMN=X.")
    body = {
        "epsilon": _number(options, "epsilon"),
        "error": pairs_of(options["error"], "error"),
        "split": pairs_of(options["split"], "split"),
        "delta": _number(options, "delta"),
        "people": options["people"],
        "max_groups": options["max_groups"],
        "max_rows": options["max_rows"],
        "top_up": options["top_up"],
    }
    return {key: value for key, value in body.items() if value is not None}


def _number(options: dict[str, Any], name: str) -> Any:
    return None if options[name] is None else number(options[name], name)


@click.command("history")
@click.option("--last", type=click.IntRange(1, 1000), default=50, show_default=True)
@command
def history(shell: Shell, last: int) -> None:
    """List your questions, newest first."""
    with shell.open() as vault:
        shown = vault.history(last)
    shell.show(shown.shape, repr(shown))


@click.command("answer")
@click.argument("op", metavar="OPERATION")
@command
def answer(shell: Shell, op: str) -> None:
    """Show an earlier answer of yours again, by its operation id; free."""
    with shell.open() as vault:
        found = vault.answer(op)
    shell.show(answer_shape(found), repr(found))


COMMANDS = (data_sets, card, price, ask, budget, history, answer)
