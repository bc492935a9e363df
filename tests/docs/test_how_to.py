"""Every code block of the pages for newcomers runs, in order, as they would run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sfumato
from support.command_line import entry
from support.small_vaults import card, write_patients

ROOT = Path(__file__).parents[2]
ROLES = ("owner", "researcher", "respondent", "auditor", "teacher")
PAGES = ("tutorials/start-here", *(f"how-to/{role}" for role in ROLES))
ROWS_ARE_THERE = ("how-to/researcher", "how-to/auditor")  # somebody else has published them


def blocks(page: str) -> list[tuple[str, str]]:
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    return re.findall(r"```(\w+)\n(.*?)```", text, re.S)


def run(place: Path, *command: str) -> None:
    (place / "bin").mkdir(exist_ok=True)
    entry(place / "bin")
    path = f"{place / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    settings = {**os.environ, "PATH": path, "HOME": str(place / "home")}
    ran = subprocess.run(
        command, cwd=place, env=settings, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def publish(place: Path) -> None:
    """Do what the owner's page does, for the pages of those who come after."""
    text, *_ = [text for kind, text in blocks("how-to/owner") if kind == "toml"]
    sfumato.create(place / "clinic-vault", anchor=place / "anchor")
    with sfumato.open(place / "clinic-vault") as vault:
        vault.add("clinic", place / "patients.csv", card(text))
        vault.enrol("alice", "researchers")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs_from_top_to_bottom(page: str, tmp_path: Path) -> None:
    write_patients(tmp_path / "patients.csv")
    if page in ROWS_ARE_THERE:
        publish(tmp_path)
    found = blocks(page)
    assert found
    for kind, text in found:
        if kind == "toml":
            assert "[columns." in (tmp_path / "clinic.card.toml").read_text()
            (tmp_path / "clinic.card.toml").write_text(text)
        else:
            run(tmp_path, *(("bash", "-ec") if kind == "sh" else (sys.executable, "-c")), text)


def test_every_role_has_its_page() -> None:
    start = (ROOT / "docs" / "tutorials" / "start-here.md").read_text("utf-8")
    assert [page for page in PAGES[1:] if f"(../{page}.md)" not in start] == []
