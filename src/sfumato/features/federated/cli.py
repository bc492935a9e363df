"""Commands of `sfumato federate`: join a federation, query or train across its sites."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from sfumato.cli.researcher import answer_shape
from sfumato.cli.shell import F, Shell, command, number, working
from sfumato.cli.token_file import token_for
from sfumato.dp.refusal import Refused
from sfumato.system.temporary_folders import temporary_folder
from sfumato.wire.query_json import Json


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

    with temporary_folder() as folder:
        found = shell.app.federate_demo(str(folder), sites, say)
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


@federate.command("agreement")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--name", required=True, help="What the federation is called.")
@click.option("--convener", required=True, metavar="KEY", help="As `convener` has printed it.")
@click.option(
    "--site", "ways", multiple=True, metavar="NAME=KEY", help="Each site, by the key it says."
)
@click.option(
    "--sites",
    type=click.Path(exists=True, dir_okay=False),
    help="Many sites at once: a JSON file of {name: key}.",
)
@click.option("--floor", type=int, help="So many must be left; two thirds, if left out.")
@click.option("--colluders", type=int, help="So many may collude; one in twenty, if left out.")
@click.option(
    "--neighbours",
    type=int,
    metavar="N",
    help="A site shares its masks with N others: all of them up to 200 sites, if left out, and "
    "beyond it the fewest with which a sum never fails above the floor.",
)
@command
def agreement(shell: Shell, file: str, name: str, **given: Any) -> None:
    """Write an agreement between sites to FILE, for each of their owners to join."""
    ways, sites = given.pop("ways"), given.pop("sites")
    keys = {**({} if sites is None else _read(sites)), **dict(map(_way, ways))}
    made = shell.app.new_agreement(name, sites=keys, **given)
    try:
        with Path(file).open("x", encoding="utf-8") as written:
            written.write(json.dumps(made, indent=1) + "\n")
    except FileExistsError:
        raise Refused(
            "vault-exists", f"{file} is there already.", "Choose a new place for the agreement."
        ) from None
    shell.show(made, f"{_line(made)}\nOwners compare the keys, then join it.")


@federate.command("join")
@click.argument("data_set")
@click.argument("agreement", type=click.Path(exists=True, dir_okay=False))
@command
def join(shell: Shell, data_set: str, agreement: str) -> None:
    """Let DATA_SET take part in the sums of a federation; AGREEMENT is the file of all its sites.

    It holds {"name", "convener", "sites": {name: key}, "floor", "colluders"}, and "neighbours" if
    each site shares its masks with so many others only.
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


def _convened(function: F) -> F:
    """Add the options for the convener's key and the sites' URLs to a command."""
    key = click.option(
        "--key", "key_file", required=True, metavar="FILE", help="The convener's key."
    )
    ways = click.option(
        "--site", "ways", multiple=True, required=True, metavar="NAME=URL",
        help="Where each site is; sign in to each of them first.",
    )  # fmt: skip
    return key(ways(function))


# Any: a federated.Progress; the return value is the federation object
def _together(shell: Shell, agreement: str, given: Any, heard: Callable[[Any], None]) -> Any:
    """Return one federation object for all sites of the agreement."""
    sites = {name: _site(shell, url) for name, url in map(_way, given["ways"])}
    return shell.app.federation(agreement, key=given["key_file"], sites=sites, heard=heard)


@federate.command("ask")
@click.argument("agreement", type=click.Path(exists=True, dir_okay=False))
@click.argument("data_set")
@click.argument("sql")
@_convened
@click.option("--epsilon", required=True, metavar="E", help="The price at each site.")
@click.option("--delta", metavar="D", help="The card's, if left out.")
@click.option("--price", "only_price", is_flag=True, help="Say what it costs; spend nothing.")
@command
def ask(shell: Shell, agreement: str, data_set: str, sql: str, **given: Any) -> None:
    """Ask DATA_SET of all sites of AGREEMENT one question, and pay at each of them."""
    fed = _together(shell, agreement, given, heard=_told(shell))
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


@federate.command("average")
@click.argument("agreement", type=click.Path(exists=True, dir_okay=False))
@click.argument("data_set")
@click.argument("sql")
@_convened
@command
def average(shell: Shell, agreement: str, data_set: str, sql: str, **given: Any) -> None:
    """Add SQL up over all sites without noise: secure-average (not DP), if every card allows it."""
    fed = _together(shell, agreement, given, heard=_told(shell))
    with working("asking"):
        answer = fed.secure_average(data_set, sql)
    left = [one["releases_left"] for one in answer.receipt["at_each_site"].values()]
    lines = [repr(answer), f"Sites: {', '.join(answer.receipt['sites'])}."]
    lines += [f"At least one card lets {min(left)} more leave so."] if left else []
    shell.show(answer_shape(answer), "\n".join(lines))


