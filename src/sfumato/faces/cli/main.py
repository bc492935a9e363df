"""The commands, gathered; a fault of ours ends with status 70 and says nothing of rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from sfumato.faces.cli import (
    airlock,
    anonymity,
    federate,
    lab,
    lab_audit,
    ledger,
    owner,
    pipeline_rules,
    researcher,
    serve,
    sheets,
    signing,
    site,
    stream,
    survey,
    tour,
    twin,
)
from sfumato.faces.cli.shell import FAULT, REFUSED, App, Shell
from sfumato.wire import VERSION


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--vault",
    metavar="DIR|URL",
    envvar="SFUMATO_VAULT",
    help="The vault's folder, or where it is served.",
)
@click.option("--user", metavar="NAME", envvar="SFUMATO_USER", default="owner", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.version_option(VERSION, message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context, vault: str | None, user: str, as_json: bool) -> None:
    """Learn from sensitive data without seeing a person in it.

    Owners: init, add, enrol, stream, survey, anonymity. Researchers: datasets, card, twin,
    price, ask, budget, pipeline, airlock. Several sites as one: site, federate.
    The lab, on synthetic data: attack, audit, lab.
    """
    context.obj = Shell(context.obj, vault, user, as_json)


for _group in (
    owner.COMMANDS,
    researcher.COMMANDS,
    ledger.COMMANDS,
    serve.COMMANDS,
    sheets.COMMANDS,
    signing.COMMANDS,
    stream.COMMANDS,
    survey.COMMANDS,
    pipeline_rules.COMMANDS,
    airlock.COMMANDS,
    tour.COMMANDS,
    twin.COMMANDS,
    lab.COMMANDS,
    lab_audit.COMMANDS,
    anonymity.COMMANDS,
    federate.COMMANDS,
    site.COMMANDS,
):
    for _command in _group:
        cli.add_command(_command)


def run(arguments: Sequence[str], app: App) -> int:
    """Run one command line; return 0, 2 (wrong usage), 3 (refused) or 70 (a fault of ours)."""
    try:
        status = cli.main(list(arguments), obj=app, standalone_mode=False, prog_name="sfumato")
        return status if isinstance(status, int) else 0
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.Abort:
        return REFUSED
    except click.ClickException as wrong:
        wrong.show()
        return 2
    except BrokenPipeError:
        return 0
    except Exception as fault:  # noqa: BLE001  # a face: whatever else happens is our fault
        name = type(fault).__name__
    print(f"A fault of ours ({name}). Nothing of the data is in this message.", file=sys.stderr)
    return FAULT
