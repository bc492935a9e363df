"""Commands of `sfumato airlock` (output checking): reviewers release files without noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sfumato.cli.shell import Shell, command, number, show_elapsed, text_of
from sfumato.dp.refusal import Refused
from sfumato.features.airlock.client import Files
from sfumato.features.airlock.model import REVIEW
from sfumato.wire.query_json import Json

_ABOUT = "environment_lines"  # of a request: what is known of the program's environment
NOTE = "This was computed from real rows without noise. Show it to nobody."


@click.group("airlock")
def airlock() -> None:
    """Output checking: reviewers release files without noise (submit, run, show, vote, fetch)."""


@airlock.command("submit")
@click.argument("data_set")
@click.argument("program", required=False, type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--file",
    "files",
    required=True,
    multiple=True,
    metavar="PATH[:by=A,B][:count=N][:of=C]",
    help="A file that PROGRAM writes. by: the columns that define the file's groups; count: "
    "the column with each group's number of people; of: the column that is summed. "
    "Repeatable.",
)
@click.option(
    "--column",
    "columns",
    multiple=True,
    help="A column that PROGRAM reads; by default all columns. Repeatable.",
)
@click.option("--why", default="", help="The reason, for the owner and the reviewers.")
@click.option(
    "--cpu", "cpu_s", default="10", metavar="S", help="The processor seconds that PROGRAM may use."
)
@click.option("--memory", "memory_mb", type=int, metavar="MB", help="The memory of PROGRAM.")
@click.option("--disk", "disk_mb", type=int, metavar="MB", help="The disk space of PROGRAM.")
@click.option(
    "--environment",
    metavar="NAME",
    help="The environment of PROGRAM: see `sfumato pipeline environment`.",
)
@command
def submit(shell: Shell, data_set: str, program: str | None, **given: Any) -> None:
    """Submit PROGRAM, which the owner then runs as `PROGRAM INPUT OUTPUT group`.

    In an image (--environment), PROGRAM may be in any language: its first line names the
    interpreter, such as `#!/usr/bin/env Rscript`. Without PROGRAM, the image's own program runs.
    """
    named = ("environment", "memory_mb", "disk_mb")
    body: Json = {
        "data_set": data_set,
        "source": "" if program is None else text_of(program),
        "files": [_file(text) for text in given["files"]],
        "why": given["why"],
        "cpu_s": number(given["cpu_s"], "cpu"),
        **({"columns": list(given["columns"])} if given["columns"] else {}),
        **{name: given[name] for name in named if given[name] is not None},
    }
    with shell.open() as vault:
        made = vault.call("submit-airlock", body)
    next_ = f"Next, the owner runs: sfumato airlock run {made['request']}{shell.named}"
    shell.show(made, f"{_line(made)}\n{next_}")


@airlock.command("list")
@click.argument("data_set")
@click.option("--source", is_flag=True, help="Also print each program's source.")
@command
def list_(shell: Shell, data_set: str, source: bool) -> None:
    """List the airlock requests about a data set that you may see."""
    with shell.open() as vault:
        found = vault.call("airlock", {"data_set": data_set})
    lines = [
        _line(one) + (f"\n{one['program']['source']}" if source else "")
        for one in found["requests"]
    ]
    shell.show(found, "\n".join(lines) or "None.")


@airlock.command("run")
@click.argument("request")
@command
def run(shell: Shell, request: str) -> None:
    """Run a request's program once on the real rows; its files wait for the reviewers."""
    with shell.open() as vault, show_elapsed("Running"):
        made = vault.call("run-airlock", {"request": request})
    look = f"Next, each reviewer looks: sfumato airlock show {made['request']} -o files"
    next_ = f"\n{look}{shell.named}" if made["state"] == REVIEW else ""
    shell.show(made, f"{_line(made)}{next_}")


@airlock.command("show")
@click.argument("request")
@click.option(
    "-o", "--output", metavar="FOLDER", help="Write the files to this new folder, for review."
)
@command
def show(shell: Shell, request: str, output: str | None) -> None:
    """Show a request; its reviewers also get its files and the findings of the checks."""
    with shell.open() as vault:
        found = vault.call("show-airlock", {"request": request})
    lines = [_line(found), *(f"  environment: {line}" for line in found.get(_ABOUT, ()))]
    if "seal" in found:
        lines += [f"  {one['path']} {one['bytes']:,} bytes" for one in found["files"]]
        lines += [f"  ! {one['path']}: {one['says']} ({one['check']})" for one in found["findings"]]
        vote, these = f"sfumato airlock vote {found['request']}", _these(found, shell)
        lines += [
            NOTE,
            "To vote on exactly these files, run one of:",
            f"  {vote} release {these}",
            f"  {vote} reject {these} --why REASON",
        ]
        if output is not None:
            lines.append(f"Written to {Files(found).save(output)}.")
    shell.show(found, "\n".join(lines))


