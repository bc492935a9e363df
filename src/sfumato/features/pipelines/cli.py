"""The pipeline commands: researchers submit, plan and run programs; owners approve them."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from sfumato.cli.researcher import answer_shape
from sfumato.cli.shell import Shell, command, number, pairs_of, show_elapsed, text_of
from sfumato.client.answer import Answer
from sfumato.client.display import BlocksPlan, SubmittedProgram, trace_lines
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.client import check_listed, listed_places, output_places
from sfumato.features.pipelines.environment_cli import environment
from sfumato.features.pipelines.image_request_cli import REQUESTS
from sfumato.features.pipelines.program_folder import read_folder, read_text, texts_of
from sfumato.features.pipelines.review_cli import (
    NOTHING_CHECKED,
    confirmed,
    confirmed_all,
    listed_lines,
    price_lines,
    review_lines,
    state_lines,
    title_of,
)
from sfumato.wire.query_json import Json

_MAIN = click.option(
    "--main",
    metavar="PATH",
    help="The main file, if FILE is a folder; by default the file called main or run.",
)
_TIMING = click.option(
    "--timing",
    type=click.Choice(["isolated", "batch"]),
    help="How blocks are timed: isolated, or in a batch if operator and owner allow it.",
)
TRACED: Final = 50  # the most commands and files of a local trial that are shown
_PLANNED: Final = ("people", "blocks", "memory_mb", "disk_mb", "seed", "timing")  # as they are


@click.group("pipeline")
def pipeline() -> None:
    """Submit, approve and run programs: private averages over blocks of people."""


@pipeline.command("submit")
@click.argument("data_set")
@click.argument("file", required=False, type=click.Path(exists=True))
@_MAIN
@click.option(
    "--function",
    metavar="NAME",
    help="A function in FILE that takes the rows as its only argument.",
)
@click.option(
    "--output",
    "outputs",
    required=True,
    multiple=True,
    metavar="NAME[ROWS,...]:LOW:HIGH[:STEP][@PATH[#PLACE,...]]",
    help="An output: its name, its range (from knowledge), and its place in the results. For a "
    "table with named cells, write `rows=A,B;columns=C,D` as its place.",
)
@click.option(
    "--whitelist",
    type=click.Path(exists=True, dir_okay=False),
    help="A file with the allowed result paths, one per line.",
)
@click.option(
    "--participants",
    is_flag=True,
    help="First run FILE for each person separately, then for the group.",
)
@click.option(
    "--column",
    "columns",
    multiple=True,
    help="A column that the program reads; by default all columns. Repeatable.",
)
@click.option(
    "--environment",
    metavar="NAME",
    help="The environment of the program: see `sfumato pipeline environment`.",
)
@click.option(
    "--epsilon",
    default="1",
    metavar="E",
    help="The price for which the table of errors is computed; nothing is spent.",
)
@command
def submit(shell: Shell, data_set: str, file: str | None, **given: Any) -> None:
    """Submit the program FILE; it can run once the owner approves it.

    FILE is a file, or a folder with a main file and its modules.

    With --function, the program is that function in FILE. Without it, sfumato runs `FILE INPUT
    OUTPUT group`, where INPUT has a participants.tsv of the block's people. With --participants,
    sfumato first runs `FILE INPUT OUTPUT participant` for each person, with only that person in
    INPUT. An image in --environment contains its own program, and needs no FILE.
    """
    outputs = [_output(text) for text in given["outputs"]]
    if given["whitelist"] is not None:
        check_listed(outputs, text_of(given["whitelist"]))
    kind = _kind(given["function"], given["participants"])
    body: Json = {
        "data_set": data_set,
        **program_text(file, given["main"]),
        "kind": kind,
        "name": given["function"] or "group",
        "outputs": outputs,
        "epsilon": number(given["epsilon"], "epsilon"),
        **({} if file is None else {"file": Path(file).name}),
        **({"columns": list(given["columns"])} if given["columns"] else {}),
        **({"environment": given["environment"]} if given["environment"] else {}),
    }
    with shell.open() as vault:
        made = vault.call("submit-pipeline", body)
    shell.show(made, "\n".join([repr(SubmittedProgram(made)), *_next_lines(made, shell.named)]))


def _next_lines(made: Json, named: str) -> list[str]:
    """Return what to do after a program was submitted."""
    short = f"{made['data_set']} {str(made['digest'])[:12]}"
    tried = f"sfumato pipeline plan {short} --epsilon 1{named}"
    match made["state"]:
        case "waiting":
            most = f"{made['errors']['epsilon']:g}"  # type: ignore[index]  # JSON of the service
            owner = f"sfumato pipeline approve {short} --most-epsilon {most}{named}"
            return [
                "It spent nothing. It can run once the owner approves it.",
                f"Next, try it on synthetic people: {tried}",
                f"The owner then runs: {owner}",
            ]
        case "approved":
            return [
                "It spent nothing, and may run.",
                f"Next, try it on synthetic people: {tried}",
            ]
        case _:
            return ["The owner declined it: `sfumato pipeline list` says why."]


@pipeline.command("try")
@click.argument("file", required=False, type=click.Path(exists=True))
@_MAIN
@click.option(
    "--data",
    required=True,
    type=click.Path(exists=True),
    help="Synthetic data: a folder, a zip file, or a .tsv or .csv table, such as a schema twin.",
)
@click.option(
    "--blocks", type=int, metavar="N", help="Split the people into N blocks; run FILE on each."
)
@click.option(
    "--person", metavar="COLUMN", help="With --blocks: the column that names the person of a row."
)
@click.option(
    "--output",
    "outputs",
    required=True,
    multiple=True,
    metavar="NAME[ROWS,...]:LOW:HIGH[:STEP]@PATH[#PLACE,...]",
    help="An output, as for `submit`.",
)
@click.option(
    "--participants",
    is_flag=True,
    help="First run FILE for each person separately, then for the group.",
)
@click.option(
    "--image",
    nargs=2,
    metavar="PLACE DIGEST",
    help="An OCI layout, an archive of an image or a SIF file, and its sha256:...",
)
@click.option(
    "--environment", metavar="NAME", help="An environment that is on this machine already."
)
@click.option(
    "--lock", type=click.Path(exists=True, dir_okay=False), help="A lock file of Python wheels."
)
@click.option(
    "--folder", type=click.Path(exists=True, file_okay=False), help="A folder with modules."
)
@click.option("--cpu", "cpu_s", default="2", metavar="S", help="The processor seconds of a block.")
@click.option(
    "--memory", "memory_mb", type=int, default=2048, metavar="MB", help="The memory of a block."
)
@click.option(
    "--disk", "disk_mb", type=int, default=64, metavar="MB", help="The disk space of a block."
)
@_TIMING
@command
def try_(shell: Shell, file: str | None, **given: Any) -> None:
    """Try a program on this machine, in a sandbox like that for real rows; no vault is needed.

    sfumato runs `FILE INPUT OUTPUT group` once, with all of --data in INPUT. An image in --image
    contains its own program, and needs no FILE. With --participants, sfumato first runs `FILE INPUT
    OUTPUT participant` for each person of a BIDS folder, with only that person in INPUT. The trial
    shows what the program printed and used, the commands that it ran, the files that it left, what
    it returned, and the likely cause if it failed.

    With --blocks, sfumato splits the people of --data as a run does, with a public key, and runs
    FILE on one block after another. It shows a line for each, and the first failed block in full.
    """
    if given["person"] is not None and given["blocks"] is None:
        raise click.UsageError("--person is for --blocks.")
    kinds = ("image", "lock", "folder", "environment")
    brought = [kind for kind in kinds if given[kind] is not None]
    if len(brought) > 1:
        raise click.UsageError("Give at most one of --image, --lock, --folder and --environment.")
    places = [given[kind] if kind == "image" else (given[kind],) for kind in brought]
    limits = {
        "cpu_s": number(given["cpu_s"], "cpu"), "memory_mb": given["memory_mb"],
        "disk_mb": given["disk_mb"], "timing": given["timing"] or "isolated",
    }  # fmt: skip
    with show_elapsed("Trying"):
        found = shell.app.try_program(
            {**program_text(file, given["main"]), "kind": _kind(None, given["participants"])},
            {"place": given["data"], "blocks": given["blocks"], "person": given["person"]},
            [_output(text) for text in given["outputs"]],
            brought=[*brought, *(place for named in places for place in named)],
            limits=limits,
        )
    lines = trial_lines(found) if given["blocks"] is None else block_lines(found)
    shell.show(found, "\n".join(lines))
    if found["would_fail"]:
        raise SystemExit(1)


def trial_lines(found: Json) -> list[str]:
    """Return the lines to print for a local trial: what the program printed, used, did and gave."""
    many = "" if found["processes"] == 1 else f", {found['processes']} processes at once"
    printed = [f"  | {line}" for line in str(found["printed"]).splitlines()]
    read: Any = found["read"]
    return [
        *_alone_lines(found.get("alone")),
        *(["Printed:", *printed] if printed else ["It printed nothing."]),
        f"Ended: {found['ended']}. It took {found['wall_s']:.2f} s, and used "
        f"{found['cpu_s']:.2f} s of processor time, {found['memory_mb']} MB{many}.",
        *(line[2:] for line in trace_lines(found, TRACED)),
        *(f"{one['output']}: {one['says']}" for one in read),
        f"The trial failed: {found['would_fail']}."
        if found["would_fail"]
        else "The trial gave all results.",
    ]


def block_lines(found: Json) -> list[str]:
    """Return the lines to print for a trial on blocks: one for each, and the first failed one."""
    blocks: Any = found["blocks"]
    failed: Any = found["failed"]
    lines = [
        f"Block {one['block']} of {len(blocks)}, {_people_in(one)}: {one['ended']}, "
        f"{one['wall_s']:.2f} s; {_block_result(one)}"
        for one in blocks
    ]
    if failed is None:
        return [*lines, f"All {len(blocks)} blocks gave all results."]
    return [
        *lines,
        "",
        f"Block {failed['block']}, {_people_in(failed)}:",
        *trial_lines(failed),
        "",
        f"{found['would_fail']}. In a run, a failed block counts as the middle of the range.",
    ]


def _people_in(block: Any) -> str:  # Any: JSON of a local trial
    count = block["people"]
    return f"{count:,} {'person' if count == 1 else 'people'}" if count else "nobody in it"


def _block_result(block: Any) -> str:  # Any: JSON of a local trial
    if block["would_fail"]:
        return f"failed: {block['would_fail']}"
    return ", ".join(f"{one['output']}: {one['says']}" for one in block["read"])


def _alone_lines(alone: Any) -> list[str]:
    """Return the line on people's own runs: how many there were, and why the first one failed."""
    if not alone:
        return []
    runs, failed = alone["runs"], alone["failed"]
    if not failed:
        return [f"People's own runs: all {runs} ended with exit status 0."]
    name, cause = next(iter(failed.items()))
    return [f"People's own runs: {len(failed)} of {runs} failed. The first is {name}: {cause}."]


