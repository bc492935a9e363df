"""A folder, a zip and a tar are published on the console, in a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from sfumato.system.folder_stream import PART_BYTES
from support.annex_servers import make_repository, serve_folder
from support.bids_folders import IMAGE, kept_people, write_folder, write_tar, write_zip
from support.browser import Watched, context_of
from support.object_storage import ACCESS, SECRET, object_storage
from support.served_vault import Service, served
from support.small_vaults import make_vault

MB = 1 << 20


@pytest.fixture
def owner(browser: Browser, service: Service) -> Iterator[Watched]:
    """Return a page of the owner's."""
    with context_of(browser, service, service.owner()) as context:
        yield Watched(context.new_page()).watch()


def vault_of(service: Service) -> Path:
    arguments = service.process.args
    assert isinstance(arguments, list)
    return Path(str(arguments[arguments.index("--vault") + 1]))


def sign(page: Page, version: int) -> None:
    """Complete the draft of the card, sign it, and wait until the data set is there."""
    expect(page.locator("#unit")).to_have_value("participant_id")
    page.fill("#name", "study")
    page.fill("#people", "scanned")
    page.click("text=More terms")
    page.fill("#version", str(version))
    page.click("text=Next:")
    page.fill("#epsilon", "1")
    page.click("text=Next:")
    expect(page.locator("#bids_files")).to_have_value(IMAGE)
    page.fill("#bids_people", "10")
    page.fill("#bids_person_mb", "64")
    page.click("text=Sign the card")
    page.click("text=See the data set", timeout=30_000)


def test_a_folder_a_zip_and_a_tar_are_published_with_the_same_bytes(
    owner: Watched, service: Service, tmp_path: Path
) -> None:
    folder, page = write_folder(tmp_path / "study"), owner.page
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("hidden")
    (folder / "derivatives").mkdir()
    (folder / "derivatives" / "all.tsv").write_text("not sent")
    archives = [
        write_zip(folder, tmp_path / "study.zip", "study/"),
        write_tar(folder, tmp_path / "study.tar.gz"),
    ]
    page.goto(f"{service.url}/uploads")
    page.set_input_files("#folder", folder)
    page.click("text=Send the folder")
    sign(page, 1)
    files = page.locator("section[aria-labelledby=files]")
    expect(files).to_contain_text("of 10 people at most, 64 MB each")
    expect(files).to_contain_text(IMAGE)
    for number, archive in enumerate(archives, 2):
        page.goto(f"{service.url}/uploads")
        page.set_input_files("#file", archive)
        page.click("text=Send the file")
        sign(page, number)
    first, second, third = kept_people(vault_of(service))
    assert len(first) == 4
    assert first == second == third
    assert not list((vault_of(service) / "incoming-folders").glob("*"))
    assert owner.complaints == []


def test_a_folder_goes_on_after_a_reload_where_it_stopped(
    owner: Watched, service: Service, tmp_path: Path
) -> None:
    folder, page = write_folder(tmp_path / "large", 3, 5 * MB), owner.page
    sent: list[str] = []

    def cut(route: Route) -> None:
        """Let the first part through, and no other."""
        sent.append(route.request.url)
        if len(sent) == 1:
            route.continue_()
        else:
            route.abort()

    page.goto(f"{service.url}/uploads")
    page.route("**/uploads?name=*", cut)
    page.set_input_files("#folder", folder)
    with page.expect_event("requestfailed"):
        page.click("text=Send the folder")
    page.goto(f"{service.url}/uploads")
    page.unroute_all()
    again: list[str] = []
    page.on("request", lambda one: again.append(one.url) if one.method == "PUT" else None)
    page.set_input_files("#folder", folder)
    page.click("text=Send the folder")
    page.wait_for_url("**/uploads/*")
    assert 15 * MB > PART_BYTES
    assert again == [sent[1]]  # the first part was there


def test_an_unsafe_archive_is_refused_on_the_page(
    owner: Watched, service: Service, tmp_path: Path
) -> None:
    page, archive = owner.page, tmp_path / "broken.zip"
    archive.write_bytes(b"PK\3\4 and nothing else")
    page.goto(f"{service.url}/uploads")
    page.set_input_files("#file", archive)
    page.click("text=Send the file")
    expect(page.locator("#sent")).to_contain_text("cannot be read")
    expect(page.locator("#upload progress")).to_be_hidden()


@pytest.mark.skipif(shutil.which("git-annex") is None, reason="git-annex is not installed")
def test_a_data_lad_data_set_is_taken_from_a_connection(browser: Browser, tmp_path: Path) -> None:
    make_repository(write_folder(tmp_path / "web" / "ds1"))
    file, vault = tmp_path / "open.toml", make_vault(tmp_path)
    with serve_folder(tmp_path / "web") as web:
        file.touch(mode=0o600)
        file.write_text(f'address = "datalad+http://localhost:{web.port}/"\nowners = ["owner"]\n')
        with (
            served(vault, "--connection", f"open={file}") as service,
            context_of(browser, service, service.owner()) as context,
        ):
            page = context.new_page()
            page.goto(f"{service.url}/uploads")
            page.fill("#table", "ds1")
            page.click("text=Propose a card")
            sign(page, 1)
    assert len(kept_people(vault)[0]) == 4


@pytest.mark.skipif(
    shutil.which("swift-proxy-server") is None, reason="swift-proxy is not installed"
)
def test_a_folder_and_a_table_are_taken_from_a_bucket(browser: Browser, tmp_path: Path) -> None:
    file, vault = tmp_path / "store.toml", make_vault(tmp_path)
    rows = "".join(f"p{n},{20 + n % 60}\n" for n in range(50))
    with object_storage(tmp_path / "swift") as storage:
        storage.put_folder("studies/shared/ds1", write_folder(tmp_path / "ds1"))
        storage.put("studies/shared/visits.csv", f"patient,age\n{rows}".encode())
        file.touch(mode=0o600)
        file.write_text(
            f'address = "s3+http://127.0.0.1:{storage.port}/studies/shared"\nowners = ["owner"]\n'
            f'access_key = "{ACCESS}"\nsecret_key = "{SECRET}"\n'
        )
        with (
            served(vault, "--connection", f"store={file}") as service,
            context_of(browser, service, service.owner()) as context,
        ):
            page = context.new_page()
            page.goto(f"{service.url}/uploads")
            page.fill("#table", "nothing")
            page.click("text=Propose a card")
            expect(page.locator("main")).to_contain_text("has nothing of that name")
            assert SECRET not in page.content()
            page.fill("#table", "visits.csv")
            page.click("text=Propose a card")
            expect(page.locator("main")).to_contain_text("patient")
            assert SECRET not in page.content()
            page.goto(f"{service.url}/uploads")
            page.fill("#table", "ds1")
            page.click("text=Propose a card")
            sign(page, 1)
            assert SECRET not in page.content()
    assert len(kept_people(vault)[0]) == 4
