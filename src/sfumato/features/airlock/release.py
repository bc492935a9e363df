"""Run airlock programs on the real rows, show the files to reviewers, and release them.

The files stay inside the vault, labelled for reviewers, until `guarantees/reviewed.py` opens them.
Until then the author's replies don't depend on what the program did, so a failure tells nothing.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.features.airlock.model import (
    RELEASED,
    AirlockFiles,
    DraftFiles,
    Request,
    changed,
    seal_of,
    sum_of,
)
from sfumato.features.airlock.output_checks import (
    DeclaredFile,
    Earlier,
    Finding,
    checked,
    findings_text,
    read_measured,
    stops,
)
from sfumato.features.airlock.program_plan import AirlockProgram
from sfumato.features.airlock.sandbox_programs import (
    MAX_SAID,
    files_of,
    measured_of,
    of_author,
    of_counter,
)
from sfumato.features.pipelines.program_plan import GROUP
from sfumato.features.pipelines.release import KEY_BYTES, PipelinePorts, check_sandbox
from sfumato.release.charged_reads import attempt_read
from sfumato.release.guarantees.reviewed import (
    GUARANTEE,
    REVIEWERS_ONLY,
    keep,
    noted,
    receipt,
    released,
)
from sfumato.release.guarantees.reviewed import release_files as let_out
from sfumato.sandbox.block_columns import block_columns
from sfumato.sandbox.ports import BlockJob, InputTiming, SplitOrder, StudyOrder, output_path
from sfumato.vault.card.bids_files import data_set_files
from sfumato.vault.card.data_card import Card
from sfumato.vault.sealed import Sealed

NONCE_BYTES: Final = 32


@dataclass(frozen=True)
class AirlockPorts:
    """What the airlock needs to run programs and keep files: sandbox, and store of drafts."""

    programs: PipelinePorts
    files: AirlockFiles


@dataclass(frozen=True)
class Draft:
    """A draft as reviewers see it: the files under review, and the findings of the checks."""

    held: DraftFiles
    findings: tuple[Finding, ...]

    @property
    def seal(self) -> str:
        """Return the seal of the draft, a hash by which votes name it."""
        return seal_of(self.held, findings_text(self.findings))


def check_airlock(door: AirlockPorts, program: AirlockProgram) -> None:
    """Refuse to start a program, which may run only once, while the ledger or sandbox is broken."""
    door.programs.ledger.check_history()
    check_sandbox(door.programs.sandbox, program.limits, program.own)


def run_for_review(
    door: AirlockPorts, card: Card, table: str, program: AirlockProgram
) -> str | None:
    """Run the program on all rows; return its draft's folder name, or None if it could not run.

    A program that ran always leaves a draft (the files under review), whatever it did. Reviewers
    see which files are missing.
    """
    found, _ = attempt_read(lambda: _found(door.programs, card, table, program))
    return None if found is None else keep(door.files, found)


def _found(
    door: PipelinePorts, card: Card, table: str, program: AirlockProgram
) -> Sealed[DraftFiles]:
    with door.drafts.draft() as target:
        began = time.monotonic()
        megabytes = 0 if card.folders is None else card.folders.people * card.folders.person_mb
        (block,) = door.engine.split(_everybody(door, card, table, program, target))
        laid = InputTiming(began, 0, megabytes)
        order = _order(card, program, block)
        said = _said(door, replace(order, input_timing=laid, own=program.own), of_author(program))
        counted = _said(door, order, of_counter(program))
    nonce = door.pool.dice.draw(NONCE_BYTES).hex()
    return Sealed(DraftFiles(nonce, files_of(program, said), measured_of(counted)))


def _everybody(
    door: PipelinePorts, card: Card, table: str, program: AirlockProgram, target: str
) -> SplitOrder:
    columns = block_columns(card, program.columns)
    study = None if card.folders is None else StudyOrder(card.folders.people)
    key = door.pool.dice.draw(KEY_BYTES)
    return SplitOrder(table, card.unit, columns, 1, key, target, card.limits.rows, study)


def _order(card: Card, program: AirlockProgram, block: str) -> BlockJob:
    """Return the order to run a program on the block of all rows, without that program's text."""
    inside: dict[str, object] = {"kind": "program", "name": GROUP, "outputs": []}
    if card.folders is not None:
        inside |= {"kind": "study", "level": GROUP, "study": data_set_files(card, ())}
    return BlockJob(inside, (block,), (), replace(program.limits, most_bytes=MAX_SAID))


