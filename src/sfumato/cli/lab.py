"""`sfumato attack`, `probe` and `lab`: attacks on synthetic data, or on your own release."""

from __future__ import annotations

from typing import Any

import click

from sfumato.cli.shell import Shell, command, number, show_elapsed
from sfumato.client import DataSet
from sfumato.client.ask_terms import Number
from sfumato.client.plot import check_picture
from sfumato.dp.refusal import Refused
from sfumato.lab.attack_bounds import all_against_ours
from sfumato.lab.attack_target import Opened
from sfumato.lab.attacks import attack, attacks
from sfumato.lab.attacks.averaging import average
from sfumato.lab.attacks.differencing import difference
from sfumato.lab.probe import Probe
from sfumato.lab.running_mean_plot import means_so_far


@click.command("attack")
@click.argument("name", required=False)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Run every attack against sfumato's releases; takes minutes.",
)
@click.option("--runs", type=click.IntRange(1, 1_000_000), help="The number of runs.")
@click.option(
    "--seed", type=click.IntRange(0), help="The seed; the same seed gives the same result."
)
@click.option(
    "--set", "typed", multiple=True, metavar="OPTION=VALUE", help="Set an option of the attack."
)
@click.option("--save", metavar="FILE", help="Save the picture: .svg, .png, .html or .json.")
@command
def run_attack(shell: Shell, name: str | None, save: str | None, **how: Any) -> None:
    """Run an attack and print its result; without NAME, list the attacks."""
    if how["everything"]:
        _run_all(shell, name, save, how)
        return
    if name is None:
        _list(shell)
        return
    if save is not None:
        check_picture(save)
    chosen, options = attack(name), _options(how["typed"])
    with show_elapsed("attacking"):
        report = chosen.report(runs=how["runs"], seed=how["seed"], **options)
    if save is not None:
        report.save(save)
    shell.show(report.as_json(), repr(report))


@click.command("probe")
@click.argument("name")
@click.argument("sql")
@click.option("--epsilon", required=True, metavar="E", help="The price of each question.")
@click.option(
    "--without",
    metavar="SQL",
    help="Ask about all people and about all but one, and subtract, instead of repeating.",
)
@click.option("--questions", type=click.IntRange(2, 10_000), default=50, show_default=True)
@click.option("--fresh", is_flag=True, help="Ask for new noise each time, and pay each time.")
@click.option("--save", metavar="FILE", help="Save the picture: .svg, .png, .html or .json.")
@command
def run_probe(shell: Shell, name: str, sql: str, **how: Any) -> None:
    """Ask one question repeatedly, and say what stops the repetition. The questions are charged."""
    epsilon = number(how["epsilon"], "epsilon")
    if how["save"] is not None:
        check_picture(how["save"])
    with shell.open() as vault, show_elapsed("asking"):
        target = Opened(DataSet(vault, name), is_fresh=how["fresh"])
        found = _probed(target, sql, how["without"], epsilon, how["questions"])
    if how["save"] is not None:
        means_so_far({name: found}).save(how["save"])
    shell.show(found.as_json(), found.finding)


def _probed(
    target: Opened, sql: str, without: str | None, epsilon: Number, questions: int
) -> Probe:
    if without is None:
        return average(target, sql, epsilon=epsilon, questions=questions)
    return difference(target, sql, without, epsilon=epsilon, pairs=questions // 2)


def _run_all(shell: Shell, name: str | None, save: str | None, how: dict[str, Any]) -> None:
    if name is not None or how["typed"]:
        raise Refused(
            "bad-request",
            "--all runs every attack with its default options.",
            "Leave out NAME and --set.",
        )
    with show_elapsed("attacking"):
        found = all_against_ours(runs=how["runs"], seed=how["seed"])
    if save is not None:
        found.save(save)
    shell.show(found.as_json(), f"{found.table}\n\n{found.finding}")


def _list(shell: Shell) -> None:
    found = attacks()
    shape = {
        "attacks": [{"name": a.name, "shows": a.shows, "options": dict(a.options)} for a in found]
    }
    width = max(len(a.name) for a in found)
    lines = [f"{a.name.ljust(width)}  {a.shows}" for a in found]
    shell.show(shape, "\n".join([*lines, "", "To run one: sfumato attack NAME"]))


def _options(typed: tuple[str, ...]) -> dict[str, str]:
    pairs = [one.partition("=") for one in typed]
    wrong = [name for name, mark, _ in pairs if not mark]
    if wrong:
        raise Refused("bad-request", f"{wrong[0]!r} has no value.", "Write --set OPTION=VALUE.")
    return {name: value for name, _, value in pairs}


@click.command("lab")
@click.option("--port", type=click.IntRange(0, 65535), default=8766, show_default=True)
@command
def lab(shell: Shell, port: int) -> None:
    """Open the lab: pages with sliders, on synthetic data, only on this machine."""
    shell.app.serve_lab(port, lambda text: click.echo(text, err=True))


COMMANDS = (run_attack, run_probe, lab)
