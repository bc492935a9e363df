"""Add `show` to the pipeline commands: a program as its owner reviews it, with a checklist."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from sfumato.client.display import BlocksPlan
from sfumato.client.text_tables import warned
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.program_folder import texts_of
from sfumato.features.pipelines.program_review import environment_lines, missing_words, table_words

NOTHING_CHECKED: Final = (
    "You confirmed no question of the checklist. `sfumato pipeline show` shows the program and "
    "the questions, and --checked confirms all of them."
)
Review = Mapping[str, Any]  # Any: JSON of the service


def review_lines(one: Review) -> list[str]:
    """Return the lines to print for a program under review: state, trial, changes and text."""
    own = one["environment"].partition("+")[2]
    known = one.get("environment_facts")
    return [
        f"{title_of(one)} on {one['data_set']}, by {authors_of(one)}, "
        f"submitted {moment(one['at'])}",
        f"  digest: {one['digest']}",
        *state_lines(one),
        f"  columns: {', '.join(one['columns'])}",
        *(f"  files of people: {name}" for name in one.get("files", ())),
        *(f"  {_output_line(output)}" for output in one["outputs"]),
        f"  environment: {own or 'the libraries of this machine'}",
        *(f"    {line}" for line in (environment_lines(known) if known else ())),
        "",
        *warned(one["warnings"]),
        *_trial_lines(one["trial"]),
        *_change_lines(one),
        "",
        *_numbered(texts_of(one)),
        "",
        "Questions to answer before you approve:",
        *(f"  {question['asks']}" for question in one["checklist"]),
    ]


def title_of(one: Review) -> str:
    """Return what lists call a program; older services send the name of its function alone."""
    return str(one.get("title") or one["name"])


def authors_of(one: Review) -> str:
    """Return the names of a program's authors; older services send the first one alone."""
    return ", ".join(one.get("authors") or [one["by"]])


def moment(at: object) -> str:
    """Return a time of the service to the minute, in UTC."""
    return f"{str(at)[:16].replace('T', ' ')} UTC"


def listed_lines(one: Review) -> list[str]:
    """Return the lines of a list for one program: what it is called, reads and gives."""
    ranges = ", ".join(
        f"{o['name']}{_size(o)} in [{o['lower']}, {o['upper']}]" for o in one["outputs"]
    )
    return [
        f"{one['digest'][:12]}  {title_of(one)} on {one['data_set']}, by {authors_of(one)}: "
        f"{one['state']}",
        f"  reads {', '.join(one['columns'])}; gives {ranges}",
    ]


def price_lines(priced: Review) -> list[str]:
    """Return the lines to print for a run's price: what it costs, its error, and what is left."""
    unit = " ranks among the blocks" if priced["error_is"] == "ranks" else ""
    errors = [f"{name} ± {error:.4g}{unit}" for name, error in priced["error"].items()]
    delta = f" and delta {priced['delta']:g}" if priced["delta"] else ""
    price = f"It costs epsilon {priced['epsilon']:g}{delta}"
    if priced.get("free"):
        price = "You have paid for this run already, so it is free and gives the same numbers"
    left = f" Left is epsilon {priced['left']['next_epsilon']:g}." if "left" in priced else ""
    chosen = [priced["chosen_by"]] if "chosen_by" in priced else []
    return [
        *warned(priced.get("warnings", ())),
        f"This run gives {priced['says']}.",
        f"Its noise at 95 %: {', '.join(errors)}.",
        *chosen,
        f"Timing {priced['timing']}.{_lasts(priced)}",
        f"{price}. Nothing is spent.{left}",
    ]


def _lasts(priced: Review) -> str:
    return f" It takes about {priced['seconds']} s." if priced.get("seconds") else ""


def state_lines(one: Review) -> list[str]:
    """Return the lines of a program's state: waiting, approved to a price, or declined and why."""
    by = f"by {one.get('decided_by')}, {moment(one.get('decided_at'))}"
    batch = ", in batches too," if one.get("timing") == "batch" else ""
    state = {
        "waiting": f"  waits for the owner since {moment(one.get('at'))}",
        "approved": f"  approved up to epsilon {one.get('most_epsilon', 0):g} a run{batch} {by}",
        "declined": f"  declined {by}",
    }[one["state"]]
    changed = (
        "  cannot run: the libraries or the data card have changed since it was submitted. Submit "
        "it again; it then needs a new approval."
    )
    if not one.get("is_here", True):
        changed = f"  cannot run: {missing_words(one['environment'].partition('+')[2])}"
    reason, checked = one.get("reason", ""), one.get("checked", ())
    return [
        state,
        *(f"  reason: {line}" for line in reason.splitlines()),
        *([f"  confirmed: {', '.join(checked)}"] if checked else []),
        *([] if one.get("is_current", True) else [changed]),
    ]


