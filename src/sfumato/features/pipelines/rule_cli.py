"""The approval rule commands: programs that match a rule are approved automatically."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import click

from sfumato.cli.shell import Shell, command, number
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.cli import pipeline
from sfumato.wire.query_json import Json


@pipeline.command("rules")
@click.argument("data_set")
@command
def rules(shell: Shell, data_set: str) -> None:
    """List the rules by which programs are approved: all to the owner, to you those about you."""
    with shell.open() as vault:
        found = vault.call("pipeline-rules", {"data_set": data_set})
    shell.show(found, "\n".join(map(_line, found["rules"])) or "None.")


@pipeline.command("rule")
@click.argument("data_set")
@click.option("--of", "users", multiple=True, metavar="USER", help="Whose programs.")
@click.option("--group", "groups", multiple=True, help="Programs of whoever is in the group.")
@click.option("--column", "columns", required=True, multiple=True, help="That they may read.")
@click.option(
    "--output",
    "outputs",
    required=True,
    multiple=True,
    metavar="NAME:LOW:HIGH",
    help="That they may have, with its widest range.",
)
@click.option("--most-epsilon", required=True, metavar="E", help="The most that a run may cost.")
@click.option("--most-total", required=True, metavar="E", help="The most of all runs together.")
@click.option("--most-delta", default="0", metavar="D", help="The most delta of a run.")
@click.option(
    "--text",
    "texts",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="Only the program in this file, with whatever libraries.",
)
@click.option("--files", is_flag=True, help="Programs that see people's files, too.")
@command
def rule(shell: Shell, data_set: str, **given: Any) -> None:
    """Let programs that fit be approved by themselves, from now on; you can end it."""
    body: Json = {
        "data_set": data_set,
        "users": list(given["users"]),
        "groups": list(given["groups"]),
        "columns": list(given["columns"]),
        "outputs": [_output(text) for text in given["outputs"]],
        "most_epsilon": number(given["most_epsilon"], "epsilon"),
        "most_total": number(given["most_total"], "epsilon"),
        "most_delta": number(given["most_delta"], "delta"),
        "texts": [hashlib.sha256(Path(one).read_bytes()).hexdigest() for one in given["texts"]],
        "takes_files": given["files"],
    }
    with shell.open() as vault:
        made = vault.call("set-pipeline-rule", body)
    shell.show(made, f"Rule {made['rule']} holds for what is handed in from now on.")


@pipeline.command("end-rule")
@click.argument("data_set")
@click.argument("rule")
@command
def end_rule(shell: Shell, data_set: str, rule: str) -> None:
    """End a rule: it approves nothing more, and what it has approved is not run any more."""
    with shell.open() as vault:
        made = vault.call("end-pipeline-rule", {"data_set": data_set, "rule": rule})
    shell.show(made, f"Ended {made['rule']}.")


def _output(text: str) -> Json:
    parts = text.split(":")
    if len(parts) != 3:
        raise Refused("bad-pipeline", "An output of a rule is NAME:LOW:HIGH.", "Correct it.")
    return dict(zip(("name", "lower", "upper"), parts, strict=True))


def _line(one: Any) -> str:  # Any: JSON of the service
    who = ", ".join([*one["users"], *(f"group {group}" for group in one["groups"])])
    ranges = ", ".join(f"{name} in [{low}, {high}]" for name, low, high in one["outputs"])
    state = "over" if one["ended_at"] else "holds"
    return (
        f"{one['rule']} {state:<5} {who}: {', '.join(one['columns'])}; {ranges}; epsilon up to "
        f"{one['most_epsilon']} a run and {one['most_total']} together ({one['spent']} taken)"
    )


COMMANDS = (pipeline,)
