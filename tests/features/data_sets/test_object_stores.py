"""Tables and folders are fetched from an S3 bucket, from a place that the operator allows."""

from __future__ import annotations

import base64
import importlib.util
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato
from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.object_store_service import check_path, place_of
from sfumato.system.object_storage import ObjectStorageFailure, bucket_reader
from sfumato.system.object_storage_worker import MAX_MEMORY
from sfumato.system.single_host_proxy import SingleHostProxy, usable_addresses
from support.bids_folders import bids_card, kept_people, write_folder, write_zip
from support.encrypted_vaults import make_sealed
from support.object_storage import (
    ACCESS,
    SECRET,
    ObjectStorage,
    Request,
    StorageRelay,
    object_storage,
    public_server,
    redirecting_server,
    storage_relay,
)
from support.served_vault import Service, served, start
from support.small_vaults import make_vault

pytestmark = pytest.mark.skipif(
    shutil.which("swift-proxy-server") is None, reason="swift-proxy is not installed"
)
ROWS = "patient,age\n" + "".join(f"p{n},{20 + n % 60}\n" for n in range(400))
CARD = {
    "unit": "patient",
    "people": "patients",
    "version": "1",
    "budget": {"epsilon": 3},
    "columns": {"age": {"type": "integer", "lower": 0, "upper": 120}},
    "ask": {"who": ["researchers"]},
}
BIG = 9 << 20  # bytes of an image that is read in two pieces


@dataclass
class Place:
    """A bucket behind a relay, and the file of a connection to the path `shared` in it."""

    storage: ObjectStorage
    relay: StorageRelay
    file: Path
    vault: Path
    bucket: str

    def connection(self, *lines: str, secret: str = SECRET, keys: bool = True) -> tuple[str, str]:
        """Write the file of the connection, and return the option for the service."""
        text = f'address = "s3+http://127.0.0.1:{self.relay.port}/{self.bucket}/shared/"\n'
        text += 'owners = ["owner"]\n'
        if keys:
            text += f'access_key = "{ACCESS}"\nsecret_key = "{secret}"\n'
        self.file.write_text(text + "\n".join(lines))
        self.file.chmod(0o600)
        return ("--connection", f"store={self.file}")


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStorage]:
    """Return a server with a folder, a table and an archive in the bucket `studies`."""
    folder = tmp_path_factory.mktemp("storage")
    with object_storage(folder / "swift") as made:
        study = write_folder(folder / "ds1")
        (study / "sub-01" / "anat" / "sub-01_T2w.nii.gz").write_bytes(b"not listed")
        (study / ".hidden").write_bytes(b"not listed either")
        made.put_folder("studies/shared/ds1", study)
        made.put("studies/shared/ds1.zip", write_zip(study, folder / "ds1.zip").read_bytes())
        made.put("studies/shared/visits.csv", ROWS.encode())
        made.put("studies/shared/2026/visits.tsv", ROWS.replace(",", "\t").encode())
        made.put("studies/shared-not/visits.csv", ROWS.encode())
        made.put("others/shared/visits.csv", ROWS.encode())
        yield made


@pytest.fixture
def place(storage: ObjectStorage, tmp_path: Path) -> Iterator[Place]:
    """Return the bucket `studies`, behind a relay of this test's own."""
    with storage_relay(storage.port) as relay:
        yield Place(storage, relay, tmp_path / "store.toml", make_vault(tmp_path), "studies")