@airlock.command("vote")
@click.argument("request")
@click.argument("says", type=click.Choice(["release", "reject"]))
@click.option(
    "--seal",
    required=True,
    help="The seal of the files that you saw, as `sfumato airlock show` prints it.",
)
@click.option(
    "--draft",
    required=True,
    type=int,
    help="The draft that you saw, as `sfumato airlock show` prints it.",
)
@click.option("--why", default="", help="The reason, for the other reviewers.")
@command
def vote(shell: Shell, request: str, **said: Any) -> None:
    """Vote whether exactly the files that you saw may be released; your last vote counts."""
    with shell.open() as vault:
        made = vault.call("vote-airlock", {"request": request, **said})
    shell.show(made, "\n".join([_line(made), *_after_vote(made, shell.named)]))


@airlock.command("edit")
@click.argument("request")
@click.argument("path")
@click.option(
    "--with",
    "file",
    type=click.Path(exists=True, dir_okay=False),
    help="A file that replaces it; you then have no vote on it. Without --with, the file is "
    "removed.",
)
@command
def edit(shell: Shell, request: str, path: str, file: str | None) -> None:
    """Remove or replace the file PATH under review; earlier approvals become void."""
    import base64

    body: Json = {"request": request, "path": path}
    with shell.open() as vault:
        if file is None:
            made = vault.call("trim-airlock", body)
        else:
            text = base64.b64encode(Path(file).read_bytes()).decode()
            made = vault.call("replace-airlock", {**body, "base64": text})
    shell.show(made, _line(made))


@airlock.command("release")
@click.argument("request")
@command
def release(shell: Shell, request: str) -> None:
    """Release the files, if enough reviewers voted for exactly these files."""
    with shell.open() as vault:
        made = vault.call("release-airlock", {"request": request})
    shell.show(made, f"{_line(made)}\n{made['guarantee']}, entry {made['receipt']['seq']}.")


@airlock.command("fetch")
@click.argument("request")
@click.option("-o", "--output", required=True, metavar="FOLDER", help="A new folder.")
@command
def fetch(shell: Shell, request: str, output: str) -> None:
    """Write the files and the signed receipt of a released request into a new folder."""
    with shell.open() as vault:
        found = vault.call("fetch-airlock", {"request": request})
    place = Files(found).save(output)
    shell.show(found, f"Written to {place}: {found['guarantee']}.")


@airlock.command("decline")
@click.argument("request")
@command
def decline(shell: Shell, request: str) -> None:
    """Decline an airlock request; only the data set's owner may."""
    with shell.open() as vault:
        made = vault.call("decline-airlock", {"request": request})
    shell.show(made, _line(made))


@airlock.command("withdraw")
@click.argument("request")
@command
def withdraw(shell: Shell, request: str) -> None:
    """Withdraw your own airlock request while it is open."""
    with shell.open() as vault:
        made = vault.call("withdraw-airlock", {"request": request})
    shell.show(made, _line(made))


def _these(found: Any, shell: Shell) -> str:  # Any: JSON of the service
    return f"--seal {found['seal']} --draft {found['draft']}{shell.named}"


def _after_vote(made: Any, named: str) -> list[str]:  # Any: JSON of the service
    """Return what comes after a vote: another reviewer's vote, or the release."""
    if made["state"] != REVIEW:
        return []
    votes = [vote["says"] for vote in made.get("votes", ())]
    if "reject" in votes:
        return ["A reviewer objects, so the files cannot be released until that vote changes."]
    if (missing := made["needed"] - votes.count("release")) > 0:
        more = "one more reviewer votes" if missing == 1 else f"{missing} more reviewers vote"
        return [f"Next, {more}: sfumato airlock show {made['request']}{named}"]
    return [f"Next, release the files: sfumato airlock release {made['request']}{named}"]


def _file(text: str) -> Json:
    path, *parts = text.split(":")
    made: Json = {"path": path}
    for part in parts:
        key, _, value = part.partition("=")
        if key not in ("by", "count", "of") or not value:
            raise Refused(
                "bad-airlock",
                "A file has the form PATH[:by=A,B][:count=N][:of=C].",
                "Write the --file option in this form, for example --file "
                "table.csv:by=region:count=n.",
            )
        made[key] = value.split(",") if key == "by" else value
    return made


def _line(one: Any) -> str:  # Any: JSON of the service
    files = ", ".join(file["path"] for file in one["program"]["files"])
    votes = one.get("votes", [])
    said = "".join(f", {vote['user']} votes {vote['says']}" for vote in votes)
    own = one["program"]["environment"].partition("+")[2]
    return (
        f"{one['request']} {one['state']}: {files}, by {one['author']} about "
        f"{one['data_set']}; {one['guarantee']}{f', in {own}' if own else ''}{said}"
    )


COMMANDS = (airlock,)
