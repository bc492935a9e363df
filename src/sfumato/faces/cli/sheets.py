"""Answer sheets: check one anywhere, without the vault."""

from __future__ import annotations

import json
from pathlib import Path

import click

from sfumato.faces.cli.shell import REFUSED, Shell, command
from sfumato.services.audit import check_sheet
from sfumato.wire import Refused, refusal_shape


@click.command("verify")
@click.argument("path", metavar="SHEET", type=click.Path(exists=True, dir_okay=False))
@click.option("--key", metavar="HEX", help="The vault's public key, from a source you trust.")
@command
def verify(shell: Shell, path: str, key: str | None) -> None:
    """Check an answer sheet offline: its signature, and its entries of the ledger."""
    sheet = _read(path)
    faults = check_sheet(sheet, key)
    shape: dict[str, object] = {"ok": not faults, "faults": list(faults)}
    lines = [f"THE SHEET DOES NOT HOLD: {fault}" for fault in faults]
    if not faults:
        signer = sheet["proof"]["key"]
        shape["key"] = signer
        lines = [f"The sheet holds: {sheet['question']}, epsilon {sheet['epsilon']}"]
        lines.append(
            f"Signed by the vault's key {signer}."
            if key is not None
            else f"Signed by the key {signer}; compare it with the vault's, or give --key."
        )
    else:
        refused = Refused("sheet-broken", faults[0].capitalize() + ".", "Ask for the sheet anew.")
        shape |= refusal_shape(refused)
    shell.show(shape, "\n".join(lines))
    if faults:
        click.get_current_context().exit(REFUSED)


def _read(path: str):  # type: ignore[no-untyped-def]  # a stranger's JSON
    try:
        sheet = json.loads(Path(path).read_text("utf-8"))
    except (ValueError, RecursionError):
        sheet = None
    return sheet if isinstance(sheet, dict) else {}


COMMANDS = (verify,)