def _said(door: PipelinePorts, order: BlockJob, told: dict[str, object]) -> bytes:
    """Run a program on the block of all rows; return what the sandbox sent, or empty bytes."""
    door.sandbox.run_each(replace(order, program={**order.program, **told}))
    said = Path(output_path(order.inputs[0]))
    if not said.exists():
        return b""
    found = said.read_bytes()
    said.unlink()
    return found


# --- review ---------------------------------------------------------------------------------------


def read_draft(
    door: AirlockPorts,
    card: Card,
    request: Request,
    program: AirlockProgram,
    past: Sequence[Earlier],
) -> Draft:
    """Read a draft and run the output checks on it; callers must show it to reviewers alone."""
    held = door.files.read(request.place)
    if held is None or card.airlock is None:
        raise changed()
    measured = read_measured(held.measured)
    found = checked(program.asked, held.files, card.airlock, measured, past)
    return Draft(held, found)


def reviewers_view(request: Request, user: str, draft: Draft) -> Json:
    """Return the draft as JSON for a reviewer, with the files in base64; refuse anybody else."""
    if not request.is_reviewer(user):
        raise Refused(
            "not-allowed",
            "Only the reviewers of an airlock request may see its files.",
            "Ask one of the reviewers. The data card names them under [airlock].",
        )
    return {
        "label": REVIEWERS_ONLY,
        "seal": draft.seal,
        "draft": request.draft,
        "files": [
            {
                "path": path,
                "sha256": sum_of(file),
                "bytes": len(file),
                "base64": base64.b64encode(file).decode(),
            }
            for path, file in sorted(draft.held.files.items())
        ],
        "findings": [one.as_json() for one in draft.findings],
    }


def edited(door: AirlockPorts, draft: Draft, path: str, file: bytes | None) -> str:
    """Store a new draft with a file replaced, or removed if `file` is None; return its folder name.

    The new draft has a new nonce, so it has a new seal.
    """
    files = {name: text for name, text in draft.held.files.items() if name != path}
    if file is not None:
        files[path] = file
    nonce = door.programs.pool.dice.draw(NONCE_BYTES).hex()
    return door.files.put(DraftFiles(nonce, files, draft.held.measured))


# --- release --------------------------------------------------------------------------------------


def check_releasable(door: AirlockPorts, draft: Draft) -> None:
    """Refuse a draft with a blocking finding or without files, whatever the votes are."""
    door.programs.ledger.check_history()
    wrong = stops(draft.findings)
    if wrong or not draft.held.files:
        what = f"{wrong[0].path!r}: {wrong[0].says}" if wrong else "The draft has no file"
        raise Refused("airlock-unsafe", f"{what}.", "Take it out with `sfumato airlock edit`.")


def has_left(door: AirlockPorts, request: Request) -> bool:
    """Return True if the ledger has an entry that the request's files were released."""
    return noted(door.programs.ledger, request.id) is not None


def release_files(door: AirlockPorts, request: Request, draft: Draft) -> Json:
    """Write the hashes of the approved files into the ledger, durably; return the receipt."""
    check_releasable(door, draft)
    if not request.is_cleared(draft.seal):
        raise changed()
    return let_out(door.programs.ledger, request, draft.held, findings_text(draft.findings))


def fetched(door: AirlockPorts, request: Request, user: str) -> Json:
    """Return released files and their receipt; refuse a user who may not see the request."""
    if request.state != RELEASED or not request.may_see(user):
        raise Refused(
            "airlock-waits",
            "You cannot fetch the files of this airlock request now. Its state is: "
            f"{request.state_for(user)}.",
            "Wait until the files are released. If the request has ended, submit a new one.",
        )
    ledger = door.programs.ledger
    files = released(ledger, request, door.files.read(request.place))
    return {
        "guarantee": GUARANTEE,
        "files": [
            {
                "path": path,
                "sha256": sum_of(file),
                "guarantee": GUARANTEE,
                "base64": base64.b64encode(file).decode(),
            }
            for path, file in sorted(files.items())
        ],
        "receipt": receipt(ledger, request),
    }


def earlier_of(
    door: AirlockPorts, request: Request, asked: Sequence[DeclaredFile]
) -> tuple[Earlier, ...]:
    """Return the released files of an earlier request, to compare later files with them.

    Files count from the moment that the released state is saved, before the ledger entry. So of two
    concurrent releases, at least one is compared with the other.
    """
    held, ledger = door.files.read(request.place), door.programs.ledger
    if noted(ledger, request.id) is None:
        files = {} if held is None else held.files
    else:
        files = released(ledger, request, held)
    return tuple(Earlier(request.id, one, files[one.path]) for one in asked if one.path in files)
