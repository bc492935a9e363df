"""The survey commands: simulate, preview, publish, invite, answer without a browser, results."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from sfumato.cli.shell import Shell, command, number
from sfumato.client.text_tables import printable
from sfumato.dp.refusal import Refused
from sfumato.features.surveys import client as surveys_client
from sfumato.features.surveys.device_files import KeptDevice
from sfumato.features.surveys.device_privacy_statement import device_privacy_statement, summed
from sfumato.features.surveys.questionnaire import ask, theirs
from sfumato.features.surveys.respondent_client import Waiting, proven


@click.group("survey")
def survey() -> None:
    """Ask people whose own devices add the noise: simulate, publish, invite, answer, results."""


@survey.command("simulate")
@click.option("--truth", default=70.0, show_default=True, help="Per cent whose answer is yes.")
@click.option("--people", default=1000, show_default=True, help="How many answer.")
@click.option("--epsilon", metavar="E", help="Of a report; without it both coins are fair: ln 3.")
@command
def simulate(shell: Shell, truth: float, people: int, epsilon: str | None) -> None:
    """Show what two coins make of a share, what comes back, and how the error falls with people."""
    if not (0 <= truth <= 100 and 2 <= people <= 10**7):
        raise Refused("bad-request", "A share is 0 to 100 per cent, of 2 people.", "Mend it.")
    bold = None if epsilon is None else Fraction(number(epsilon, "epsilon"))
    found = surveys_client.two_coins(truth / 100, people, bold, shell.app.draw)
    sizes = (100, 1000, 10_000, 100_000)
    errors = {
        n: surveys_client.two_coins(truth / 100, n, bold, shell.app.draw).error for n in sizes
    }
    shell.show(
        {**asdict(found), "errors": {str(n): error for n, error in errors.items()}},
        f"{found.truth:.1%} of {people:,} people would say yes.\n"
        f"{found.observed:.1%} of their reports say yes: two coins are in each "
        f"(epsilon {found.epsilon:.4f}).\n"
        f"{surveys_client.share_in_words(found.value)} comes back, "
        f"between {found.low:.1%} and {found.high:.1%} (95 %).\n"
        + "\n".join(f"  {n:>7,} people: ± {100 * error:.1f} points" for n, error in errors.items()),
    )


@survey.command("preview")
@click.argument("design", type=click.Path(exists=True, dir_okay=False))
@command
def preview(shell: Shell, design: str) -> None:
    """Show what a ballot of a design (a JSON file) gives away, and how far off it will be."""
    made = surveys_client.LocalSurvey(_read(design), shell.app.draw)
    others = made.tried
    table = [
        {"epsilon": float(epsilon), "expected": [one.shape() for one in found]}
        for epsilon, found in others
    ]
    shape = {"epsilon": made.epsilon, "expected": [one.shape() for one in made.expected]}
    lines = [
        f"{one.question.id}: {_off(one)} from {one.people:,} reports; "
        f"{one.odds} of 100 reports say the truth; one liar in a hundred moves it by "
        f"{_size(one, one.liars)} at most."
        for one in made.expected
    ]
    lines += ["With another epsilon of the ballot, in the same order:"] if others else []
    lines += [f"  {float(epsilon):g}: {', '.join(map(_off, found))}" for epsilon, found in others]
    said = f"A ballot gives away epsilon {made.epsilon:.4g}.\n"
    shell.show({**shape, "table": table}, said + "\n".join(lines))


def _off(one: Any) -> str:  # Any: the Expected of a question
    return f"± {_size(one, one.error)}" if one.tells else "nothing is learnt"


def _size(one: Any, size: float) -> str:  # Any: as above
    """Format an error: of a number in its own unit, of a share in percentage points."""
    if one.question.kind == "number":
        return f"{size:.3g} {one.question.unit}".strip()
    return f"{100 * size:.3g} points"


@survey.command("publish")
@click.argument("design", type=click.Path(exists=True, dir_okay=False))
@command
def publish(shell: Shell, design: str) -> None:
    """Publish a design (a JSON file); its questions, coins and key stand for good."""
    with shell.open() as vault:
        made = surveys_client.LocalSurvey(_read(design), shell.app.draw).publish(vault)
    page = f"/s/{made['survey']}"
    shell.show(
        made,
        f"Published {made['title']!r}: {shell.address(page)}.\n"
        f"Next: sfumato survey invite {made['survey']} --count 10{shell.named}",
    )


@survey.command("list")
@command
def list_(shell: Shell) -> None:
    """List your surveys."""
    with shell.open() as vault:
        found = vault.call("surveys", {})
    lines = [
        f"{one['survey']}  {one['state']:7}  {one['reports']:>6,} shown  {printable(one['title'])}"
        for one in found["surveys"]
    ]
    shell.show(found, "\n".join(lines) or "None yet.")


@survey.command("invite")
@click.argument("survey_id")
@click.option("--count", default=1, show_default=True)
@click.option("--name", "names", multiple=True, help="Somebody whose lifetime sum is kept.")
@command
def invite(shell: Shell, survey_id: str, count: int, names: tuple[str, ...]) -> None:
    """Print new invitation codes, one a line; they are shown this once.

    A code without a name is a person of its own: the lifetime holds within that code, and nothing
    here adds up what one person gives away under several. With --name their sum is kept.
    """
    with shell.open() as vault:
        codes = surveys_client.invite(vault, survey_id, list(names) or count)
    if not names:
        click.echo(_NAMELESS, err=True)
    shell.show({"survey": survey_id, "codes": codes}, "\n".join(codes))


_NAMELESS = (
    "Without names each code is a person of its own: nothing here adds up what one person gives "
    "away under several codes. --name keeps one sum."
)


@survey.command("close")
@click.argument("survey_id")
@command
def close(shell: Shell, survey_id: str) -> None:
    """Take no more ballots, and show every report that came."""
    with shell.open() as vault:
        made = vault.call("close-survey", {"survey": survey_id})
    shell.show(made, f"Closed {made['title']!r}: {_reports(made['reports'])}.")


@survey.command("results")
@click.argument("survey_id")
@click.option("--add-up", is_flag=True, help="Move the shares of a question to add up to 100 %.")
@command
def results(shell: Shell, survey_id: str, add_up: bool) -> None:
    """Show the estimates, once enough people have answered."""
    asked = {"survey": survey_id, **({"shares": "add-up"} if add_up else {})}
    with shell.open() as vault:
        found = vault.call("survey-estimates", asked)
    title = printable(found["title"])
    lines = [f"{title}: {_reports(found['reports'])}, {found['guarantee']}"]
    if not found["enough"]:
        lines.append(f"Nothing is shown before {found['minimum']:,} people have answered.")
        lines.append(_STILL_OPEN if found["state"] == "open" else _FEW)
    for one in found["questions"]:
        lines += [printable(one["text"]), *(_estimated(one, e) for e in one["estimates"])]
    if add_up and found["questions"]:
        lines.append(_ADDED_UP)
    shell.show(found, "\n".join(lines))


def _estimated(question: Any, one: Any) -> str:  # Any: one question of the results, and a number
    if question["measure"] == "mean":
        said = f"{one['value']:.4g} ({one['low']:.4g} to {one['high']:.4g})"
        moved = f"{one['liars']:.2g}"
    else:
        share = surveys_client.nearest_share(one["value"])
        said = f"{100 * share:.3g} % ({100 * one['low']:.3g} to {100 * one['high']:.3g} %)"
        moved = f"{100 * one['liars']:.2g} points"
    label = printable(one["label"])
    return f"  {label}: {said}; one liar in a hundred moves it by {moved} at most"


def _reports(count: int) -> str:
    return f"{count:,} report{'' if count == 1 else 's'}"


_ADDED_UP = (
    "The shares of a yes or no, and of a choice, are the nearest to the estimates that add up to "
    "100 %; the ranges are those of the estimates themselves."
)
_FEW = (
    "No more come, so nothing will be estimated: so few coins do not even out. What came is open "
    "to all: sfumato survey reports SURVEY"
)
_STILL_OPEN = (
    "As long as it is open, the last 25 wait besides, and what is shown moves on by 25 at least. "
    "Of a small group everything shows once it is closed: sfumato survey close SURVEY"
)


@survey.command("reports")
@click.argument("survey_id")
@command
def reports(shell: Shell, survey_id: str) -> None:
    """Print every randomised report that is shown, as CSV."""
    with shell.open() as vault:
        found = surveys_client.reports(vault, survey_id)
    lines = "\n".join(["mark,said", *(f"{mark},{said}" for mark, said in found)])
    shell.show({"reports": [{"mark": m, "said": s} for m, s in found]}, lines)


@survey.command("answer")
@click.argument("survey_id")
@click.option("--device", metavar="FILE", envvar="SFUMATO_DEVICE", help="Where its secret lies.")
@command
def answer(shell: Shell, survey_id: str, device: str | None) -> None:
    """Answer without a browser: asked here, randomised here, and only then sent.

    What was to be sent is kept beside the device's secret until it has arrived: after a fall, the
    same command sends that, once, and asks nothing.
    """
    own = KeptDevice(Path(device) if device else _state() / "device", shell.app.draw)
    with _house(shell) as house:
        asked = proven(house, survey_id)
        waiting = own.waiting(asked)
        if waiting is None:
            waiting = _filled_in(asked, own)
        else:
            click.echo("A ballot of this device waits: it is sent now, and counts once.", err=True)
        ready = own.send(house, asked, waiting)
    shell.show(
        {"mark": ready.mark, "said": ready.said, "spent": float(own.spent)},
        f"{summed(own.spent)}\nYour report stands among all under its mark, once enough have come: "
        f"sfumato survey reports {survey_id}{shell.named}\n"
        f"It has arrived, and counts once. Your mark: {ready.mark}",
    )


def _filled_in(asked: Any, own: KeptDevice) -> Waiting:  # Any: a published survey
    """Show the privacy statement, ask all questions, and confirm the report before it is kept.

    The true answers stay in memory.
    """
    survey, device = asked.survey, own.device()
    questions = list(enumerate(survey.questions, start=1))
    lines = ["What stands behind | is said by whoever asks:",
             *theirs(f"{survey.asks} asks: {survey.title}", survey.about, ""),
             *(line for n, q in questions for line in theirs(f"{n}. {q.text}")), "",
             "What can be learnt about you:", *(f"- {one}" for one in device_privacy_statement(asked)),  # noqa: E501
             *([f"- {summed(own.spent)}"] if own.spent else []), "",
             "Leave empty what you would rather not answer: that goes through the coins, too.",
             "You see what will be sent before it is; without your yes nothing is."]  # fmt: skip
    click.echo("\n".join(lines), err=True)
    code = click.prompt("Your invitation", err=True, hide_input=True)
    truths = {q.id: ask(q, n, len(questions)) for n, q in questions}
    click.echo(f"\nThis is all that will be sent: {device.said(asked, truths)}", err=True)
    for place, words in device.in_words(asked, truths):
        click.echo("\n".join([f"To question {place} it says:", *theirs(words)]), err=True)
    if not click.confirm("Send it?", default=True, err=True):
        click.echo("Nothing was sent.", err=True)
        raise click.Abort
    return own.begun(asked, code, truths)


def _house(shell: Shell) -> Any:  # Any: the client's vault
    """Connect to the vault without an access token, which respondents don't need."""
    if shell.is_remote:
        return shell.app.connect(str(shell.vault), token="")
    return shell.open()


def _state() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "sfumato"


def _read(path: str) -> dict[str, object]:
    try:
        read = json.loads(Path(path).read_text("utf-8"))
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise Refused("bad-survey", f"{path} is no JSON object.", "See docs/how-to/surveys.md.")
    return read


COMMANDS = (survey,)