@pipeline.command("list")
@click.argument("data_set")
@click.option("--source", is_flag=True, help="Also print each program's source.")
@command
def list_(shell: Shell, data_set: str, source: bool) -> None:
    """List the programs submitted for a data set: all if you own it, else your own."""
    with shell.open() as vault:
        found = vault.call("pipelines", {"data_set": data_set})
        brought = {} if shell.is_remote else _brought(vault)
    lines = [
        line
        for one in found["pipelines"]
        for line in (
            *listed_lines(one),
            *_brought_lines(one, brought),
            *state_lines(one),
            *(_text_lines(one) if source else ()),
        )
    ]
    there = [f"  {one['name']}" for one in found.get("environments", ())]
    told = ["Environments for --environment:", *there] if there else []
    shell.show(found, "\n".join([*(lines or ["None."]), *told]))


@pipeline.command("show")
@click.argument("data_set")
@click.argument("digest")
@command
def show(shell: Shell, data_set: str, digest: str) -> None:
    """Show a program as its owner reviews it: text, changes, trial, outputs, and a checklist."""
    with shell.open() as vault:
        found = vault.call("pipeline", {"data_set": data_set, "pipeline": digest})
    shell.show(found, "\n".join(review_lines(found)))


@pipeline.command("approve")
@click.argument("data_set")
@click.argument("digest")
@click.option("--most-epsilon", required=True, metavar="E", help="The highest price of a run.")
@click.option(
    "--timing",
    type=click.Choice(["isolated", "batch"]),
    default="isolated",
    help="`batch` also allows blocks side by side; only for a program that you have read.",
)
@click.option(
    "--checked",
    is_flag=True,
    help="Confirm all questions of the checklist, which `show` prints.",
)
@click.option(
    "--untried",
    is_flag=True,
    help="With --checked: approve the program although no trial of it is on record.",
)
@click.option("--reason", metavar="TEXT", help="A remark for the author.")
@command
def approve(shell: Shell, data_set: str, digest: str, most_epsilon: str, **given: Any) -> None:
    """Approve a submitted program and its output ranges, up to a price per run.

    At a terminal, it first shows the program, and asks the questions of the checklist.
    """
    most = number(most_epsilon, "epsilon")
    asks = not given["checked"] and not shell.as_json and sys.stdin.isatty()
    with shell.open() as vault:
        seen = vault.call("pipeline", {"data_set": data_set, "pipeline": digest})
        if asks:
            shell.show(seen, "\n".join(review_lines(seen)))
        if given["checked"]:
            checked = confirmed_all(seen, is_untried=given["untried"])
        else:
            checked = confirmed(seen, may_ask=asks)
        made = vault.call("decide-pipeline", {
            "data_set": data_set, "pipeline": digest, "state": "approved", "most_epsilon": most,
            "checked": checked, "timing": given["timing"], **_reason(given["reason"]),
        })  # fmt: skip
    batches = ", in batches too" if made["timing"] == "batch" else ""
    said = (
        f"Approved {title_of(made)} ({digest[:12]}) up to epsilon {made['most_epsilon']:g} a run"
        f"{batches}. Its author may run it now."
    )
    shell.show(made, said if checked else f"{said}\n{NOTHING_CHECKED}")


