"""Images that are pulled by digest, from a real registry on this machine."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from sfumato.dp.refusal import Refused
from sfumato.sandbox import image_registry
from sfumato.sandbox.environment_store import Environments
from sfumato.sandbox.image_registry import (
    Login,
    Reference,
    check_allowed,
    pull,
    read_login,
    read_reference,
)
from support.container_images import MANIFEST, blob, layout, member, tar_of
from support.image_registries import (
    PASSWORD,
    USER,
    Registry,
    TokenDesk,
    answering,
    digest_of,
    files_below,
    of_passwords,
    registry,
)
from support.tls_certificates import write_certificate

needs_registry = pytest.mark.skipif(
    shutil.which("docker-registry") is None or shutil.which("skopeo") is None,
    reason="docker-registry or skopeo is not installed: `make system` brings them",
)
LAYER = tar_of([member("srv/file", b"of the registry")])
ZEROS = f"sha256:{64 * '0'}"


def written(place: Path, *layers: bytes) -> str:
    """Write a layout with the name that skopeo reads; return the manifest's digest."""
    digest = layout(place, layers or [LAYER], entry=["/run"], labels={"title": "tool"})
    index = json.loads((place / "index.json").read_text())
    index["manifests"][0]["annotations"] = {"org.opencontainers.image.ref.name": "it"}
    (place / "index.json").write_text(json.dumps(index))
    return digest


@pytest.fixture(scope="module")
def open_registry() -> Iterator[Registry]:
    """Return a registry that asks nobody who they are, with an image in it."""
    with tempfile.TemporaryDirectory() as folder, registry(Path(folder, "registry")) as made:
        written(Path(folder, "layout"))
        made.push(Path(folder, "layout"), "team/tool:1")
        yield made


@pytest.fixture
def digest(tmp_path: Path) -> str:
    return written(tmp_path / "layout")


def why(kept: Environments, name: str, login: Path | None = None) -> str:
    """Return why an image was refused; nothing of it is left."""
    with pytest.raises(Refused) as refused:
        kept.pull_image(name, login)
    assert refused.value.code == "image-not-pulled", refused.value
    assert not kept.root.exists() or os.listdir(kept.root) == []
    return f"{refused.value.cause} {refused.value.next_step}"


def environments(place: Path, *allowed: str) -> Environments:
    return Environments(place / "own", registries=list(allowed))


@needs_registry
def test_an_image_is_pulled_by_its_digest(
    open_registry: Registry, digest: str, tmp_path: Path
) -> None:
    kept = environments(tmp_path, open_registry.host)
    made = kept.pull_image(f"{open_registry.host}/team/tool@{digest}", note="for a test")
    assert made.name == f"image-{digest[7:]}"
    assert (made.source, made.manifest) == (f"{open_registry.host}/team/tool", digest)
    assert (made.entry, made.labels) == (("/run",), (("title", "tool"),))
    files = kept.files(made.name)
    assert (files / "srv/file").read_bytes() == b"of the registry"
    assert sorted(os.listdir(files.parent)) == ["about.json", "files"]
    tagged = f"{open_registry.host}/team/tool:other@{digest}"
    assert kept.pull_image(tagged) == made  # a tag beside a digest is ignored
    assert kept.add_image(tmp_path / "layout", digest) == made  # the same image


