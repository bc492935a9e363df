"""DataLad data sets are fetched by the vault itself, from a place that the operator allows."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.repository_service import check_address, url_of
from support.annex_servers import AnnexServer, commit, git, make_repository, serve_folder
from support.bids_folders import bids_card, kept_people, write_folder
from support.served_vault import Service, served, start
from support.small_vaults import make_vault

pytestmark = pytest.mark.skipif(
    shutil.which("git-annex") is None, reason="git-annex is not installed"
)


@dataclass
class Place:
    """A web server with a data set, and the file of a connection to it."""

    web: AnnexServer
    folder: Path  # the data set on the server
    file: Path
    vault: Path

    def connection(self, *lines: str, owners: str = '"owner"') -> tuple[str, str]:
        """Write the file of the connection, and return the option for the service."""
        text = f'address = "datalad+http://localhost:{self.web.port}/"\nowners = [{owners}]\n'
        self.file.write_text(text + "\n".join(lines))
        self.file.chmod(0o600)
        return ("--connection", f"open={self.file}")

    def key_of(self, person: str) -> str:
        """Return the name of the content of a person's image."""
        return (self.folder / person / "anat" / f"{person}_T1w.nii.gz").readlink().name


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Return a web server with the data set ds1."""
    folder = write_folder(tmp_path / "web" / "ds1")
    (folder / "sub-01" / "anat" / "sub-01_T2w.nii.gz").write_bytes(b"not listed")
    (folder / "derivatives").mkdir()
    (folder / "derivatives" / "all.nii.gz").write_bytes(b"not listed either")
    make_repository(folder)
    with serve_folder(tmp_path / "web") as web:
        yield Place(web, folder, tmp_path / "open.toml", make_vault(tmp_path))


def add(url: str, token: str, source: str = "connection:open/ds1", **card: Any) -> Any:
    with sfumato.connect(url, token=token) as vault:
        return vault.add("brains", source, bids_card(**card))


def left(vault: Path) -> list[Path]:
    return list((vault / "incoming-repositories").glob("*"))


def test_a_data_set_is_published_with_the_bytes_of_its_folder(place: Place, tmp_path: Path) -> None:
    with served(place.vault, *place.connection()) as service:
        token = service.owner()
        with sfumato.connect(service.url, token=token) as vault:
            proposed: Any = vault.proposed("brains", "connection:open/ds1")
        assert proposed["card"]["bids"] == {"files": ["anat/{sub}_T1w.nii.gz"]}
        assert place.web.contents == []  # a draft needs none
        assert add(service.url, token).version == "1"
        git(place.folder, "annex", "unlock", ".")
        git(place.folder, "commit", "-am", "unlocked")
        git(place.folder, "update-server-info")
        assert add(service.url, token, version="2").version == "2"
    images = {place.folder / f"sub-0{n}" / "anat" / f"sub-0{n}_T1w.nii.gz" for n in range(1, 5)}
    assert len(set(place.web.contents)) == len(images)  # only what the card lists
    first, second = kept_people(place.vault)
    assert first == second
    assert left(place.vault) == []
    with sfumato.open(make_vault(tmp_path / "local")) as local:
        local.add("brains", place.folder, bids_card())
        (wanted,) = kept_people(local.house.folder)
    assert sorted(first.values()) == sorted(wanted.values())


def test_a_fetch_that_was_cut_off_goes_on_where_it_stopped(place: Place) -> None:
    place.web.cut = place.key_of("sub-04")
    with served(place.vault, *place.connection()) as service:
        token = service.owner()
        with pytest.raises(Refused, match="could not all be fetched"):
            add(service.url, token)
        got = [key for key in place.web.contents if key != place.web.cut]
        assert len(got) == 3
        place.web.asked.clear()
        place.web.cut = ""
        add(service.url, token)
        assert set(place.web.contents) == {place.key_of("sub-04")}
        assert not any("/info/refs" in path for path in place.web.asked)  # nor is it cloned again
    assert left(place.vault) == []


def test_a_killed_service_goes_on_with_the_fetch_by_itself(place: Place) -> None:
    place.web.held = place.key_of("sub-04")
    options = place.connection()
    service = start(place.vault, *options)
    try:
        token = service.owner()
        with sfumato.connect(service.url, token=token) as vault:
            body: dict[str, object] = {
                "name": "brains",
                "connection": "open",
                "table": "ds1",
                "card": bids_card(),
            }
            job = str(vault.call("add", body)["job"])
        assert place.web.is_held.wait(60)
    finally:
        service.kill()
        if service.process.stderr is not None:
            service.process.stderr.close()
    before = [key for key in place.web.contents if key != place.web.held]
    place.web.asked.clear()
    place.web.go.set()
    with served(place.vault, *options) as again:
        again.tokens["owner"] = token
        deadline = time.monotonic() + 120
        while (said := again.call("GET", f"/v1/jobs/{job}", token=token)[1])["state"] != "done":
            assert said["failed"] is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.2)
    assert not set(before) & set(place.web.contents)
    assert len(kept_people(place.vault)[0]) == 4


def test_only_what_the_operator_allows_is_fetched(place: Place) -> None:
    shutil.copytree(place.folder, place.folder.with_name("ds2"), symlinks=True)
    options = place.connection('tables = ["ds1"]')
    with served(place.vault, *options) as service:
        service.owner()
        service.user_from_folder("otto", "owner")

        def code(by: str, source: str) -> str:
            with pytest.raises(Refused) as refused:
                add(service.url, service.tokens[by], source)
            return refused.value.code

        assert code("otto", "connection:open/ds1") == "connection-unknown"
        assert code("owner", "connection:other/ds1") == "connection-unknown"
        for name in ("ds2", "../ds1", "ds1/../ds1", "ds1?x", "ds1#x", "@host/x", ".git", "a//b"):
            assert code("owner", f"connection:open/{name}") == "source-unreadable", name
        with pytest.raises(Refused, match="brings its own tables"):
            add_with_tables(service)
    assert place.web.asked == []


def add_with_tables(service: Service) -> None:
    with sfumato.connect(service.url, token=service.tokens["owner"]) as vault:
        tables = {"moods": "connection:open/ds1"}
        vault.add("brains", "connection:open/ds1", bids_card(), tables=tables)


@pytest.mark.parametrize("name", ["participants.tsv", "sub-01/anat/sub-01_T1w.json", "phenotype"])
def test_a_link_out_of_the_data_set_is_refused(place: Place, name: str) -> None:
    (place.folder / name).unlink(missing_ok=True)
    (place.folder / name).symlink_to("/etc" if name == "phenotype" else "/etc/passwd")
    commit(place.folder)
    with served(place.vault, *place.connection()) as service:
        token = service.owner()
        with pytest.raises(Refused, match=r"is a link|1 files are broken links"):
            add(service.url, token)
        if name == "participants.tsv":
            with (
                sfumato.connect(service.url, token=token) as vault,
                pytest.raises(Refused, match="is a link"),
            ):
                vault.proposed("brains", "connection:open/ds1")


def test_a_data_set_that_is_too_large_is_refused_before_it_is_fetched(place: Place) -> None:
    image = place.folder / "sub-02" / "anat" / "sub-02_T1w.nii.gz"
    image.unlink()
    image.write_bytes(bytes(1_100_000))
    commit(place.folder)
    with (
        served(place.vault, *place.connection(), "--max-folder", "1") as service,
        pytest.raises(Refused, match="too-large"),
    ):
        add(service.url, service.owner())
    assert place.web.contents == []


def test_an_unknown_data_set_is_refused(place: Place) -> None:
    with (
        served(place.vault, *place.connection()) as service,
        pytest.raises(Refused, match="could not be cloned"),
    ):
        add(service.url, service.owner(), "connection:open/nothing")
    assert left(place.vault) == []


def test_a_changed_content_is_not_taken(place: Place) -> None:
    """git-annex compares what it got with the hash in its name."""
    image = (place.folder / "sub-03" / "anat" / "sub-03_T1w.nii.gz").resolve()
    image.chmod(0o600)
    image.write_bytes(b"x" * 1000)
    with (
        served(place.vault, *place.connection()) as service,
        pytest.raises(Refused, match="could not all be fetched"),
    ):
        add(service.url, service.owner())


def test_a_vault_in_a_folder_fetches_too(place: Place) -> None:
    place.connection()
    with sfumato.open(place.vault, connections={"open": str(place.file)}) as vault:
        vault.add("brains", "connection:open/ds1", bids_card())
    assert len(kept_people(place.vault)[0]) == 4
    assert left(place.vault) == []


@pytest.mark.parametrize(
    "address",
    [
        "http://192.0.2.1/", "http://example.org/", "file:///srv", "ssh://localhost/", "https://",
        "https://user:password@example.org/", "https://example.org/?x", "git://localhost/", "",
    ],
)  # fmt: skip
def test_a_place_that_is_not_safe_is_refused(address: str) -> None:
    with pytest.raises(Refused, match="engine-unavailable"):
        check_address(f"datalad+{address}")


def test_a_url_stays_below_the_address() -> None:
    check_address("datalad+https://192.0.2.1/a/")
    assert url_of("datalad+https://192.0.2.1/a/", "b/c") == "https://192.0.2.1/a/b/c"
    with pytest.raises(Refused, match="source-unreadable"):
        url_of("datalad+https://192.0.2.1/a/", "../c")
