"""Archives and layouts as the usual builders write them: the same files come out of each."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from sfumato.dp.refusal import Refused
from sfumato.sandbox import image_archive
from sfumato.sandbox.environment_store import Environments
from sfumato.sandbox.image_archive import is_archive, read_archive
from sfumato.sandbox.oci_image import read_image
from sfumato.sandbox.program_environment import OwnEnvironment
from support.container_images import blob, layout, link, member, tar_of

LOWER = tar_of([member("etc/kept", b"kept"), member("etc/gone", b"gone"), member("old/a", b"a")])
UPPER = tar_of([
    member("etc/.wh.gone"), member("old/.wh..wh..opq"), member("old/b", b"b"),
    member("hard", type=tarfile.LNKTYPE, linkname="etc/kept"),  # of the layer below
])  # fmt: skip
FILES = {"etc/kept": b"kept", "old/b": b"b", "hard": b"kept"}
LABELS = {"org.opencontainers.image.title": "tool"}


def needs(*tools: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        not all(map(shutil.which, tools)),
        reason=f"{' or '.join(tools)} is not installed: `make system` brings them",
    )


def told(*command: str | Path) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def files_of(place: Path) -> dict[str, bytes]:
    plain = (path for path in place.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(place)): path.read_bytes() for path in plain}


def added(place: Path, digest: str) -> tuple[OwnEnvironment, dict[str, bytes]]:
    """Return an image that was added to a store of its own, and its files."""
    kept = Environments(place.with_name(f"own-{digest[-8:]}-{place.name}"))
    made = kept.add_image(place, digest)
    found = files_of(kept.files(made.name))
    kept.remove(made.name)
    return made, found


def manifest_in(place: Path) -> tuple[str, str]:
    """Return the digests of the one manifest of a layout, and of its configuration."""
    (named,) = json.loads((place / "index.json").read_text())["manifests"]
    found = json.loads(blob(place, named["digest"]).read_text())
    return named["digest"], found["config"]["digest"]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Return a layout of two layers, with a label, that other tools know as `it`."""
    place = tmp_path / "layout"
    layout(place, [LOWER, UPPER], entry=["/run"], labels=LABELS)
    index = json.loads((place / "index.json").read_text())
    index["manifests"][0]["annotations"] = {"org.opencontainers.image.ref.name": "it"}
    (place / "index.json").write_text(json.dumps(index))
    return place


def tarred(files: Mapping[str, bytes], *links: tuple[tarfile.TarInfo, bytes]) -> bytes:
    return tar_of([*(member(name, text) for name, text in files.items()), *links])


@needs("skopeo")
@pytest.mark.parametrize("is_gzip", [False, True])
def test_an_archive_of_a_layout_is_read_by_the_digest_of_its_manifest(
    is_gzip: bool, made: Path, tmp_path: Path
) -> None:
    told("skopeo", "copy", "-q", f"oci:{made}:it", f"oci-archive:{tmp_path}/a.tar:it")
    if is_gzip:
        (tmp_path / "a.tar").write_bytes(gzip.compress((tmp_path / "a.tar").read_bytes()))
    manifest, config = manifest_in(made)
    environment, files = added(tmp_path / "a.tar", manifest)
    assert files == FILES
    assert (environment.manifest, environment.config) == (manifest, config)
    assert environment.name == f"image-{manifest[7:]}"
    assert environment.labels == tuple(LABELS.items())


@needs("skopeo")
def test_an_archive_of_docker_save_is_read_by_the_id_of_the_image(
    made: Path, tmp_path: Path
) -> None:
    told("skopeo", "copy", "-q", f"oci:{made}:it", f"docker-archive:{tmp_path}/a.tar:it:latest")
    manifest, config = manifest_in(made)
    environment, files = added(tmp_path / "a.tar", config)
    assert files == FILES
    assert (environment.manifest, environment.config) == ("", config)
    assert (environment.entry, environment.labels) == (("/run",), tuple(LABELS.items()))
    assert "digest" in refused(tmp_path / "a.tar", manifest)


