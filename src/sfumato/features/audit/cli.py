"""The command `verify`: verify an answer sheet or a receipt offline, without the vault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from sfumato.cli.shell import REFUSED, Shell, command
from sfumato.dp.refusal import Refused
from sfumato.features.airlock.client import RECEIPT
from sfumato.features.audit.sheet_verification import check_files, check_receipt, check_sheet
from sfumato.wire.query_json import refusal_shape


@click.command("verify")
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.option("--key", metavar="HEX", help="The vault's public key, from a source that you trust.")
@click.option(
    "--files",
    "folder",
    type=click.Path(exists=True, file_okay=False),
    help="The folder with the saved files of a reviewed release; they are compared with the sheet "
    "or receipt.",
)
@command
def verify(shell: Shell, path: str, key: str | None, folder: str | None) -> None:
    """Check an answer sheet or an answer's receipt offline.

    For a sheet, the command checks the signature and the ledger entries in it. For a receipt, it
    checks the signature and the signed fields. To check that the ledger contains a receipt, run
    `sfumato ledger verify --receipt`.
    """
    given = _read(path)
    receipt = _receipt_in(given)
    faults = check_sheet(given, key) if receipt is None else check_receipt(receipt, key)
    if folder is not None and not faults:
        faults = check_files(given if receipt is None else receipt, _saved(Path(folder)))
    what = "sheet" if receipt is None else "receipt"
    shape: dict[str, object] = {"ok": not faults, "faults": list(faults)}
    lines = [f"THE {what.upper()} IS NOT VALID: {fault}" for fault in faults]
    if faults:
        refused = Refused(
            "sheet-broken",
            faults[0].capitalize() + ".",
            f"Get the {what} again from the vault. If the new one fails too, tell the owner.",
        )
        shape |= refusal_shape(refused)
    else:
        signer = given["proof"]["key"] if receipt is None else receipt["key"]
        shape["key"] = signer
        lines = _of_sheet(given) if receipt is None else _of_receipt(receipt)
        lines.append(
            f"Signed by the vault's key {signer}."
            if key is not None
            else f"Signed by the key {signer}; compare it with the vault's, or give --key."
        )
    shell.show(shape, "\n".join(lines))
    if faults:
        click.get_current_context().exit(REFUSED)


def _of_sheet(sheet: Any) -> list[str]:  # Any: JSON from outside, verified
    price = f"epsilon {sheet['epsilon']}" if sheet["epsilon"] else sheet["guarantee"]
    return [f"The sheet is valid: {sheet['question']}, {price}"]


def _of_receipt(receipt: Any) -> list[str]:  # Any: as above
    signed = receipt["signed"]
    price = f"epsilon {signed['epsilon']}" if "epsilon" in signed else receipt["guarantee"]
    names = ", ".join(signed.get("charged", ()))
    return [
        f"The receipt is valid: entry {signed.get('entry', signed['seq'])} of the ledger "
        f"{signed['ledger']}, {price}, charged to {names or 'nobody (no new charge)'}.",
        "The signature does not cover the question and the answer; the answer sheet, for "
        "auditors, has the question. To check that the ledger contains the entry, run "
        "sfumato ledger verify --receipt",
    ]


def _receipt_in(given: Any) -> Any | None:  # Any: JSON from outside
    """Return the receipt in a file: the whole JSON, or the receipt of the answer in it.

    Return None if the file has no receipt.
    """
    inner = given.get("receipt", given)
    is_receipt = isinstance(inner, dict) and "proof" not in inner and "signed" in inner
    return inner if is_receipt or "receipt" in given else None


def _saved(folder: Path) -> dict[str, bytes]:
    """Return the contents of the folder's files by path, without the receipt file."""
    there = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    return {name: p.read_bytes() for name, p in there.items() if p.is_file() and name != RECEIPT}


def _read(path: str) -> Any:  # Any: JSON from outside
    try:
        given = json.loads(Path(path).read_text("utf-8"))
    except (ValueError, RecursionError):
        given = None
    return given if isinstance(given, dict) else {}


COMMANDS = (verify,)