@needs_registry
def test_an_index_leads_to_the_image_for_this_machine(
    open_registry: Registry, tmp_path: Path
) -> None:
    place = tmp_path / "layout"
    written(place)
    (named,) = json.loads((place / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(place, named["digest"]).read_text())
    other = json.loads(blob(place, manifest["config"]["digest"]).read_text())
    arm = json.dumps({**other, "architecture": "arm64"}).encode()
    blob(place, digest_of(arm)).write_bytes(arm)
    manifest["config"] |= {"digest": digest_of(arm), "size": len(arm)}
    text = json.dumps(manifest).encode()
    blob(place, digest_of(text)).write_bytes(text)
    index = json.dumps({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [
            {"mediaType": MANIFEST, "digest": digest_of(text), "size": len(text),
             "platform": {"os": "linux", "architecture": "arm64"}},
            {"mediaType": MANIFEST, "digest": named["digest"], "size": named["size"],
             "platform": {"os": "linux", "architecture": "amd64"}},
        ],
    }).encode()  # fmt: skip
    blob(place, digest_of(index)).write_bytes(index)
    described = {
        "mediaType": "application/vnd.oci.image.index.v1+json", "digest": digest_of(index),
        "size": len(index), "annotations": {"org.opencontainers.image.ref.name": "it"},
    }  # fmt: skip
    (place / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [described]}))
    open_registry.push(place, "team/several:1", "--all")
    kept = environments(tmp_path, open_registry.host)
    name = f"{open_registry.host}/team/several"
    made = kept.pull_image(f"{name}@{digest_of(index)}")
    assert (made.name, made.manifest) == (f"image-{digest_of(index)[7:]}", named["digest"])
    kept.remove(made.name)
    with pytest.raises(Refused, match="the image is for linux/arm64"):
        kept.pull_image(f"{name}@{digest_of(text)}")
    assert os.listdir(kept.root) == []


@needs_registry
def test_a_digest_that_the_registry_lacks_is_refused(
    open_registry: Registry, tmp_path: Path
) -> None:
    kept = environments(tmp_path, open_registry.host)
    assert "no image of that name and digest" in why(
        kept, f"{open_registry.host}/team/tool@{ZEROS}"
    )
    assert "no image of that name" in why(kept, f"{open_registry.host}/team/none@{ZEROS}")


