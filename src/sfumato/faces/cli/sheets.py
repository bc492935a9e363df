"""Answer sheets: check one anywhere, without the vault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click

from sfumato.client.airlock import RECEIPT
from sfumato.faces.cli.shell import REFUSED, Shell, command
from sfumato.services.audit import check_files, check_sheet
from sfumato.wire import Refused, refusal_shape

RECEIPT_GIVEN: Final = (
    "it is an answer with its receipt, which is shown to the vault: sfumato ledger verify --receipt"
)


@click.command("verify")
@click.argument("path", metavar="SHEET", type=click.Path(exists=True, dir_okay=False))
@click.option("--key", metavar="HEX", help="The vault's public key, from a source you trust.")
@click.option(
    "--files",
    "folder",
    type=click.Path(exists=True, file_okay=False),
    help="Where the files of a reviewed release were saved: they are compared with it, too.",
)
@command
def verify(shell: Shell, path: str, key: str | None, folder: str | None) -> None:
    """Check an answer sheet offline: its signature, and its entries of the ledger."""
    sheet = _read(path)
    faults = (RECEIPT_GIVEN,) if "receipt" in sheet else check_sheet(sheet, key)
    if folder is not None and not faults:
        faults = check_files(sheet, _saved(Path(folder)))
    shape: dict[str, object] = {"ok": not faults, "faults": list(faults)}
    lines = [f"THE SHEET DOES NOT HOLD: {fault}" for fault in faults]
    if not faults:
        signer = sheet["proof"]["key"]
        shape["key"] = signer
        price = f"epsilon {sheet['epsilon']}" if sheet["epsilon"] else sheet["guarantee"]
        lines = [f"The sheet holds: {sheet['question']}, {price}"]
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


def _saved(folder: Path) -> dict[str, bytes]:
    """Return the files that were fetched, without the note beside them."""
    there = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    return {name: p.read_bytes() for name, p in there.items() if p.is_file() and name != RECEIPT}


def _read(path: str):  # type: ignore[no-untyped-def]  # a stranger's JSON
    try:
        sheet = json.loads(Path(path).read_text("utf-8"))
    except (ValueError, RecursionError):
        sheet = None
    return sheet if isinstance(sheet, dict) else {}


COMMANDS = (verify,)
