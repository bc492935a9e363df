"""An S3 server of this machine (OpenStack Swift), and a relay in front of it."""

from __future__ import annotations

import getpass
import http.client
import http.server
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyarrow import fs

ACCESS = "test:reader"
SECRET = "s3cret-PLANTED-0b7f"  # noqa: S105  # of nobody but these tests
_KINDS = ("account", "container", "object")
_STORE = """[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {conf}
devices = {devices}
mount_check = false
fallocate_reserve = 0
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""
_PROXY = """[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {conf}
[pipeline:main]
pipeline = catch_errors cache s3api tempauth slo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:1
[filter:s3api]
use = egg:swift#s3api
auth_pipeline_check = false
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_test_reader = {secret} .admin
user_other_person = {secret} .admin
[filter:slo]
use = egg:swift#slo
"""


@dataclass
class ObjectStorage:
    """A running server."""

    port: int
    folder: Path

    def client(self, access: str = ACCESS) -> fs.S3FileSystem:
        """Return a client that may write."""
        # Swift knows only checksums that are sent in a header
        os.environ["AWS_REQUEST_CHECKSUM_CALCULATION"] = "when_required"
        return fs.S3FileSystem(
            access_key=access,
            secret_key=SECRET,
            region="us-east-1",
            scheme="http",
            endpoint_override=f"127.0.0.1:{self.port}",
            allow_bucket_creation=True,
            allow_delayed_open=True,
        )

    def put(self, path: str, content: bytes) -> None:
        """Write an object: BUCKET/KEY."""
        client = self.client()
        client.create_dir(path.partition("/")[0], recursive=False)
        with client.open_output_stream(path, compression=None) as stream:
            stream.write(content)

    def put_folder(self, path: str, folder: Path) -> None:
        """Write the files of a folder as objects below BUCKET/PREFIX."""
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                self.put(f"{path}/{file.relative_to(folder).as_posix()}", file.read_bytes())


@contextmanager
def object_storage(folder: Path) -> Iterator[ObjectStorage]:
    """Start a server whose files are below a folder, until the block ends."""
    conf, devices = folder / "conf", folder / "devices"
    conf.mkdir(parents=True)
    (devices / "d1").mkdir(parents=True)
    (conf / "swift.conf").write_text(
        "[swift-hash]\nswift_hash_path_suffix = a\nswift_hash_path_prefix = b\n"
    )
    ports = {kind: _free_port() for kind in (*_KINDS, "proxy")}
    known = {"user": getpass.getuser(), "conf": conf, "devices": devices, "secret": SECRET}
    for kind, port in ports.items():
        text = _PROXY if kind == "proxy" else _STORE
        (conf / f"{kind}.conf").write_text(text.format(kind=kind, port=port, **known))
    for kind in _KINDS:
        _ring(conf / f"{kind}.builder", ports[kind])
    started = [_started(kind, conf) for kind in ports]
    try:
        for port in ports.values():
            _wait_for(port)
        yield ObjectStorage(ports["proxy"], folder)
    finally:
        for process in started:
            process.kill()
            process.wait()


def _ring(builder: Path, port: int) -> None:
    """Make a ring of one device and one replica."""
    for words in (("create", "2", "1", "0"), ("add", f"r1z1-127.0.0.1:{port}/d1", "1")):
        subprocess.run(
            ["swift-ring-builder", builder, *words], check=True, stdout=subprocess.DEVNULL
        )
    done = subprocess.run(
        ["swift-ring-builder", builder, "rebalance"], check=False, stdout=subprocess.DEVNULL
    )
    assert done.returncode in (0, 1)  # 1 is a warning


def _started(kind: str, conf: Path) -> subprocess.Popen[bytes]:
    log = (conf / f"{kind}.log").open("wb")
    with log:
        return subprocess.Popen(
            [f"swift-{kind}-server", conf / f"{kind}.conf", "-v"],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={"PATH": os.environ["PATH"]},
        )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def _wait_for(port: int) -> None:
    for _ in range(600):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise AssertionError("the object storage did not start")


@dataclass
class Request:
    """A request that a client has sent: its method, its path and the first byte of its range."""

    method: str
    path: str
    begin: int


@dataclass
class StorageRelay:
    """Passes requests on to a server, records them, and can disturb them."""

    target: int
    port: int = 0
    asked: list[Request] = field(default_factory=list)
    before: Callable[[Request], None] | None = None  # called before a request is passed on
    # True for requests whose answers are cut off in the middle
    is_cut: Callable[[Request], bool] = field(default=lambda _request: False)

    def contents(self, ending: str = "") -> list[Request]:
        """Return the requests that read contents of objects whose path has this ending."""
        reads = [one for one in self.asked if one.method == "GET" and "?" not in one.path]
        return [one for one in reads if one.path.endswith(ending)]


class _Quiet(http.server.BaseHTTPRequestHandler):
    """A handler of requests that writes no log."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its name there
        """Write nothing."""


@contextmanager
def _serving(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[int]:
    """Serve HTTP on a free port of this machine until the block ends; yield the port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as web:
        thread = threading.Thread(target=web.serve_forever, daemon=True)
        thread.start()
        yield web.server_address[1]
        web.shutdown()
        thread.join()


@contextmanager
def storage_relay(target: int) -> Iterator[StorageRelay]:
    """Run a relay until the block ends."""
    relay = StorageRelay(target)

    class Handler(_Quiet):
        def do_GET(self) -> None:
            found = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
            request = Request(self.command, self.path, int(found[1]) if found else 0)
            relay.asked.append(request)
            if relay.before is not None:
                relay.before(request)
            link = http.client.HTTPConnection("127.0.0.1", relay.target, timeout=60)
            link.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                link.putheader(name, value)
            link.endheaders()
            reply = link.getresponse()
            text = reply.read()
            self.send_response(reply.status)
            for name, value in reply.getheaders():
                if name.lower() not in ("connection", "date", "server", "transfer-encoding"):
                    self.send_header(name, value)
            self.end_headers()
            is_cut = relay.is_cut(request)
            with suppress(OSError):
                self.wfile.write(text[: len(text) // 2] if is_cut else text)
            self.close_connection = True
            link.close()

        do_HEAD = do_GET  # noqa: N815  # its name there

    with _serving(Handler) as relay.port:
        yield relay


@contextmanager
def redirecting_server(location: Callable[[str], str]) -> Iterator[int]:
    """Run a server that answers each request with a redirect; yield its port."""

    class Handler(_Quiet):
        def do_GET(self) -> None:
            self.send_response(307)
            self.send_header("Location", location(self.path))
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET  # noqa: N815  # its name there

    with _serving(Handler) as port:
        yield port


@contextmanager
def public_server(content: bytes) -> Iterator[tuple[int, list[str | None]]]:
    """Run a server that sends everybody one object; yield its port, and who has signed."""
    signed: list[str | None] = []

    class Handler(_Quiet):
        def do_GET(self) -> None:
            signed.append(self.headers.get("Authorization"))
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("ETag", '"1"')
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET  # noqa: N815  # its name there

    with _serving(Handler) as port:
        yield port, signed