@pipeline.command("decline")
@click.argument("data_set")
@click.argument("digest")
@click.option("--reason", metavar="TEXT", help="The reason, which the author sees.")
@command
def decline(shell: Shell, data_set: str, digest: str, reason: str | None) -> None:
    """Decline a submitted program, or revoke its approval."""
    body: Json = {"data_set": data_set, "pipeline": digest, "state": "declined", **_reason(reason)}
    with shell.open() as vault:
        made = vault.call("decide-pipeline", body)
    shell.show(made, f"Declined {title_of(made)} ({digest[:12]}). It cannot run.")


@pipeline.command("timing")
@click.argument("timing", required=False, type=click.Choice(["isolated", "batch"]))
@command
def timing(shell: Shell, timing: str | None) -> None:
    """Show or set how this vault times the blocks of programs.

    isolated: blocks start at fixed times, and no block can affect another. batch: programs whose
    owner approved them with --timing batch run faster, with blocks side by side; what one block can
    tell another through the machine they share is outside the guarantee.
    """
    with shell.open_folder() as vault:
        if timing is not None:
            vault.allow_timing(timing)
        found = timing or vault.timing
    restart = "" if timing is None else " A vault that is served reads this when it restarts."
    shell.show({"timing": found}, f"The timing of programs is {found}.{restart}")


