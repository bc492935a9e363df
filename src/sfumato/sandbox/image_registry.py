"""Pull a container image by its digest from a registry that the operator allows.

Nothing but the image's name and digest, and a login that the operator gives for that registry,
leaves this machine. No image is pulled on behalf of a researcher. Every document and layer is
checked against its digest and its size as it arrives. The protocol is the distribution
specification of the Open Container Initiative; the flow of tokens is that of Docker's registry.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sfumato.dp.refusal import Refused
from sfumato.sandbox.oci_image import (
    AT_ONCE,
    INDEXES,
    MANIFESTS,
    MAX_LAYERS,
    MAX_TEXT,
    Json,
    chosen,
    fitting,
    is_layer,
    object_of,
    read_json,
)
from sfumato.sandbox.oci_layers import MAX_BYTES

if TYPE_CHECKING:
    import httpx

_DIGEST: Final = r"sha256:[0-9a-f]{64}"
_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST: Final = r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:]+\])(?::[0-9]{1,5})?"
_NAMED: Final = re.compile(
    rf"(?P<host>{_HOST})/(?P<path>{_PART}(?:/{_PART})*)(?P<tag>:[\w][\w.-]{{0,127}})?"
    rf"(?:@(?P<digest>{_DIGEST}))?"
)
_PARAMETER: Final = re.compile(r'(\w+)="([^"]*)"')
_TOKEN: Final = re.compile(r"[!-~]{1,65536}")
_HUB, _HUB_API, _HUB_KEY = "docker.io", "registry-1.docker.io", "https://index.docker.io/v1/"
_MAX_NAME, _MAX_HOPS, _MAX_NESTED = 255, 5, 3
_TIMEOUT_S: Final = 60.0
_SAYS: Final = {
    401: "it needs another login, or has no such image: give --login FILE",
    403: "it does not let this login read the image, or no login was given: --login FILE",
    404: "it has no image of that name and digest",
    429: "it asks to wait: try again later",
}


@dataclass(frozen=True)
class Reference:
    """The full name of an image: the registry's host, the path there, and a digest."""

    host: str
    path: str
    digest: str

    @property
    def name(self) -> str:
        """Return the name without the digest."""
        return f"{self.host}/{self.path}"

    @property
    def is_local(self) -> bool:
        """Return True if the registry is on this machine, where no encryption is needed."""
        return _is_local(self.host)

    @property
    def address(self) -> str:
        """Return the address of the registry's interface."""
        host = _HUB_API if self.host == _HUB else self.host
        return f"{'http' if self.is_local else 'https'}://{host}"


@dataclass(frozen=True)
class Login:
    """A user and a password for one registry."""

    user: str
    password: str

    @property
    def header(self) -> str:
        """Return the value of the header that sends them."""
        both = f"{self.user}:{self.password}".encode()
        return "Basic " + base64.b64encode(both).decode()


def read_reference(text: str) -> Reference:
    """Read HOST/PATH@sha256:...; refuse a name without a digest, and ignore a tag beside one."""
    found = _NAMED.fullmatch(text) if len(text) <= _MAX_NAME + 80 else None
    if found is None or not _is_host(found["host"]):
        raise not_pulled(
            "the name is not REGISTRY/NAME@sha256:DIGEST",
            "Write the registry too, for example registry.example.org/team/tool@sha256:...",
        )
    if found["digest"] is None:
        raise not_pulled(
            "its name has no digest, and what a tag names can change",
            f"Print the digest: skopeo inspect --format '{{{{.Digest}}}}' docker://{text}, and "
            "write NAME@sha256:DIGEST.",
        )
    path = found["path"]
    is_short = found["host"] == _HUB and "/" not in path
    return Reference(found["host"], f"library/{path}" if is_short else path, found["digest"])


