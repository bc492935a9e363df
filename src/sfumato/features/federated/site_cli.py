"""The `sfumato site` command: create a vault, add rows, and serve it as a federated site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sfumato.cli.shell import Shell, command, show_elapsed
from sfumato.dp.refusal import Refused


@click.command("site")
@click.option(
    "--data", metavar="NAME=FILE", help="A file of rows to add, unless the data set exists already."
)
@click.option(
    "--card",
    type=click.Path(exists=True, dir_okay=False),
    help="The data card of the rows, a TOML file.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--name", "names", multiple=True, help="A host name that clients use for the site. Repeatable."
)
@click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False))
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--behind-proxy", "is_behind_proxy", is_flag=True, help="A proxy does the TLS encryption."
)
@click.option(
    "--proxy", "proxies", multiple=True, metavar="ADDRESS", help="The proxy's address or network."
)
@click.option("--quantum", "quantum_ms", type=click.IntRange(0, 60_000), default=250, metavar="MS")
@click.option(
    "--tensors",
    "tensor_rooms",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="The most tokens whose tensors the site holds at the same time.",
)
@click.option(
    "--memory",
    "tensor_mb",
    type=click.IntRange(16, 65_536),
    default=256,
    show_default=True,
    metavar="MB",
    help="The most memory for the tensors of each token.",
)
@command
def site(shell: Shell, data: str | None, card: str | None, **options: Any) -> None:
    """Serve the vault as a federated site: like `serve`, and also holds callers' tensors.

    Each token's tensors are in a separate process. No row of the vault goes there.
    """
    if shell.vault is None or shell.is_remote:
        raise Refused(
            "vault-missing",
            "The command does not know which vault to serve.",
            "Give the vault's folder with --vault DIR. A missing vault is created.",
        )
    if (data is None) != (card is None):
        raise click.BadParameter(
            "--data and --card work only together", param_hint="--data and --card"
        )
    if data is not None and card is not None:
        _add(shell, shell.vault, data, card)
    say = lambda text: click.echo(text, err=True)  # noqa: E731  # as `serve` says it
    shell.app.serve(shell.vault, ledger=None, say=say, **options)


def _add(shell: Shell, folder: str, data: str, card: str) -> None:
    name, sign, source = data.partition("=")
    if not (name and sign and Path(source).is_file()):
        raise click.BadParameter("write NAME=FILE, with a file that exists", param_hint="--data")
    root = Path(folder)
    if not root.exists() or (root.is_dir() and not any(root.iterdir())):
        shell.app.create(folder)
    with shell.open() as vault, show_elapsed("Preparing the rows"):
        if name.casefold() not in {one.name.casefold() for one in vault}:
            vault.add(name, source, card)


COMMANDS = (site,)
