"""The house keeps its walls, and the test that says so fails when one is broken."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from house.import_walls import NOT_PUBLIC, OF_KIND, ROOMS, broken_walls, imports_of

PACKAGE = Path(__file__).parents[2] / "src" / "sfumato"

_SANDBOXED = "put what both run, a Program, into sandbox/program.py"
_PLACEHOLDERS = "put the made-up rows of a card into vault/card/placeholder_rows.py"
_ADDING = "an add is a job that may wait for a second person: give it ports"
_PLAN_TYPES = "the check needs the plan's integers alone: give it those, or name the type unquoted"
_PAID_ORDER = "let the query service name the type of a paid query"
# importer, imported -> how to cut it; an entry that is cut has to go
EXCEPTIONS: Final = {
    ("cli.shell", "features.anonymization"): "give App a protocol of its own",
    ("features.airlock.client", "features.pipelines.client"): _SANDBOXED,
    ("features.airlock.client", "features.synthetic.client"): "put `archive` into client/files.py",
    ("features.airlock.program_plan", "features.pipelines.program_folder"): _SANDBOXED,
    ("features.airlock.release", "features.pipelines.program_plan"): _SANDBOXED,
    ("features.airlock.release", "features.pipelines.release"): _SANDBOXED,
    ("features.audit.cli", "features.airlock.client"): "put `Files` into client/files.py",
    ("features.audit.cli", "features.audit.sheet_verification"): "take it apart from the ledger",
    ("features.audit.service", "features.surveys.release"): "name the account in vault/accounts.py",
    ("features.data_sets.add_service", "features.jobs.service"): _ADDING,
    ("features.data_sets.add_service", "features.policy.confirmation_service"): _ADDING,
    ("features.jobs.pages", "features.queries.pages"): "put the form into server/console",
    ("features.pipelines.program_trial", "features.synthetic.seeded_numbers"): _PLACEHOLDERS,
    ("features.pipelines.synthetic_blocks", "features.synthetic.person_files"): _PLACEHOLDERS,
    ("features.pipelines.synthetic_blocks", "features.synthetic.schema_twin"): _PLACEHOLDERS,
    ("features.pipelines.synthetic_blocks", "features.synthetic.twin_files"): _PLACEHOLDERS,
    ("features.queries.pages", "features.data_sets.pages"): "put `accounts_of` into server/console",
    ("features.synthetic.cli", "features.anonymization"): "leaks are a command of anonymization",
    ("features.synthetic.cli", "features.anonymization.report_text"): "the same",
    ("lab.audit.regression_audit", "features.regression.fit_result"): "ask through the client",
    ("release.guarantees.reviewed", "features.airlock.model"): _PLAN_TYPES,
    ("server.ipc.door_server", "release.release_order"): _PAID_ORDER,
    ("server.ipc.query_batches", "release.release_order"): _PAID_ORDER,
}


def test_every_import_is_one_that_the_table_allows() -> None:
    assert broken_walls(PACKAGE) == set(EXCEPTIONS)


def test_every_file_whose_kind_the_table_says_is_there() -> None:
    paths = [PACKAGE / name.replace(".", "/") for name in OF_KIND]
    assert [p for p in paths if not p.is_dir() and not p.with_suffix(".py").is_file()] == []


def test_the_table_sees_the_imports_of_every_room() -> None:
    seen = {found.importer.split(".")[0] for found in imports_of(PACKAGE)}
    assert seen >= set(ROOMS) - {"__main__", ""} | {"features"}


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("dp/people_.py", "from sfumato.query.plan import Plan"),
        ("dp/people_.py", "import sfumato.system.randomness"),
        ("dp/people_.py", "def f() -> None:\n    from sfumato.storage import sqlite_ledger"),
        ("query/new.py", "from sfumato.release import guarded_release"),
        ("release/new.py", "from sfumato.engines.duckdb.engine import DuckDBEngine"),
        ("release/new.py", "from sfumato.features.surveys.model import Survey"),
        ("engines/new.py", "from sfumato.query.price import Priced"),
        ("storage/new.py", "from sfumato.release.unseal import unseal"),
        ("features/queries/new_service.py", "from sfumato.features.data_sets import service"),
        (
            "features/queries/new_service.py",
            "from sfumato.storage.sqlite_ledger import open_ledger",
        ),
        ("features/queries/new_service.py", "from sfumato.release.unseal import unseal"),
        ("features/queries/model.py", "from sfumato.release.guarded_release import release"),
        ("features/queries/client.py", "from sfumato.release.guarded_release import release"),
        ("features/queries/new_pages.py", "from sfumato.features.queries.service import Queries"),
        ("wire/new.py", "from sfumato.vault.card.data_card import Card"),
        ("server/new.py", "from sfumato.release.guarded_release import Door"),
        ("cli/new.py", "from sfumato.release.guarded_release import Door"),
        ("client/new.py", "from sfumato.vault.card.data_card import Card"),
        ("lab/new.py", "from sfumato.release import guarded_release"),
        ("lab/new.py", "from ..release import guarded_release"),
        ("system/randomness.py", "from sfumato.dp.ports import RandomSource"),
    ],
)
def test_a_planted_import_is_found(tmp_path: Path, room: str, line: str) -> None:
    planted = tmp_path / "sfumato" / room
    planted.parent.mkdir(parents=True)
    planted.write_text(line + "\n")
    broken = broken_walls(tmp_path / "sfumato")
    assert [importer.replace(".", "/") + ".py" for importer, _ in broken] == [room]


def test_what_opens_rows_is_imported_by_the_release_alone() -> None:
    """Only the release and the features' own parts of it hold what turns rows into numbers."""
    users = {
        found.importer.partition(".")[0]
        for found in imports_of(PACKAGE)
        if found.imported.startswith(NOT_PUBLIC)
    }
    assert users == {"release", "features"}
    opened = {f.importer for f in imports_of(PACKAGE) if f.imported.startswith("release.unseal")}
    assert {one.rpartition(".")[0] for one in opened} == {"release.guarantees"}


def test_no_measured_sensitivity_comes_near_a_mechanism_that_is_private() -> None:
    """Measured on rows, it is a lower bound (docs/tutorials/lab.md): only the lab knows it."""
    uses: dict[str, set[str]] = {
        "lab.empirical_sensitivity": set(),
        "lab.laplace_of_any_query": set(),
    }
    for found in imports_of(PACKAGE):
        for module, users in uses.items():
            if found.imported == module or found.imported.startswith(f"{module}."):
                users.add(found.importer)
    assert uses == {
        "lab.empirical_sensitivity": {"lab", "lab.exhibits", "lab.laplace_of_any_query"},
        "lab.laplace_of_any_query": {"lab"},
    }
