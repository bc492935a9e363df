"""Run and print `sfumato audit` for the shipped mechanisms and for the zoo (broken ones)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from sfumato.cli.shell import Shell, show_elapsed
from sfumato.client.text_tables import table_text
from sfumato.dp.refusal import Refused
from sfumato.lab.audit.audit_page import FOUND, HELD, found_row, held_row, page, shape_of
from sfumato.lab.audit.audit_suite import (
    END_TO_END,
    MechanismAudit,
    SpecimenAudit,
    audit_all_directly,
    audit_all_end_to_end,
    audit_zoo,
    mechanisms,
    specimens,
)
from sfumato.lab.audit.audit_suite import names as all_names
from sfumato.lab.audit.canaries import AuditedQuestion as AtTheDoor
from sfumato.system.temporary_folders import temporary_folder


@dataclass(frozen=True)
class Asked:
    """The command-line options of one `sfumato audit` of the mechanisms in this package."""

    names: tuple[str, ...]
    zoo: bool
    path: str | None
    seed: int
    engines: tuple[str, ...] = ()  # engines to test on besides DuckDB


def run(shell: Shell, asked: Asked) -> bool:
    """Run the chosen audits and print them; return False if one has an unexpected verdict."""
    _check(asked)
    # check now, so that an unavailable engine is refused at once and not after minutes
    for engine in asked.engines:
        with _fresh(shell, engine):
            pass
    made: list[MechanismAudit | SpecimenAudit] = []
    begun = time.monotonic()
    with show_elapsed("auditing") as doing:  # the data are synthetic, so the progress may be shown
        for one in _audits(shell, asked):
            made.append(one)
            doing.what = f"auditing, {len(made)} of {_count(asked)} done"
    held = [one for one in made if isinstance(one, MechanismAudit)]
    found = [one for one in made if isinstance(one, SpecimenAudit)]
    if asked.path:
        _write(Path(asked.path), asked, held, found)
    _show(shell, held, found, time.monotonic() - begun)
    return _is_well(held, found)


def show_names(shell: Shell) -> None:
    """Print the names of everything that can be audited, without running an audit."""
    bare, asked = [one.name for one in mechanisms()], [one.name for one in END_TO_END]
    zoo = [f"{one.id}  {one.name}" for one in specimens()]
    parts = {
        "Bare": bare,
        "Questions to a new vault (door)": asked,
        "The zoo (mechanisms broken on purpose), by id or name": zoo,
    }
    lines = [line for title, names in parts.items() for line in (title, *_indented(names), "")]
    shape = {"bare": bare, "door": asked, "zoo": {one.id: one.name for one in specimens()}}
    shell.show(shape, "\n".join([*lines, 'Audit one: sfumato audit "NAME"']))


def _indented(names: Sequence[str]) -> list[str]:
    return [f"  {name}" for name in names]


def _audits(shell: Shell, asked: Asked) -> Iterator[MechanismAudit | SpecimenAudit]:
    if not asked.zoo:
        yield from _held(shell, asked)
    if _has_zoo(asked):
        yield from audit_zoo(asked.seed, asked.names)


def _count(asked: Asked) -> int:
    """Return how many audits the user has chosen."""
    zoo = len(specimens(asked.names)) if _has_zoo(asked) else 0
    if asked.zoo:
        return zoo
    return len(mechanisms(asked.names)) + len(_questions(asked)) * (1 + len(asked.engines)) + zoo


def _has_zoo(asked: Asked) -> bool:
    return asked.zoo or asked.path is not None or bool(asked.names)


def _questions(asked: Asked) -> list[AtTheDoor]:
    """Return the questions to audit end to end: those that the user named.

    If the user named none, return all questions if a page is written, else only the short ones.
    """
    wanted = {name.casefold() for name in asked.names}
    if wanted:
        return [one for one in END_TO_END if one.name.casefold() in wanted]
    return [one for one in END_TO_END if one.is_short or asked.path]


def _write(
    path: Path, asked: Asked, held: Sequence[MechanismAudit], found: Sequence[SpecimenAudit]
) -> None:
    """Write the page of audit results; a partial audit keeps the page's other lines."""
    is_part = bool(asked.names) or asked.zoo
    before = path.read_text("utf-8") if is_part and path.exists() else ""
    path.write_text(page(held, found, before), "utf-8")


