"""Release pipelines: charge first, run the untrusted program on blocks, aggregate with noise.

The proof of the privacy loss is dp/sampling/sampling_in_blocks.proof.md. This module never holds a
row or a block's result as a plain value. The engine writes rows into files that only a block opens,
and results come back as sealed values.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, Never

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.accounting.privacy_events import privacy_cost
from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Bug, Refused
from sfumato.features.pipelines.program_plan import GROUP, MEDIAN, PARTICIPANT, Run, inside_at
from sfumato.query.expression import canonical_json
from sfumato.release.accounts import data_set_account, debtors, people_account
from sfumato.release.charged_reads import attempt_read
from sfumato.release.guarantees.central_dp import GUARANTEE, medians_of_blocks, noisy_sums_of_blocks
from sfumato.release.ledger_guard import Ledger, question_failed
from sfumato.release.noise_pool import NoisePool
from sfumato.release.payment import (
    Payment,
    on_card,
    payment_json,
    relation,
    signed_payment,
    unit_of,
)
from sfumato.release.plan_description import digest
from sfumato.release.receipts import not_dp_json, odds_of
from sfumato.release.release_order import Asker, Release
from sfumato.sandbox.block_columns import folder_tables
from sfumato.sandbox.block_timing import drop_s, slot_s, write_s
from sfumato.sandbox.ports import (
    BATCH,
    ISOLATED,
    MAX_KEPT,
    BlockJob,
    Drafts,
    InputTiming,
    Sandbox,
    SandboxLimits,
    SandboxStopped,
    SplitEngine,
    SplitOrder,
    StudyOrder,
    study_room,
)
from sfumato.sandbox.program_environment import is_image
from sfumato.sandbox.program_outputs import Output
from sfumato.vault.card.data_card import Card
from sfumato.vault.ledger_entries import Charge, Charged, OperationState, Pending

# --- the answer: one row of numbers with their errors, and arrays


def answer_of(run: Run, stored: Sequence[int]) -> Json:
    """Build a run's answer from the stored integers: noisy sums over blocks, or chosen medians."""
    parts = list(_parts(run, stored))
    plain = [(output, values[0]) for output, values in parts if not output.shape]
    return {
        "columns": [output.name for output, _ in plain],
        "rows": [[value for _, value in plain]],
        "std": [[_std(run, output) for output, _ in plain]],
        "interval": [[_interval(run, output, value) for output, value in plain]],
        "arrays": {
            output.name: {
                "values": nested(values, output.shape),
                "std": _std(run, output),
                "margin": _margin(run, output),
                "interval": _intervals(run, output, values),
                **(
                    {"rows": list(output.rows), "columns": list(output.columns)}
                    if output.rows
                    else {}
                ),
            }
            for output, values in parts
            if output.shape
        },
        "guarantee": GUARANTEE,
    }


def _parts(run: Run, stored: Sequence[int]) -> Iterator[tuple[Output, list[float]]]:
    if len(stored) != run.numbers:
        raise ValueError("a stored answer has another number of numbers")
    over = 1 if run.take == MEDIAN else run.counted
    place = 0
    for output in run.program.outputs:
        mine = stored[place : place + output.count]
        yield output, [_clamped(output, output.lower + output.step * one / over) for one in mine]
        place += output.count


def _clamped(output: Output, value: Fraction) -> float:
    """Clamp a noisy value to the declared range, in which the average must be.

    This is post-processing of a released value, and never increases its error.
    """
    return float(min(max(value, output.lower), output.upper))


def nested(values: Sequence[float], shape: Sequence[int]) -> Sequence[object]:
    """Return flat values as nested lists of that shape, in row-major order."""
    if len(shape) <= 1:
        return list(values)
    each = len(values) // shape[0]
    return [nested(values[i * each : (i + 1) * each], shape[1:]) for i in range(shape[0])]


def _std(run: Run, output: Output) -> float | None:
    noise = run.noise(output)
    return None if noise is None else float(output.step) * noise.std() / run.counted


def _margin(run: Run, output: Output) -> float | None:
    return None if run.take == MEDIAN else run.margins()[output.name]


def _interval(run: Run, output: Output, value: float) -> list[float] | None:
    """Return the confidence interval around the clamped value, cut to the declared range.

    A median has none.

    The average is in the range, so clamping never moves the value away from it. So this interval
    contains the average whenever the interval around the noisy value does.
    """
    margin = _margin(run, output)
    if margin is None:
        return None
    return [max(value - margin, float(output.lower)), min(value + margin, float(output.upper))]


