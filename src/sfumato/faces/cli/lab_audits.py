"""What `sfumato audit` runs and prints."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.client.text import table_text
from sfumato.faces.cli.shell import Shell, working
from sfumato.lab.audit.canaries import Asked as AtTheDoor
from sfumato.lab.audit.page import FOUND, HELD, found_row, held_row, page, shape_of
from sfumato.lab.audit.suite import (
    AT_THE_DOOR,
    Found,
    Held,
    all_at_the_door,
    all_bare,
    whole_zoo,
)
from sfumato.lab.audit.suite import names as all_names
from sfumato.wire import Refused


@dataclass(frozen=True)
class Asked:
    """What was typed."""

    names: tuple[str, ...]
    zoo: bool
    path: str | None
    seed: int
    engines: tuple[str, ...] = ()  # besides DuckDB, to ask the questions on as well


def run(shell: Shell, asked: Asked) -> bool:
    """Run the audits that were asked for, show them, and say whether all is well."""
    _check(asked.names)
    held: list[Held] = []
    found: list[Found] = []
    begun = time.monotonic()
    with working("auditing"):
        if not asked.zoo:
            questions = AT_THE_DOOR if asked.path or asked.names else _short()
            held = _held(shell, asked, questions)
        if asked.zoo or asked.path or asked.names:
            found = list(whole_zoo(asked.seed, asked.names))
    if asked.path:
        _write(Path(asked.path), asked, held, found)
    _show(shell, held, found, time.monotonic() - begun)
    return _is_well(held, found)


def _write(path: Path, asked: Asked, held: Sequence[Held], found: Sequence[Found]) -> None:
    """Write the page; where only some were asked for, the other lines of it stay."""
    is_part = bool(asked.names) or asked.zoo
    before = path.read_text("utf-8") if is_part and path.exists() else ""
    path.write_text(page(held, found, before), "utf-8")


def _short() -> tuple[AtTheDoor, ...]:
    return tuple(question for question in AT_THE_DOOR if question.is_short)


def _check(names: Sequence[str]) -> None:
    known = {name.casefold() for name in all_names()}
    for name in names:
        if name.casefold() not in known:
            raise Refused(
                "bad-request",
                f"Nothing that is audited is called {name!r}.",
                "See the names with `sfumato audit --zoo` and `sfumato audit`.",
            )


def _held(shell: Shell, asked: Asked, questions: Sequence[AtTheDoor]) -> list[Held]:
    wanted = {name.casefold() for name in asked.names}
    chosen = [one for one in questions if not wanted or one.name.casefold() in wanted]
    held = list(all_bare(asked.seed, asked.names))
    if not chosen:
        return held
    for engine in (None, *asked.engines):
        with _fresh(shell, engine) as (vault, folder):
            where = f"door, {_name_of(engine)}"
            held += all_at_the_door(vault, folder, where, seed=asked.seed, questions=chosen)
    return held


def _name_of(engine: str | None) -> str:
    """Return what the engine at an address is called."""
    if engine is None:
        return "DuckDB"
    return "PostgreSQL" if engine.startswith("postgresql:") else "Spark"


@contextmanager
def _fresh(shell: Shell, engine: str | None) -> Iterator[tuple[Any, Path]]:  # Any: the app's vault
    """Make a vault that is gone afterwards; the one that was named is never touched."""
    with tempfile.TemporaryDirectory(prefix="sfumato-audit-") as name:
        folder = Path(name)
        shell.app.create(str(folder / "vault"), anchor=str(folder / "anchor"), engine=engine)
        with shell.app.open(str(folder / "vault")) as vault:
            yield vault, folder


def _is_well(held: Sequence[Held], found: Sequence[Found]) -> bool:
    return all(one.is_well for one in held) and all(one.is_well for one in found)


def _show(shell: Shell, held: Sequence[Held], found: Sequence[Found], seconds: float) -> None:
    shapes = [shape_of(one.name, one.audited, one.verdict) | {"where": one.where} for one in held]
    shapes += [shape_of(one.specimen.id, one.audited, one.verdict) for one in found]
    lines: list[str] = []
    if held:
        lines += [*table_text(HELD, [held_row(one) for one in held]), ""]
    if found:
        lines += [*table_text(FOUND, [found_row(one) for one in found]), ""]
    lines.append(f"{_sum_of(held, found)} It took {seconds:.0f} s.")
    shape = {"ok": _is_well(held, found), "seconds": round(seconds, 1), "audits": shapes}
    shell.show(shape, "\n".join(lines))


def _sum_of(held: Sequence[Held], found: Sequence[Found]) -> str:
    parts = []
    if held:
        accused = sum(one.audited.is_violated for one in held)
        silent = sum(not one.tells for one in held)
        paths = sum(one.tells and not one.counts for one in held)
        parts.append(f"{len(held)} audits: {accused} accused, {silent} that show nothing.")
        if paths:
            parts.append(f"{paths} of a path alone, not of its constant.")
    if found:
        caught = sum(one.audited.is_violated for one in found)
        parts.append(f"{len(found)} specimens: {caught} caught.")
    return " ".join([*parts, "No audit shows that something is private."])
