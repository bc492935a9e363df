"""The ledger: what was charged, whether the chain holds, and what to do when it does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from sfumato.client.text import table_text
from sfumato.faces.cli.shell import REFUSED, Shell, command


@click.group("ledger", invoke_without_command=True)
@click.option("--last", type=int, default=20, show_default=True, help="How many entries to show.")
@command
def ledger(shell: Shell, last: int) -> None:
    """Show the last entries, or verify, present a receipt, acknowledge."""
    context = click.get_current_context()
    context.obj = shell
    if context.invoked_subcommand is None:
        _show_last(shell, last)


def _show_last(shell: Shell, last: int) -> None:
    with shell.open() as vault:
        store = vault.house.ledger.store
        entries = list(store.entries(max(store.head().seq - last, 0)))
    shape = [
        {"seq": e.seq, "at": e.at, "kind": e.kind, "body": json.loads(e.body)} for e in entries
    ]
    rows = [[str(e.seq), e.at[:19], e.kind, _gist(json.loads(e.body))] for e in entries]
    shell.show({"entries": shape}, "\n".join(table_text(["seq", "at", "what", "of"], rows)))


def _gist(body: dict[str, Any]) -> str:
    words = [str(body[key]) for key in ("data_set", "user", "account", "name") if key in body]
    epsilon = [f"epsilon {body['epsilon']}"] if "epsilon" in body else []
    return ", ".join(words + epsilon)[:60]


@ledger.command("verify")
@click.option("--receipt", type=click.Path(exists=True, dir_okay=False), help="An answer's JSON.")
@command
def verify(shell: Shell, receipt: str | None) -> None:
    """Recompute the whole chain and every account's sum; or look whether a receipt stands in it."""
    with shell.open() as vault:
        stands = receipt is None or vault.house.ledger.present(_receipt(receipt))
        verdict = vault.house.ledger.verified()
    if receipt is not None:
        verdict["receipt"] = stands
    whole = verdict["ok"] and stands
    said = "The chain holds" if whole else "THE LEDGER DOES NOT HOLD"
    why = (
        verdict["fault"] or verdict["frozen"] or ("" if stands else "the receipt is unknown to it")
    )
    text = f"{said}: {verdict['entries']} entries, head {str(verdict['head'])[:16]}"
    shell.show(verdict, text + (f"\n  {why}" if why else ""))
    if not whole:
        click.get_current_context().exit(REFUSED)


@ledger.command("acknowledge")
@click.option("--why", required=True, help="What happened, for the record.")
@command
def acknowledge(shell: Shell, why: str) -> None:
    """Thaw a frozen ledger, as owner: what may have been lost counts as spent."""
    with shell.open() as vault:
        head = vault.house.ledger.acknowledge(why)
    shape = {"acknowledged": True, "epoch": head.epoch, "seq": head.seq}
    shell.show(
        shape, "The ledger goes on. Every account's cap counts as spent; raise what you must."
    )


@ledger.command("thaw")
@click.argument("shape", required=False)
@command
def thaw(shell: Shell, shape: str | None) -> None:
    """List the questions that were stopped; or let one of them be asked again."""
    with shell.open() as vault:
        if shape is not None:
            vault.house.data_sets.thaw(shape)
        waiting = list(vault.house.data_sets.frozen_shapes())
    shell.show({"frozen": waiting}, "\n".join(waiting) or "No question waits.")


def _receipt(path: str) -> dict[str, Any]:
    shape = json.loads(Path(path).read_text())
    return dict(shape.get("receipt", shape))


COMMANDS = (ledger,)