def _intervals(run: Run, output: Output, values: Sequence[float]) -> Json | None:
    """Return the lower and the upper ends of an array's intervals, as `_interval` cuts them."""
    pairs = [_interval(run, output, value) for value in values]
    if None in pairs:
        return None
    ends = zip(*(pair for pair in pairs if pair is not None), strict=True)
    low, high = (nested(one, output.shape) for one in ends)
    return {"lower": low, "upper": high}


FORMAT: Final = "pipeline/1"
PATIENCE_S: Final = 24 * 3600  # in seconds; longer than any job may take
KEY_BYTES: Final = 32
INTERVAL: Final = (
    "95 %, for the noise alone, around the average of blocks; the bias of blocks is not included "
    "(how far that average is from the program's result on everybody at once)"
)
OF_RANKS: Final = (
    "none: the rank error says how many blocks can be between a median and the middle one, at 95 "
    "%; neither the size of that difference nor the bias of blocks is known"
)


@dataclass(frozen=True)
class PipelinePorts:
    """What a pipeline run needs: ledger, engine, sandbox, noise pool and a private folder."""

    ledger: Ledger
    engine: SplitEngine
    sandbox: Sandbox
    pool: NoisePool
    drafts: Drafts


@dataclass(frozen=True)
class RunOrder:
    """An order to run a program for one asker on one version of a data set.

    It is one operation of the ledger, so it is charged once.
    """

    card: Card
    table: str
    run: Run
    asker: Asker
    op: str
    # which trial on synthetic people chose how blocks are combined; empty if the asker did
    chosen_by: str = ""
    rule: str = ""  # the id of the rule that approved the program; empty if the owner approved it
    # refuses if the asker may no longer run the program
    may_still: Callable[[], None] = lambda: None
    # refuses new charges; a stored answer is given without this check
    may_pay: Callable[[], None] = lambda: None


def run_pipeline(door: PipelinePorts, order: RunOrder) -> Release:
    """Run a pipeline and release its aggregates; the charge is durable before a row is read.

    The same program with the same terms on the same version returns the stored answer for free.
    """
    check_sandbox(door.sandbox, order.run.limits, order.run.program.own_environment)
    _check_room(door.engine, order)
    drawn = [door.pool.take(noise, count) for noise, count in order.run.draws()]
    charge = _charge(order)
    outcome = door.ledger.charge(charge)
    # the asker has paid for the same run under another operation id: continue that operation
    if isinstance(outcome, Pending):
        charge = replace(charge, op=outcome.op)
        outcome = door.ledger.charge(charge)
    match outcome:
        case Pending():
            raise Bug("an operation waits for itself")
        case OperationState():
            return _released(door.ledger, order, charge, outcome)
        case Charged():
            settled = door.ledger.settle(charge.user, charge.op, _text(door, order, charge, drawn))
            names = tuple(account.name for account in outcome.accounts)
            paid_now = () if outcome.paid_before else names
            standing = OperationState(
                settled.head, outcome.seq, settled.answer, outcome.accounts, paid_now
            )
            return _released(door.ledger, order, charge, standing)


def is_paid(ledger: Ledger, order: RunOrder) -> bool:
    """Return True if all accounts that would pay for the run have paid for its answer already."""
    charge = _charge(order)
    names = tuple(debtor.account for debtor in charge.debtors)
    return ledger.is_paid_by(charge.answer_key, names)


def stored_answer(ledger: Ledger, order: RunOrder) -> Release:
    """Return the stored answer of a run that its asker has paid; nothing is charged."""
    if ledger.answer_of(order.asker.user, order.op) is None:
        raise Bug("a run without an answer is shown")
    charge = _charge(order)
    outcome = ledger.charge(charge)
    if not isinstance(outcome, OperationState):
        raise Bug("a run with an answer is charged")
    return _released(ledger, order, charge, outcome)


def check_sandbox(sandbox: Sandbox, limits: SandboxLimits, own: str = "") -> None:
    """Refuse a run before any charge if no sandbox starts; programs never run without one."""
    is_there = True
    try:
        sandbox.check(limits, own)
    except SandboxStopped:
        is_there = False
    if not is_there:
        raise no_sandbox()


