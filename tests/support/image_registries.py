"""A real registry of images on this machine, and beside it a store of blobs and a token desk."""

from __future__ import annotations

import base64
import datetime
import functools
import hashlib
import http.server
import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.x509.oid import NameOID

USER, PASSWORD = "ria", "sfumato-test"
# bcrypt of the password
HASHED: Final = "$2b$04$2UYoqdVzhJrdc3H1VoEXzuDk0UomeINKDicY47UOQ.lxj9oh32a2y"
_START_S: Final = 30


@dataclass
class Registry:
    """A registry that runs: its host, and the folder of what was pushed to it."""

    host: str
    data: Path

    def push(self, layout: Path, name: str, *how: str) -> None:
        """Push an image of a layout, by its name there, with skopeo."""
        to = f"docker://{self.host}/{name}"
        done = subprocess.run(
            ["skopeo", "copy", "-q", "--dest-tls-verify=false", *how, f"oci:{layout}:it", to],
            capture_output=True, check=False, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def blob(self, digest: str) -> Path:
        """Return the file in which the registry keeps a blob."""
        text = digest.removeprefix("sha256:")
        return self.data / "docker/registry/v2/blobs/sha256" / text[:2] / text / "data"


@contextmanager
def registry(place: Path, settings: Mapping[str, Any] | None = None) -> Iterator[Registry]:
    """Run a registry on a free port of this machine, with more settings than the least."""
    place.mkdir(exist_ok=True)
    data = place / "data"
    said = {
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": str(data)}},
        "http": {"addr": "127.0.0.1:0", "secret": "of no use"},
        **(settings or {}),
    }
    (place / "settings.yml").write_text(json.dumps(said))  # JSON is YAML
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(
            ["docker-registry", "serve", str(place / "settings.yml")],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    try:
        yield Registry(_host_of(process, place / "log"), data)
    finally:
        process.kill()
        process.wait()


def _host_of(process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        if found := re.search(r"listening on ([\d.]+:\d+)", log.read_text()):
            return found[1]
        time.sleep(0.02)
    raise AssertionError(log.read_text())


def of_passwords(place: Path) -> dict[str, Any]:
    """Return the settings of a registry that asks for user and password."""
    place.mkdir(exist_ok=True)
    (place / "htpasswd").write_text(f"{USER}:{HASHED}\n")
    return {"auth": {"htpasswd": {"realm": "tests", "path": str(place / "htpasswd")}}}


@dataclass
class Heard:
    """What a server of a test was asked: the path and the headers of each request."""

    address: str = ""
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)


@contextmanager
def answering(
    answer: Callable[[str, Mapping[str, str]], tuple[int, Mapping[str, str], bytes]],
) -> Iterator[Heard]:
    """Serve HTTP on this machine: a function from path and headers to status, headers and body."""
    heard = Heard()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers = {key.lower(): one for key, one in self.headers.items()}
            heard.requests.append((self.path, headers))
            status, said, body = answer(self.path, headers)
            self.send_response(status)
            for key, one in {"Content-Length": str(len(body)), **said}.items():
                self.send_header(key, one)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        heard.address = f"127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield heard
        finally:
            server.shutdown()
            thread.join()


def files_below(folder: Path, path: str) -> tuple[int, Mapping[str, str], bytes]:
    """Answer with a file of the folder, as a store beside a registry does."""
    place = folder / path.lstrip("/")
    return (200, {}, place.read_bytes()) if place.is_file() else (404, {}, b"")


# --- tokens ---------------------------------------------------------------------------------------

SERVICE, ISSUER = "registry of tests", "desk of tests"


class TokenDesk:
    """Signs tokens for a registry, as its documentation describes them."""

    def __init__(self, place: Path) -> None:
        place.mkdir(exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, ISSUER)])
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(name).issuer_name(name).public_key(self._key.public_key())
            .serial_number(1).not_valid_before(now - datetime.timedelta(1))
            .not_valid_after(now + datetime.timedelta(1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )  # fmt: skip
        self._der = made.public_bytes(serialization.Encoding.DER)
        self._bundle = place / "desk.pem"
        self._bundle.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def settings(self, realm: str) -> dict[str, Any]:
        """Return the settings of a registry that takes this desk's tokens."""
        return {"auth": {"token": {
            "realm": realm, "service": SERVICE, "issuer": ISSUER,
            "rootcertbundle": str(self._bundle),
        }}}  # fmt: skip

    def token(self, name: str, actions: list[str]) -> str:
        """Return a token for an image of that name."""
        now = int(time.time())
        header = {"typ": "JWT", "alg": "ES256", "x5c": [base64.b64encode(self._der).decode()]}
        claims = {
            "iss": ISSUER, "sub": USER, "aud": SERVICE, "iat": now, "nbf": now - 60,
            "exp": now + 600, "jti": "1",
            "access": [{"type": "repository", "name": name, "actions": actions}],
        }  # fmt: skip
        text = f"{_coded(json.dumps(header).encode())}.{_coded(json.dumps(claims).encode())}"
        r, s = decode_dss_signature(self._key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{text}.{_coded(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    def answer(self, path: str, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        """Give a token for what is asked to whoever gives the password."""
        both = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if headers.get("authorization") != f"Basic {both}":
            return 401, {}, b""
        _, name, actions = parse_qs(urlsplit(path).query)["scope"][0].split(":")
        return 200, {}, json.dumps({"token": self.token(name, actions.split(","))}).encode()


def _coded(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


@functools.cache
def digest_of(text: bytes) -> str:
    return f"sha256:{hashlib.sha256(text).hexdigest()}"
