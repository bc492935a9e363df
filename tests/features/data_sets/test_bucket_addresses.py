"""A vault in a folder takes s3://BUCKET/PATH, with the keys that its user has for AWS."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import openpyxl
import pandas as pd
import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.bucket_address_service import (
    is_parquet_part,
    read_bucket_address,
)
from support.bids_folders import bids_card, kept_people, write_folder
from support.object_storage import ACCESS, SECRET, ObjectStorage, object_storage
from support.small_vaults import make_vault, run

AGES: Final = {"age": {"type": "integer", "lower": 0, "upper": 120}}


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStorage]:
    """Return a server with files, folders of Parquet files and a BIDS folder."""
    folder = tmp_path_factory.mktemp("addresses")
    with object_storage(folder / "swift") as made:
        for year in (2023, 2024):
            rows = pd.DataFrame({"who": [f"p{n}-{year}" for n in range(50)], "age": range(50)})
            place = folder / "spark" / f"year={year}" / "part 0.parquet"
            place.parent.mkdir(parents=True)
            rows.to_parquet(place)
        (folder / "spark" / "_SUCCESS").touch()
        (folder / "spark" / "year=2024" / "_temporary.parquet").write_bytes(b"not whole")
        made.put_folder("clinic/spark", folder / "spark")
        made.put_folder("clinic/ds1", write_folder(folder / "ds1"))
        book = openpyxl.Workbook()
        for name in ("Visits", "Lab 1"):
            sheet = book.create_sheet(name)
            sheet.append(["who", name[:3]])
            sheet.append(["Anna", 3])
        book.save(folder / "book.xlsx")
        made.put("clinic/a/book.xlsx", (folder / "book.xlsx").read_bytes())
        with zipfile.ZipFile(folder / "all.zip", "w") as archive:
            archive.write(folder / "book.xlsx", "book.xlsx")
            archive.writestr("visits.csv", "who,age\n" + "p,3\n" * 60)
        made.put("clinic/all.zip", (folder / "all.zip").read_bytes())
        yield made


@pytest.fixture
def aws(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Write the files of AWS, and return their folder; the environment names the server."""
    home = tmp_path / "aws"
    home.mkdir()
    keys = f"aws_access_key_id = {ACCESS}\naws_secret_access_key = {SECRET}\n"
    (home / "credentials").write_text(f"[default]\n{keys}[none]\nregion = us-east-1\n")
    (home / "config").write_text(
        f"[default]\nendpoint_url = http://127.0.0.1:{storage.port}\n[profile none]\noutput = x\n"
    )
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "REGION"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(home / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(home / "credentials"))
    return home


@pytest.fixture
def vault(aws: Path, tmp_path: Path) -> Iterator[OpenVault]:
    with sfumato.open(make_vault(tmp_path)) as opened:
        yield opened


def card(people: str, columns: dict[str, Any] | None = None) -> dict[str, Any]:
    budget = {"epsilon": 100}
    return {"unit": "who", "people": people, "budget": budget, "columns": columns or AGES}


def names(vault: OpenVault, source: str, table: str | None = None) -> list[str]:
    found = cast("list[dict[str, str]]", vault.proposed("x", source, table)["columns"])
    return [one["name"] for one in found]


def left(vault: OpenVault) -> list[Path]:
    """Return what is kept of what was fetched."""
    return [one for one in (vault.house.folder / "incoming-objects").glob("*") if one.is_dir()]


@pytest.mark.parametrize(
    ("source", "rows"),
    [
        ("s3://clinic/spark", 100),
        ("s3://clinic/spark/", 100),
        ("s3://clinic/spark/year=2024", 50),
        ("s3://clinic/spark/*/*.parquet", 100),
        ("s3://clinic/**/year=2023/*.parquet", 50),
        ("s3://clinic/spark/year=2023/part%200.parquet", 50),
    ],
)
def test_a_file_a_folder_and_a_pattern_are_read(vault: OpenVault, source: str, rows: int) -> None:
    assert names(vault, source)[:2] == ["who", "age"]
    vault.add("visits", source, card("town"))
    vault.enrol("owner", "researchers")
    found = vault["visits"].count().ask(epsilon=50).value
    assert abs(float(str(found)) - rows) < 3
    assert left(vault) == []


