"""Folders are published to a real service, and go on after kills of the client and the service."""

from __future__ import annotations

import gzip
import hashlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.folder_client import folder_stream
from sfumato.features.data_sets.folder_upload_service import FolderUploads
from sfumato.system.folder_stream import PART_BYTES, Kind, header, part_name
from sfumato.system.randomness import SystemRandomSource
from sfumato.vault.users import Caller
from support.bids_folders import (
    bids_card,
    content_of,
    kept_people,
    member,
    tar_of,
    write_folder,
    write_tar,
    write_zip,
)
from support.encrypted_vaults import make_sealed, memory
from support.served_vault import Service, served, start
from support.small_vaults import SFUMATO, make_vault
from support.upload_relay import Relay, relayed

MB = 1 << 20
TABLE = b"participant_id\tage\nsub-01\t30\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service of an empty vault that takes folders of 60 MB."""
    folder = tmp_path_factory.mktemp("folders")
    with served(make_vault(folder), "--max-folder", "60") as running:
        running.owner()
        running.user("ada", "researcher")
        running.user_from_folder("otto", "owner")
        yield running


def vault_of(service: Service) -> Path:
    arguments = service.process.args
    assert isinstance(arguments, list)
    return Path(str(arguments[arguments.index("--vault") + 1]))


def manifests(vault: Path) -> list[Path]:
    return list(incoming(vault).glob("*/parts.json"))


def incoming(vault: Path) -> Path:
    return vault / "incoming-folders"


def call(
    service: Service, method: str, path: str, body: object = None, by: str = "owner"
) -> tuple[int, Any]:
    return service.call(method, path, body, token=service.tokens[by])


def begun(service: Service, text: bytes, kind: Kind = "tar", by: str = "owner") -> tuple[int, Any]:
    """Begin an upload of these bytes."""
    parts = [text[n : n + PART_BYTES] for n in range(0, len(text), PART_BYTES)]
    body = {
        "name": "study",
        "kind": kind,
        "bytes": len(text),
        "parts": [part_name(part) for part in parts],
    }
    return call(service, "POST", "/v1/folders", body, by)


def put(service: Service, upload: str, part: bytes, name: str = "", by: str = "owner") -> int:
    path = f"/v1/uploads?name={name or part_name(part)}&folder={upload}"
    return call(service, "PUT", path, part, by)[0]


def finished(service: Service, upload: str, by: str = "owner") -> tuple[int, Any]:
    while True:
        status, said = call(service, "POST", f"/v1/folders/{upload}", {}, by)
        if said.get("state") != "unpacking":
            return status, said


# --- the same from everywhere


def test_a_folder_a_zip_and_a_tar_are_published_as_from_the_vaults_own_machine(
    service: Service, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "study")
    sources = [
        folder,
        write_zip(folder, tmp_path / "study.zip", "study/"),
        write_tar(folder, tmp_path / "study.tar"),
        write_tar(folder, tmp_path / "study.tgz"),
    ]
    with sfumato.connect(service.url, token=service.tokens["owner"]) as remote:
        for number, source in enumerate(sources):
            added = remote.add("brains", source, bids_card(version=str(number)))
            assert added.version == str(number)
        shown: Any = remote.call("card", {"data_set": "brains"})
    assert shown["dataset_description"]["Name"] == "small"
    remotely = kept_people(vault_of(service))
    assert len(remotely[0]) == 4
    assert all(one == remotely[0] for one in remotely)
    assert len(remotely) == 4
    assert list(incoming(vault_of(service)).glob("*")) == []

    with sfumato.open(make_vault(tmp_path)) as vault:
        for number, source in enumerate(sources):
            vault.add("brains", source, bids_card(version=str(number)))
        locally = kept_people(vault.house.folder)
        assert list((vault.house.folder / "runs").glob("*")) == []
    contents = sorted(remotely[0].values())
    assert [sorted(one.values()) for one in locally] == [contents] * 4


