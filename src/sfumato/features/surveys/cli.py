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
from sfumato.features.surveys.respondent_client import UnsentBallot, proven


@click.group("survey")
def survey() -> None:
    """Run surveys in which each respondent's device adds the noise (local differential privacy)."""


@survey.command("simulate")
@click.option(
    "--truth",
    default=70.0,
    show_default=True,
    help="The percentage of people whose true answer is yes.",
)
@click.option("--people", default=1000, show_default=True, help="The number of respondents.")
@click.option(
    "--epsilon",
    metavar="E",
    help="The epsilon of a report; by default ln 3, which is two fair coins.",
)
@command
def simulate(shell: Shell, truth: float, people: int, epsilon: str | None) -> None:
    """Simulate randomised response with two coins: reports, estimate, and error by sample size."""
    if not (0 <= truth <= 100 and 2 <= people <= 10**7):
        raise Refused(
            "bad-request",
            "--truth must be 0 to 100, and --people must be 2 to 10,000,000.",
            "Give values in these ranges, for example --truth 30 --people 1000.",
        )
    bold = None if epsilon is None else Fraction(number(epsilon, "epsilon"))
    found = surveys_client.two_coins(truth / 100, people, bold, shell.app.draw)
    sizes = (100, 1000, 10_000, 100_000)
    errors = {
        n: surveys_client.two_coins(truth / 100, n, bold, shell.app.draw).error for n in sizes
    }
    shell.show(
        {**asdict(found), "errors": {str(n): error for n, error in errors.items()}},
        f"{found.truth:.1%} of {people:,} people would say yes.\n"
        f"{found.observed:.1%} of their reports say yes, because two coins randomise "
        f"each report (epsilon {found.epsilon:.4f}).\n"
        f"The estimate from the reports is {surveys_client.share_in_words(found.value)}, "
        f"between {found.low:.1%} and {found.high:.1%} (95 %).\n"
        + "\n".join(f"  {n:>7,} people: ± {100 * error:.1f} points" for n, error in errors.items()),
    )


@survey.command("preview")
@click.argument("design", type=click.Path(exists=True, dir_okay=False))
@command
def preview(shell: Shell, design: str) -> None:
    """Show the epsilon of a ballot and the expected errors of a design (a JSON file)."""
    made = surveys_client.LocalSurvey(_read(design), shell.app.draw)
    others = made.tried
    table = [
        {"epsilon": float(epsilon), "expected": [one.shape() for one in found]}
        for epsilon, found in others
    ]
    shape = {"epsilon": made.epsilon, "expected": [one.shape() for one in made.expected]}
    lines = [
        f"{one.question.id}: {_off(one)} from {one.people:,} reports. {one.odds} of 100 "
        "reports contain the true answer. If 1 % of the respondents lie, the estimate "
        f"moves by at most {_size(one, one.liars)}."
        for one in made.expected
    ]
    lines += ["Errors with another epsilon of the ballot, in the same order:"] if others else []
    lines += [f"  {float(epsilon):g}: {', '.join(map(_off, found))}" for epsilon, found in others]
    said = f"A ballot costs the respondent epsilon {made.epsilon:.4g}.\n"
    shell.show({**shape, "table": table}, said + "\n".join(lines))


def _off(one: Any) -> str:  # Any: the Expected of a question
    return f"± {_size(one, one.error)}" if one.tells else "no estimate is possible"


def _size(one: Any, size: float) -> str:  # Any: as above
    """Format a question's expected error, in the number's unit or in percentage points."""
    if one.question.kind == "number":
        return f"{size:.3g} {one.question.unit}".strip()
    return f"{100 * size:.3g} points"


@survey.command("publish")
@click.argument("design", type=click.Path(exists=True, dir_okay=False))
@command
def publish(shell: Shell, design: str) -> None:
    """Publish a design (a JSON file); its questions, probabilities and key can never change."""
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
    shell.show(found, "\n".join(lines) or "There are no surveys.")


@survey.command("invite")
@click.argument("survey_id")
@click.option("--count", default=1, show_default=True)
@click.option(
    "--name",
    "names",
    multiple=True,
    help="The name of a person whose epsilon is summed over all your surveys. Repeatable.",
)
@command
def invite(shell: Shell, survey_id: str, count: int, names: tuple[str, ...]) -> None:
    """Print new invitation codes, one per line; they are never shown again.

    A code without a name counts as a separate person. The lifetime budget then bounds only that
    code, and the service cannot sum up a person's epsilon over several codes. With --name, it can.
    """
    with shell.open() as vault:
        codes = surveys_client.invite(vault, survey_id, list(names) or count)
    if not names:
        click.echo(_NAMELESS, err=True)
    shell.show({"survey": survey_id, "codes": codes}, "\n".join(codes))


_NAMELESS = (
    "Each code without a name counts as a separate person: the service cannot sum the "
    "epsilon of a person with several codes. With --name, it can."
)


