"""The demo that tells the story, and the doctor that says what is missing."""

from __future__ import annotations

import contextlib
import sys

import click

from sfumato.faces.cli.shell import REFUSED, Shell, command
from sfumato.faces.cli.story import tell


@click.command("demo")
@command
def demo(shell: Shell) -> None:
    """Tell the story on synthetic data, in under a minute."""
    if not shell.as_json:
        tell(shell.app)
        return
    with contextlib.redirect_stdout(sys.stderr):
        tell(shell.app)
    shell.show({"told": True}, "")


@click.command("doctor")
@command
def doctor(shell: Shell) -> None:
    """Check the engine, the sandbox and the ledger; say what is missing and how to get it."""
    findings = shell.app.checkup(shell.vault)
    shape = {
        "ok": all(well for _, well, _ in findings),
        "checks": [{"name": n, "ok": well, "says": says} for n, well, says in findings],
    }
    lines = [f"{'ok ' if well else 'NO '} {name}: {says}" for name, well, says in findings]
    shell.show(shape, "\n".join(lines))
    if not shape["ok"]:
        click.get_current_context().exit(REFUSED)


COMMANDS = (demo, doctor)
