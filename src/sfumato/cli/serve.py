"""The commands `serve` and `invite`: serve a vault to others over HTTP."""

from __future__ import annotations

from typing import Any

import click

from sfumato.cli.shell import Shell, at_rest_key, command, connections_of
from sfumato.dp.refusal import Refused


@click.command("serve")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--name",
    "names",
    multiple=True,
    help="A host name that browsers use for the service. Repeatable.",
)
@click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False))
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--behind-proxy",
    "is_behind_proxy",
    is_flag=True,
    help="A proxy does the TLS encryption: on this machine, or at the address of --proxy.",
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="The proxy's address or network; no other machine may connect.",
)
@click.option(
    "--ledger",
    metavar="URL",
    envvar="SFUMATO_LEDGER",
    help="A PostgreSQL database for a new vault's ledger. Use SFUMATO_LEDGER instead to keep its "
    "password out of process lists.",
)
@click.option(
    "--quantum",
    "quantum_ms",
    type=click.IntRange(0, 60_000),
    default=250,
    show_default=True,
    metavar="MS",
    help="Delay answers to multiples of this many milliseconds, to hide their computing time; 0 "
    "turns this off.",
)
@click.option("--log", "is_logged", is_flag=True, help="Write one line of JSON for each request.")
@click.option(
    "--max-upload",
    "max_upload_mb",
    type=click.IntRange(1, 1_000_000),
    default=2000,
    show_default=True,
    metavar="MB",
    help="The largest file that an owner can upload.",
)
@click.option(
    "--max-folder",
    "max_folder_mb",
    type=click.IntRange(1, 100_000),
    default=20_000,
    show_default=True,
    metavar="MB",
    help="The largest folder, zip or tar that an owner can upload, also when it is unpacked.",
)
@click.option(
    "--connection",
    "sources",
    multiple=True,
    metavar="NAME=FILE",
    callback=lambda _context, _option, pairs: connections_of(pairs),
    help="A database, or a place of DataLad data sets or of objects in an S3 bucket, that owners "
    "can take rows from. FILE has its address and its permitted users.",
)
@at_rest_key
@command
def serve(shell: Shell, **options: Any) -> None:
    """Serve the vault and its console over HTTP; a missing vault is made."""
    if shell.vault is None:
        raise Refused(
            "vault-missing",
            "The command does not know which vault to serve.",
            "Give the vault's folder with --vault DIR. A missing vault is created.",
        )
    shell.app.serve(shell.vault, say=lambda text: click.echo(text, err=True), **options)


@click.command("invite")
@click.argument("name")
@click.option(
    "--role",
    "roles",
    multiple=True,
    required=True,
    type=click.Choice(["owner", "operator", "researcher", "auditor"]),
)
@command
def invite(shell: Shell, name: str, roles: tuple[str, ...]) -> None:
    """Invite NAME to the service with these roles; prints a link that works once."""
    with shell.open() as vault:
        made = vault.call("invite", {"user": name, "roles": list(roles)})
    path, until = f"/welcome/{made['invitation']}", made["expires"][:10]
    where = (
        f"Open {shell.address(path)} before {until}. It works once."
        if shell.is_remote
        else f"An invitation for {name}. It works once, until {until}. Its page is at the address "
        f"of the service that serves this vault, followed by:\n  {path}"
    )
    shell.show(made, where)


COMMANDS = (serve, invite)
