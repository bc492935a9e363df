"""Commands of `sfumato federate`: join a federation, query or train across its sites."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from sfumato.cli.researcher import answer_shape
from sfumato.cli.shell import F, Shell, command, number, show_elapsed
from sfumato.cli.token_file import token_for
from sfumato.dp.refusal import Refused
from sfumato.system.temporary_folders import temporary_folder
from sfumato.wire.query_json import Json


@click.group("federate")
def federate() -> None:
    """Ask several sites together: secure aggregation returns only the noisy sum."""


@federate.command("demo")
@click.option("--sites", type=click.IntRange(4, 8), default=4, show_default=True)
@command
def demo(shell: Shell, sites: int) -> None:
    """Start sites on this machine as real processes, ask them together, and kill one of them."""

    def say(text: str) -> None:
        click.echo(text, err=shell.as_json)

    with temporary_folder() as folder:
        found = shell.app.federate_demo(str(folder), sites, say)
    if shell.as_json:
        click.echo(json.dumps(found))


@federate.command("key")
@command
def key(shell: Shell) -> None:
    """Print the public key that identifies this vault to other sites."""
    with shell.open() as vault:
        made = vault.call("site-key", {})
    shell.show(made, str(made["key"]))


@federate.command("convener")
@click.argument("file", type=click.Path(dir_okay=False))
@command
def convener(shell: Shell, file: str) -> None:
    """Write a new convener's secret key to FILE, and print its public key for the agreement."""
    made = shell.app.new_convener(file)
    shell.show({"convener": made}, made)


@federate.command("agreement")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--name", required=True, help="The name of the federation.")
@click.option(
    "--convener",
    required=True,
    metavar="KEY",
    help="The convener's public key, as `sfumato federate convener` prints it.",
)
@click.option(
    "--site",
    "ways",
    multiple=True,
    metavar="NAME=KEY",
    help="A site and its public key, as `sfumato federate key` prints it. Repeatable.",
)
@click.option(
    "--sites",
    type=click.Path(exists=True, dir_okay=False),
    help="A JSON file of {name: key}, instead of many --site options.",
)
@click.option(
    "--floor", type=int, help="The least number of sites in a sum; by default two thirds of them."
)
@click.option(
    "--colluders",
    type=int,
    help="The number of colluding sites that the noise protects against; by default one in twenty.",
)
@click.option(
    "--neighbours",
    type=int,
    metavar="N",
    help="The number of other sites with which each site shares masks. By default, all of "
    "them up to 200 sites. Above that, the fewest with which a sum never fails above "
    "the floor.",
)
@command
def agreement(shell: Shell, file: str, name: str, **given: Any) -> None:
    """Write an agreement between sites to FILE; the owner of each site joins it."""
    ways, sites = given.pop("ways"), given.pop("sites")
    keys = {**({} if sites is None else _read(sites)), **dict(map(_way, ways))}
    made = shell.app.new_agreement(name, sites=keys, **given)
    try:
        with Path(file).open("x", encoding="utf-8") as written:
            written.write(json.dumps(made, indent=1) + "\n")
    except FileExistsError:
        raise Refused(
            "vault-exists",
            f"The file {file} already exists.",
            "Choose a new file for the agreement.",
        ) from None
    shell.show(
        made, f"{_line(made)}\nNext: the sites' owners compare the keys, then join the federation."
    )


@federate.command("join")
@click.argument("data_set")
@click.argument("agreement", type=click.Path(exists=True, dir_okay=False))
@command
def join(shell: Shell, data_set: str, agreement: str) -> None:
    """Let DATA_SET take part in a federation; AGREEMENT is the file that `agreement` wrote.

    The file contains {"name", "convener", "sites": {name: key}, "floor", "colluders"}. It also
    contains "neighbours" if each site shares masks with only that many others.
    """
    with shell.open() as vault:
        made = vault.call("join-federation", {"data_set": data_set, **_read(agreement)})
    shell.show(made, f"{data_set} now takes part in {made['name']} as {made['this_site']}.")


@federate.command("leave")
@click.argument("data_set")
@click.argument("name")
@command
def leave(shell: Shell, data_set: str, name: str) -> None:
    """Leave the federation NAME: DATA_SET takes part in no further sums there."""
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
    """Decorate a command: add the options for the convener's key and the sites' URLs."""
    key = click.option(
        "--key",
        "key_file",
        required=True,
        metavar="FILE",
        help="The file with the convener's secret key.",
    )
    ways = click.option(
        "--site", "ways", multiple=True, required=True, metavar="NAME=URL",
        help="A site and its URL; sign in to each site first. Repeatable.",
    )  # fmt: skip
    return key(ways(function))


# Any: a federated.Progress; the return value is the federation object
def _together(shell: Shell, agreement: str, given: Any, heard: Callable[[Any], None]) -> Any:
    """Connect to all sites of the agreement; return one client for all of them."""
    sites = {name: _site(shell, url) for name, url in map(_way, given["ways"])}
    return shell.app.federation(agreement, key=given["key_file"], sites=sites, heard=heard)


