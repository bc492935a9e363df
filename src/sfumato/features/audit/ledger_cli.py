"""The ledger commands: show entries, verify the hash chain, and repair a frozen ledger."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from sfumato.cli.shell import REFUSED, Shell, command, number, show_elapsed
from sfumato.client.text_tables import table_text
from sfumato.dp.refusal import Refused
from sfumato.wire.query_json import refusal_shape


@click.group("ledger", invoke_without_command=True)
@click.option(
    "--last", type=int, default=20, show_default=True, help="The number of entries to show."
)
@command
def ledger(shell: Shell, last: int) -> None:
    """Show the last ledger entries; verify the ledger, print answer sheets, end a freeze."""
    context = click.get_current_context()
    context.obj = shell
    if context.invoked_subcommand is None:
        _show_last(shell, last)


def _show_last(shell: Shell, last: int) -> None:
    with shell.open_folder() as vault:
        store = vault.owner.ledger.store
        entries = list(store.entries(max(store.head().seq - last, 0)))
    shape = [
        {"seq": e.seq, "at": e.at, "kind": e.kind, "body": json.loads(e.body)} for e in entries
    ]
    rows = [[str(e.seq), e.at[:19], e.kind, _gist(json.loads(e.body))] for e in entries]
    shell.show({"entries": shape}, "\n".join(table_text(["seq", "at", "what", "of"], rows)))


def _gist(body: dict[str, Any]) -> str:
    said = {**body, **body.get("body", {})}
    words = [
        str(said[key]) for key in ("user", "group", "data_set", "account", "says") if key in said
    ]
    if isinstance(said.get("card"), dict):
        words += [str(said["card"]["name"]), f"version {said['card']['version']}"]
    if "charge" in said:
        words.append(f"of entry {said['charge']}")
    epsilon = [f"epsilon {float(Fraction(said['epsilon'])):g}"] if "epsilon" in said else []
    return ", ".join(epsilon + words)[:80]


@ledger.command("verify")
@click.option(
    "--receipt", type=click.Path(exists=True, dir_okay=False), help="A file with the answer's JSON."
)
@command
def verify(shell: Shell, receipt: str | None) -> None:
    """Check the ledger's hashes and sums against the anchor; with --receipt, find its entry."""
    if shell.is_remote and receipt is not None:
        _verify_there(shell, _receipt(receipt))
        return
    with shell.open_folder() as vault, show_elapsed("Verifying"):
        is_in_ledger = receipt is None or vault.house.ledger.has_receipt(_receipt(receipt))
        verdict = vault.house.ledger.verified()
    if receipt is not None:
        verdict["receipt"] = is_in_ledger
    whole = verdict["ok"] and is_in_ledger
    said = "The ledger is valid" if whole else "THE LEDGER IS NOT VALID"
    why = (
        verdict["fault"]
        or verdict["history"]
        or ("" if is_in_ledger else "it does not contain the receipt's entry")
    )
    text = f"{said}: {verdict['entries']} entries, head {str(verdict['head'])[:16]}"
    if whole and receipt is not None:
        text += "\n  The ledger contains the receipt's entry"
    if whole:
        text += f"\n  The vault's public key, which verifies receipts and sheets: {verdict['key']}"
    if not whole:
        verdict |= refusal_shape(
            Refused(
                "ledger-frozen", f"{said}: {why}.", "See docs/reference/codes/ledger-frozen.md."
            )
        )
    shell.show(verdict, text + (f"\n  {why}" if why else ""))
    if not whole:
        click.get_current_context().exit(REFUSED)


def _verify_there(shell: Shell, receipt: dict[str, Any]) -> None:
    """Ask a service whether its ledger has the receipt's entry, and print the result."""
    with shell.open() as vault:
        is_in_ledger = vault.has_receipt(receipt)
    shape: dict[str, Any] = {"receipt": is_in_ledger}
    if not is_in_ledger:
        refused = Refused(
            "ledger-frozen",
            "The ledger does not contain the receipt's entry, so the ledger has lost entries.",
            "The ledger is now frozen. Tell the owner.",
        )
        shape |= refusal_shape(refused)
    shell.show(shape, "The ledger contains the receipt's entry" if is_in_ledger else refused.cause)
    if not is_in_ledger:
        click.get_current_context().exit(REFUSED)