@survey.command("close")
@click.argument("survey_id")
@command
def close(shell: Shell, survey_id: str) -> None:
    """Close a survey: it takes no more ballots, and shows all its reports."""
    with shell.open() as vault:
        made = vault.call("close-survey", {"survey": survey_id})
    shell.show(made, f"Closed {made['title']!r}: {_reports(made['reports'])}.")


@survey.command("results")
@click.argument("survey_id")
@click.option(
    "--add-up",
    is_flag=True,
    help="Adjust the shares of each question so that they add up to 100 %.",
)
@command
def results(shell: Shell, survey_id: str, add_up: bool) -> None:
    """Show the estimated results of a survey, once enough people have answered."""
    asked = {"survey": survey_id, **({"shares": "add-up"} if add_up else {})}
    with shell.open() as vault:
        found = vault.call("survey-estimates", asked)
    title = printable(found["title"])
    lines = [f"{title}: {_reports(found['reports'])}, {found['guarantee']}"]
    if not found["enough"]:
        lines.append(f"Results are shown once {found['minimum']:,} people have answered.")
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
    return f"  {label}: {said}; if 1 % of the respondents lie, it moves by at most {moved}"


def _reports(count: int) -> str:
    return f"{count:,} report{'' if count == 1 else 's'}"


_ADDED_UP = (
    "The shares of yes-or-no and choice questions are adjusted: they are the shares "
    "nearest to the estimates that add up to 100 %. The ranges belong to the "
    "unadjusted estimates."
)
_FEW = (
    "The survey is closed with too few reports, so it has no estimates: their noise "
    "would be too large. Everybody can read the reports: sfumato survey reports SURVEY"
)
_STILL_OPEN = (
    "While the survey is open, its last 25 reports stay hidden, and the results "
    "advance by at least 25 reports. A closed survey shows all reports: sfumato survey "
    "close SURVEY"
)


@survey.command("reports")
@click.argument("survey_id")
@command
def reports(shell: Shell, survey_id: str) -> None:
    """Print all published reports (randomised) as CSV."""
    with shell.open() as vault:
        found = surveys_client.reports(vault, survey_id)
    lines = "\n".join(["mark,said", *(f"{mark},{said}" for mark, said in found)])
    shell.show({"reports": [{"mark": m, "said": s} for m, s in found]}, lines)


@survey.command("answer")
@click.argument("survey_id")
@click.option(
    "--device", metavar="FILE", envvar="SFUMATO_DEVICE", help="The file with the device's secret."
)
@command
def answer(shell: Shell, survey_id: str, device: str | None) -> None:
    """Answer a survey without a browser; this command randomises the answers and sends only that.

    The command keeps the ballot beside the device's secret until the ballot has arrived. If it was
    interrupted, run it again: it sends the same ballot, once, and asks no questions.
    """
    own = KeptDevice(Path(device) if device else _state() / "device", shell.app.draw)
    with _house(shell) as house:
        asked = proven(house, survey_id)
        waiting = own.waiting(asked)
        if waiting is None:
            waiting = _filled_in(asked, own)
        else:
            click.echo(
                "A ballot of this device was not sent yet. It is sent now, and counts once.",
                err=True,
            )
        ready = own.send(house, asked, waiting)
    shell.show(
        {"mark": ready.mark, "said": ready.said, "spent": float(own.spent)},
        f"{summed(own.spent)}\n"
        "Once enough reports have arrived, yours is listed under its code (mark): sfumato "
        f"survey reports {survey_id}{shell.named}\n"
        f"Your report has arrived, and counts once. Its code (mark): {ready.mark}",
    )


def _filled_in(asked: Any, own: KeptDevice) -> UnsentBallot:  # Any: a published survey
    """Show the privacy statement, ask all questions, and store the report once it is confirmed.

    The true answers stay in memory.
    """
    survey, device = asked.survey, own.device()
    questions = list(enumerate(survey.questions, start=1))
    lines = ["Lines that begin with | are the words of whoever asks:",
             *theirs(f"{survey.asks} asks: {survey.title}", survey.about, ""),
             *(line for n, q in questions for line in theirs(f"{n}. {q.text}")), "",
             "What others can learn about you:", *(f"- {one}" for one in device_privacy_statement(asked)),  # noqa: E501
             *([f"- {summed(own.spent)}"] if own.spent else []), "",
             "You can leave a question empty. The empty answer is randomised, too.",
             "You see what will be sent, and nothing is sent before you say yes."]  # fmt: skip
    click.echo("\n".join(lines), err=True)
    code = click.prompt("Your invitation code", err=True, hide_input=True)
    truths = {q.id: ask(q, n, len(questions)) for n, q in questions}
    click.echo(f"\nThis is all that will be sent: {device.said(asked, truths)}", err=True)
    for place, words in device.in_words(asked, truths):
        click.echo("\n".join([f"It answers question {place} with:", *theirs(words)]), err=True)
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
        raise Refused(
            "bad-survey",
            f"The survey design {path} is not a JSON object.",
            "docs/how-to/surveys.md describes the file.",
        )
    return read


COMMANDS = (survey,)