def _check(asked: Asked) -> None:
    """Refuse unknown names of audits and an unwritable page, before any audit runs."""
    if asked.path is not None and not Path(asked.path).absolute().parent.is_dir():
        raise Refused(
            "bad-request",
            f"The folder of {asked.path} does not exist.",
            "Make the folder, or name another one.",
        )
    known = {name.casefold(): name for name in all_names()}
    for name in asked.names:
        if name.casefold() not in known:
            near = [repr(known[one]) for one in get_close_matches(name.casefold(), known)]
            raise Refused(
                "bad-request",
                f"The audit has no mechanism or question named {name!r}.",
                (f"Did you mean {' or '.join(near)}? " if near else "")
                + "`sfumato audit --list` prints all names.",
            )


def _held(shell: Shell, asked: Asked) -> Iterator[MechanismAudit]:
    yield from audit_all_directly(asked.seed, asked.names)
    chosen = _questions(asked)
    for engine in (None, *asked.engines) if chosen else ():
        with _fresh(shell, engine) as (vault, folder):
            where = f"door, {_name_of(engine)}"
            yield from audit_all_end_to_end(vault, folder, where, seed=asked.seed, questions=chosen)


def _name_of(engine: str | None) -> str:
    """Return the name of the engine at an address: DuckDB, PostgreSQL or Spark."""
    if engine is None:
        return "DuckDB"
    return "PostgreSQL" if engine.startswith("postgresql:") else "Spark"


@contextmanager
def _fresh(shell: Shell, engine: str | None) -> Iterator[tuple[Any, Path]]:  # Any: the app's vault
    """Yield a temporary vault on this engine and its folder, because audits use no real vault."""
    with temporary_folder() as folder:
        shell.app.create(str(folder / "vault"), anchor=str(folder / "anchor"), engine=engine)
        with shell.app.open(str(folder / "vault")) as vault:
            yield vault, folder


def _is_well(held: Sequence[MechanismAudit], found: Sequence[SpecimenAudit]) -> bool:
    return all(one.is_well for one in held) and all(one.is_well for one in found)


def _show(
    shell: Shell, held: Sequence[MechanismAudit], found: Sequence[SpecimenAudit], seconds: float
) -> None:
    shapes = [shape_of(one.name, one.audited, one.verdict) | {"where": one.where} for one in held]
    shapes += [shape_of(one.specimen.id, one.audited, one.verdict) for one in found]
    lines: list[str] = []
    if held:
        lines += [*table_text(HELD, [held_row(one) for one in held]), ""]
    if found:
        lines += [*table_text(FOUND, [found_row(one) for one in found]), ""]
    lines += [f"{_sum_of(held, found)} It took {seconds:.0f} s.", _next(held, found)]
    shape = {"ok": _is_well(held, found), "seconds": round(seconds, 1), "audits": shapes}
    shell.show(shape, "\n".join(lines))


def _next(held: Sequence[MechanismAudit], found: Sequence[SpecimenAudit]) -> str:
    """Return the line of the audit's output that tells the user what to do next."""
    if any(one.audited.is_violated for one in held):
        return (
            "Do not use the mechanisms marked ACCUSED, and report them: by chance alone, the "
            "auditor accuses a correct one once in 10,000 audits."
        )
    if not _is_well(held, found):
        return (
            'The auditor did not detect a mechanism that is broken on purpose, so "not accused" '
            "means little in this run."
        )
    if found:
        return "Next: sfumato audit --help explains how to audit your own program or service."
    return "Next: sfumato audit --zoo runs the auditor on mechanisms that are broken on purpose."


def _sum_of(held: Sequence[MechanismAudit], found: Sequence[SpecimenAudit]) -> str:
    parts = []
    if held:
        accused = sum(one.audited.is_violated for one in held)
        silent = sum(not one.tells for one in held)
        paths = sum(one.tells and not one.counts for one in held)
        parts.append(f"{len(held)} audits: {accused} accused, {silent} inconclusive.")
        if paths:
            parts.append(
                f"{paths} of the audits test only the code path of a mechanism, not its constants."
            )
    if found:
        caught = sum(one.audited.is_violated for one in found)
        parts.append(f"{len(found)} broken mechanisms: {caught} caught.")
    return " ".join([*parts, "An audit cannot prove that a mechanism is private."])