def _check_room(engine: SplitEngine, order: RunOrder) -> None:
    """Refuse a run before any charge if the disk has too little space for per-person results."""
    folders = order.card.folders
    if folders is None or not order.run.person_runs:
        return
    needed = study_room(order.run.person_runs, folders.person_mb)
    if engine.free_disk_bytes(order.table) < needed:
        raise Refused(
            "sandbox-missing",
            f"The program's runs on single people's files may need {needed >> 20:,} MB of disk, "
            "and less is free.",
            "Ask whoever runs the vault to free disk space, or to lower the data card's "
            "bids.people.",
        )


def no_sandbox() -> Refused:
    """Return the refusal of a run if no sandbox starts."""
    return Refused(
        "sandbox-missing",
        "No sandbox can start here, and programs only run in a sandbox.",
        "Run `sfumato doctor` on the vault's machine: it says what is missing. A program in an "
        "image also needs two processors, and bubblewrap or podman.",
    )


def _text(
    door: PipelinePorts, order: RunOrder, charge: Charge, drawn: list[NDArray[np.int64]]
) -> str:
    """Run the program on the blocks; return the noisy answer as JSON text for the ledger.

    Every failure gives the same refusal.
    """
    # a failure here freezes no query shape
    sums, _ = attempt_read(lambda: _sums(door, order, drawn))
    if sums is None:
        _failed(door.ledger, charge)
    limits = order.run.limits
    said: Json = {"format": FORMAT, "version": order.card.version, "sums": list(sums)}
    if limits.is_batch:
        said["batch"] = {"job_s": limits.job_s}
    return canonical_json(said)


def _failed(ledger: Ledger, charge: Charge) -> Never:
    ledger.fail(charge.user, charge.op, None)
    raise question_failed()


def _sums(door: PipelinePorts, order: RunOrder, drawn: list[NDArray[np.int64]]) -> tuple[int, ...]:
    run = order.run
    with door.drafts.draft() as target:
        split = _split_order(order, target, door.pool.dice.draw(KEY_BYTES))
        _each_person(door, order, split)
        laid, files = _laid(order), door.engine.split(split)
        own, outputs = run.program.own_environment, run.program.outputs
        inside = inside_at(run.program, order.card, GROUP)
        job = BlockJob(inside, files, outputs, run.limits, laid, own)
        said = door.sandbox.run(job)
        if run.take == MEDIAN:
            steps = [o.steps for o in run.program.outputs for _ in range(o.count)]
            return medians_of_blocks(said, steps, run.losses, door.pool.dice)
        return noisy_sums_of_blocks(said, run.trim, drawn)


def _split_order(order: RunOrder, target: str, key: bytes) -> SplitOrder:
    card, run = order.card, order.run
    own, *beside = folder_tables(card, run.program.columns)
    study = None
    if run.program.is_study and card.folders is not None:
        kept = _kept_key(order) if run.person_runs else ""
        study = StudyOrder(card.folders.people, kept, tuple(beside))
    rows = own.most_rows + sum(table.most_rows for table in beside)
    return SplitOrder(order.table, card.unit, own.columns, run.blocks, key, target, rows, study)


def _kept_key(order: RunOrder) -> str:
    """Return the key of stored per-person results: of the program, and of what it is given.

    An amended card may have another README or other sidecars, which a program may read.
    """
    given = canonical_json(inside_at(order.run.program, order.card, PARTICIPANT))
    return hashlib.sha256(f"{order.run.person_run_key} {given}".encode()).hexdigest()[:32]


def _each_person(door: PipelinePorts, order: RunOrder, split: SplitOrder) -> None:
    """Run a "bids" program for each person alone, and store the results for the block runs."""
    if not order.run.person_runs:
        return
    laid, turns = _laid(order), door.engine.split_people(split)
    limits = replace(order.run.limits, most_bytes=MAX_KEPT)
    program = order.run.program
    inside = inside_at(program, order.card, PARTICIPANT)
    door.sandbox.run_each(BlockJob(inside, turns, (), limits, laid, program.own_environment))


def _laid(order: RunOrder) -> InputTiming:
    """Return the time when the engine starts to write the programs' inputs, and their largest size.

    The largest size follows from the card. Both decide when the blocks start.
    """
    return _input_timing(order.card, order.run, time.monotonic())


def _input_timing(card: Card, run: Run, since: float) -> InputTiming:
    folders = card.folders
    if folders is None or not run.program.is_study:
        return InputTiming(since)
    return InputTiming(since, run.person_runs, folders.people * folders.person_mb)