@federate.command("ask")
@click.argument("agreement", type=click.Path(exists=True, dir_okay=False))
@click.argument("data_set")
@click.argument("sql")
@_convened
@click.option("--epsilon", required=True, metavar="E", help="The price at each site, in epsilon.")
@click.option(
    "--delta", metavar="D", help="The delta that may be spent; by default that of the data card."
)
@click.option("--price", "only_price", is_flag=True, help="Show the price; nothing is spent.")
@command
def ask(shell: Shell, agreement: str, data_set: str, sql: str, **given: Any) -> None:
    """Ask DATA_SET at all sites of AGREEMENT one question; each site charges the price."""
    fed = _together(shell, agreement, given, heard=_told(shell))
    terms: Json = {"epsilon": number(given["epsilon"], "epsilon")}
    if given["delta"] is not None:
        terms["delta"] = number(given["delta"], "delta")
    if given["only_price"]:
        price = fed[data_set].price(sql, **terms)
        shell.show(price.shape, "\n".join(price.lines()))
        return
    with show_elapsed("asking"):
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
    """Sum SQL over all sites without noise: secure-average (not DP), if every card allows it."""
    fed = _together(shell, agreement, given, heard=_told(shell))
    with show_elapsed("asking"):
        answer = fed.secure_average(data_set, sql)
    left = [one["releases_left"] for one in answer.receipt["at_each_site"].values()]
    lines = [repr(answer), f"Sites: {', '.join(answer.receipt['sites'])}."]
    lines += (
        [f"At least one site's data card allows only {min(left)} more sums without noise."]
        if left
        else []
    )
    shell.show(answer_shape(answer), "\n".join(lines))


@federate.command("train")
@click.argument("agreement", type=click.Path(exists=True, dir_okay=False))
@click.argument("data_set")
@click.argument("target")
@click.option(
    "--features",
    required=True,
    metavar="A,B,...",
    help="The columns that the network takes as input.",
)
@click.option(
    "--rounds", type=click.IntRange(1), required=True, help="The maximum number of rounds."
)
@click.option(
    "--people",
    type=click.IntRange(1),
    required=True,
    help="The approximate number of people at all sites together.",
)
@click.option(
    "--epsilon",
    required=True,
    metavar="E",
    help="The price of the whole training at each site, in epsilon.",
)
@click.option("--delta", metavar="D", required=True)
@click.option(
    "--out", required=True, type=click.Path(dir_okay=False), help="The new file for the model."
)
@click.option(
    "--test",
    "tests",
    type=click.Path(exists=True, dir_okay=False),
    help="A CSV file of public rows, to measure the model of each round.",
)
@click.option("--hidden", default="", metavar="16,8", help="The widths of the hidden layers.")
@click.option(
    "--image", metavar="1x8x8", help="The shape of an image, if the first features are its pixels."
)
@click.option(
    "--conv",
    "convs",
    multiple=True,
    metavar="channels=8,kernel=3,...",
    help="A convolution layer over the image; also takes stride, padding, and pool (average "
    "pooling). Repeatable.",
)
@click.option(
    "--embed",
    multiple=True,
    metavar="COLUMN=WIDTH",
    help="An embedding of a column, with this width. Repeatable.",
)
@click.option("--activation", type=click.Choice(("relu", "tanh")), default="relu")
@click.option("--loss", type=click.Choice(("classes", "squares")), default="classes")
@click.option(
    "--clip",
    default="1",
    show_default=True,
    help="The clipping norm: the largest norm of one person's gradient or update.",
)
@click.option(
    "--max-rows",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Contribution bound: rows per person.",
)
@click.option("--rate", type=float, default=2.0, show_default=True)
@click.option(
    "--local",
    type=click.IntRange(0),
    default=0,
    help="The number of local steps per round (FedAvg).",
)
@click.option("--local-rate", default="0", help="The learning rate of local steps.")
@click.option(
    "--each",
    type=click.Choice(("site", "person")),
    default="site",
    help="Who takes the local steps: each site, or each person, whose update is then clipped.",
)
@click.option("--proximal", default="0", help="The proximal coefficient of local steps (FedProx).")
@click.option(
    "--sample",
    default="1",
    show_default=True,
    metavar="Q",
    help="Poisson subsampling: the probability that a person is in a round.",
)
@_convened
@command
def train(shell: Shell, agreement: str, data_set: str, target: str, **given: Any) -> None:
    """Train a network for TARGET at all sites of AGREEMENT; each charges all rounds at once."""
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
    """Format one training round as a line: sites, scores on public rows, and epsilon paid."""
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
        raise click.BadParameter(f"{text!r} is not a whole number", param_hint=option)
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
        raise Refused(
            "bad-federation",
            f"The agreement file {path} is not a JSON object.",
            "Ask the federation's convener for the agreement file again.",
        )
    return found


COMMANDS = (federate,)