@pytest.fixture
def big(place: Place, tmp_path: Path) -> Place:
    """Return a bucket of this test's own, with a folder whose last image is large."""
    place.bucket = f"big-{tmp_path.name.replace('_', '-')}"[:60].rstrip("-").lower()
    folder = write_folder(tmp_path / "big")
    image = folder / "sub-04" / "anat" / "sub-04_T1w.nii.gz"
    image.write_bytes(bytes(range(256)) * (BIG // 256))
    place.storage.put_folder(f"{place.bucket}/shared/ds1", folder)
    return place


def add(
    url: str,
    token: str,
    source: str = "connection:store/ds1",
    card: dict[str, Any] | None = None,
    **more: Any,
) -> Any:
    with sfumato.connect(url, token=token) as vault:
        return vault.add("brains", source, card or bids_card(), **more)


def proposed(service: Service, source: str) -> Any:
    with sfumato.connect(service.url, token=service.owner()) as vault:
        return vault.proposed("other", source)


def left(vault: Path) -> list[Path]:
    """Return what is kept of what was fetched."""
    return [*(vault / "incoming-objects").glob("*"), *(vault / "incoming").glob("*")]


def answer(vault: Path) -> float:
    """Return the answer of a question on the data set, asked in the folder."""
    with sfumato.open(vault) as opened:
        opened.enrol("owner", "researchers")
        return float(str(opened["brains"].ask("SELECT COUNT(*) FROM brains", epsilon=1).rows[0][0]))


@pytest.mark.parametrize("name", ["visits.csv", "2026/visits.tsv", "visits.parquet"])
def test_a_table_is_published_from_an_object(place: Place, tmp_path: Path, name: str) -> None:
    if name.endswith(".parquet"):
        lines = [line.split(",") for line in ROWS.splitlines()[1:]]
        table = pa.table({"patient": [a for a, _ in lines], "age": [int(b) for _, b in lines]})
        pq.write_table(table, tmp_path / "rows.parquet")
        place.storage.put("studies/shared/visits.parquet", (tmp_path / "rows.parquet").read_bytes())
    with served(place.vault, *place.connection()) as service:
        token = service.owner()
        columns = proposed(service, f"connection:store/{name}")["columns"]
        assert [one["name"] for one in columns] == ["patient", "age"]
        assert add(service.url, token, f"connection:store/{name}", CARD).version == "1"
    assert answer(place.vault) == pytest.approx(400, abs=40)
    assert left(place.vault) == []


def test_a_sheet_of_a_file_in_a_bucket_is_named(place: Place, tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for name in ("Visits", "Lab"):
        sheet = book.create_sheet(name)
        sheet.append(["patient", "age", name])
        for n in range(30):
            sheet.append([f"p{n}", 20 + n, 1])
    book.save(tmp_path / "book.xlsx")
    place.storage.put("studies/shared/book.xlsx", (tmp_path / "book.xlsx").read_bytes())
    source = "connection:store/book.xlsx"
    with (
        served(place.vault, *place.connection()) as service,
        sfumato.connect(service.url, token=service.owner()) as vault,
    ):
        with pytest.raises(Refused, match="has 2 sheets") as refused:
            vault.proposed("x", source)
        assert refused.value.facts["choices"] == ["Visits", "Lab"]
        columns = cast("list[dict[str, str]]", vault.proposed("x", source, "Lab")["columns"])
        assert columns[2]["name"] == "Lab"
        for name in ("ds1", "ds1.zip"):
            with pytest.raises(Refused, match="no file in a bucket"):
                vault.proposed("x", f"connection:store/{name}", "Lab")
        with pytest.raises(Refused, match="no file in a bucket"):
            vault.add("brains", "connection:store/ds1", bids_card(), inner_table="Lab")
        made = vault.add("brains", source, CARD, inner_table="Lab")
        assert made.people == "patients"
    assert left(place.vault) == []


def test_a_folder_is_published_with_its_bytes(place: Place, tmp_path: Path) -> None:
    with served(place.vault, *place.connection()) as service:
        token = service.owner()
        assert proposed(service, "connection:store/ds1")["card"]["bids"] == {
            "files": ["anat/{sub}_T1w.nii.gz"]
        }
        assert {one.path for one in place.relay.contents()} == {
            "/studies/shared/ds1/participants.tsv"
        }
        assert add(service.url, token).version == "1"
        assert len(place.relay.contents(".nii.gz")) == 4  # what the card lists
        assert place.relay.contents(".hidden") == []
        zipped = add(service.url, token, "connection:store/ds1.zip", bids_card(version="2"))
        assert zipped.version == "2"
    first, second = kept_people(place.vault)
    assert first == second
    with sfumato.open(make_vault(tmp_path / "local")) as local:
        local.add("brains", write_folder(tmp_path / "ds1"), bids_card())
        (wanted,) = kept_people(local.house.folder)
    assert sorted(first.values()) == sorted(wanted.values())
    assert left(place.vault) == []
    assert answer(place.vault) == pytest.approx(4, abs=40)


def test_only_what_the_operator_allows_is_read(place: Place) -> None:
    with served(place.vault, *place.connection('tables = ["visits.csv", "ds1"]')) as service:
        service.owner()
        service.user_from_folder("otto", "owner")

        def code(by: str, source: str, **more: Any) -> str:
            with pytest.raises(Refused) as refused:
                add(service.url, service.tokens[by], source, CARD, **more)
            return refused.value.code

        assert code("otto", "connection:store/visits.csv") == "connection-unknown"
        assert code("owner", "connection:other/visits.csv") == "connection-unknown"
        for name in (
            "2026/visits.tsv", "../others/shared/visits.csv", "ds1/../../visits.csv", ".hidden",
            "/visits.csv", "ds1//x", "visits.csv?versionId=1", "visits.csv#x", "%2e%2e/visits.csv",
            "..\\x", "ds1/./x.csv", "@host/x.csv",
        ):  # fmt: skip
            assert code("owner", f"connection:store/{name}") == "source-unreadable", name
        tables = {"moods": "connection:store/ds1"}
        assert code("owner", "connection:store/visits.csv", tables=tables) == "source-unreadable"
    assert place.relay.asked == []


def test_nothing_beside_the_place_is_read(place: Place) -> None:
    """The same names below another prefix and in another bucket stay unread."""
    place.storage.put("studies/shared-not/only.csv", ROWS.encode())
    with served(place.vault, *place.connection()) as service:
        for name in ("only.csv", "shared-not/visits.csv", "ds", "nothing"):
            with pytest.raises(Refused, match="nothing of that name") as refused:
                add(service.url, service.owner(), f"connection:store/{name}", CARD)
            assert "visits" not in str(refused.value)
    asked = {one.path for one in place.relay.asked}
    assert all(path.startswith(("/studies/shared/", "/studies?")) for path in asked), asked
    assert all("prefix=shared%2F" in path for path in asked if "?" in path), asked


def test_a_wrong_secret_is_refused(place: Place) -> None:
    with served(place.vault, *place.connection(secret="wrong-" + SECRET)) as service:
        for source, card in (("ds1", None), ("visits.csv", CARD)):
            with pytest.raises(Refused, match="does not let the connection read") as refused:
                add(service.url, service.owner(), f"connection:store/{source}", card)
            assert SECRET not in str(refused.value)
    assert left(place.vault) == []


def test_an_object_that_changes_while_it_is_read_is_not_taken(big: Place) -> None:
    key = "ds1/sub-04/anat/sub-04_T1w.nii.gz"
    changed: list[Request] = []

    def before(request: Request) -> None:
        if request.begin and not changed:  # the second piece
            changed.append(request)
            big.storage.put(f"{big.bucket}/shared/{key}", b"\1" * BIG)

    big.relay.before = before
    with served(big.vault, *big.connection()) as service:
        with pytest.raises(Refused, match="changed while it was read"):
            add(service.url, service.owner())
        assert changed
        assert not list(big.vault.glob("incoming-objects/*/contents/*.half"))
        assert add(service.url, service.owner()).version == "1"
    assert any(b"\1" * BIG in kept for kept in kept_people(big.vault)[0].values())
    assert left(big.vault) == []


def test_a_table_that_changes_while_it_is_read_is_not_taken(place: Place) -> None:
    place.storage.put("studies/shared/moving.csv", ROWS.encode())
    reads: list[Request] = []

    def before(request: Request) -> None:
        if request.method == "GET" and not reads:
            reads.append(request)
            place.storage.put("studies/shared/moving.csv", ROWS.replace("p1", "q1").encode())

    place.relay.before = before
    with served(place.vault, *place.connection()) as service:
        with pytest.raises(Refused, match="changed while it was read"):
            add(service.url, service.owner(), "connection:store/moving.csv", CARD)
        assert left(place.vault) == []
        assert add(service.url, service.owner(), "connection:store/moving.csv", CARD)


def test_a_fetch_that_was_cut_off_goes_on_where_it_stopped(big: Place) -> None:
    big.relay.is_cut = lambda request: request.begin > 0
    with served(big.vault, *big.connection()) as service:
        token = service.owner()
        with pytest.raises(Refused, match=r"did not send all|cannot be reached"):
            add(service.url, token)
        assert {one.begin for one in big.relay.contents("sub-04_T1w.nii.gz")} == {0, 8 << 20}
        assert kept_people(big.vault) == []
        big.relay.asked.clear()
        big.relay.is_cut = lambda _request: False
        add(service.url, token)
        # only the second piece of the last image; nothing else is sent again
        assert [one.begin for one in big.relay.contents()] == [8 << 20]
    assert left(big.vault) == []
    image = bytes(range(256)) * (BIG // 256)
    assert any(image in kept for kept in kept_people(big.vault)[0].values())


def test_a_killed_service_goes_on_with_the_fetch_by_itself(big: Place) -> None:
    is_held, go = threading.Event(), threading.Event()

    def before(request: Request) -> None:
        if request.begin:
            is_held.set()
            go.wait(60)

    big.relay.before = before
    options = big.connection()
    service = start(big.vault, *options)
    try:
        token = service.owner()
        with sfumato.connect(service.url, token=token) as vault:
            body: dict[str, object] = {
                "name": "brains",
                "connection": "store",
                "table": "ds1",
                "card": bids_card(),
            }
            job = str(vault.call("add", body)["job"])
        assert is_held.wait(60)
        check_processes()
    finally:
        service.kill()
        if service.process.stderr is not None:
            service.process.stderr.close()
    go.set()
    big.relay.before = None
    big.relay.asked.clear()
    with served(big.vault, *options) as again:
        again.tokens["owner"] = token
        deadline = time.monotonic() + 120
        while (said := again.call("GET", f"/v1/jobs/{job}", token=token)[1])["state"] != "done":
            assert said["failed"] is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.2)
    assert {one.begin for one in big.relay.contents("sub-04_T1w.nii.gz")} == {8 << 20}
    assert len(kept_people(big.vault)[0]) == 4


def check_processes() -> None:
    """No running process has the secret among its words or in its environment."""
    found = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
            settings = (process / "environ").read_bytes()
        except OSError:
            continue
        found += b"object_storage_worker" in words
        assert SECRET.encode() not in words + settings
    assert found


def test_no_credential_is_anywhere_but_in_the_file_of_the_connection(
    place: Place, tmp_path: Path
) -> None:
    told: list[str] = []
    with served(place.vault, *place.connection(), "--log") as service:
        token = service.owner()
        add(service.url, token)
        for name in ("visits.csv", "nothing", "../x"):
            try:
                told.append(str(proposed(service, f"connection:store/{name}")))
            except Refused as refused:
                told.append(str(refused))
        text = place.file.read_text()
        place.file.write_text(text.replace(SECRET, SECRET + "x"))
        with pytest.raises(Refused) as denied:
            add(service.url, token, "connection:store/ds1", bids_card(version="2"))
        told.append(str(denied.value))
        paths = ("/v1/connections", "/v1/jobs", "/v1/history", "/v1/data-sets/brains")
        told += [str(service.call("GET", path, token=token)) for path in paths]
        told += service.said
    place.file.unlink()
    secrets = (SECRET.encode(), ACCESS.encode())
    for file in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert not any(secret in file.read_bytes() for secret in secrets), file
    assert not any(secret.decode() in text for secret in secrets for text in told)


def test_a_redirect_to_another_host_is_not_followed(place: Place) -> None:
    """PyArrow follows redirects by itself; the proxy lets it reach one host only."""
    target = f"http://localhost:{place.relay.port}"
    with redirecting_server(lambda path: target + path) as port:
        options = place.connection()
        text = place.file.read_text()
        place.file.write_text(text.replace(f":{place.relay.port}/", f":{port}/"))
        with served(place.vault, *options) as service:
            for source, card in (("ds1", None), ("visits.csv", CARD)):
                with pytest.raises(Refused, match="to another host"):
                    add(service.url, service.owner(), f"connection:store/{source}", card)
    assert place.relay.asked == []


def test_a_storage_that_is_not_there_is_refused(place: Place) -> None:
    options = place.connection()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    text = place.file.read_text()
    place.file.write_text(text.replace(f":{place.relay.port}/", f":{port}/"))
    with (
        served(place.vault, *options) as service,
        pytest.raises(Refused, match="cannot be reached"),
    ):
        add(service.url, service.owner())


def test_too_large_a_source_is_refused_before_it_is_fetched(big: Place) -> None:
    big.storage.put(f"{big.bucket}/shared/visits.csv", ROWS.encode() * 500)
    options = (*big.connection(), "--max-folder", "1", "--max-upload", "1")
    with served(big.vault, *options) as service:
        for source, card in (("ds1", None), ("visits.csv", CARD)):
            with pytest.raises(Refused, match="too-large"):
                add(service.url, service.owner(), f"connection:store/{source}", card)
    assert big.relay.contents() == []
    assert left(big.vault) == []


def test_a_vault_in_a_folder_takes_keys_from_its_environment(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.connection(keys=False)
    connections = {"store": str(place.file)}
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    with (
        pytest.raises(Refused, match="has no keys"),
        sfumato.open(place.vault, connections=connections),
    ):
        pass
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with sfumato.open(place.vault, connections=connections) as vault:
        vault.add("brains", "connection:store/ds1", bids_card())
        vault.add("visits", "connection:store/visits.csv", CARD)
    assert len(kept_people(place.vault)[0]) == 4
    assert left(place.vault) == []


def test_a_public_bucket_is_read_without_keys(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with public_server(ROWS.encode()) as (port, signed):
        place.relay.port = port
        place.connection("anonymous = true", keys=False)
        with sfumato.open(place.vault, connections={"store": str(place.file)}) as vault:
            vault.add("brains", "connection:store/visits.csv", CARD)
    assert signed
    assert set(signed) == {None}


def test_a_connection_needs_the_package_that_reads_objects(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pyarrow" else found(name)
    )
    place.connection()
    with (
        pytest.raises(Refused, match=r"not-installed.*sfumato\[frames\]"),
        sfumato.open(place.vault, connections={"store": str(place.file)}),
    ):
        pass


def test_a_sealed_vault_takes_tables_and_no_folders(place: Place, tmp_path: Path) -> None:
    vault, key = make_sealed(tmp_path / "sealed")
    with served(vault, *place.connection(), "--at-rest-key", str(key)) as service:
        add(service.url, service.owner(), "connection:store/visits.csv", CARD)
        with pytest.raises(Refused, match="at-rest-not-possible"):
            proposed(service, "connection:store/ds1")
    assert not any(b"p399,58" in file.read_bytes() for file in vault.rglob("*") if file.is_file())
    assert left(vault) == []


SAID = {"access_key": "a", "secret_key": "b"}


@pytest.mark.parametrize(
    "address",
    [
        "http://192.0.2.1/studies", "http://169.254.169.254/studies", "file:///srv", "https://",
        "https://example.org", "https://example.org/", "https://key:secret@example.org/studies",
        "https://example.org/studies?x", "https://example.org/studies#x",
        "https://example.org/../x", "https://example.org/studies/../x", "https://example.org//x",
        "https://example.org/stu%64ies", "https://example.org:0/studies", "ftp://localhost/x",
        "https://example.org:99999/studies", "https://example.org:/studies", "",
    ],
)  # fmt: skip
def test_a_place_that_is_not_safe_is_refused(address: str) -> None:
    with pytest.raises(Refused, match="engine-unavailable"):
        place_of(f"s3+{address}", SAID)


@pytest.mark.parametrize(
    "said",
    [
        {"access_key": "a"}, {"secret_key": "b"}, {**SAID, "anonymous": True},
        {**SAID, "access_key": 7}, {"anonymous": "yes"}, {**SAID, "region": "a b"},
        {**SAID, "region": 7}, {**SAID, "access_key": ""},
    ],
)  # fmt: skip
def test_keys_that_do_not_go_together_are_refused(said: dict[str, object]) -> None:
    with pytest.raises(Refused, match="engine-unavailable") as refused:
        place_of("s3+https://example.org/studies", said)
    assert "'b'" not in str(refused.value)


def test_a_place_has_its_host_its_bucket_and_its_prefix() -> None:
    found = place_of("s3+https://S3.example.org:8443/studies/a/b/", {**SAID, "region": "eu-1"})
    assert (found.netloc, found.host, found.port) == ("S3.example.org:8443", "s3.example.org", 8443)
    assert (found.bucket, found.prefix, found.region) == ("studies", "a/b", "eu-1")
    assert "'a'" not in repr(found).replace(found.prefix, "")
    check_path("a b/c=1/d.csv")
    with pytest.raises(Refused, match="source-unreadable"):
        check_path("x" * 201)


def test_addresses_that_hand_out_credentials_are_not_used_by_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for address in ("169.254.169.254", "fe80::1", "fd00:ec2::254", "::ffff:169.254.169.254"):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET

        def found(*_words: Any, address: str = address, family: Any = family, **_: Any) -> Any:
            return [(family, socket.SOCK_STREAM, 6, "", (address, 0))]

        monkeypatch.setattr(socket, "getaddrinfo", found)
        assert usable_addresses("s3.example.org", is_local=False) == ()
        assert usable_addresses(address, is_local=False) == (address,)
        assert usable_addresses("localhost", is_local=True) == ()


def test_the_proxy_serves_one_host_and_one_client() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for scheme, line in (
            ("http", f"GET http://127.0.0.1:{port + 1}/x HTTP/1.1"),
            ("http", f"GET http://localhost:{port}/x HTTP/1.1"),
            ("http", f"GET http://127.0.0.1:{port}@example.org/x HTTP/1.1"),
            ("http", f"CONNECT 127.0.0.1:{port} HTTP/1.1"),
            ("https", f"GET http://127.0.0.1:{port}/x HTTP/1.1"),
            ("https", "CONNECT example.org:443 HTTP/1.1"),
        ):
            assert _sent(SingleHostProxy(scheme, "127.0.0.1", port), line).startswith(
                b"HTTP/1.1 502"
            ), line
        line = f"CONNECT 127.0.0.1:{port} HTTP/1.1"
        stranger = SingleHostProxy("https", "127.0.0.1", port)
        assert _sent(stranger, line, password="other").startswith(b"HTTP/1.1 502")  # noqa: S106
        assert not stranger.is_led_away
        known = SingleHostProxy("https", "127.0.0.1", port)
        assert _sent(known, line).startswith(b"HTTP/1.1 200")


def _sent(proxy: SingleHostProxy, line: str, password: str | None = None) -> bytes:
    """Return how the proxy answers to a request."""
    known = base64.b64encode(f"sfumato:{password or proxy.password}".encode()).decode()
    text = f"{line}\r\nHost: x\r\nProxy-Authorization: Basic {known}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(str(proxy.options["port"]))), 10) as client:
        client.sendall(text.encode())
        answer = client.recv(100)
    proxy.close()
    return answer


def test_the_process_that_reads_objects_has_a_limit_on_memory() -> None:
    """So a server that sends page after page of a listing ends this process, not the service."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    place = place_of(f"s3+http://127.0.0.1:{port}/bucket", {"anonymous": True})
    with bucket_reader(place, 1 << 20) as reader:
        with pytest.raises(ObjectStorageFailure):
            reader.size("a.csv")
        limits = Path(f"/proc/{reader.child.pid}/limits").read_text()
    (line,) = (line for line in limits.splitlines() if line.startswith("Max data size"))
    assert line.split()[3:5] == [str(MAX_MEMORY)] * 2