def check_allowed(reference: Reference, allowed: object) -> None:
    """Refuse an image of a registry that is not on the operator's list (vault.json: registries).

    An entry of the list is a registry, or a registry and the beginning of a path.
    """
    is_list = isinstance(allowed, Sequence) and not isinstance(allowed, str)
    entries = list(allowed) if isinstance(allowed, Sequence) and is_list else []
    if allowed is not None and not (is_list and all(isinstance(one, str) for one in entries)):
        raise not_pulled(
            "`registries` in the vault's vault.json is not a list of names", _LIST_NEXT
        )
    name = f"{reference.name}/"
    if not any(one and name.startswith(f"{one.rstrip('/')}/") for one in entries):
        raise not_pulled(
            f"the operator of this vault does not allow the registry {reference.host}, or not "
            "this path there",
            _LIST_NEXT,
        )


_LIST_NEXT: Final = (
    'The operator lists what is allowed in the vault\'s vault.json: "registries": '
    '["registry.example.org/team"].'
)


def read_login(path: Path, host: str) -> Login:
    """Read the login for a registry from a file: USER:PASSWORD, or Docker's config.json; or refuse.

    Credential helpers, which are programs that such a file can name, are not run.
    """
    try:
        if path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
            raise not_pulled("other users can read the file of the login", f"chmod 600 {path}")
        text = path.read_text("utf-8") if path.stat().st_size <= MAX_TEXT else ""
    except (OSError, UnicodeDecodeError):
        text = ""
    user, colon, password = text.strip().partition(":")
    if text.lstrip().startswith("{"):
        user, colon, password = _of_docker(text, host)
    if not user or not colon or not (user + password).isprintable():
        raise not_pulled(
            f"the file of the login has none for {host}",
            "Give a file with USER:PASSWORD, or the file that `docker login` or `podman login` "
            "writes without a credential helper.",
        )
    return Login(user, password)


def _of_docker(text: str, host: str) -> tuple[str, str, str]:
    try:
        listed = object_of(object_of(json.loads(text)).get("auths"))
    except (ValueError, RecursionError):
        listed = {}
    names = [host, f"https://{host}", *([_HUB_KEY] if host == _HUB else [])]
    entry = next((object_of(listed[name]) for name in names if name in listed), {})
    try:
        both = base64.b64decode(str(entry.get("auth", "")), validate=True).decode("utf-8")
    except ValueError:
        both = ""
    return both.partition(":")


def pull(reference: Reference, login: Login | None, layout: Path) -> str:
    """Download an image to a new OCI layout; return the digest of its manifest; or refuse.

    The digest of the reference may name an index: then it is the manifest for Linux on amd64.
    """
    import httpx

    client = httpx.Client(
        follow_redirects=False,
        timeout=_TIMEOUT_S,
        trust_env=not reference.is_local,  # requests to this machine use no proxy
        headers={"User-Agent": "sfumato", "Accept-Encoding": "identity"},
    )
    with client:
        try:
            return _Pull(_Registry(client, reference, login), reference, layout).run()
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as failed:
            kind = type(failed).__name__
        except OSError:
            raise not_pulled("the disk is full", "Make room, and try again.") from None
    raise not_pulled(
        f"the registry {reference.host} did not answer as a registry does ({kind})",
        "Check the name, the network and the registry's certificate, and try again.",
    )


