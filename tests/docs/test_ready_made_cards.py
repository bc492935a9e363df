"""The commands of docs/how-to/ready-made-cards.md run, and what it says of the card is so."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from sfumato.cli.export_card import STANDARDS
from sfumato.features.data_sets.ready_made.fhir import _FLAT
from sfumato.features.data_sets.ready_made.omop import TABLES
from sfumato.features.data_sets.ready_made.ready_made_card import (
    MAX_GROUPS,
    ROWS_PER_PERSON,
    TABLE_ROWS,
    VALUE,
)
from support.command_line import shell
from support.exports.omop_export import write_omop
from support.exports.redcap_export import write_redcap

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "ready-made-cards.md"
TEXT = PAGE.read_text("utf-8")


def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    write_omop(tmp_path / "cdm", 150)
    write_redcap(tmp_path / "redcap-export", 60)
    where = {"SFUMATO_VAULT": "vault", "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    for line in "".join(re.findall(r"```sh\n(.*?)```", TEXT, re.S)).splitlines():
        words = shlex.split(line)
        if words[0] == "sed":
            card = tmp_path / words[-1]
            card.write_text(card.read_text().replace("\n# budget", "\nbudget"))
        elif words[0] == "sfumato":
            done = shell(words[1:], where, tmp_path)
            assert done.returncode == 0, (line, done.stdout, done.stderr)


def test_the_page_says_what_the_code_does() -> None:
    assert [one for one in STANDARDS if f"| `{one}` |" not in TEXT] == []
    assert [name for name in TABLES if f"`{name}`" not in TEXT] == []
    assert [one.table for one in _FLAT.values() if f"`{one.table}`" not in TEXT and one.table] == []
    assert f"{MAX_GROUPS} groups of a `GROUP BY`" in TEXT
    assert f"{ROWS_PER_PERSON:,} rows of a person" in TEXT
    assert f"at most {TABLE_ROWS // 10**6} million rows" in TEXT
    assert f"{VALUE['lower']} to {VALUE['upper']}, in steps of {VALUE['step']}" in TEXT


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)", TEXT))))
def test_what_it_links_is_there(link: str) -> None:
    assert (PAGE.parent / link).is_file()
