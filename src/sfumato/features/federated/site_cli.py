"""The `sfumato site` command: create a vault, add rows, and serve it as a federated site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sfumato.cli.shell import Shell, command, working
from sfumato.dp.refusal import Refused


@click.command("site")
@click.option("--data", metavar="NAME=FILE", help="Rows to add, unless they are there already.")
@click.option("--card", type=click.Path(exists=True, dir_okay=False), help="Their card, as TOML.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--name", "names", multiple=True, help="A host name that clients use for it.")
@click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False))
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False))
@click.option("--behind-proxy", "is_behind_proxy", is_flag=True, help="A proxy encrypts.")
@click.option("--proxy", "proxies", multiple=True, metavar="ADDRESS", help="The proxy's address.")
@click.option("--quantum", "quantum_ms", type=click.IntRange(0, 60_000), default=250, metavar="MS")
@click.option(
    "--tensors",
    "tensor_rooms",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="Tokens whose tensors are held at once.",
)
@click.option(
    "--memory",
    "tensor_mb",
    type=click.IntRange(16, 65_536),
    default=256,
    show_default=True,
    metavar="MB",
    help="What the tensors of each may take.",
)
@command
def site(shell: Shell, data: str | None, card: str | None, **options: Any) -> None:
    """Serve the vault as a site: what `serve` does, and callers' tensors beside it.

    Each token has a process of its own for what it sends. No row of the vault goes there.
    """
    if shell.vault is None or shell.is_remote:
        raise Refused(
            "vault-missing", "No folder was named.", "Give --vault DIR; an absent one is made."
        )
    if (data is None) != (card is None):
        raise click.BadParameter("rows are added with their card", param_hint="--data and --card")
    if data is not None and card is not None:
        _add(shell, shell.vault, data, card)
    say = lambda text: click.echo(text, err=True)  # noqa: E731  # as `serve` says it
    shell.app.serve(shell.vault, ledger=None, say=say, **options)


def _add(shell: Shell, folder: str, data: str, card: str) -> None:
    name, sign, source = data.partition("=")
    if not (name and sign and Path(source).is_file()):
        raise click.BadParameter("write NAME=FILE, of a file that is there", param_hint="--data")
    root = Path(folder)
    if not root.exists() or (root.is_dir() and not any(root.iterdir())):
        shell.app.create(folder)
    with shell.open() as vault, working("Preparing the rows"):
        if name.casefold() not in {one.name.casefold() for one in vault}:
            vault.add(name, source, card)


COMMANDS = (site,)