class _Pull:
    """The download of one image to a layout."""

    def __init__(self, registry: _Registry, reference: Reference, layout: Path) -> None:
        self._registry, self._reference, self._layout = registry, reference, layout
        self._blobs = layout / "blobs" / "sha256"

    def run(self) -> str:
        """Download the manifest, the configuration and the layers; return the manifest's digest."""
        self._blobs.mkdir(parents=True)
        digest, manifest, text = self._manifest()
        layers = manifest["layers"]
        if not isinstance(layers, list) or not 1 <= len(layers) <= MAX_LAYERS:
            raise _bad(f"its manifest is malformed, or it has more than {MAX_LAYERS} layers")
        if not all(map(is_layer, layers)):
            raise _bad("a layer must be a tar file, plain, or packed by gzip or zstd")
        config = _descriptor(manifest.get("config"))
        blobs = dict(map(_descriptor, layers))
        if config[1] > MAX_TEXT or sum(blobs.values()) > MAX_BYTES:
            raise _bad(f"its layers are more than {MAX_BYTES >> 30} GB")
        self._file(digest).write_bytes(text)
        for name, size in {**blobs, config[0]: config[1]}.items():
            self._fetch(name, size)
        named = {"mediaType": MANIFESTS[0], "digest": digest, "size": len(text)}
        (self._layout / "index.json").write_text(json.dumps({"manifests": [named]}))
        return digest

    def _manifest(self) -> tuple[str, Json, bytes]:
        """Return the manifest for this machine: its digest, what it says, and its bytes."""
        digest = self._reference.digest
        for _ in range(_MAX_NESTED):
            text = self._document(digest)
            found = _parsed(text)
            if "layers" in found and "manifests" not in found:
                return digest, found, text
            if "manifests" not in found or "layers" in found:
                break
            digest = _descriptor(chosen(fitting(found), found))[0]
        raise _bad("its digest does not lead to the manifest of an image")

    def _document(self, digest: str) -> bytes:
        accept = ", ".join((*MANIFESTS, *INDEXES))
        text = b""
        with self._registry.reply(f"manifests/{digest}", accept) as pieces:
            for piece in pieces:
                text += piece
                if len(text) > MAX_TEXT:
                    raise _bad(f"its manifest is larger than {MAX_TEXT >> 20} MB")
        if f"sha256:{hashlib.sha256(text).hexdigest()}" != digest:
            raise _not_as_named()
        return text

    def _fetch(self, digest: str, size: int) -> None:
        """Download one blob, and stop as soon as it is longer than it may be."""
        whole, left = hashlib.sha256(), size
        with (
            self._registry.reply(f"blobs/{digest}", "*/*") as pieces,
            self._file(digest).open("xb") as file,
        ):
            for piece in pieces:
                left -= len(piece)
                if left < 0:
                    raise _not_as_named()
                whole.update(piece)
                file.write(piece)
        if left or f"sha256:{whole.hexdigest()}" != digest:
            raise _not_as_named()

    def _file(self, digest: str) -> Path:
        return self._blobs / digest.removeprefix("sha256:")