@ledger.command("sheet")
@click.argument("entry")
@command
def sheet(shell: Shell, entry: str) -> None:
    """Print the signed answer sheet of an entry; `sfumato verify` checks it anywhere."""
    with shell.open() as vault:
        made = vault.call("sheet", {"entry": entry})
    click.echo(json.dumps(made))


@ledger.command("acknowledge")
@click.option("--why", required=True, help="What happened, for the ledger.")
@command
def acknowledge(shell: Shell, why: str) -> None:
    """End the freeze of a ledger, as owner; lost entries count as spent."""
    with shell.open_folder() as vault:
        made = vault.owner.data_sets.acknowledged(vault.owner.data_sets.acknowledge(why))
    shape = {"acknowledged": True, **made}
    shell.show(shape, _measured_text(made["debited"]) if made["measured"] else _UNMEASURED)


_UNMEASURED = (
    "The ledger works again. The anchor does not show what was lost, so every existing "
    "budget counts as spent, for ever. You can add data sets about other people."
)


def _measured_text(debited: dict[str, float]) -> str:
    """Return the text that lists what was charged for lost ledger entries."""
    if not debited:
        return (
            "The ledger works again. The anchor shows that nothing was lost, so nothing was "
            "charged."
        )
    lost = [f"  {name}: epsilon {epsilon:g}" for name, epsilon in sorted(debited.items())]
    return "\n".join(
        [
            "The ledger works again. The anchor shows that these charges were lost; they are "
            "charged now:",
            *lost,
        ]
    )


@ledger.command("thaw")
@click.argument("shape", required=False)
@command
def thaw(shell: Shell, shape: str | None) -> None:
    """List the stopped questions, or let one of them be asked again."""
    with shell.open_folder() as vault:
        if shape is not None:
            vault.owner.data_sets.thaw(shape)
        waiting = vault.owner.data_sets.frozen_questions()
        lost = vault.owner.data_sets.lost_readings()
    rows = [[w["shape"], w["at"], w["user"], w["says"]] for w in waiting]
    text = "\n".join(table_text(["shape", "stopped at", "user", "question"], rows))
    said = [text if rows else "No question is stopped."]
    for one in lost:
        said.append(
            f"The rows were read again: {one['says']}. Times: {one['times']}, last at "
            f"{one['last']}."
        )
    shell.show({"frozen": waiting, "lost": lost}, "\n".join(said))


@ledger.command("clock")
@click.option("--why", required=True, help="How you know that the clock is right, for the ledger.")
@command
def clock(shell: Shell, why: str) -> None:
    """Confirm, as owner, that the clock is right, so that budgets per window follow it again."""
    with shell.open_folder() as vault:
        head = vault.owner.data_sets.confirm_clock(why)
    shell.show(
        {"confirmed": True, "seq": head.seq},
        "Budgets per window follow this machine's clock again.",
    )


@ledger.command("raise")
@click.argument("people")
@click.option("--epsilon", required=True, metavar="E", help="The new cap, in epsilon.")
@click.option("--delta", default="0", metavar="D")
@click.option("--approver", required=True, help="The second person who agrees.")
@click.option("--why", required=True, help="The reason, for the ledger.")
@command
def raise_cap(shell: Shell, people: str, **options: str) -> None:
    """Change the cap of PEOPLE, as owner with a second person; spent budget stays spent."""
    epsilon, delta = number(options["epsilon"], "epsilon"), number(options["delta"], "delta")
    with shell.open_folder() as vault:
        vault.owner.data_sets.raise_cap(
            people, epsilon, delta, why=options["why"], approver=options["approver"]
        )
    shell.show(
        {"people": people, "epsilon": float(epsilon), "delta": float(delta)},
        f"The people {people!r} now have a cap of epsilon {epsilon}.",
    )


def _receipt(path: str) -> dict[str, Any]:
    try:
        shape = json.loads(Path(path).read_text("utf-8"))
    except ValueError:
        shape = None
    if not isinstance(shape, dict):
        raise Refused(
            "answer-unknown",
            "The file contains no receipt of an answer.",
            "Give a file with the JSON of an answer, as `sfumato --json ask` prints it.",
        )
    inner = shape.get("receipt", shape)
    return dict(inner) if isinstance(inner, dict) else {}


COMMANDS = (ledger,)
