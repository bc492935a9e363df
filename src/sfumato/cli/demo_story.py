"""The story of `make demo`: a reidentified person, private answers, and an attack that fails."""

from __future__ import annotations

import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from sfumato.cli.shell import App
from sfumato.dp.refusal import Refused
from sfumato.lab import attack_broken_release, attack_private_mean, in_bands, link, uniqueness
from sfumato.lab.sample_data import (
    HEIGHT_BOUNDS,
    HEIGHTS,
    HEIGHTS_CARD,
    MEDICAL,
    MEDICAL_CARD,
    NEIGHBOUR_KNOWS,
    medical_rows,
    read_numbers,
)
from sfumato.system.temporary_folders import temporary_folder

COUNT_SICK: Final = "SELECT COUNT(*) AS sick FROM medical WHERE has_rare_disease"
QUESTIONS: Final = (
    (COUNT_SICK, "0.3"),
    ("SELECT COUNT(*) AS older FROM medical WHERE age >= 65", "0.3"),
    ("SELECT AVG(salary) AS salary FROM medical", "0.4"),
)
FOURTH: Final = ("SELECT zip, COUNT(*) AS people FROM medical GROUP BY zip", "0.2")
MEAN_HEIGHT: Final = "SELECT AVG(Height) AS height FROM heights"


def tell(app: App) -> None:
    """Print the story; every step of it really runs, on synthetic data."""
    for chapter in (_a_person_is_found, _the_door(app), _heights(app)):
        chapter()
    me = _command()
    _say(
        f"The end. For your own data: {me} init DIR, then {me} add NAME SOURCE. `{me} "
        "doctor` tests your machine."
    )


def _command() -> str:
    """Return how the printed story calls `sfumato`: by name if the shell finds it, else by path."""
    called = Path(sys.argv[0])
    return str(called) if called.name == "sfumato" and not shutil.which("sfumato") else "sfumato"


def _a_person_is_found() -> None:
    _title("1. No names, and still not anonymous")
    _say(f"A synthetic town (nobody real): {MEDICAL.name}, with age, zip, salary, rare disease.")
    rows = medical_rows()
    for found in uniqueness(in_bands(rows, "salary", 10_000), ("zip", "age", "salary")):
        _bar(found.share, found.finding)
    _say("")
    _say("A neighbour knows: age 52, zip 00310, earns between 140,000 and 160,000.")
    _good(link(rows, NEIGHBOUR_KNOWS).finding)


def _the_door(app: App) -> Callable[[], None]:
    def chapter() -> None:
        _title("2. The same data in a vault, with a privacy budget of epsilon = 1.0")
        with _vault(app) as vault:
            vault.add("medical", MEDICAL, _card(MEDICAL_CARD))
            for sql, epsilon in QUESTIONS:
                _ask(vault, sql, epsilon)
            _ask(vault, *FOURTH)
            _say("Asking the first again draws no new noise and costs nothing:")
            _ask(vault, *QUESTIONS[0])

    return chapter


def _heights(app: App) -> Callable[[], None]:
    def chapter() -> None:
        _title("3. Sixty heights, and an attacker who subtracts")
        values = read_numbers(HEIGHTS, "Height")
        _say("Synthetic heights, two of them n/a, two entered wrongly (58 and 1.65).")
        _say("A known protection: all leave-one-out means, with one shared noise on them.")
        rebuilt = attack_broken_release(values, np.random.default_rng(7), known=[0], runs=1000)
        _good(rebuilt.finding)
        _say("")
        _say("Ours: one private mean (epsilon 1), and nothing else leaves.")
        with _vault(app) as vault:
            vault.add("heights", HEIGHTS, _card(HEIGHTS_CARD))
            answer = _ask(vault, MEAN_HEIGHT, "1")
        mean = float(answer.rows[0][0])
        _good(attack_private_mean(mean, values, bounds=HEIGHT_BOUNDS).finding)

    return chapter


def _ask(vault: Any, sql: str, epsilon: str) -> Any:
    """Ask a question and print the answer or the refusal, which is part of the story."""
    _code(f"{sql}    epsilon {epsilon}")
    name = sql.partition(" FROM ")[2].partition(" ")[0]
    try:
        answer = vault[name].ask(sql, epsilon=Decimal(epsilon))
    except Refused as refused:
        click.secho(f"    refused: {refused.cause}", fg="yellow")
        click.echo(f"    {refused.next_step}")
        return None
    for line in repr(answer).splitlines():
        click.echo(f"    {line}")
    return answer


@contextmanager
def _vault(app: App) -> Iterator[Any]:
    with temporary_folder() as folder:
        place = str(folder / "vault")
        app.create(place, anchor=str(folder / "anchor"))
        with app.open(place) as vault:
            yield vault


def _card(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text("utf-8"), parse_float=Decimal)


def _title(text: str) -> None:
    click.echo()
    click.secho(text, bold=True)
    click.echo()


def _say(text: str) -> None:
    click.echo(f"  {text}")


def _good(text: str) -> None:
    click.secho(f"  -> {text}", fg="cyan")


def _code(text: str) -> None:
    click.secho(f"  > {text}", dim=True)


def _bar(share: float, text: str) -> None:
    click.echo(f"  {'█' * round(20 * share):<20} {text}")
