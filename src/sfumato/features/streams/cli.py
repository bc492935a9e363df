"""The commands of streams (continual counting): owners open and close periods, others read."""

from __future__ import annotations

from typing import Any

import click

from sfumato.cli.researcher import answer_shape, draw
from sfumato.cli.shell import Shell, command, number, show_elapsed
from sfumato.client import DataSet
from sfumato.client.plot import check_picture


@click.group("stream")
def stream() -> None:
    """Open a running count, close its days, show the closed days."""


@stream.command("open")
@click.argument("data_set")
@click.argument("name")
@click.argument("sql")
@click.option("--start", required=True, metavar="DATE", help="The first day of the first period.")
@click.option(
    "--periods", required=True, type=int, help="The total number of days, weeks or months."
)
@click.option(
    "--rows",
    required=True,
    type=int,
    help="Contribution bound: rows per person over all periods together.",
)
@click.option(
    "--epsilon",
    required=True,
    metavar="E",
    help="The price of the whole stream, in epsilon; it is charged now.",
)
@command
def open_(shell: Shell, data_set: str, name: str, sql: str, **options: Any) -> None:
    """Open a stream: its question, periods and price never change, and all of it is charged now."""
    options["epsilon"] = number(options["epsilon"], "epsilon")
    with shell.open() as vault:
        made = vault.open_stream(data_set, name, sql, **options)
    shell.show(
        made,
        f"Opened {made['stream']}: {made['says']}; {made['bounding']}.\n"
        f"Charged epsilon {made['epsilon']:g} for all {made['periods']:,} {made['unit']}s. "
        f"Error at 95 %: ± {made['error']['first']:,} on the first {made['unit']}, ± "
        f"{made['error']['worst']:,} at worst.\n"
        f"Next, once a {made['unit']} has ended: sfumato stream close {made['data_set']} "
        f"{made['stream']} --until DATE{shell.named}",
    )


@stream.command("close")
@click.argument("data_set")
@click.argument("name")
@click.option("--until", required=True, metavar="DATE", help="The last day to close.")
@command
def close(shell: Shell, data_set: str, name: str, until: str) -> None:
    """Close the open periods up to DATE for ever; rows that arrive later are not counted."""
    with shell.open() as vault, show_elapsed("Closing"):
        made = vault.close_days(data_set, name, until=until)
    shell.show(
        made,
        f"Closed {made['closed_now']:,} now; {made['closed']:,} of {made['of']:,} are "
        f"closed, the last one is {made['last']} (version {made['version']}).\n"
        f"Next: sfumato stream show {made['data_set']} {made['stream']}{shell.named}",
    )


@stream.command("show")
@click.argument("data_set")
@click.argument("name")
@click.option("--plot", metavar="FILE", help="Also save a picture: .svg, .png or .html.")
@command
def show(shell: Shell, data_set: str, name: str, plot: str | None) -> None:
    """Show the running counts of the closed periods, with their errors; free."""
    if plot:
        check_picture(plot)
    with shell.open() as vault:
        answer = DataSet(vault, data_set).stream(name)
    shell.show(answer_shape(answer), repr(answer))
    if plot:
        draw(answer, plot)


COMMANDS = (stream,)