class _Registry:
    """One registry over HTTP: its login or token goes to its own host alone."""

    def __init__(self, client: httpx.Client, reference: Reference, login: Login | None) -> None:
        self._client, self._reference, self._login = client, reference, login
        self._authorization: str | None = None

    @contextmanager
    def reply(self, what: str, accept: str) -> Iterator[Iterator[bytes]]:
        """Yield the pieces of a document's bytes, as they were sent; or refuse."""
        url = f"{self._reference.address}/v2/{self._reference.path}/{what}"
        response = self._asked(url, accept)
        is_asked = response.status_code == 401 and self._is_own(str(response.url))
        if is_asked and self._authorization is None:
            response.close()
            self._authorization = self._signed_in(response.headers.get_list("www-authenticate"))
            response = self._asked(url, accept)
        try:
            if response.status_code != 200:
                raise self._refused(response.status_code)
            yield response.iter_raw(AT_ONCE)
        finally:
            response.close()

    def _asked(self, url: str, accept: str) -> httpx.Response:
        """Send a request, and follow redirects; another host gets neither login nor token."""
        for _ in range(_MAX_HOPS):
            headers = {"Accept": accept}
            if self._authorization is not None and self._is_own(url):
                headers["Authorization"] = self._authorization
            self._client.cookies.clear()
            request = self._client.build_request("GET", url, headers=headers)
            response = self._client.send(request, stream=True)
            if not response.has_redirect_location:
                return response
            response.close()
            url = self._checked(str(response.url.join(response.headers["location"])))
        raise _bad("its registry redirects without end")

    def _is_own(self, url: str) -> bool:
        """Return True if an address is on the registry's own host, with the same scheme."""
        return _origin(url) == _origin(self._reference.address)

    def _signed_in(self, challenges: Sequence[str]) -> str:
        """Return the header that the registry asks for: a token, or the login itself; or refuse."""
        asked = {one.partition(" ")[0].lower(): one.partition(" ")[2] for one in challenges}
        if "bearer" in asked:
            return "Bearer " + self._token(dict(_PARAMETER.findall(asked["bearer"])))
        if "basic" in asked and self._login is not None:
            return self._login.header
        raise self._refused(401)

    def _token(self, asked: Mapping[str, str]) -> str:
        """Fetch a token to read this one image, from where the registry says; or refuse."""
        url = self._checked(asked.get("realm", ""))
        question = {"scope": f"repository:{self._reference.path}:pull"}
        if "service" in asked:
            question["service"] = asked["service"]
        headers = {} if self._login is None else {"Authorization": self._login.header}
        self._client.cookies.clear()
        text = b""
        with self._client.stream("GET", url, params=question, headers=headers) as response:
            if response.status_code != 200:
                raise self._refused(response.status_code)
            for piece in response.iter_raw(AT_ONCE):
                text += piece
                if len(text) > MAX_TEXT:
                    break
        found = _parsed(text)
        token = str(found.get("token") or found.get("access_token") or "")
        if _TOKEN.fullmatch(token) is None:
            raise self._refused(401)
        return token

    def _checked(self, url: str) -> str:
        """Refuse an address without encryption, unless registry and address are on this machine."""
        scheme, host = _origin(url)
        is_local = _is_local(host)
        if scheme != "https" and not (scheme == "http" and is_local):
            raise _bad("its registry names an address that is not https://")
        if is_local and not self._reference.is_local:
            raise _bad("its registry names an address on this machine")
        return url

    def _refused(self, status: int) -> Refused:
        says = _SAYS.get(status, f"it answered with the status {status}")
        return not_pulled(
            f"the registry {self._reference.host} did not give it: {says}",
            "Check the name, the digest and the login.",
        )


def _parsed(text: bytes) -> Json:
    try:
        return read_json(text)
    except Refused:
        pass
    raise _bad("its registry sent malformed JSON")


def _descriptor(said: object) -> tuple[str, int]:
    """Return the digest and the size of a descriptor; or refuse."""
    digest, size = object_of(said).get("digest"), object_of(said).get("size")
    if not isinstance(digest, str) or re.fullmatch(_DIGEST, digest) is None:
        raise _bad("the name of a blob is not a sha256 digest")
    if not isinstance(size, int) or size < 0:
        raise _bad("a blob has no size")
    return digest, size


def _origin(url: str) -> tuple[str, str]:
    """Return an address's scheme, and its host with the port; or refuse a login in it."""
    import httpx

    read = httpx.URL(url)
    if read.userinfo:
        raise _bad("its registry names an address with a login in it")
    return read.scheme, read.netloc.decode("ascii").lower()


def _is_host(host: str) -> bool:
    """Return True for a name with a dot or a port, or this machine: never a folder's name."""
    return "." in host or ":" in host or host == "localhost"


def _is_local(host: str) -> bool:
    bare = re.sub(r":[0-9]+$", "", host).strip("[]")
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return bare == "localhost"


def not_pulled(says: str, next_step: str) -> Refused:
    """Return the refusal of an image that was not pulled."""
    return Refused("image-not-pulled", f"The image was not pulled: {says}.", next_step)


def _bad(says: str) -> Refused:
    return not_pulled(says, "Ask whoever offers the image, or choose another one.")


def _not_as_named() -> Refused:
    return _bad("what the registry sent does not match its digest or its size")
