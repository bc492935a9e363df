"""A user's own runs of programs: list them from the ledger, and show a stored answer again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.model import Submitted
from sfumato.features.pipelines.price_split_plan import PriceSplit
from sfumato.features.pipelines.program_plan import DISK_MB, MEAN, Program, Run
from sfumato.release.ledger_guard import Ledger
from sfumato.sandbox.ports import ISOLATED, SandboxLimits
from sfumato.sandbox.program_outputs import read_outputs
from sfumato.vault.ledger_entries import PastOperation

PAGE: Final = 200
MAX_SEARCHED: Final = 4000  # the most past operations of a user that are searched for runs
MAX_RUNS: Final = 200


def runs_json(ledger: Ledger, user: str, data_set: str) -> list[Json]:
    """Return a user's last runs of programs on a data set, newest first."""
    found: list[Json] = []
    for past in _past(ledger, user):
        body = json.loads(past.entry.body)["body"]
        if "pipeline" in body and body["data_set"] == data_set:
            found.append(_run_json(past, body))
        if len(found) == MAX_RUNS:
            break
    return found


def run_terms(ledger: Ledger, user: str, data_set: str, op: str) -> dict[str, Any]:
    """Return the terms of the user's answered run, as the ledger has them; refuse any other."""
    past = ledger.store.past_of(user, op)
    body = {} if past is None else json.loads(past.entry.body).get("body", {})
    is_run = past is not None and past.state == "answered" and "pipeline" in body
    if not is_run or body["data_set"] != data_set:
        raise Refused(
            "answer-unknown",
            "You have no answered run of a program with this operation id.",
            "Take the operation id from the list of your runs, or from `sfumato history`.",
        )
    terms: dict[str, Any] = body["pipeline"]  # Any: JSON of our own ledger
    return {**terms, **{name: body.get(name, "") for name in ("rule", "chosen_by")}}


def stored_run(found: Submitted, terms: dict[str, Any]) -> Run:  # Any: JSON of our own ledger
    """Return the run that the ledger describes, whatever the data card says today."""
    program = _stored_program(found)
    job_s = terms.get("job_s")
    limits = SandboxLimits(
        cpu_s=float(Fraction(terms["cpu_s"])),
        memory_mb=terms["memory_mb"],
        disk_mb=terms.get("disk_mb", DISK_MB),
        timing=terms.get("timing", ISOLATED),
        job_s=None if job_s is None else float(Fraction(job_s)),
    )
    return Run(
        program,
        terms["blocks"],
        terms["trim"],
        Fraction(terms["epsilon"]),
        limits,
        terms.get("take", MEAN),
        Fraction(terms.get("delta", 0)),
        _stored_split(program, terms),
    )


def _stored_split(program: Program, terms: dict[str, Any]) -> PriceSplit | None:
    """Return how the outputs shared the price; None if all numbers shared it equally."""
    if "split" not in terms:
        return None
    losses = tuple(Fraction(terms["split"][output.name]) for output in program.outputs)
    pairs = zip(program.outputs, losses, strict=True)
    rho = sum((output.count * loss for output, loss in pairs), Fraction(0))
    return PriceSplit(Fraction(terms["epsilon"]), rho if "delta" in terms else Fraction(0), losses)


def _stored_program(found: Submitted) -> Program:
    said = json.loads(found.program)
    return Program(
        found.data_set,
        said["kind"],
        said["source"],
        said["name"],
        tuple(said["columns"]),
        read_outputs(said["outputs"]),
        said["environment"],
        people=1 if "files" in said else 0,  # a program on folders; how many people is not stored
        files=tuple(said.get("files", ())),
        main=said.get("main", ""),
        modules=tuple((one["path"], one["text"]) for one in said.get("modules", ())),
        file=said.get("file", ""),
    )


def _past(ledger: Ledger, user: str) -> Iterator[PastOperation]:
    before, searched = 2**62, 0
    while searched < MAX_SEARCHED:
        page = ledger.store.past(user, before, PAGE)
        yield from page
        if len(page) < PAGE:
            break
        before, searched = page[-1].entry.seq, searched + PAGE


def _run_json(past: PastOperation, body: dict[str, Any]) -> Json:  # Any: JSON of our own ledger
    terms = body["pipeline"]
    ended = {} if past.ended is None else json.loads(past.ended.body)
    return {
        "op": past.op,
        "entry": past.entry.seq,
        # cut to seconds, because finer times show when another user's query ended
        "at": past.entry.at[:19],
        "state": past.state,
        "code": ended.get("code"),
        "free": not json.loads(past.entry.body)["debits"],
        "pipeline": terms["digest"],
        "name": terms["name"],
        "blocks": terms["blocks"],
        "version": body["version"],
        "says": body["says"],
        "epsilon": body["epsilon"],
        "delta": body["delta"],
    }