def test_a_draft_of_the_card_names_the_files(service: Service, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "study")
    archive = write_zip(folder, tmp_path / "study.zip")
    local = make_vault(tmp_path)
    with (
        sfumato.connect(service.url, token=service.tokens["owner"]) as remote,
        sfumato.open(local) as vault,
    ):
        for where in (remote, vault):
            for source in (folder, archive):
                card: Any = where.proposed("brains", source)["card"]
                assert card["bids"] == {
                    "files": ["anat/{sub}_T1w.nii.gz"],
                    "description": {"Name": "small", "BIDSVersion": "1.8.0"},
                }
                assert card["unit"] == "participant_id"
    (tmp_path / "here").mkdir()
    target = tmp_path / "here" / "brains.card.toml"
    done = subprocess.run(
        [*SFUMATO, "add", "brains", str(archive)],
        env={**os.environ, "SFUMATO_VAULT": str(local)},
        cwd=target.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"sfumato add brains {archive}" in done.stdout
    assert 'files = [\n    "anat/{sub}_T1w.nii.gz",\n]' in target.read_text()


def test_results_of_an_earlier_program_are_sent_if_the_card_lists_them(
    service: Service, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "study")
    derived = "derivatives/fmriprep/{sub}/anat/{sub}_desc-brain_mask.nii"
    for person in folder.glob("sub-*"):
        place = folder / derived.replace("{sub}", person.name)
        place.parent.mkdir(parents=True)
        place.write_bytes(b"a mask")
    with sfumato.connect(service.url, token=service.tokens["owner"]) as remote:
        remote.add("brains", folder, bids_card(files=[derived], version="derived"))
    archives = (vault_of(service) / "tables").glob("*.folders/*")
    assert sum(b"a mask" in one.read_bytes() for one in archives) == 4


# --- kills


@dataclass
class Large:
    """A folder of several parts, with its card in a file, and the parts of its stream."""

    folder: Path
    card: Path
    parts: list[str]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Large:
    """Return a folder of 40 MB."""
    place = tmp_path_factory.mktemp("large")
    folder = write_folder(place / "study", 4, 10 * MB)
    card = place / "card.toml"
    card.write_text(
        'unit = "participant_id"\npeople = "scanned"\nversion = "1"\nbudget = { epsilon = 3 }\n'
        '[bids]\npeople = 10\nperson_mb = 64\nfiles = ["anat/{sub}_T1w.nii.gz"]\n'
        '[ask]\nwho = ["researchers"]\n'
        '[columns.age]\ntype = "integer"\nlower = 0\nupper = 120\n'
    )
    parts = list(folder_stream(folder, bids_card()).part_names())
    assert len(parts) == 6
    return Large(folder, card, parts)


@contextmanager
def killable(vault: Path) -> Iterator[Service]:
    """Serve a vault; the test kills the service."""
    service = start(vault)
    try:
        yield service
    finally:
        service.kill()
        if service.process.stderr is not None:
            service.process.stderr.close()


def command(large: Large, relay: Relay, token: str) -> subprocess.Popen[str]:
    """Begin the real command, in a process of its own."""
    words = ["add", "brains", str(large.folder), "--card", str(large.card)]
    environment = {**os.environ, "SFUMATO_VAULT": relay.url, "SFUMATO_TOKEN": token}
    return subprocess.Popen(
        [*SFUMATO, *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def there(vault: Path) -> dict[str, int]:
    """Return the names of the parts that are there, and the numbers of their files."""
    return {path.name: path.stat().st_ino for path in incoming(vault).glob("*/parts/*")}


def test_a_killed_client_goes_on_where_it_stopped(large: Large, tmp_path: Path) -> None:
    with served(make_vault(tmp_path)) as service:
        token, vault = service.owner(), vault_of(service)
        with relayed(service.url, 2 * PART_BYTES + 3 * MB) as relay:
            process = command(large, relay, token)
            assert relay.is_stuck.wait(120)
            process.send_signal(signal.SIGKILL)
            said(process)
        assert relay.parts == large.parts[:3]
        until(lambda: sorted(there(vault)) == sorted(large.parts[:2]))  # no half of the third
        before = there(vault)
        with relayed(service.url) as relay:
            code, out, err = said(command(large, relay, token))
        assert (code, "Added brains" in out) == (0, True), err
        assert relay.parts == large.parts[2:]
        assert len(before) == 2
        assert len(kept_people(vault)[0]) == 4
        assert list(incoming(vault).glob("*")) == []


def test_a_killed_service_goes_on_where_it_stopped(large: Large, tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    with killable(vault) as service, relayed(service.url, 3 * PART_BYTES + MB) as relay:
        token = service.owner()
        process = command(large, relay, token)
        assert relay.is_stuck.wait(120)
        until(lambda: list(incoming(vault).glob("*/parts/*.half")))
        service.kill()
        code, _, err = said(process)
    assert (code != 0, "Run the same command again" in err) == (True, True)
    assert relay.parts[:4] == large.parts[:4]
    with served(vault) as again:
        again.tokens["owner"] = token
        before = there(vault)
        assert set(large.parts[:3]) <= set(before)
        with relayed(again.url) as relay:
            code, out, err = said(command(large, relay, token))
        assert (code, "Added brains" in out) == (0, True), err
        assert relay.parts == large.parts[3:]
        assert len(kept_people(vault)[0]) == 4


def test_a_client_survives_a_restart_of_the_vaults_process(large: Large, tmp_path: Path) -> None:
    with served(make_vault(tmp_path)) as service:
        token, vault = service.owner(), vault_of(service)
        with relayed(service.url) as relay:
            process = command(large, relay, token)
            until(lambda: len(relay.parts) >= 3)
            os.kill(door_of(service), signal.SIGKILL)
            code, out, err = said(process)
        assert (code, "Added brains" in out) == (0, True), err
        assert set(relay.parts) == set(large.parts)
        assert len(relay.parts) <= len(large.parts) + 4  # one part is tried again
        assert len(kept_people(vault)[0]) == 4


def test_a_service_killed_while_it_unpacks_unpacks_again(large: Large, tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    stream = folder_stream(large.folder, bids_card())
    text = b"".join(stream.part(number) for number in range(stream.parts))
    with killable(vault) as service:
        token = service.owner()
        upload = begun(service, text, "folder")[1]["upload"]
        for number in range(stream.parts):
            assert put(service, upload, stream.part(number)) == 200
        thread = threading.Thread(target=_finish, args=(service, upload))
        thread.start()
        until((incoming(vault) / upload / "tree").is_dir)
        service.kill()
        thread.join()
    with served(vault) as again:
        again.tokens["owner"] = token
        status, state = begun(again, text, "folder")
        assert (status, state["missing"]) == (200, [])
        status, state = finished(again, upload)
        assert (status, state["state"], state["files"]) == (200, "ready", 10)
        assert not (incoming(vault) / upload / "parts").exists()


def _finish(service: Service, upload: str) -> None:
    try:
        finished(service, upload)
    except OSError:
        return


def until(is_so: Any) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def door_of(service: Service) -> int:
    path = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children")
    return int(path.read_text().split()[0])


# --- whose an upload is, and what may be asked of it


def test_another_owners_upload_is_not_there(service: Service) -> None:
    text = tar_of([(member("participants.tsv"), TABLE), (member("a"), b"1")])
    upload = begun(service, text)[1]["upload"]
    for by, status in (("otto", 404), ("ada", 403)):
        assert put(service, upload, text, by=by) == status
        assert finished(service, upload, by)[0] == status
        assert call(service, "GET", f"/v1/uploads/{upload}", by=by)[0] == status
        body = {"name": "stolen", "upload": upload, "card": bids_card()}
        assert call(service, "POST", "/v1/data-sets", body, by)[0] == status
    # the same bytes are another upload: nobody learns that somebody has sent them
    theirs = begun(service, text, by="otto")[1]
    assert theirs["upload"] != upload
    assert theirs["missing"] == [0]
    nobodys = finished(service, "0" * 24, "otto")
    assert finished(service, upload, "otto") == nobodys
    assert put(service, upload, text) == 200
    assert begun(service, text, by="otto")[1]["missing"] == [0]
    assert begun(service, text, by="ada")[0] == 403
    # nothing can be asked of it before it is published, by nobody
    assert finished(service, upload)[1]["state"] == "ready"
    for by in ("owner", "otto", "ada"):
        assert call(service, "GET", "/v1/data-sets", by=by)[1]["data_sets"] == [] or by == "owner"
        asked = {"sql": "SELECT COUNT(*) AS n FROM study", "epsilon": 0.1}
        assert call(service, "POST", "/v1/data-sets/study/ask", asked, by)[0] == 404
        assert call(service, "POST", f"/v1/data-sets/{upload}/ask", asked, by)[0] == 404


def test_an_upload_is_private_on_the_disk(service: Service) -> None:
    text = tar_of([(member("participants.tsv"), TABLE), (member("b"), b"1")])
    upload = begun(service, text)[1]["upload"]
    assert put(service, upload, text) == 200
    assert finished(service, upload)[1]["state"] == "ready"
    place = incoming(vault_of(service)) / upload
    for path in (place, *place.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_folder_that_is_not_whole_cannot_be_added(service: Service) -> None:
    text = tar_of([(member("participants.tsv"), TABLE), (member("c"), b"1")])
    upload = begun(service, text)[1]["upload"]
    assert finished(service, upload) == begun(service, text)
    body = {"name": "early", "upload": upload, "card": bids_card()}
    status, said = call(service, "POST", "/v1/data-sets", body)
    assert (status, said["refused"]["code"]) == (404, "upload-unknown")
    assert put(service, upload, text) == 200
    assert call(service, "GET", f"/v1/uploads/{upload}")[0] == 404  # it is not unpacked


def test_a_part_of_other_bytes_is_thrown_away(service: Service) -> None:
    text = tar_of([(member("participants.tsv"), TABLE), (member("d"), b"1")])
    upload = begun(service, text)[1]["upload"]
    name = part_name(text)
    assert put(service, upload, text[:-1] + b"x", name) == 400
    assert put(service, upload, text[:-1], name) == 400
    assert put(service, upload, text + b"x", name) == 400
    assert put(service, upload, b"x") == 400  # of a name that the upload does not have
    assert put(service, upload, text, "../../ledger") == 400
    assert list((incoming(vault_of(service)) / upload / "parts").iterdir()) == []
    assert begun(service, text)[1]["missing"] == [0]


def test_a_refused_archive_is_deleted(service: Service) -> None:
    text = tar_of([(member("participants.tsv"), TABLE), (member("/etc/x"), b"1")])
    upload = begun(service, text)[1]["upload"]
    assert put(service, upload, text) == 200
    status, said = finished(service, upload)
    assert (status, said["refused"]["code"]) == (422, "source-unreadable")
    assert not (incoming(vault_of(service)) / upload).exists()
    assert finished(service, upload)[0] == 404


def test_a_folder_that_is_too_large_is_refused_before_it_is_sent(service: Service) -> None:
    body = {"name": "x", "kind": "zip", "bytes": 60 * 10**6 + 1, "parts": ["0" * 64] * 8}
    status, said = call(service, "POST", "/v1/folders", body)
    assert (status, said["refused"]["code"]) == (413, "too-large")
    assert "--max-folder" in said["refused"]["next"]
    assert not any("0" * 64 in path.read_text() for path in manifests(vault_of(service)))


@pytest.mark.parametrize(
    "changes",
    [
        {"bytes": 0}, {"bytes": -1}, {"bytes": PART_BYTES + 1}, {"parts": []},
        {"parts": ["0" * 63]}, {"parts": ["A" * 64]}, {"parts": ["../x"]}, {"kind": "rar"},
        {"name": ""}, {"name": "x\n"}, {"name": "x" * 201},
    ],
)  # fmt: skip
def test_a_list_of_parts_that_is_none_is_refused(
    service: Service, changes: Mapping[str, object]
) -> None:
    body = {"name": "x", "kind": "zip", "bytes": 1, "parts": ["0" * 64], **changes}
    assert call(service, "POST", "/v1/folders", body)[0] == 400


def test_a_bad_card_is_refused_before_a_byte_is_sent(service: Service, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "study")
    with (
        relayed(service.url) as relay,
        sfumato.connect(relay.url, token=service.tokens["owner"]) as remote,
    ):
        for card in (bids_card(budget={}), {**bids_card(), "bids": {"files": ["../x"]}}):
            with pytest.raises(Refused, match=r"bad-(card|budget)"):
                remote.add("brains", folder, card)
        assert relay.parts == []


# --- limits of one owner, expiry, and encrypted vaults

ADA, BOB = (Caller(name, frozenset({"own"})) for name in ("ada", "bob"))


@dataclass
class At:
    """A clock that stands."""

    time: str = "2026-11-21T10:00:00.000+00:00"

    def now(self) -> str:
        """Return the time at which it stands."""
        return self.time


class NoDrafts:
    """Nothing of this machine is unpacked here."""

    def draft(self) -> AbstractContextManager[str]:
        """Fail."""
        raise AssertionError


@pytest.fixture
def folders(tmp_path: Path) -> FolderUploads:
    """Return a place for folders of a megabyte."""
    return FolderUploads(
        tmp_path / "incoming-folders", SystemRandomSource(), At(), NoDrafts(), 10**6
    )


def text_of(content: bytes) -> bytes:
    return header("participants.tsv", len(TABLE)) + TABLE + header("x", len(content)) + content


def opened(folders: FolderUploads, content: bytes, caller: Caller = ADA) -> str:
    text = text_of(content)
    made = folders.begin(caller, "study", "folder", [part_name(text)], len(text))
    return str(made["upload"])


def sent(folders: FolderUploads, content: bytes, caller: Caller = ADA) -> str:
    upload, text = opened(folders, content, caller), text_of(content)
    part = folders.begin_part(caller, upload, part_name(text), len(text))
    part.take(text)
    part.kept()
    part.end(is_kept=True)
    while folders.finish(caller, upload)["state"] != "ready":
        time.sleep(0.01)
    return upload


def test_a_folder_is_kept_for_a_day(folders: FolderUploads) -> None:
    upload = sent(folders, b"1")
    assert isinstance(folders.clock, At)
    folders.clock.time = "2026-11-22T09:59:59.000+00:00"
    folders.sweep()
    assert content_of(folders.one(ADA, upload).path) == {"participants.tsv": TABLE, "x": b"1"}
    folders.clock.time = "2026-11-22T10:00:00.001+00:00"
    with pytest.raises(Refused, match="upload-unknown"):
        folders.one(ADA, upload)
    folders.sweep()
    assert not folders.folder.exists()


def test_an_unfinished_upload_is_kept_for_a_day_after_its_last_part(folders: FolderUploads) -> None:
    upload = opened(folders, b"1")
    assert isinstance(folders.clock, At)
    folders.clock.time = "2026-11-22T09:00:00.000+00:00"
    assert opened(folders, b"1") == upload  # resumed
    folders.clock.time = "2026-11-22T11:00:00.000+00:00"
    folders.sweep()
    assert folders.has(upload)
    folders.clock.time = "2026-11-23T09:00:00.001+00:00"
    folders.sweep()
    assert not folders.has(upload)


def test_an_owner_has_a_share_and_loses_the_oldest_unfinished(folders: FolderUploads) -> None:
    assert isinstance(folders.clock, At)
    uploads = []
    for hour in range(3):
        folders.clock.time = f"2026-11-21T1{hour}:00:00.000+00:00"
        uploads.append(opened(folders, b"%d" % hour * 600_000))  # of 2 MB
    other = opened(folders, b"0" * 600_000, BOB)
    uploads.append(opened(folders, b"3" * 600_000))
    assert [folders.has(one) for one in (*uploads, other)] == [False, True, True, True, True]
    ready = [sent(folders, b"%d" % n * 900_000) for n in range(4, 6)]
    with pytest.raises(Refused, match="not yet data sets"):
        opened(folders, b"6" * 900_000)
    assert all(folders.has(one) for one in (*ready, other))
    folders.remove(ready[:1])
    opened(folders, b"6" * 900_000)


def test_an_owner_has_ten_uploads(folders: FolderUploads) -> None:
    ready = [sent(folders, b"%d" % n) for n in range(10)]
    with pytest.raises(Refused, match="not yet data sets"):
        opened(folders, b"more")
    assert all(folders.has(one) for one in ready)


def test_halves_of_a_killed_process_are_thrown_away(folders: FolderUploads) -> None:
    upload, text = opened(folders, b"1"), text_of(b"1")
    part = folders.begin_part(ADA, upload, part_name(text), None)
    part.take(text[:3])
    opened(folders, b"1")  # resumed elsewhere: a part that arrives is left alone
    assert part.place.exists()
    folders.drafted.clear()  # as a kill does
    opened(folders, b"1")
    assert not part.place.exists()
    part.end(is_kept=False)


def test_only_so_many_parts_arrive_at_once(folders: FolderUploads) -> None:
    upload, text = opened(folders, b"1"), text_of(b"1")
    name = part_name(text)
    parts = [folders.begin_part(ADA, upload, name, None) for _ in range(4)]
    with pytest.raises(Refused, match="too-many"):
        folders.begin_part(ADA, upload, name, None)
    for part in parts:
        part.end(is_kept=False)
    folders.begin_part(ADA, upload, name, None).end(is_kept=False)


def test_an_unpacked_folder_that_is_too_large_is_refused(folders: FolderUploads) -> None:
    zeros = bytes(2 * 10**6)
    text = gzip.compress(tar_of([(member("participants.tsv"), TABLE), (member("x"), zeros)]))
    upload = str(folders.begin(ADA, "x", "tar.gz", [part_name(text)], len(text))["upload"])
    part = folders.begin_part(ADA, upload, part_name(text), len(text))
    part.take(text)
    part.kept()
    part.end(is_kept=True)
    with pytest.raises(Refused, match="too-large"):
        until(lambda: folders.finish(ADA, upload)["state"] == "ready")
    assert not folders.has(upload)
    assert not folders.has(upload)


def sent_zeros(folders: FolderUploads, number: int) -> str:
    """Send 900,000 zeros, which are packed into very few bytes."""
    entries = [(member("participants.tsv"), TABLE), (member(f"x{number}"), bytes(900_000))]
    text = gzip.compress(tar_of(entries))
    assert len(text) < 10_000
    upload = str(folders.begin(ADA, "x", "tar.gz", [part_name(text)], len(text))["upload"])
    part = folders.begin_part(ADA, upload, part_name(text), len(text))
    part.take(text)
    part.kept()
    part.end(is_kept=True)
    return upload


@pytest.mark.parametrize("is_at_once", [False, True], ids=["in turn", "at once"])
def test_the_files_of_archives_stay_within_their_owners_share(
    folders: FolderUploads, is_at_once: bool
) -> None:
    uploads = [sent_zeros(folders, number) for number in range(5)]
    if is_at_once:
        for upload in uploads:
            with suppress(Refused):
                folders.finish(ADA, upload)
    full = 0
    for upload in uploads:
        try:
            until(lambda one=upload: folders.finish(ADA, one)["state"] == "ready")
        except Refused as refused:
            full += "not yet data sets" in str(refused) or refused.code == "upload-unknown"
    ready = [one for one in uploads if folders.holds(one)]
    assert (len(ready), full) == (2, 3)
    files = [one for one in folders.folder.rglob("*") if one.is_file()]
    assert sum(one.stat().st_size for one in files) < 2 * 10**6
    folders.remove(ready[:1])
    sixth = sent_zeros(folders, 6)
    until(lambda: folders.finish(ADA, sixth)["state"] == "ready")


def test_two_kinds_of_the_same_bytes_are_two_uploads(folders: FolderUploads) -> None:
    name = hashlib.sha256(b"1").hexdigest()
    kinds: tuple[Kind, ...] = ("zip", "tar")
    found = {str(folders.begin(ADA, "x", kind, [name], 1)["upload"]) for kind in kinds}
    assert len(found) == 2


def test_a_vault_that_is_encrypted_takes_no_folder(tmp_path: Path) -> None:
    vault, key = make_sealed(tmp_path)
    archive = write_zip(write_folder(tmp_path / "study"), tmp_path / "study.zip")
    with memory(), served(vault, "--at-rest-key", key) as service:
        token = service.owner()
        with (
            relayed(service.url) as relay,
            sfumato.connect(relay.url, token=token) as remote,
            pytest.raises(Refused, match="at-rest-not-possible"),
        ):
            remote.add("brains", archive, bids_card())
        assert relay.parts == []
    assert not incoming(vault).exists()
