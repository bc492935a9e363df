"""Load and run the commands; an internal fault ends with status 70 and reveals no rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

import click

from sfumato.cli.command_table import LISTED
from sfumato.cli.shell import FAULT, REFUSED, App, Shell
from sfumato.wire.version import VERSION


class Gathered(click.Group):
    """The group of all commands under headings; a command's module is imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted(name for group in LISTED.values() for name in group)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command with that name; None if there is none."""
        for group in LISTED.values():
            if cmd_name in group:
                return _loaded(group[cmd_name][0], cmd_name)
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands with their help lines, without importing the commands."""
        for heading, group in LISTED.items():
            with formatter.section(heading):
                formatter.write_dl([(name, says) for name, (_, says) in group.items()])


def _loaded(module: str, name: str) -> click.Command | None:
    commands: tuple[click.Command, ...] = import_module(f"sfumato.{module}").COMMANDS
    return next((each for each in commands if each.name == name), None)


@click.group(
    cls=Gathered, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--vault",
    metavar="DIR|URL",
    envvar="SFUMATO_VAULT",
    help="The vault's folder, or the address of its service.",
)
@click.option("--user", metavar="NAME", envvar="SFUMATO_USER", default="owner", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.version_option(VERSION, message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context, vault: str | None, user: str, as_json: bool) -> None:
    """Learn from sensitive data without seeing a person in it.

    `sfumato COMMAND --help` says more about a command.
    """
    context.obj = Shell(context.obj, vault, user, as_json)


def run(arguments: Sequence[str], app: App) -> int:
    """Run one command line; return 0, 2 (wrong usage), 3 (refused) or 70 (internal fault)."""
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
    except Exception as fault:  # noqa: BLE001  # outermost: any other error is ours
        name = type(fault).__name__
    print(f"Internal error ({name}). This message contains no data.", file=sys.stderr)
    return FAULT