def test_an_archive_of_docker_since_25_is_read_by_either_digest(made: Path, tmp_path: Path) -> None:
    """It has an image layout and a `manifest.json` that names blobs of the layout."""
    manifest, config = manifest_in(made)
    layers = json.loads(blob(made, manifest).read_text())["layers"]
    names = [f"blobs/sha256/{one['digest'][7:]}" for one in layers]
    (made / "manifest.json").write_text(
        json.dumps([{"Config": f"blobs/sha256/{config[7:]}", "RepoTags": None, "Layers": names}])
    )
    place = tmp_path / "a.tar"
    place.write_bytes(tarred(files_of(made)))
    for digest in (manifest, config):
        environment, files = added(place, digest)
        assert files == FILES
        assert environment.config == config


def test_layers_of_an_older_archive_are_links_to_each_other(tmp_path: Path) -> None:
    """Docker before 25 wrote a layer once, and links from the folders of the other layers."""
    config = json.dumps({
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": {"diff_ids": [f"sha256:{hashlib.sha256(LOWER).hexdigest()}"] * 3},
    }).encode()  # fmt: skip
    layers = ["one/layer.tar", "two/layer.tar", "three/layer.tar"]
    files = {"one/layer.tar": LOWER, "c.json": config, "manifest.json": manifest_json(layers)}
    hard = member("three/layer.tar", type=tarfile.LNKTYPE, linkname="one/layer.tar")
    place = tmp_path / "a.tar"
    place.write_bytes(tarred(files, link("two/layer.tar", "../one/layer.tar"), hard))
    digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
    assert added(place, digest)[1]["old/a"] == b"a"
    climbing = manifest_json(["../../../etc/passwd", *layers[1:]])
    place.write_bytes(tarred({**files, "manifest.json": climbing}))
    assert "leaves its folder" in refused(place, digest)
    outside = link("two/layer.tar", "../../../../etc/passwd")
    place.write_bytes(tarred(files, outside, hard))
    assert "leaves its folder" in refused(place, digest)
    files["one/layer.tar"] = UPPER
    place.write_bytes(tarred(files, link("two/layer.tar", "../one/layer.tar"), hard))
    assert "does not match its digest" in refused(place, digest)


def manifest_json(layers: list[str]) -> bytes:
    return json.dumps([{"Config": "c.json", "Layers": layers}]).encode()


def refused(place: Path, digest: str) -> str:
    with pytest.raises(Refused) as found:
        Environments(place.parent / "own").add_image(place, digest)
    assert found.value.code == "bad-environment"
    assert os.listdir(place.parent / "own") == []
    return found.value.cause


