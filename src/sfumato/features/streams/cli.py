"""The commands of streams (continual counting): owners open and close periods, others read."""

from __future__ import annotations

from typing import Any

import click

from sfumato.cli.researcher import answer_shape, draw
from sfumato.cli.shell import Shell, command, number, working
from sfumato.client import DataSet
from sfumato.client.plot import check_picture


@click.group("stream")
def stream() -> None:
    """Open a running count that goes on, close its days, show what is closed."""


@stream.command("open")
@click.argument("data_set")
@click.argument("name")
@click.argument("sql")
@click.option("--start", required=True, metavar="DATE", help="The first day of the first period.")
@click.option("--periods", required=True, type=int, help="How many days, weeks or months in all.")
@click.option("--rows", required=True, type=int, help="Rows of a person over all of them together.")
@click.option("--epsilon", required=True, metavar="E", help="The whole price; it is charged now.")
@command
def open_(shell: Shell, data_set: str, name: str, sql: str, **options: Any) -> None:
    """Fix the question, horizon and price of a stream for good, and pay for all of it."""
    options["epsilon"] = number(options["epsilon"], "epsilon")
    with shell.open() as vault:
        made = vault.open_stream(data_set, name, sql, **options)
    shell.show(
        made,
        f"Opened {made['stream']}: {made['says']}; {made['bounding']}.\n"
        f"Paid epsilon {made['epsilon']:g} for all {made['periods']:,} {made['unit']}s. "
        f"Error at 95 %: ± {made['error']['first']:,} on the first, "
        f"± {made['error']['worst']:,} at worst.\n"
        f"Next, when a {made['unit']} is over: "
        f"sfumato stream close {made['data_set']} {made['stream']} --until DATE{shell.named}",
    )


@stream.command("close")
@click.argument("data_set")
@click.argument("name")
@click.option("--until", required=True, metavar="DATE", help="The last day to close.")
@command
def close(shell: Shell, data_set: str, name: str, until: str) -> None:
    """Close the open days up to DATE, in order, for good; rows that come later never count."""
    with shell.open() as vault, working("Closing"):
        made = vault.close_days(data_set, name, until=until)
    shell.show(
        made,
        f"Closed {made['closed_now']:,} now; {made['closed']:,} of {made['of']:,} are closed, "
        f"the last that of {made['last']} (version {made['version']}).\n"
        f"Next: sfumato stream show {made['data_set']} {made['stream']}{shell.named}",
    )


@stream.command("show")
@click.argument("data_set")
@click.argument("name")
@click.option("--plot", metavar="FILE", help="Draw it too: .svg, .png or .html.")
@command
def show(shell: Shell, data_set: str, name: str, plot: str | None) -> None:
    """Show the running counts of what is closed, with their errors; free."""
    if plot:
        check_picture(plot)
    with shell.open() as vault:
        answer = DataSet(vault, data_set).stream(name)
    shell.show(answer_shape(answer), repr(answer))
    if plot:
        draw(answer, plot)


COMMANDS = (stream,)