@pipeline.command("plan")
@click.argument("data_set")
@click.argument("digest")
@click.option(
    "--epsilon", required=True, metavar="E", help="The price of the whole run, in epsilon."
)
@click.option(
    "--people",
    type=int,
    metavar="N",
    help="The number of synthetic people; by default the size that the data card declares.",
)
@click.option(
    "--blocks", type=int, metavar="N", help="Try this number of blocks alone; by default several."
)
@click.option("--cpu", "cpu_s", default="1", metavar="S", help="The processor seconds per block.")
@click.option("--memory", "memory_mb", type=int, metavar="MB", help="The memory of a block.")
@click.option("--disk", "disk_mb", type=int, metavar="MB", help="The disk space of a block.")
@click.option("--seed", metavar="TEXT", help="The seed of the synthetic people.")
@_TIMING
@command
def plan(shell: Shell, data_set: str, digest: str, **given: Any) -> None:
    """Show noise and bias of a program for several numbers of blocks, on synthetic people; free."""
    body: Json = {
        "data_set": data_set,
        "pipeline": digest,
        "epsilon": number(given["epsilon"], "epsilon"),
        "cpu_s": number(given["cpu_s"], "cpu"),
        **{name: value for name, value in given.items() if value is not None and name in _PLANNED},
    }
    with shell.open() as vault, show_elapsed("Trying"):
        found = vault.call("plan-pipeline", body)
    shell.show(found, repr(BlocksPlan(found)))


