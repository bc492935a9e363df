"""The house keeps its walls, and the test that says so fails when one is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from imports import Import, imports_of, is_allowed

PACKAGE = Path(__file__).parents[2] / "src" / "sfumato"


def broken_walls(package: Path) -> list[Import]:
    return [found for found in imports_of(package) if not is_allowed(found)]


def test_every_import_is_one_that_the_table_allows() -> None:
    assert broken_walls(PACKAGE) == []


def test_the_table_sees_the_imports_of_every_room() -> None:
    seen = {found.importer.split(".")[0] for found in imports_of(PACKAGE)}
    assert {"core", "plan", "door", "engines", "stores", "services", "faces", "client"} <= seen


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("core/people_.py", "from sfumato.query.plan import Plan"),
        ("core/people_.py", "import sfumato.system.randomness"),
        ("core/people_.py", "def f() -> None:\n    from sfumato.storage import sqlite"),
        ("plan/new.py", "from sfumato.release import release"),
        ("door/new.py", "from sfumato.engines.duckdb.engine import DuckDBEngine"),
        ("engines/new.py", "from sfumato.query.price import Priced"),
        ("stores/new.py", "from sfumato.release.unseal import unseal"),
        ("services/queries/new.py", "from sfumato.features.data_sets import DataSets"),
        ("services/queries/new.py", "from sfumato.storage.sqlite_ledger import open_ledger"),
        ("services/queries/new.py", "from sfumato.release.unseal import unseal"),
        ("wire/new.py", "from sfumato.vault.card.data_card import Card"),
        ("faces/new.py", "from sfumato.client import Vault"),
        ("faces/cli/new.py", "from sfumato.release import Door"),
        ("client/new.py", "from sfumato.vault.card.data_card import Card"),
        ("lab/new.py", "from sfumato.release import release"),
        ("lab/new.py", "from ..door import release"),
        ("system/randomness.py", "from sfumato.vault.ports import Dice"),
    ],
)
def test_a_planted_import_is_found(tmp_path: Path, room: str, line: str) -> None:
    planted = tmp_path / "sfumato" / room
    planted.parent.mkdir(parents=True)
    planted.write_text(line + "\n")
    broken = broken_walls(tmp_path / "sfumato")
    assert [found.importer.replace(".", "/") + ".py" for found in broken] == [room]


def test_no_measured_sensitivity_comes_near_a_mechanism_that_is_private() -> None:
    """Measured on rows, it is a lower bound (docs/lab.md): the lab alone may know of it."""
    uses: dict[str, set[str]] = {"lab.parallel": set(), "lab.laplacian": set()}
    for found in imports_of(PACKAGE):
        for module, users in uses.items():
            if found.imported == module or found.imported.startswith(f"{module}."):
                users.add(found.importer)
    assert uses == {
        "lab.parallel": {"lab", "lab.exhibits", "lab.laplacian"},
        "lab.laplacian": {"lab"},
    }