def test_a_bids_folder_is_published(vault: OpenVault) -> None:
    found = vault.proposed("brains", "s3://clinic/ds1")
    assert cast("dict[str, Any]", found["card"])["bids"]["files"]
    vault.add("brains", "s3://clinic/ds1", bids_card())
    assert len(kept_people(vault.house.folder)[0]) == 4
    assert left(vault) == []


def test_a_sheet_and_a_file_of_a_zip_file_are_named(vault: OpenVault) -> None:
    with pytest.raises(Refused, match="has 2 sheets"):
        vault.proposed("x", "s3://clinic/a/book.xlsx")
    assert names(vault, "s3://clinic/a/book.xlsx", "Lab 1") == ["who", "Lab"]
    assert names(vault, "s3://clinic/all.zip", "visits") == ["who", "age"]
    source = "s3://clinic/all.zip"
    tables = {"more": "s3://clinic/spark"}
    shape = {**card("town"), "tables": {"more": {"unit": "who", "columns": AGES}}}
    vault.add("zip", source, shape, inner_table="visits.csv", tables=tables)
    assert len(left(vault)) == 1  # of the draft that was not added; for a day


def test_the_command_line_takes_an_address(aws: Path, tmp_path: Path) -> None:
    made = make_vault(tmp_path)
    (tmp_path / "card.toml").write_text(
        'unit = "who"\npeople = "town"\nbudget = { epsilon = 9 }\n'
        'columns.age = { type = "integer", lower = 0, upper = 110 }\n'
    )
    words = ("s3://clinic/spark", "--card", str(tmp_path / "card.toml"))
    names = ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")
    done = run(made, "add", "visits", *words, **{name: os.environ[name] for name in names})
    assert done.returncode == 0, done.stderr
    for path in made.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("s3://clinic/none.csv", "nothing of that name"),
        ("s3://clinic/none/*.parquet", "nothing of that name"),
        ("s3://clinic/a", "nothing of that name"),
        ("s3://nobodys/a.csv", "nothing of that name"),
        ("s3://clinic", "not the address"),
        ("s3://clinic/a/../b.csv", "not the address"),
        ("s3://clinic//a.csv", "nothing of that name"),
        ("s3://../a.csv", "bucket's name"),
    ],
)
def test_what_is_not_there_is_refused(vault: OpenVault, source: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        vault.proposed("x", source)


def test_keys_are_needed_and_a_wrong_one_is_refused(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "s3://clinic/all.zip"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-one-PLANTED")
    with pytest.raises(Refused, match="does not let") as refused:
        vault.proposed("x", source)
    assert "PLANTED" not in str(refused.value)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_PROFILE", "none")
    with pytest.raises(Refused, match="no keys for the bucket"):
        vault.proposed("x", source)


def test_the_environment_says_which_host(aws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (aws / "config").write_text("[default]\nregion = eu-central-1\n")
    place, path = read_bucket_address("s3://clinic/a%20b/c.csv")
    assert (place.named, path) == (
        "https://s3.eu-central-1.amazonaws.com/clinic/",
        "a b/c.csv",
    )
    assert (place.access_key, place.region) == (ACCESS, "eu-central-1")
    for name, text in {
        "ACCESS_KEY_ID": "k",
        "SECRET_ACCESS_KEY": "s",
        "SESSION_TOKEN": "t",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", text)
    monkeypatch.setenv("AWS_REGION", "cn-north-1")
    place, _ = read_bucket_address("s3://clinic/a.csv")
    assert (place.access_key, place.session_token) == ("k", "t")
    assert place.host == "s3.cn-north-1.amazonaws.com.cn"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://store.test:9000")
    with pytest.raises(Refused, match="needs https"):
        read_bucket_address("s3://clinic/a.csv")


def test_a_pattern_stays_in_its_folder() -> None:
    assert is_parquet_part("a/b.parquet", "**/*.parquet")
    assert is_parquet_part("b.PQ", "")
    assert not is_parquet_part("a/b.parquet", "*.parquet")
    assert not is_parquet_part("a/b.csv", "**")
    assert not is_parquet_part("_tmp/b.parquet", "")


def test_a_service_takes_no_address() -> None:
    from sfumato.client import owner

    class Nobody:
        """A service that is not asked."""

    with pytest.raises(Refused, match="no keys of yours"):
        owner.proposed(cast("owner.Service", Nobody()), "s3://clinic/a.csv")
