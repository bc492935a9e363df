"""What `add` tells owners of their own rows, what it refuses, and who else hears of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Bug, Refused
from sfumato.vault.add_report import BANDS, band, read_report
from support.small_vaults import make_vault, run, write_csv

BUDGET: Final = {"epsilon": 1}
NUMBER: Final = {"type": "number", "lower": 0, "upper": 100, "step": 1}


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    with sfumato.open(make_vault(tmp_path_factory.mktemp("report"))) as opened:
        opened.enrol("ada", "researchers")
        yield opened


def add(
    vault: OpenVault, name: str, source: Path, columns: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """Add it as of people of its own, and return the report of its table."""
    accepted = more.pop("accept_unreadable", ())
    shape = {"unit": "row", "people": name, "budget": BUDGET, "columns": columns, **more}
    added = vault.add(name, source, shape, different_people="the board", accept_unreadable=accepted)
    assert added.report is not None
    (table,) = added.report["tables"]
    return dict(table)


def numbers(folder: Path, cells: list[str], name: str = "n.csv") -> Path:
    return write_csv(folder / name, ["x", "town"], [[cell, "Ulm"] for cell in cells])


@pytest.mark.parametrize(
    ("part", "whole", "word"),
    [
        (0, 0, "under 1 %"), (0, 9, "under 1 %"), (99, 10_000, "under 1 %"), (1, 100, "1 to 5 %"),
        (5, 100, "1 to 5 %"), (51, 1000, "5 to 25 %"), (1, 4, "5 to 25 %"), (1, 2, "25 to 50 %"),
        (95, 100, "50 to 95 %"), (951, 1000, "over 95 %"), (3, 3, "over 95 %"),
    ],
)  # fmt: skip
def test_a_share_is_told_as_a_band(part: int, whole: int, word: str) -> None:
    assert band(part, whole) == word
    assert word in BANDS


def test_what_is_no_band_is_no_report() -> None:
    for wrong in ({"column": "x", "empty": "3 of 700"}, {"column": "x", "empty": 3}):
        with pytest.raises(Bug):
            read_report({"tables": [{"table": "t", "columns": [wrong]}]})


def test_five_percent_may_be_unreadable_and_no_more(vault: OpenVault, tmp_path: Path) -> None:
    just = numbers(tmp_path, ["what?"] * 5 + ["7"] * 95 + [""] * 300)
    found = add(vault, "just", just, {"x": NUMBER})
    assert found["columns"][0]["unreadable"] == "1 to 5 %"
    assert found["columns"][0]["empty"] == "50 to 95 %"
    more = numbers(tmp_path, ["what?"] * 6 + ["7"] * 94 + [""] * 300)
    with pytest.raises(Refused, match="'x' as number") as refused:
        add(vault, "more", more, {"x": NUMBER})
    assert refused.value.code == "cells-unreadable"
    assert "what?" not in str(refused.value)
    assert "--accept-unreadable 'x'" in refused.value.next_step
    accepted = add(vault, "more", more, {"x": NUMBER}, accept_unreadable=["X"])
    assert accepted["columns"][0]["unreadable"] == "5 to 25 %"


@pytest.mark.parametrize("kind", ["integer", "number", "boolean", "date", "timestamp"])
def test_every_type_is_judged_and_a_text_never(vault: OpenVault, tmp_path: Path, kind: str) -> None:
    source = numbers(tmp_path, ["~"] * 20)
    with pytest.raises(Refused, match="cells-unreadable"):
        add(vault, f"of-{kind}", source, {"x": {"type": kind}})
    assert add(vault, f"as-text-{kind}", source, {"x": {"type": "text"}})


def test_only_a_column_of_the_card_can_be_accepted(vault: OpenVault, tmp_path: Path) -> None:
    source = numbers(tmp_path, ["7"] * 20)
    with pytest.raises(Refused, match="unknown-column"):
        add(vault, "typo", source, {"x": NUMBER}, accept_unreadable=["y"])


def test_values_beyond_bounds_and_without_a_key_are_counted(
    vault: OpenVault, tmp_path: Path
) -> None:
    cells = [
        (str(x), "M" if n % 5 else "m", f"20{n % 10 + 15}-01-01")
        for n, x in enumerate([*([-1] * 10), 0, 100, *([101] * 20), *([50] * 68)])
    ]
    source = write_csv(tmp_path / "b.csv", ["x", "sex", "day"], cells)
    found = add(
        vault,
        "beyond",
        source,
        {
            "x": NUMBER,
            "sex": {"type": "text", "keys": ["M", "F"]},
            "day": {"type": "date", "lower": "2016-01-01", "upper": "2024-12-31"},
        },
    )
    x, sex, day = found["columns"]
    assert (x["outside_bounds"], x["outside_keys"]) == ("25 to 50 %", None)
    assert (sex["outside_bounds"], sex["outside_keys"]) == (None, "5 to 25 %")
    assert (day["outside_bounds"], day["outside_keys"]) == ("5 to 25 %", None)
    assert (found["people_cut"], found["without_person"]) == (None, None)


def test_clamping_gives_what_it_gave_before(vault: OpenVault, tmp_path: Path) -> None:
    """Bounds are a step wider while cells are read; nothing of it is stored."""
    import duckdb

    source = numbers(tmp_path, ["-3", "-0.5", "-0.51", "0", "99.5", "100.4", "100.5", "1e9", ""])
    add(vault, "clamped", source, {"x": NUMBER})
    listing = vault.house.catalogue.find("clamped")
    assert listing is not None
    with duckdb.connect(listing.table, read_only=True) as connection:
        found = connection.execute('SELECT v0 FROM "rows"').fetchall()
        kinds = connection.execute('DESCRIBE "rows"').fetchall()
    assert sorted(row[0] for row in found if row[0] is not None) == [0] * 4 + [100] * 4
    assert [row[0] for row in kinds] == ["row_key", "v0"]


def test_a_value_beyond_a_bound_has_the_key_of_the_bound(vault: OpenVault, tmp_path: Path) -> None:
    import duckdb

    source = numbers(tmp_path, ["-1", "0", "100", "101", "250"])
    found = add(vault, "keyed", source, {"x": {**NUMBER, "keys": [0, 100]}})
    assert found["columns"][0]["outside_keys"] == "under 1 %"
    listing = vault.house.catalogue.find("keyed")
    assert listing is not None
    with duckdb.connect(listing.table, read_only=True) as connection:
        codes = connection.execute('SELECT k0 FROM "rows" ORDER BY 1').fetchall()
    assert codes == [(0,), (0,), (1,), (1,), (1,)]


def test_what_bounds_cut_of_people_is_told(vault: OpenVault, tmp_path: Path) -> None:
    rows = [
        (f"p{p}", town, "1") for p in range(60) for town in ("Ulm", "Bonn", "Kiel")[: p % 3 + 1]
    ]
    rows += [("", "Ulm", "1")] * 3
    source = write_csv(tmp_path / "v.csv", ["pid", "town", "x"], rows)
    town = {"type": "text", "keys": ["Ulm", "Bonn", "Kiel"]}
    cut = add(vault, "visits", source, {"town": town, "x": NUMBER}, unit="pid")
    assert (cut["people_cut"], cut["rows_cut"]) == ("50 to 95 %", "25 to 50 %")
    assert (cut["columns"][0]["people_cut"], cut["columns"][0]["rows_cut"]) == (
        "50 to 95 %",
        "25 to 50 %",
    )
    assert cut["without_person"] == "1 to 5 %"
    assert cut["columns"][1]["people_cut"] is None
    wide = {"max_groups": 3, "max_rows": 3}
    whole = add(vault, "visits-3", source, {"town": town, "x": NUMBER}, unit="pid", **wide)
    assert {whole["people_cut"], whole["rows_cut"]} == {"under 1 %"}
    assert whole["columns"][0]["rows_cut"] == "under 1 %"


def test_rows_beyond_the_limit_of_a_person_are_told(vault: OpenVault, tmp_path: Path) -> None:
    rows = [(f"p{p}", "1") for p in range(10) for _ in range(8)]
    source = write_csv(tmp_path / "many.csv", ["pid", "x"], rows)
    limits = {"rows_per_person": 4}
    found = add(vault, "dropped", source, {"x": NUMBER}, unit="pid", max_rows=4, limits=limits)
    assert found["rows_dropped"] == "25 to 50 %"


# --- who hears of it -----------------------------------------------------------------------------

BAND_WORDS: Final = [word.encode() for word in BANDS]


def test_the_report_is_in_no_file_but_its_own(tmp_path: Path) -> None:
    place = make_vault(tmp_path)
    with sfumato.open(place) as vault:
        add(vault, "town", numbers(tmp_path, ["7"] * 20 + [""] * 20), {"x": NUMBER})
        vault["town"].ask("SELECT COUNT(*) FROM town", epsilon=0.5)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".csv"]
    holders = [path for path in files if any(w in path.read_bytes() for w in BAND_WORDS)]
    assert [path.suffix for path in holders] == [".report"]
    assert holders[0].stat().st_mode & 0o777 == 0o600
    assert holders[0].parent.name == "tables"


def test_only_the_owner_is_told(vault: OpenVault, tmp_path: Path) -> None:
    add(vault, "mine", numbers(tmp_path, ["7"] * 20), {"x": NUMBER}, ask={"who": ["researchers"]})
    assert vault.add_report("mine")["tables"]
    with sfumato.open(vault.house.folder, user="ada") as asked:
        assert asked["mine"].card["name"] == "mine"
        with pytest.raises(Refused) as refused:
            asked.add_report("mine")
        assert refused.value.code in ("not-allowed", "unknown-data-set")
        shown = json.dumps([asked["mine"].card.shape, asked["mine"].budget.shape], default=str)
    assert not any(word.decode() in shown for word in BAND_WORDS)


def test_a_refused_add_changes_nothing(vault: OpenVault, tmp_path: Path) -> None:
    """Neither who may ask, nor the ledger, nor a file says that an add was refused."""
    add(vault, "stays", numbers(tmp_path, ["7"] * 20), {"x": NUMBER})
    folder, store = vault.house.folder, vault.house.ledger.store

    def seen() -> tuple[object, ...]:
        files = sorted(str(path) for path in folder.rglob("*") if path.name != "add.lock")
        return store.head(), vault["stays"].card.shape, vault.house.catalogue.names(), files

    before = seen()
    with pytest.raises(Refused, match="cells-unreadable"):
        add(vault, "stays", numbers(tmp_path, ["?!"] * 20), {"x": NUMBER}, version="2")
    with pytest.raises(Refused, match="no-header"):
        add(vault, "new", write_csv(tmp_path / "h.csv", ["7", "8"], [["9", "5"]]), {"9": NUMBER})
    assert seen() == before


def test_a_forgotten_table_takes_its_report_along(tmp_path: Path) -> None:
    with sfumato.open(make_vault(tmp_path)) as vault:
        for version in ("1", "2"):
            add(vault, "t", numbers(tmp_path, ["7"] * 20), {"x": NUMBER}, version=version)
        assert len(list(vault.house.folder.glob("tables/*.report"))) == 2
        vault.owner.data_sets.forget_earlier()
        assert len(list(vault.house.folder.glob("tables/*.report"))) == 1
        assert vault.add_report("t")["version"] == "2"


def test_the_report_of_an_add_that_was_killed_is_swept(vault: OpenVault, tmp_path: Path) -> None:
    left = vault.house.folder / "tables" / ("0" * 24 + ".report")
    left.write_text("{}")
    add(vault, "next", numbers(tmp_path, ["7"] * 20), {"x": NUMBER})
    assert not left.exists()


def test_a_vault_that_kept_no_report_says_so(vault: OpenVault, tmp_path: Path) -> None:
    add(vault, "old", numbers(tmp_path, ["7"] * 20), {"x": NUMBER})
    listing = vault.house.catalogue.find("old")
    assert listing is not None
    Path(listing.table).with_suffix(".report").unlink()
    assert str(vault.add_report("old")) == "No report was kept of how the rows were read."


def test_the_report_is_printed_and_prints_no_number(tmp_path: Path) -> None:
    place = make_vault(tmp_path)
    numbers(tmp_path, ["7"] * 70 + ["700"] * 30)
    (tmp_path / "c.toml").write_text(
        "unit = 'row'\nbudget = { epsilon = 1 }\n"
        "[columns.x]\ntype = 'integer'\nlower = 0\nupper = 9\n"
    )
    done = run(place, "add", "few", str(tmp_path / "n.csv"), "--card", str(tmp_path / "c.toml"))
    assert done.returncode == 0, done.stderr
    assert "without noise, so show it t" in done.stdout
    assert "25 to 50 %" in done.stdout
    assert not {"30", "70", "100", "0.3"} & set(done.stdout.split())
    again = run(place, "add-report", "few")
    assert again.stdout in done.stdout


def test_the_command_accepts_what_is_named(tmp_path: Path) -> None:
    place = make_vault(tmp_path)
    numbers(tmp_path, ["7,5"] * 40)
    (tmp_path / "c.toml").write_text(
        "unit = 'row'\nbudget = { epsilon = 1 }\n[columns.x]\ntype = 'number'\n"
    )
    words = ("add", "few", str(tmp_path / "n.csv"), "--card", str(tmp_path / "c.toml"))
    refused = run(place, *words)
    assert refused.returncode == 3
    assert "cells-unreadable" in refused.stderr
    assert 'decimal = ","' in refused.stderr
    assert "7,5" not in refused.stderr
    assert run(place, *words, "--accept-unreadable", "x").returncode == 0
