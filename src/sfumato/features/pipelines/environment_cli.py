"""The environment commands: the machine's owner adds, lists and removes program environments."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from sfumato.cli.shell import Shell, command


@click.group("environment")
def environment() -> None:
    """Add, list and remove what programs bring along: a lock, a folder, or an image."""


@environment.command("add")
@click.option("--lock", type=click.Path(exists=True, dir_okay=False), help="Pinned by hashes.")
@click.option("--folder", type=click.Path(exists=True, file_okay=False), help="Of modules, files.")
@click.option(
    "--image",
    nargs=2,
    metavar="PLACE DIGEST",
    help="An OCI layout or a SIF file; sha256:...",
)
@click.option("--note", default="", metavar="TEXT", help="For those who look at the list.")
@command
def add(
    shell: Shell, lock: str | None, folder: str | None, image: tuple[str, str] | None, note: str
) -> None:
    """Install locked wheels, copy a folder or unpack an image, once; nothing of it is run."""
    if sum(one is not None for one in (lock, folder, image)) != 1:
        raise click.UsageError("Name one of --lock, --folder and --image.")
    with shell.open_folder() as vault:
        if lock is not None:
            made = vault.environments.add_lock(Path(lock), note)
        elif folder is not None:
            made = vault.environments.add_folder(Path(folder), note)
        else:
            layout, digest = image or ("", "")
            made = vault.environments.add_image(Path(layout), digest, note)
    next_ = f"Next: sfumato pipeline submit DATA_SET FILE --environment {made.name}{shell.named}"
    shell.show(asdict(made), f"Added {_line(made)}\n{next_}")


@environment.command("list")
@command
def list_(shell: Shell) -> None:
    """List what programs may be handed in with on this machine."""
    with shell.open_folder() as vault:
        found = vault.environments.all()
    lines = "\n".join(map(_line, found)) or "None."
    shell.show({"environments": [asdict(one) for one in found]}, lines)


@environment.command("remove")
@click.argument("name")
@command
def remove(shell: Shell, name: str) -> None:
    """Let one go; programs that were approved with it can no longer be run."""
    with shell.open_folder() as vault:
        vault.environments.remove(name)
    shell.show({"removed": name}, f"Removed {name}.")


def _line(one: Any) -> str:  # Any: an object of the sandbox, which no CLI module imports
    note = f": {one.said}" if one.said else ""
    return f"{one.name}, {one.megabytes} MB of memory a processor{note}"
