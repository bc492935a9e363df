"""The environment commands: the machine's owner adds, lists and removes program environments."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from sfumato.cli.shell import Shell, command


@click.group("environment")
def environment() -> None:
    """Add, list and remove environments of programs: lock files, folders and images."""


@environment.command("add")
@click.option(
    "--lock",
    type=click.Path(exists=True, dir_okay=False),
    help="A lock file of wheels, pinned by hashes.",
)
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False),
    help="A folder with modules and files.",
)
@click.option(
    "--image",
    nargs=2,
    metavar="PLACE DIGEST",
    help="An OCI layout or a SIF file; sha256:...",
)
@click.option("--note", default="", metavar="TEXT", help="A note for the list.")
@command
def add(
    shell: Shell, lock: str | None, folder: str | None, image: tuple[str, str] | None, note: str
) -> None:
    """Install a lock file, copy a folder or unpack an image; no code from it runs."""
    if sum(one is not None for one in (lock, folder, image)) != 1:
        raise click.UsageError("Give one of --lock, --folder and --image.")
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
    """List the program environments (packages and images) on this machine."""
    with shell.open_folder() as vault:
        found = vault.environments.all()
    lines = "\n".join(map(_line, found)) or "None."
    shell.show({"environments": [asdict(one) for one in found]}, lines)


@environment.command("remove")
@click.argument("name")
@command
def remove(shell: Shell, name: str) -> None:
    """Remove an environment; programs that were approved with it can no longer run."""
    with shell.open_folder() as vault:
        vault.environments.remove(name)
    shell.show({"removed": name}, f"Removed {name}.")


def _line(one: Any) -> str:  # Any: an object of the sandbox, which no CLI module imports
    note = f": {one.said}" if one.said else ""
    return f"{one.name}, {one.megabytes} MB of memory per processor{note}"
