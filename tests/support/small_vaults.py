"""Small vaults for tests: made fresh, on rows that the test itself wrote."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import sfumato
from sfumato.app.vault import OpenVault
from support.command_line import shell, traced

SFUMATO = (
    sys.executable,
    "-c",
    "import sys; from sfumato.app.command_line import main; sys.exit(main())",
)


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def card(text: str) -> dict[str, Any]:
    return tomllib.loads(text, parse_float=Decimal)


def make_vault(folder: Path) -> Path:
    vault = folder / "vault"
    sfumato.create(vault, anchor=folder / "anchors" / "anchor")
    return vault


def open_with(  # an owner's words
    folder: Path,
    name: str,
    source: Path,
    text: str,
    user: str = "owner",
    *,
    tables: Mapping[str, Path] | None = None,
) -> OpenVault:
    """Return a new vault that holds one data set."""
    vault = sfumato.open(make_vault(folder), user=user)
    vault.add(name, source, card(text), tables=tables, accept_unreadable=columns_of(text))
    return vault


def columns_of(text: str) -> list[str]:
    """Return the columns of a card: in a table of few rows, one odd cell is more than 5 %."""
    shape = card(text)
    shapes = [shape, *shape.get("tables", {}).values()]
    found = [(name, of) for one in shapes for name, of in one.get("columns", {}).items()]
    return sorted({name for name, of in found if not of.get("hidden")})


def run(vault: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the real command line in a process of its own."""
    return shell(arguments, _settings(vault, environment))


def run_hurried(
    vault: Path, *arguments: str, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it in that folder, with a sandbox that waits for no slot to end."""
    return shell(arguments, _settings(vault, {}), folder, is_hurried=True)


def run_traced(
    vault: Path, words: Sequence[str], calls: Sequence[str], *options: str
) -> subprocess.CompletedProcess[str]:
    """Run it under strace, which writes these calls beside the vault."""
    asked = ("-e", "trace=" + ",".join(calls), *options)
    return traced(words, _settings(vault, {}), vault.parent / "strace.log", asked)


def _settings(vault: Path, environment: Mapping[str, str]) -> Mapping[str, str]:
    kept = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    return {**kept, "SFUMATO_VAULT": str(vault), **environment}


PATIENTS_CARD = """
unit = "patient_id"
people = "city-hospital-patients"
version = "2026-11"
budget = { epsilon = 3.0, delta = 1e-6 }
nulls = ["n/a", ""]
[caps]
user = { epsilon = 1.0 }
[ask]
who = ["researchers"]
[columns.age]
type = "integer"
lower = 0
upper = 110
[columns.zip]
type = "text"
keys = ["10001", "10002"]
[columns.salary]
type = "number"
lower = 0
upper = 200000
step = 1
[columns.name]
hidden = true
"""


def write_patients(path: Path, people: int = 200) -> Path:
    """Write patients with ids, ages, zips, salaries and names that nothing may show."""
    header = ("patient_id", "name", "age", "zip", "salary")
    rows = [
        (f"p{n:05d}", f"canary-{n:05d}", 20 + n % 60, ("10001", "10002")[n % 2], 20000 + 97 * n)
        for n in range(people)
    ]
    return write_csv(path, header, rows)


def patients_vault(folder: Path, *askers: str) -> Path:
    """Return a new vault with two hundred patients, whom these users may ask about."""
    vault = make_vault(folder)
    with sfumato.open(vault) as opened:
        opened.add("patients", write_patients(folder / "patients.csv"), card(PATIENTS_CARD))
        for asker in askers:
            opened.enrol(asker, "researchers")
    return vault
