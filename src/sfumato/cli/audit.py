"""`sfumato audit`: test the shipped mechanisms, the broken ones of the zoo, or your own program."""

from __future__ import annotations

from typing import Any

import click

from sfumato.cli.shell import REFUSED, Shell, command
from sfumato.dp.refusal import Refused


@click.command("audit")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "--list", "listed", is_flag=True, help="List the names of everything that can be audited."
)
@click.option(
    "--zoo", is_flag=True, help="Audit the mechanisms that are broken on purpose instead."
)
@click.option(
    "--page",
    "path",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write the result tables to this file; with NAME, update only its lines.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="The seed of the auditor's random numbers.",
)
@click.option(
    "--engine",
    "engines",
    multiple=True,
    metavar="ADDRESS",
    help="Also audit on this engine: Spark, or a PostgreSQL database that may keep copies of the "
    "data.",
)
@click.option(
    "--command",
    "program",
    metavar="'PROG {data}'",
    help="Audit your own program; {data} is replaced by one of the two inputs.",
)
@click.option("--url", metavar="URL", help="Audit your own service; {data} is replaced as above.")
@click.option(
    "--body", metavar="JSON", help="POST this body to the URL; {data} is replaced as above."
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'|@FILE",
    help="Send this header to the URL.",
)
@click.option("--pair", nargs=2, metavar="D D2", help="The two inputs, which differ by one person.")
@click.option("--epsilon", type=click.FloatRange(0), metavar="E", help="The claimed epsilon.")
@click.option("--delta", type=click.FloatRange(0, 1, max_open=True), default=0.0, metavar="D")
@click.option(
    "--runs",
    type=click.IntRange(256, 131_072),
    default=2048,
    show_default=True,
    help="The most runs of your own program or service, on both inputs together.",
)
@click.option(
    "--rows-only",
    is_flag=True,
    help="Compare only the rows and refusal codes of a sfumato service.",
)
@command
def audit(
    shell: Shell, names: tuple[str, ...], listed: bool, zoo: bool, path: str | None, **own: Any
) -> None:
    """Look for a mechanism that leaks more than it claims.

    By default, the command audits every mechanism directly, and some questions to a new vault, on
    synthetic data. With --command or --url, it audits your own program or service: it runs it many
    times on two inputs that differ by one person. An audit can prove "epsilon is at least this
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
            "One command audits either your own program or service, or sfumato itself, but not "
            "both.",
            "Give only --command or --url, or only NAME, --zoo, --page or --engine.",
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
            "bad-request",
            "Some of the given options are only for an audit of your own program or service.",
            "Give --command or --url as well, or leave these options out.",
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