@needs_registry
@pytest.mark.parametrize("which", ["layer", "longer", "shorter", "config", "manifest"])
def test_what_was_changed_on_the_registrys_disk_is_refused(which: str, tmp_path: Path) -> None:
    digest = written(tmp_path / "layout")
    manifest = json.loads(blob(tmp_path / "layout", digest).read_text())
    with registry(tmp_path / "registry") as made:
        made.push(tmp_path / "layout", "team/tool:1")
        named = manifest["config"] if which == "config" else manifest["layers"][0]
        place = made.blob(digest if which == "manifest" else named["digest"])
        text = bytearray(place.read_bytes())
        text[len(text) // 2] ^= 1
        if which == "longer":
            text += b"more"
        elif which == "shorter":
            text.pop()
        place.write_bytes(text)
        said = why(environments(tmp_path, made.host), f"{made.host}/team/tool@{digest}")
    assert "does not match its digest" in said or (which == "manifest" and "did not give" in said)


@needs_registry
def test_a_registry_may_ask_for_user_and_password(tmp_path: Path) -> None:
    digest = written(tmp_path / "layout")
    login = tmp_path / "login"
    with registry(tmp_path / "registry", of_passwords(tmp_path / "registry")) as made:
        made.push(tmp_path / "layout", "team/tool:1", f"--dest-creds={USER}:{PASSWORD}")
        kept = environments(tmp_path, made.host)
        name = f"{made.host}/team/tool@{digest}"
        assert "give --login FILE" in why(kept, name)
        login.write_text(f"{USER}:wrong\n")
        login.chmod(0o600)
        assert "needs another login" in why(kept, name, login)
        both = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        login.write_text(json.dumps({"auths": {made.host: {"auth": both}}}))
        assert kept.pull_image(name, login).manifest == digest
        kept.remove(f"image-{digest[7:]}")
        login.write_text(f"{USER}:{PASSWORD}\n")
        assert kept.pull_image(name, login).manifest == digest


@needs_registry
def test_a_registry_may_ask_for_a_token_of_another_host(tmp_path: Path) -> None:
    digest = written(tmp_path / "layout")
    (tmp_path / "login").write_text(f"{USER}:{PASSWORD}")
    (tmp_path / "login").chmod(0o600)
    desk = TokenDesk(tmp_path / "desk")
    with answering(desk.answer) as heard:
        settings = desk.settings(f"http://{heard.address}/token")
        with registry(tmp_path / "registry", settings) as made:
            made.push(tmp_path / "layout", "team/tool:1", f"--dest-creds={USER}:{PASSWORD}")
            kept = environments(tmp_path, made.host)
            name = f"{made.host}/team/tool@{digest}"
            assert "needs another login" in why(kept, name)
            heard.requests.clear()
            assert kept.pull_image(name, tmp_path / "login").manifest == digest
            ((path, _),) = heard.requests  # one token for everything, to read this image alone
            assert path.endswith("scope=repository%3Ateam%2Ftool%3Apull&service=registry+of+tests")


def address_of_this_machine() -> str:
    """Return an address of this machine that is not the loopback's, or "" if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("198.51.100.1", 9))  # of documentation; nothing is sent
        except OSError:
            return ""
        found: str = one.getsockname()[0]
    return "" if found.startswith("127.") else found


@needs_registry
@pytest.mark.skipif(not address_of_this_machine(), reason="this machine has only its loopback")
def test_the_certificate_of_a_registry_elsewhere_has_to_be_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, address = written(tmp_path / "layout"), address_of_this_machine()
    certificate, key = write_certificate(tmp_path / "tls", address)
    tls = {"certificate": str(certificate), "key": str(key)}
    for name in ("http_proxy", "https_proxy", "all_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with registry(tmp_path / "registry", {"http": {"addr": f"{address}:0", "tls": tls}}) as made:
        made.push(tmp_path / "layout", "team/tool:1")
        kept = environments(tmp_path, made.host)
        assert "did not answer" in why(kept, f"{made.host}/team/tool@{digest}")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert kept.pull_image(f"{made.host}/team/tool@{digest}").manifest == digest


@needs_registry
def test_a_redirect_carries_no_login_to_another_host(tmp_path: Path) -> None:
    digest = written(tmp_path / "layout")
    place = tmp_path / "registry"
    (tmp_path / "login").write_text(f"{USER}:{PASSWORD}")
    (tmp_path / "login").chmod(0o600)

    def store(path: str, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        return files_below(place / "data", path)

    with answering(store) as heard:
        redirect = {"name": "redirect", "options": {"baseurl": f"http://{heard.address}/"}}
        settings = {**of_passwords(place), "middleware": {"storage": [redirect]}}
        with registry(place, settings) as made:
            made.push(tmp_path / "layout", "team/tool:1", f"--dest-creds={USER}:{PASSWORD}")
            heard.requests.clear()
            kept = environments(tmp_path, made.host)
            kept.pull_image(f"{made.host}/team/tool@{digest}", tmp_path / "login")
    assert len(heard.requests) == 2  # the layer and the configuration
    for _, headers in heard.requests:
        assert not {"authorization", "cookie", "referer"} & set(headers)


# --- registries that are not as they should be ----------------------------------------------------


def redirecting(to: str, path: str, _: object) -> tuple[int, Mapping[str, str], bytes]:
    return 307, {"Location": to.replace("{path}", path)}, b""


def test_another_host_is_never_asked_for_a_login(tmp_path: Path) -> None:
    """A host to which a registry redirects asks for one, and gets none."""
    asking = {"WWW-Authenticate": 'Basic realm="mine"'}
    with ExitStack() as both:
        thief = both.enter_context(answering(lambda *_: (401, asking, b"")))
        to = partial(redirecting, f"http://{thief.address}/steal")
        made = both.enter_context(answering(to))
        reference = Reference(made.address, "team/tool", ZEROS)
        with pytest.raises(Refused, match="needs another login"):
            pull(reference, Login(USER, PASSWORD), tmp_path / "layout")
    assert len(thief.requests) == 1
    assert "authorization" not in thief.requests[0][1]


@pytest.mark.parametrize("to", [
    "http://registry.example.org/x", "ftp://127.0.0.1/x", "file:///x", "http://u:p@127.0.0.1/x",
    "http://127.0.0.1.example.org/x",
])  # fmt: skip
def test_no_redirect_leads_to_an_address_without_encryption(to: str, tmp_path: Path) -> None:
    with answering(partial(redirecting, to)) as made:
        said = why(environments(tmp_path, made.address), f"{made.address}/tool@{ZEROS}")
    assert "its registry names an address" in said


def test_a_registry_elsewhere_names_no_address_on_this_machine() -> None:
    far = image_registry._Registry(None, Reference("registry.example.org", "t", ZEROS), None)  # type: ignore[arg-type]  # asks nobody
    for url in ("https://127.0.0.1/x", "https://localhost:5000/x", "https://[::1]/", "http://a.b"):
        with pytest.raises(Refused, match="its registry names an address"):
            far._checked(url)
    assert far._checked("https://store.example.org/x") == "https://store.example.org/x"


def test_redirects_without_end_are_refused(tmp_path: Path) -> None:
    with answering(partial(redirecting, "{path}x")) as made:
        said = why(environments(tmp_path, made.address), f"{made.address}/tool@{ZEROS}")
    assert "redirects without end" in said
    assert len(made.requests) == 5


def serving(
    documents: Mapping[str, bytes], path: str, _: object
) -> tuple[int, dict[str, str], bytes]:
    text = documents.get(path.rpartition("/")[2])
    return (404, {}, b"") if text is None else (200, {}, text)


def manifest_of(*sizes: int, **more: object) -> bytes:
    kind = "application/vnd.oci.image.layer.v1.tar"
    layers = [{"mediaType": kind, "digest": f"sha256:{n:064}", "size": size}
              for n, size in enumerate(sizes)]  # fmt: skip
    config = {"digest": f"sha256:{99:064}", "size": 2}
    return json.dumps({"config": config, "layers": layers, **more}).encode()


@pytest.mark.parametrize(("text", "word"), [
    (manifest_of(3 << 30, 2 << 30), "more than 4 GB"),
    (manifest_of(*[1] * 129), "more than 128 layers"),
    (manifest_of(-1), "no size"), (manifest_of(), "malformed"),
    (manifest_of(1, config={"digest": f"sha256:{1:064}", "size": 5 << 20}), "more than"),
    (manifest_of(1, config={"digest": "sha512:00", "size": 2}), "not a sha256 digest"),
    (manifest_of(1, manifests=[]), "does not lead to the manifest"),
    (manifest_of(1, layers=[{"mediaType": "text/plain", "digest": ZEROS, "size": 1}]), "tar file"),
    (b"[]", "malformed JSON"), (b"{", "malformed JSON"), (b"{}", "does not lead"),
    (b" " * ((4 << 20) + 1), "larger than 4 MB"),
], ids=range(12))  # fmt: skip
def test_a_manifest_that_is_not_as_it_has_to_be_is_refused(
    text: bytes, word: str, tmp_path: Path
) -> None:
    with answering(partial(serving, {digest_of(text): text})) as made:
        said = why(environments(tmp_path, made.address), f"{made.address}/tool@{digest_of(text)}")
    assert word in said
    assert len(made.requests) == 1  # no blob of it was asked for


def test_a_blob_without_end_is_cut_off_at_its_size(tmp_path: Path) -> None:
    text = manifest_of(10)
    documents = {digest_of(text): text, f"sha256:{0:064}": bytes(50 << 20)}
    with answering(partial(serving, documents)) as made:
        reference = Reference(made.address, "tool", digest_of(text))
        with pytest.raises(Refused, match="does not match its digest or its size"):
            pull(reference, None, tmp_path / "layout")
    (cut,) = [p for p in (tmp_path / "layout/blobs/sha256").iterdir() if p.name == f"{0:064}"]
    assert cut.stat().st_size == 0


def test_a_registry_that_nobody_runs_is_refused(tmp_path: Path) -> None:
    with answering(lambda *_: (200, {}, b"")) as gone:
        pass
    said = why(environments(tmp_path, gone.address), f"{gone.address}/tool@{ZEROS}")
    assert "did not answer" in said


# --- names, the operator's list, and logins -------------------------------------------------------


@pytest.mark.parametrize(("allowed", "is_let"), [
    (None, False), ([], False), (["other.example.org"], False), (["registry.example.org"], True),
    (["registry.example.org/"], True), (["registry.example.org/team"], True),
    (["registry.example.org/team/tool"], True), (["registry.example.org/tea"], False),
    (["registry.example.org/team/tool/more"], False), (["example.org"], False), ([""], False),
    (["registry.example.org:443"], False), (["REGISTRY.example.org"], False), (["/"], False),
    ("registry.example.org", False), ([7], False), ({"registry.example.org": True}, False),
    (["registry.example.org", 7], False), (7, False), (["https://registry.example.org"], False),
], ids=range(20))  # fmt: skip
def test_nothing_is_pulled_but_from_what_the_operator_lists(allowed: object, is_let: bool) -> None:
    reference = read_reference(f"registry.example.org/team/tool@{ZEROS}")
    if is_let:
        check_allowed(reference, allowed)
        return
    with pytest.raises(Refused) as refused:
        check_allowed(reference, allowed)
    assert refused.value.code == "image-not-pulled"
    assert '"registries"' in refused.value.next_step


def test_a_registry_that_is_not_on_the_list_is_not_asked(tmp_path: Path) -> None:
    with answering(lambda *_: (200, {}, b"")) as made:
        for kept in (
            Environments(tmp_path / "own"),
            environments(tmp_path, "registry.example.org"),
        ):
            assert "does not allow" in why(kept, f"{made.address}/tool@{ZEROS}")
    assert made.requests == []


def test_a_name_without_a_digest_is_refused_with_how_to_get_it() -> None:
    for name in ("registry.example.org/team/tool:1.2", "registry.example.org/team/tool"):
        with pytest.raises(Refused) as refused:
            read_reference(name)
        assert (
            f"skopeo inspect --format '{{{{.Digest}}}}' docker://{name}" in refused.value.next_step
        )


@pytest.mark.parametrize("name", [
    "tool", "team/tool", f"team/tool@{ZEROS}", f"./layout@{ZEROS}", f"../x.y/z@{ZEROS}",
    f"https://registry.example.org/tool@{ZEROS}", f"registry.example.org/Team@{ZEROS}",
    f"u:p@registry.example.org/tool@{ZEROS}", f"registry.example.org/../x@{ZEROS}",
    f"registry.example.org/x?y@{ZEROS}", f"registry.example.org//x@{ZEROS}",
    f"registry.example.org@{ZEROS}", "registry.example.org/tool@sha256:00",
    f"registry.example.org/tool@{ZEROS}\n", f"registry.example.org/{'a' * 400}@{ZEROS}", "",
    "registry.example.org/tool@md5:d41d8cd98f00b204e9800998ecf8427e",
])  # fmt: skip
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(Refused, match="Write the registry too"):
        read_reference(name)


def test_only_a_registry_on_this_machine_needs_no_encryption() -> None:
    for host in ("127.0.0.1:5000", "localhost:5000", "127.8.8.8:1", "[::1]:5000", "localhost"):
        assert read_reference(f"{host}/tool@{ZEROS}").address == f"http://{host}"
    for host in ("127.0.0.1.example.org", "localhost.example.org", "10.0.0.1:5000", "[::2]:5000"):
        assert read_reference(f"{host}/tool@{ZEROS}").address == f"https://{host}"
    hub = read_reference(f"docker.io/python@{ZEROS}")
    assert (hub.address, hub.path) == ("https://registry-1.docker.io", "library/python")


def test_a_login_is_read_from_a_file_that_others_cannot_read(tmp_path: Path) -> None:
    place, host = tmp_path / "login", "registry.example.org"

    def read(text: str, mode: int = 0o600) -> Login | str:
        place.write_text(text)
        place.chmod(mode)
        try:
            return read_login(place, host)
        except Refused as refused:
            return f"{refused.cause} {refused.next_step}"

    assert read("ria:a:b c\n") == Login("ria", "a:b c")
    auth = {"auth": base64.b64encode(b"ria:pass").decode()}
    for name in (host, f"https://{host}"):
        assert read(json.dumps({"auths": {name: auth}})) == Login("ria", "pass")
    for text in (
        "", "ria", ":x", "ria:\x07", "{", "{}", json.dumps({"auths": {"other.example.org": auth}}),
        json.dumps({"auths": {host: {"auth": "%%%"}}}), json.dumps({"auths": {host: {}}}),
        json.dumps({"auths": [host], "credsStore": "helper"}),
    ):  # fmt: skip
        found = read(text)
        assert isinstance(found, str), text
        assert f"has none for {host}" in found
    assert "chmod 600" in str(read("ria:pass", 0o644))
    assert "pass" not in str(read("ria:pass", 0o644)).replace("USER:PASSWORD", "")