@federate.command("train")
@click.argument("agreement", type=click.Path(exists=True, dir_okay=False))
@click.argument("data_set")
@click.argument("target")
@click.option("--features", required=True, metavar="A,B,...", help="Columns to learn from.")
@click.option("--rounds", type=click.IntRange(1), required=True, help="So many at most.")
@click.option("--people", type=click.IntRange(1), required=True, help="About so many, over all.")
@click.option("--epsilon", required=True, metavar="E", help="The price at each site, of it all.")
@click.option("--delta", metavar="D", required=True)
@click.option("--out", required=True, type=click.Path(dir_okay=False), help="The model's file.")
@click.option(
    "--test",
    "tests",
    type=click.Path(exists=True, dir_okay=False),
    help="A CSV of public rows, to look at each round's model with.",
)
@click.option("--hidden", default="", metavar="16,8", help="Widths of layers between.")
@click.option("--image", metavar="1x8x8", help="The first features are an image.")
@click.option(
    "--conv",
    "convs",
    multiple=True,
    metavar="channels=8,kernel=3,...",
    help="A convolution over it; also stride, padding, and pool (an average).",
)
@click.option(
    "--embed", multiple=True, metavar="COLUMN=WIDTH", help="A column with a table of entries."
)
@click.option("--activation", type=click.Choice(("relu", "tanh")), default="relu")
@click.option("--loss", type=click.Choice(("classes", "squares")), default="classes")
@click.option("--clip", default="1", show_default=True, help="What a person may move, at most.")
@click.option(
    "--max-rows",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="So many rows of a person count.",
)
@click.option("--rate", type=float, default=2.0, show_default=True)
@click.option("--local", type=click.IntRange(0), default=0, help="Steps of a site's own (FedAvg).")
@click.option("--local-rate", default="0", help="How far each of them goes.")
@click.option(
    "--each",
    type=click.Choice(("site", "person")),
    default="site",
    help="Whose own steps these are, and whose update is clipped.",
)
@click.option("--proximal", default="0", help="What draws them back (FedProx).")
@click.option(
    "--sample",
    default="1",
    show_default=True,
    metavar="Q",
    help="The chance of each person to be in a round.",
)
@_convened
@command
def train(shell: Shell, agreement: str, data_set: str, target: str, **given: Any) -> None:
    """Train a network for TARGET at all sites of AGREEMENT; pay once at each, for all rounds."""
    fed = _together(shell, agreement, given, heard=lambda _: None)
    rows = None if given["tests"] is None else public_rows(Path(given["tests"]))
    model = fed.train(
        data_set,
        features=given["features"].split(","),
        target=target,
        hidden=[int(width) for width in given["hidden"].split(",") if width],
        image=[_whole(side, "--image") for side in (given["image"] or "").split("x") if side],
        conv=[_pairs(one.split(","), "--conv") for one in given["convs"]],
        embed=_pairs(given["embed"], "--embed"),
        heard=lambda step: click.echo(told_step(step, rows), err=True),
        public=rows or (),
        **{name: number(given[name], name) for name in _NUMBERS},
        **{name: given[name] for name in _AS_GIVEN},
    )
    model.save(given["out"])
    card = model.card
    lines = [f"{given['out']}: {card['says']}.", f"{card['guarantee']}, against {card['against']}."]
    lines += [f"{site} has paid epsilon {spent:g}." for site, spent in card["paid"].items()]
    shell.show({"out": given["out"], **card}, "\n".join(lines))


_NUMBERS: Final = ("epsilon", "delta", "clip", "local_rate", "proximal", "sample")
_AS_GIVEN: Final = (
    "rounds", "people", "activation", "loss", "rate", "max_rows", "local", "each",
)  # fmt: skip


def told_step(step: Any, rows: Any) -> str:  # Any: federated.training.Step, and public rows
    """Return one line for a round: sites, scores on public rows, and epsilon paid."""
    if step.failed is not None:
        return f"round {step.number}: no sum ({step.failed.code})"
    paid = ", ".join(f"{site} {spent:g}" for site, spent in step.model.card["paid"].items())
    seen = ""
    if rows:
        seen = f"; loss {step.model.loss(rows):.4f}"
        if step.model.network.loss == "classes":
            seen += f", accuracy {step.model.accuracy(rows):.3f}"
    return f"round {step.number}: {len(step.sites)} sites{seen}; epsilon paid: {paid}"


def public_rows(path: Path) -> list[dict[str, Any]]:
    """Read a CSV of public rows; parse numbers and booleans."""
    with path.open(newline="", encoding="utf-8") as file:
        return [{key: _plain(text) for key, text in row.items()} for row in csv.DictReader(file)]


def _plain(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


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
        raise click.BadParameter("write NAME=URL, or NAME=KEY of a key", param_hint="--site")
    return name, url


def _pairs(texts: Sequence[str], option: str) -> dict[str, int]:
    pairs = [text.rpartition("=") for text in texts]
    return {name: _whole(value, option) for name, _, value in pairs}


def _whole(text: str, option: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise click.BadParameter(f"{text!r} is no whole number", param_hint=option)
    return int(text)


def _line(one: Json) -> str:
    sites = one["sites"]
    names = ", ".join(sites) if isinstance(sites, dict) else ""
    near = f", neighbours {one['neighbours']}" if "neighbours" in one else ""
    return f"{one['name']}: {names}; floor {one['floor']}, colluders {one['colluders']}{near}"


def _read(path: str) -> Json:
    try:
        found = json.loads(Path(path).read_text("utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Refused("bad-federation", f"{path} is no JSON object.", "Ask whoever convenes it.")
    return found


COMMANDS = (federate,)