def planned_s(sandbox: Sandbox, card: Card, run: Run) -> float | None:
    """Return how many seconds a run takes, from its terms, its card and this machine alone.

    No row, no block's result and no other run changes it (soundness rule 27). A run takes longer if
    it waits for another one, or if the host fails. None means that no sandbox can run it.
    """
    own = run.program.own_environment
    lanes = sandbox.lanes(run.limits, own)
    if lanes < 1:
        return None
    laid, is_tree = _input_timing(card, run, 0.0), is_image(run.program.environment)
    files = len({output.path for output in run.program.outputs})
    blocks = slot_s(run.blocks, lanes, run.limits, files, is_tree=is_tree)
    people = run.person_runs
    turns = write_s(laid) + slot_s(people, lanes, run.limits, is_tree=is_tree) if people else 0.0
    return turns + write_s(laid) + blocks + drop_s(laid)


def _charge(order: RunOrder) -> Charge:
    card, run = order.card, order.run
    terms, event = run.as_json(), run.event
    # the same question in another timing has the same answer, which is free
    question = {key: said for key, said in terms.items() if key not in ("timing", "job_s")}
    return Charge(
        user=order.asker.user,
        op=order.op,
        request=digest({"pipeline": question}),
        answer_key=digest({"pipeline": question, "version": card.version, "people": card.people}),
        shape=digest({"pipeline": run.program.digest}),
        debtors=debtors(card, order.asker.user, order.asker.groups),
        debt=privacy_cost(event),
        wait_limit_s=PATIENCE_S,
        body={
            "pipeline": terms,
            "says": run.in_words(),
            "bounding": bounding(run),
            "timing": run.timing_says,
            "mechanism": run.mechanism,
            "shape": digest({"pipeline": run.program.digest}),
            **on_card(card),
            "guarantee": GUARANTEE,
            "event": event.name,
            "epsilon": str(run.epsilon),
            "delta": str(run.spent_delta),
            "noise": run.noise_json(),
            "selection": None,
            **({"chosen_by": order.chosen_by} if order.chosen_by else {}),
            **({"rule": order.rule} if order.rule else {}),
        },
        check_access=order.may_still,
        check_payable=order.may_pay,
    )


def bounding(run: Run) -> str:
    """Describe in words how a run bounds contributions: each person is in one block only."""
    return (
        f"a person with all their rows is in one of {run.blocks} blocks, whatever the program does"
    )


def _released(ledger: Ledger, order: RunOrder, charge: Charge, standing: OperationState) -> Release:
    stored: dict[str, Any] = json.loads(standing.answer)  # Any: JSON of our own ledger
    if stored.get("format") != FORMAT:
        raise Bug("a stored answer has a format that nobody reads")
    answer = answer_of(order.run, stored["sums"])
    order = _as_it_ran(order, stored.get("batch"))
    return Release(answer, _receipt(ledger, order, charge, standing, stored["version"]))


def _as_it_ran(order: RunOrder, batch: dict[str, Any] | None) -> RunOrder:
    """Return the order with the timing of the run whose answer is stored."""
    timing = ISOLATED if batch is None else BATCH
    job_s = None if batch is None else batch["job_s"]
    limits = replace(order.run.limits, timing=timing, job_s=job_s)
    return replace(order, run=replace(order.run, limits=limits))


def _receipt(
    ledger: Ledger, order: RunOrder, charge: Charge, standing: OperationState, version: str
) -> Json:
    card, run = order.card, order.run
    names = people_account(card.people), data_set_account(card.name)
    accounts = ledger.paying(charge.debtors)
    paid = Payment(charge.op, run.epsilon, run.spent_delta, standing.debited)
    return {
        **payment_json(paid, standing.seq, card.name, accounts),
        "pipeline": run.as_json(),
        **({"chosen_by": order.chosen_by} if order.chosen_by else {}),
        **({"rule": order.rule} if order.rule else {}),
        "says": run.in_words(),
        "data_set": card.name,
        "version": version,  # the version of the rows that were read
        "people": card.people,
        "guarantee": GUARANTEE,
        "unit": unit_of(card),
        "relation": relation(card),
        "bounding": bounding(run),
        "timing": run.timing_says,
        "mechanism": run.mechanism,
        "split": run.split_json(),
        "odds": odds_of(accounts[names[0]], "person"),
        "interval": OF_RANKS if run.take == MEDIAN else INTERVAL,
        **({"rank_error": run.margins()} if run.take == MEDIAN else {}),
        **not_dp_json(ledger, card.people),
        **ledger.sign(signed_payment(paid, standing.head, standing.seq)),
    }