@pipeline.command("run")
@click.argument("data_set")
@click.argument("digest")
@click.option(
    "--epsilon",
    metavar="E",
    help="The price of the whole run, in epsilon. With a wanted error for each output, the most "
    "that the run may cost.",
)
@click.option(
    "--error",
    "error",
    multiple=True,
    metavar="OUTPUT=X",
    help="The error that you want for an output: +-X at 95 %.",
)
@click.option(
    "--split",
    "--share",
    "split",
    multiple=True,
    metavar="OUTPUT=X",
    help="The share of the price for each number of an output, relative to the other outputs.",
)
@click.option(
    "--blocks",
    type=int,
    help="The number of blocks. By default 50, or fewer if the data card declares under 500 "
    "people; with --take auto what the trial proposed.",
)
@click.option(
    "--trim",
    type=int,
    help="The number of smallest and of largest block values to leave out.",
)
@click.option(
    "--take",
    type=click.Choice(["mean", "median", "auto"]),
    help="How the values of the blocks are combined; by default their mean. `auto` does what the "
    "last `plan` of the program proposed.",
)
@click.option(
    "--delta", metavar="D", help="The delta that may be spent; by default that of the data card."
)
@click.option("--cpu", "cpu_s", default="1", metavar="S", help="The processor seconds per block.")
@click.option("--memory", "memory_mb", type=int, default=2048, metavar="MB")
@click.option(
    "--disk", "disk_mb", type=int, metavar="MB", help="The disk space for a block's files."
)
@click.option(
    "--op", metavar="ID", help="Your id for this run. A retry with the same id is charged once."
)
@_TIMING
@click.option("--job", "job_s", metavar="S", help="The time of all blocks of a batch together.")
@click.option("--dry-run", is_flag=True, help="Show the price and the error; nothing is spent.")
@command
def run(shell: Shell, data_set: str, digest: str, dry_run: bool, **terms: Any) -> None:
    """Run an approved program on blocks of people; the private answer costs epsilon."""
    named = {key: value for key, value in terms.items() if value is not None}
    named |= {name: pairs_of(terms[name], name) for name in ("error", "split")}
    named = {key: value for key, value in named.items() if value is not None}
    if terms["epsilon"] is not None:
        named["epsilon"] = number(terms["epsilon"], "epsilon")
    named["cpu_s"] = number(terms["cpu_s"], "cpu")
    named |= {key: number(terms[key], key) for key in ("delta", "job_s") if terms[key] is not None}
    body: Json = {"data_set": data_set, "pipeline": digest, **named}
    if dry_run:
        body.pop("op", None)
        with shell.open() as vault:
            priced = vault.call("price-pipeline", body)
        shell.show(priced, "\n".join(price_lines(priced)))
        return
    with shell.open() as vault:
        planned = _planned_s(vault, body)
        with show_elapsed("Running", planned):
            answer = Answer.of(vault.call("run-pipeline", body))
    op = answer.receipt["op"]
    named_op = f"{shlex.quote(str(op))}{shell.named}"
    again = f"Operation {op}. To see this answer again: sfumato answer {named_op}"
    shell.show(answer_shape(answer), f"{answer!r}\n{again}")


