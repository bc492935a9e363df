"""The approval rule commands: programs that match a rule are approved automatically."""

from __future__ import annotations

from typing import Any

import click

from sfumato.cli.shell import Shell, command, number
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.cli import pipeline, program_text
from sfumato.features.pipelines.program_folder import text_digest
from sfumato.wire.query_json import Json


@pipeline.command("rules")
@click.argument("data_set")
@command
def rules(shell: Shell, data_set: str) -> None:
    """List a data set's approval rules: all if you own it, else the rules about you."""
    with shell.open() as vault:
        found = vault.call("pipeline-rules", {"data_set": data_set})
    shell.show(found, "\n".join(map(_line, found["rules"])) or "None.")


@pipeline.command("rule")
@click.argument("data_set")
@click.option(
    "--of",
    "users",
    multiple=True,
    metavar="USER",
    help="A user whose programs the rule approves. Repeatable.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    help="A group whose members' programs the rule approves. Repeatable.",
)
@click.option(
    "--column",
    "columns",
    required=True,
    multiple=True,
    help="A column that the programs may read. Repeatable.",
)
@click.option(
    "--output",
    "outputs",
    required=True,
    multiple=True,
    metavar="NAME:LOW:HIGH",
    help="An output that the programs may have, with its widest range. Repeatable.",
)
@click.option("--most-epsilon", required=True, metavar="E", help="The highest price of a run.")
@click.option(
    "--most-total", required=True, metavar="E", help="The highest price of all runs together."
)
@click.option("--most-delta", default="0", metavar="D", help="The highest delta of a run.")
@click.option(
    "--text",
    "texts",
    multiple=True,
    type=click.Path(exists=True),
    help="Approve only the program in this file or folder, with any libraries. Repeatable.",
)
@click.option("--files", is_flag=True, help="Also approve programs that read people's files.")
@command
def rule(shell: Shell, data_set: str, **given: Any) -> None:
    """Make a rule that approves matching programs automatically, until you end it."""
    body: Json = {
        "data_set": data_set,
        "users": list(given["users"]),
        "groups": list(given["groups"]),
        "columns": list(given["columns"]),
        "outputs": [_output(text) for text in given["outputs"]],
        "most_epsilon": number(given["most_epsilon"], "epsilon"),
        "most_total": number(given["most_total"], "epsilon"),
        "most_delta": number(given["most_delta"], "delta"),
        "texts": [text_digest(program_text(one)) for one in given["texts"]],
        "takes_files": given["files"],
    }
    with shell.open() as vault:
        made = vault.call("set-pipeline-rule", body)
    shell.show(made, f"Rule {made['rule']} applies to programs submitted from now on.")


@pipeline.command("end-rule")
@click.argument("data_set")
@click.argument("rule")
@command
def end_rule(shell: Shell, data_set: str, rule: str) -> None:
    """End a rule: it approves no more programs, and programs that it approved no longer run."""
    with shell.open() as vault:
        made = vault.call("end-pipeline-rule", {"data_set": data_set, "rule": rule})
    shell.show(made, f"Ended {made['rule']}.")


def _output(text: str) -> Json:
    parts = text.split(":")
    if len(parts) != 3:
        raise Refused(
            "bad-pipeline",
            "An output of a rule has the form NAME:LOW:HIGH.",
            "Write the --output option in this form, for example --output mean_age:0:120.",
        )
    return dict(zip(("name", "lower", "upper"), parts, strict=True))


def _line(one: Any) -> str:  # Any: JSON of the service
    who = ", ".join([*one["users"], *(f"group {group}" for group in one["groups"])])
    ranges = ", ".join(f"{name} in [{low}, {high}]" for name, low, high in one["outputs"])
    state = "ended" if one["ended_at"] else "valid"
    return (
        f"{one['rule']} {state:<5} {who}: {', '.join(one['columns'])}; {ranges}; epsilon up "
        f"to {one['most_epsilon']} per run and {one['most_total']} in all ({one['spent']} "
        "spent)"
    )


COMMANDS = (pipeline,)
