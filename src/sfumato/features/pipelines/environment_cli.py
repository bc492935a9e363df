"""The environment commands: the machine's owner adds, lists and removes program environments."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from sfumato.cli.shell import Shell, command, show_elapsed


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
    help="An OCI layout, an archive of an image or a SIF file; sha256:...",
)
@click.option(
    "--pull",
    metavar="REGISTRY/NAME@sha256:...",
    help="An image at a registry that the vault's settings allow.",
)
@click.option(
    "--login",
    type=click.Path(exists=True, dir_okay=False),
    help="A file with USER:PASSWORD for --pull, or the file that `docker login` writes.",
)
@click.option("--note", default="", metavar="TEXT", help="A note for the list.")
@command
def add(shell: Shell, **given: Any) -> None:  # Any: the options of click
    """Install a lock file, copy a folder, or unpack or pull an image; no code from it runs."""
    kinds = [kind for kind in ("lock", "folder", "image", "pull") if given[kind] is not None]
    if len(kinds) != 1:
        raise click.UsageError("Give one of --lock, --folder, --image and --pull.")
    if given["login"] is not None and kinds != ["pull"]:
        raise click.UsageError("--login is for --pull.")
    (kind,) = kinds
    what, note = given[kind], given["note"]
    with shell.open_folder() as vault:
        kept = vault.environments
        if kind == "lock":
            made = kept.add_lock(Path(what), note)
        elif kind == "folder":
            made = kept.add_folder(Path(what), note)
        elif kind == "image":
            made = kept.add_image(Path(what[0]), what[1], note)
        else:
            login = None if given["login"] is None else Path(given["login"])
            with show_elapsed("Pulling"):
                made = kept.pull_image(what, login, note)
    next_ = f"Next: sfumato pipeline submit DATA_SET FILE --environment {made.name}{shell.named}"
    shell.show(_shape(made), "\n".join([f"Added {_line(made)}", *_about(made), next_]))


@environment.command("list")
@command
def list_(shell: Shell) -> None:
    """List the program environments on this machine, and what images say about themselves."""
    with shell.open_folder() as vault:
        found = vault.environments.all()
    lines = [line for one in found for line in (_line(one), *_about(one))]
    shell.show({"environments": [_shape(one) for one in found]}, "\n".join(lines or ["None."]))


@environment.command("remove")
@click.argument("name")
@command
def remove(shell: Shell, name: str) -> None:
    """Remove an environment; programs that were approved with it can no longer run."""
    with shell.open_folder() as vault:
        vault.environments.remove(name)
    shell.show({"removed": name}, f"Removed {name}.")


def _shape(one: Any) -> dict[str, Any]:  # Any: an object of the sandbox, as below
    return {**asdict(one), "labels": dict(one.labels)}


def _about(one: Any) -> list[str]:
    """Return lines with what an image says about itself, as JSON text, because it is untrusted."""
    words = {
        "pulled from": one.source, "manifest": one.manifest, "configuration": one.config,
        "runs": one.entry, "in folder": one.folder, "as user": one.user, "settings": one.settings,
    }  # fmt: skip
    lines = [f"  {word}: {_text(said)}" for word, said in words.items() if said]
    return [*lines, *(f"  label {_text(key)}: {_text(said)}" for key, said in one.labels)]


def _text(said: Any) -> str:
    return said if isinstance(said, str) and _PLAIN.fullmatch(said) else json.dumps(said)


_PLAIN: Final = re.compile(r"[\w./:@+-]{1,200}")


def _line(one: Any) -> str:  # Any: an object of the sandbox, which no CLI module imports
    note = f": {one.said}" if one.said else ""
    return f"{one.name}, {one.megabytes} MB of memory per processor{note}"