def _planned_s(vault: Any, body: Json) -> int | None:  # Any: a vault, here or over HTTP
    """Return how many seconds the run takes by its terms, or None if nothing says so."""
    with contextlib.suppress(Refused):  # what refuses the run itself says why
        terms = {key: value for key, value in body.items() if key != "op"}
        seconds = vault.call("price-pipeline", terms).get("seconds")
        return seconds if isinstance(seconds, int) else None
    return None


def program_text(file: str | None, main: str | None = None) -> Json:
    """Return the text of a program, or the texts of its folder's files."""
    if file is not None and Path(file).is_dir():
        return read_folder(Path(file), main)
    if main is not None:
        raise click.UsageError("--main is for a folder.")
    if file is None:
        return {"source": ""}
    return {"source": read_text(Path(file), Path(file).name)}


def _reason(text: str | None) -> Json:
    return {"reason": text} if text else {}


def _kind(function: str | None, participants: bool) -> str:
    if function is None:
        return "bids" if participants else "program"
    if participants:
        raise click.UsageError("--participants is for a program, not for a --function.")
    return "function"


def _output(text: str) -> Json:
    text, _, where = text.partition("@")
    path, _, places = where.partition("#")
    name, *bounds = text.split(":")
    if not 2 <= len(bounds) <= 3:
        raise Refused(
            "bad-pipeline",
            "An output has the form NAME:LOW:HIGH or NAME:LOW:HIGH:STEP.",
            "Write the --output option in this form, for example --output mean_age:0:120.",
        )
    made: Json = dict(zip(("name", "lower", "upper", "step"), (name, *bounds), strict=False))
    name, _, sizes = name.partition("[")
    if sizes:
        made |= {"name": name, "shape": listed_places(sizes.rstrip("]"))}
    if path:
        made |= {"path": path, **output_places(places)}
    return made


def _brought_lines(one: Any, brought: Mapping[str, Any]) -> list[str]:  # Any: of the service
    own = one["environment"].partition("+")[2]
    return [f"  with {own}{_of_image(brought.get(own))}"] if own else []


def _text_lines(one: Any) -> list[str]:  # Any: JSON of the service
    """Return the lines of a program's text; of a program of several files, with their names."""
    return [
        line
        for path, text in texts_of(one)
        for line in (*([f"== {path}"] if path else []), *text.splitlines())
    ]


def _brought(vault: Any) -> Mapping[str, Any]:  # Any: the app's own vault
    """Return the machine's environments by name; only the vault's owner may read them."""
    with contextlib.suppress(Refused):
        return {one.name: one for one in vault.environments.all()}
    return {}


def _of_image(found: Any) -> str:  # Any: an object of the sandbox, which no CLI module imports
    """Return an image's start command and settings as JSON text, because they are untrusted."""
    if found is None or not (found.entry or found.settings):
        return ""
    return f", runs {json.dumps(found.entry)}, settings {json.dumps(found.settings)}"


for one in REQUESTS:
    environment.add_command(one)
pipeline.add_command(environment)
