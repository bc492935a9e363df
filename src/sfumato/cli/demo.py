"""The commands `demo` and `doctor`."""

from __future__ import annotations

import contextlib
import sys

import click

from sfumato.cli.demo_story import tell
from sfumato.cli.shell import REFUSED, Shell, command


@click.command("demo")
@command
def demo(shell: Shell) -> None:
    """Show what sfumato does, on synthetic data, in under a minute."""
    if not shell.as_json:
        tell(shell.app)
        return
    with contextlib.redirect_stdout(sys.stderr):
        tell(shell.app)
    shell.show({"told": True}, "")


@click.command("doctor")
@command
def doctor(shell: Shell) -> None:
    """Test every part; say what is missing, what needs it, and the command that installs it."""
    findings = shell.app.checkup(shell.vault)
    shape = {
        "ok": all(well for _, well, _, _ in findings),
        "checks": [{"name": n, "ok": w, "says": says, "get": get} for n, w, says, get in findings],
    }
    shell.show(shape, "\n".join(line for finding in findings for line in _lines(*finding)))
    if not shape["ok"]:
        click.get_current_context().exit(REFUSED)


def _lines(name: str, is_well: bool, says: str, get: str | None) -> list[str]:
    """Return the lines to print for one check of `doctor`.

    `--` marks an optional component that is missing.
    """
    mark = "NO" if not is_well else "ok" if get is None else "--"
    return [f"{mark}  {name}: {says}", *([f"      {get}"] if get else [])]


COMMANDS = (demo, doctor)
