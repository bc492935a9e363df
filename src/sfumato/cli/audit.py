"""`sfumato audit`: test the shipped mechanisms, the broken ones of the zoo, or your own program."""

from __future__ import annotations

from typing import Any

import click

from sfumato.cli.shell import REFUSED, Shell, command
from sfumato.dp.refusal import Refused


@click.command("audit")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--list", "listed", is_flag=True, help="Say what can be audited by its name.")
@click.option("--zoo", is_flag=True, help="Catch the broken mechanisms instead.")
@click.option(
    "--page",
    "path",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write the tables to this file: of all, or of NAME beside what is there already.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the auditor's dice."
)
@click.option(
    "--engine",
    "engines",
    multiple=True,
    metavar="ADDRESS",
    help="Ask on this engine too: Spark, or a PostgreSQL database that may keep the copies.",
)
@click.option(
    "--command",
    "program",
    metavar="'PROG {data}'",
    help="Audit a program of your own: {data} becomes the one input or the other.",
)
@click.option("--url", metavar="URL", help="Audit a service of your own; {data} as above.")
@click.option("--body", metavar="JSON", help="POST this to the URL; {data} as above.")
@click.option(
    "--header", "headers", multiple=True, metavar="'NAME: VALUE'|@FILE", help="Send it to the URL."
)
@click.option("--pair", nargs=2, metavar="D D2", help="The two inputs: one person apart.")
@click.option("--epsilon", type=click.FloatRange(0), metavar="E", help="What is claimed.")
@click.option("--delta", type=click.FloatRange(0, 1, max_open=True), default=0.0, metavar="D")
@click.option(
    "--runs",
    type=click.IntRange(256, 131_072),
    default=2048,
    show_default=True,
    help="Of your own, both sides together, at most.",
)
@click.option(
    "--rows-only", is_flag=True, help="Look at rows and refusal codes of a sfumato service alone."
)
@command
def audit(
    shell: Shell, names: tuple[str, ...], listed: bool, zoo: bool, path: str | None, **own: Any
) -> None:
    """Look for a mechanism that leaks more than it claims.

    Without a name, every mechanism bare and some questions through the door of a fresh vault, on
    synthetic data. With --command or --url, a program or a service of your own: it is run again
    and again on two inputs that differ by one person. An audit can say "epsilon is at least so
    much", and never "this is private".
    """
    if listed:
        from sfumato.cli import audit_shipped

        audit_shipped.show_names(shell)
        return
    if own["program"] is None and own["url"] is None:
        is_well = _ours(shell, names, zoo, path, own)
    elif names or zoo or path or own["engines"]:
        raise Refused(
            "bad-request",
            "What is your own is audited by itself.",
            "Leave out NAME, --zoo, --page and --engine, or --command and --url.",
        )
    else:
        is_well = _own(shell, own)
    if not is_well:
        click.get_current_context().exit(REFUSED)


def _ours(
    shell: Shell, names: tuple[str, ...], zoo: bool, path: str | None, own: dict[str, Any]
) -> bool:
    from sfumato.cli import audit_shipped  # the lab is loaded for this command alone

    if own["pair"] or own["epsilon"] is not None or own["body"] or own["headers"]:
        raise Refused(
            "bad-request", "These belong to what is your own.", "Give --command or --url as well."
        )
    return audit_shipped.run(
        shell, audit_shipped.Asked(names, zoo, path, own["seed"], own["engines"])
    )


def _own(shell: Shell, own: dict[str, Any]) -> bool:
    from sfumato.cli import audit_own_program

    asked = audit_own_program.Own(
        command=own["program"],
        **{name: value for name, value in own.items() if name not in ("program", "engines")},
    )
    return audit_own_program.run(shell, asked)


COMMANDS = (audit,)