def test_an_archive_that_is_cut_off_or_too_large_is_refused(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, (manifest, _) = tarred(files_of(made)), manifest_in(made)
    place = tmp_path / "a.tar"
    for text in (whole[: len(whole) // 2], gzip.compress(whole)[:-30], whole[:600]):
        place.write_bytes(text)
        assert is_archive(place)
        refused(place, manifest)
    place.write_bytes(whole)
    monkeypatch.setattr(image_archive, "MAX_UNPACKED", 100)
    assert "more than" in refused(place, manifest)
    monkeypatch.undo()
    monkeypatch.setattr(image_archive, "_MAX_MEMBERS", 3)
    assert "more than" in refused(place, manifest)


def test_nothing_of_an_archive_is_written_elsewhere(made: Path, tmp_path: Path) -> None:
    host = tmp_path / "host"
    host.mkdir()
    manifest, _ = manifest_in(made)
    bad = [link("out", str(host)), member("out/planted", b"!")]
    place = tmp_path / "a.tar"
    place.write_bytes(tar_of([*(member(*of) for of in files_of(made).items()), *bad]))
    assert added(place, manifest)[1] == FILES  # no link is written, so a folder is in its place
    place.write_bytes(tar_of([member("../planted", b"!")]))
    refused(place, manifest)
    assert os.listdir(host) == []
    assert sorted(os.listdir(tmp_path)) == [
        "a.tar", "host", "layout", "own", f"own-{manifest[-8:]}-a.tar",
    ]  # fmt: skip


@needs("umoci", "skopeo")
def test_umocis_layers_have_no_end_marker(tmp_path: Path) -> None:
    place = tmp_path / "layout"
    (tmp_path / "file").write_text("umoci's")
    told("umoci", "init", "--layout", place)
    told("umoci", "new", "--image", f"{place}:it")
    for name in ("srv/a", "srv/b"):
        told("umoci", "insert", "--image", f"{place}:it", tmp_path / "file", name)
    told("umoci", "insert", "--image", f"{place}:it", "--whiteout", "srv/a")
    told("umoci", "config", "--image", f"{place}:it", "--config.entrypoint", "/run",
         "--config.label", "org.opencontainers.image.title=tool")  # fmt: skip
    manifest, _ = manifest_in(place)
    (layer, *_) = json.loads(blob(place, manifest).read_text())["layers"]
    assert len(gzip.decompress(blob(place, layer["digest"]).read_bytes())) % 1024 != 0
    environment, files = added(place, manifest)
    assert files == {"srv/b": b"umoci's"}
    assert (environment.entry, environment.labels) == (("/run",), tuple(LABELS.items()))
    told("skopeo", "copy", "-q", f"oci:{place}:it", f"docker-archive:{tmp_path}/a.tar:it:latest")
    assert added(tmp_path / "a.tar", environment.config)[1] == files


def test_a_layer_that_ends_inside_a_file_is_refused(tmp_path: Path) -> None:
    whole = tar_of([member("a", b"a" * 600)])
    for size, is_whole in ((512 + 600, True), (512 + 599, False), (512 + 512, False), (512, False)):
        place = tmp_path / f"layout-{size}"
        digest = layout(place, [whole[:size]])
        if is_whole:
            assert added(place, digest)[1] == {"a": b"a" * 600}
        else:
            assert "not a tar file" in refused(place, digest)


def test_an_empty_layer_needs_no_end_marker(tmp_path: Path) -> None:
    digest = layout(tmp_path / "layout", [LOWER, b"", bytes(1024)])
    read_image(tmp_path / "layout", digest, tmp_path / "files")
    assert (tmp_path / "files/old/a").read_text() == "a"


@needs("skopeo")
def test_layers_that_are_packed_by_zstd_are_read(made: Path, tmp_path: Path) -> None:
    packed = ["--dest-compress-format", "zstd", "--dest-compress"]
    told("skopeo", "copy", "-q", *packed, f"oci:{made}:it", f"oci:{tmp_path}/z:it")
    digest, _ = manifest_in(tmp_path / "z")
    manifest = json.loads(blob(tmp_path / "z", digest).read_text())
    assert {one["mediaType"].partition("+")[2] for one in manifest["layers"]} == {"zstd"}
    assert added(tmp_path / "z", digest)[1] == FILES


@pytest.fixture
def storage() -> Iterator[list[str]]:
    """Return the options of a storage of its own, for buildah and podman: paths are short."""
    with tempfile.TemporaryDirectory() as place:
        yield ["--root", f"{place}/root", "--runroot", f"{place}/run", "--storage-driver", "vfs"]


@needs("buildah", "podman")
def test_what_buildah_and_podman_write_is_read(tmp_path: Path, storage: list[str]) -> None:
    buildah = ["buildah", *storage]
    (tmp_path / "rootfs.tar").write_bytes(LOWER)
    one = told(*buildah, "from", "scratch")
    told(*buildah, "add", "-q", one, tmp_path / "rootfs.tar", "/")
    told(*buildah, "config", "--entrypoint", '["/run"]', "--workingdir", "/srv",
         "--label", "org.opencontainers.image.title=tool", one)  # fmt: skip
    config = "sha256:" + told(*buildah, "commit", "-q", one, "made")
    told(*buildah, "push", "-q", "made", f"oci:{tmp_path}/layout:it")
    podman = ["podman", *storage]
    told(*podman, "save", "-q", "-o", tmp_path / "docker.tar", "made")
    told(*podman, "save", "-q", "--format", "oci-archive", "-o", tmp_path / "oci.tar", "made")
    manifest, _ = manifest_in(tmp_path / "layout")
    with tarfile.open(tmp_path / "oci.tar") as tar:
        index = json.load(tar.extractfile("index.json") or io.BytesIO())
    expected = {"etc/kept": b"kept", "etc/gone": b"gone", "old/a": b"a"}
    for name, digest in (
        ("layout", manifest),
        ("docker.tar", config),
        ("oci.tar", index["manifests"][0]["digest"]),
    ):
        environment, files = added(tmp_path / name, digest)
        assert files == expected
        assert (environment.entry, environment.folder) == (("/run",), "/srv")
        assert dict(environment.labels).items() >= LABELS.items()


def test_the_name_of_an_image_in_an_archive_is_a_digest(made: Path, tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tarred(files_of(made)))
    with pytest.raises(Refused, match="64 hexadecimal digits"):
        read_archive(tmp_path / "a.tar", "latest", tmp_path / "files")
