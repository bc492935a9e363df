"""Federations: sites whose owners agree, and who asks them together."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import click

from sfumato.faces.cli.researcher import answer_shape
from sfumato.faces.cli.shell import Shell, command, number, working
from sfumato.faces.cli.signing import token_for
from sfumato.wire import Json, Refused


@click.group("federate")
def federate() -> None:
    """Ask several sites as one: each adds up its own rows, and only the noisy sum comes back."""


@federate.command("demo")
@click.option("--sites", type=click.IntRange(4, 8), default=4, show_default=True)
@command
def demo(shell: Shell, sites: int) -> None:
    """Start sites on this machine as real processes, ask them together, and kill one."""

    def say(text: str) -> None:
        click.echo(text, err=shell.as_json)

    with tempfile.TemporaryDirectory(prefix="sfumato-sites-") as folder:
        found = shell.app.federate_demo(folder, sites, say)
    if shell.as_json:
        click.echo(json.dumps(found))


@federate.command("key")
@command
def key(shell: Shell) -> None:
    """Print the public key by which other sites know this vault."""
    with shell.open() as vault:
        made = vault.call("site-key", {})
    shell.show(made, str(made["key"]))


@federate.command("convener")
@click.argument("file", type=click.Path(dir_okay=False))
@command
def convener(shell: Shell, file: str) -> None:
    """Write a new convener's secret key to FILE; print the public half, for the agreement."""
    made = shell.app.new_convener(file)
    shell.show({"convener": made}, made)


@federate.command("join")
@click.argument("data_set")
@click.argument("agreement", type=click.Path(exists=True, dir_okay=False))
@command
def join(shell: Shell, data_set: str, agreement: str) -> None:
    """Let DATA_SET take part in the sums of a federation; AGREEMENT is the file of all its sites.

    It holds {"name", "convener", "sites": {name: key}, "floor", "colluders"}.
    """
    with shell.open() as vault:
        made = vault.call("join-federation", {"data_set": data_set, **_read(agreement)})
    shell.show(made, f"{data_set} takes part in {made['name']} as {made['this_site']}.")


@federate.command("leave")
@click.argument("data_set")
@click.argument("name")
@command
def leave(shell: Shell, data_set: str, name: str) -> None:
    """Let DATA_SET take part in no further sum of the federation."""
    with shell.open() as vault:
        made = vault.call("leave-federation", {"data_set": data_set, "federation": name})
    shell.show(made, f"{data_set} has left {name}.")


@federate.command("list")
@click.argument("data_set")
@command
def list_(shell: Shell, data_set: str) -> None:
    """List the federations that DATA_SET takes part in."""
    with shell.open() as vault:
        found = vault.call("federations", {"data_set": data_set})
    shell.show(found, "\n".join(_line(one) for one in found["federations"]) or "None.")


@federate.command("ask")
@click.argument("agreement", type=click.Path(exists=True, dir_okay=False))
@click.argument("data_set")
@click.argument("sql")
@click.option("--key", "key_file", required=True, metavar="FILE", help="The convener's key.")
@click.option(
    "--site", "ways", multiple=True, required=True, metavar="NAME=URL",
    help="Where each site is; sign in to each of them first.",
)  # fmt: skip
@click.option("--epsilon", required=True, metavar="E", help="The price at each site.")
@click.option("--delta", metavar="D", help="The card's, if left out.")
@click.option("--price", "only_price", is_flag=True, help="Say what it costs; spend nothing.")
@command
def ask(shell: Shell, agreement: str, data_set: str, sql: str, **given: Any) -> None:
    """Ask DATA_SET of all sites of AGREEMENT one question, and pay at each of them."""
    sites = {name: _site(shell, url) for name, url in map(_way, given["ways"])}
    fed = shell.app.federation(agreement, key=given["key_file"], sites=sites, heard=_told(shell))
    terms: Json = {"epsilon": number(given["epsilon"], "epsilon")}
    if given["delta"] is not None:
        terms["delta"] = number(given["delta"], "delta")
    if given["only_price"]:
        price = fed[data_set].price(sql, **terms)
        shell.show(price.shape, "\n".join(price.lines()))
        return
    with working("asking"):
        answer = fed[data_set].ask(sql, **terms)
    left_out = answer.receipt["left_out"]
    lines = [repr(answer), f"Sites: {', '.join(answer.receipt['sites'])}."]
    lines += [f"Left out: {name} ({code})." for name, code in left_out.items()]
    shell.show(answer_shape(answer), "\n".join(lines))


def _told(shell: Shell) -> Any:  # Any: a function of a round's progress
    def told(progress: Any) -> None:  # Any: federated.Progress
        if not shell.as_json:
            click.echo(f"{progress.stage}: {len(progress.left)} sites", err=True)

    return told


def _site(shell: Shell, url: str) -> Any:
    return shell.app.connect(url, token=token_for(url))


def _way(text: str) -> tuple[str, str]:
    name, sign, url = text.partition("=")
    if not (name and sign and url):
        raise click.BadParameter("write NAME=URL", param_hint="--site")
    return name, url


def _line(one: Json) -> str:
    sites = one["sites"]
    names = ", ".join(sites) if isinstance(sites, dict) else ""
    return f"{one['name']}: {names}; floor {one['floor']}, colluders {one['colluders']}"


def _read(path: str) -> Json:
    try:
        found = json.loads(Path(path).read_text("utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Refused("bad-federation", f"{path} is no JSON object.", "Ask whoever convenes it.")
    return found


COMMANDS = (federate,)