def confirmed_all(one: Review, *, is_untried: bool) -> list[str]:
    """Return every question of the checklist; refuse one about a trial that never was."""
    names = [str(question["id"]) for question in one["checklist"]]
    if "untried" in names and not is_untried:
        raise Refused(
            "bad-pipeline",
            "No trial of this program on synthetic people is on record, so --checked cannot "
            "confirm its numbers. Nothing was approved.",
            f"Make one, which is free: sfumato pipeline plan {one['data_set']} "
            f"{one['digest'][:12]} --epsilon 1. Or add --untried, and approve it without a trial. "
            "(`sfumato pipeline try` leaves no record.)",
        )
    return names


def confirmed(one: Review, *, may_ask: bool) -> list[str]:
    """Return the questions of the checklist that the owner confirms.

    At a terminal, show the program and ask each question; a question that is not confirmed refuses
    the approval.
    """
    names = [str(question["id"]) for question in one["checklist"]]
    if not may_ask or not sys.stdin.isatty():
        return []
    for question in one["checklist"]:
        if not click.confirm(str(question["asks"]), default=False, err=True):
            raise Refused(
                "bad-pipeline",
                f"You did not confirm: {question['asks']} Nothing was approved.",
                "Decline the program with `sfumato pipeline decline`, and give a --reason, or "
                "approve it once you can confirm every question.",
            )
    return names


def _output_line(output: Review) -> str:
    place = "".join(f", {part}" for part in output["at"])
    return (
        f"output {output['name']}{_size(output)} from {output['lower']} to "
        f"{output['upper']} in steps of {output['step']} ({output['path']}{place}"
        f"{table_words(output)})"
    )


def _size(output: Review) -> str:
    sizes = ",".join(map(str, output.get("shape", ())))
    return f"[{sizes}]" if sizes else ""


def _trial_lines(trial: Review | None) -> list[str]:
    if trial is None:
        return ["No trial on synthetic people is stored: `sfumato pipeline plan` makes one."]
    head = f"The last trial, by {trial['by']}, {moment(trial['at'])}:"
    return [head, *(f"  {line}" for line in BlocksPlan(trial["plan"]).lines())]


def _change_lines(one: Review) -> list[str]:
    changes = one["changes"]
    if changes is None:
        return ["The author has no other approved program on this data set to compare with."]
    before = f"{changes['digest'][:12]}, approved {moment(changes['decided_at'])}:"
    head = f"Changes since {before}"
    if not changes.get("is_same_name", True):
        head = (
            f"The author has no other approved program called {title_of(one)}. Changes since the "
            f"author's last approved program, {changes['title']}, {before}"
        )
    files = changes.get("files", ())
    return [
        head,
        *_part("declaration", changes["terms"]),
        *(_environment_part(changes["environment"]) if "environment" in changes else []),
        *_part("text", changes["text"]),
        *(
            line
            for file in files
            for line in (
                f"  {file['state']}: {file['path']}",
                *_part(f"text of {file['path']}", file["text"]),
            )
        ),
    ]


def _environment_part(lines: Sequence[str] | None) -> list[str]:
    if lines is None:
        return ["  One of the two environments is not on this machine, so they are not compared."]
    return _part("description of the environment", lines)


def _part(name: str, lines: Sequence[str] | None) -> list[str]:
    if lines is None:
        return [f"  The {name} differs in too many lines to compare."]
    return [f"  {line}" for line in lines] or [f"  The {name} is the same."]


def _numbered(texts: Sequence[tuple[str, str]]) -> list[str]:
    if not texts:
        return ["The program is the image's own; there is no text."]
    lines: list[str] = []
    for place, (path, text) in enumerate(texts):
        said = " (the main file)" if place == 0 else ""
        lines += [f"{path}{said}:"] if path else []
        lines += [f"{number:>5}  {line}" for number, line in enumerate(text.split("\n"), 1)]
    return lines
