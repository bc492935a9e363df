"""Layouts and layers of images: every blob is its digest's, and nothing of theirs is followed."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from sfumato.dp.refusal import Refused
from sfumato.sandbox import oci_image, oci_layers
from sfumato.sandbox import oci_layers as tar_members
from sfumato.sandbox.environment_store import Environments
from sfumato.sandbox.oci_image import read_image
from support import container_images
from support.container_images import blob, layout, link, member, tar_of

LOWER = tar_of(
    [
        member("etc/", type=tarfile.DIRTYPE),
        member("etc/kept", b"kept"),
        member("etc/gone", b"gone"),
        member("old/a", b"a"),
        member("old/b", b"b"),
        member("./usr/lib/run", b"#!", mode=0o4755),
        link("lib", "usr/lib"),
        member("usr/lib/again", type=tarfile.LNKTYPE, linkname="usr/lib/run"),
    ]
)
UPPER = tar_of(
    [
        member("etc/.wh.gone"),
        member("old/c", b"c"),
        member("old/.wh..wh..opq"),  # takes away what is below it, whatever stands before it
        member("lib/more", b"more"),  # through a link of the layer below
        member("device", type=tarfile.CHRTYPE),
        member("pipe", type=tarfile.FIFOTYPE),
    ]
)


def files_of(place: Path) -> dict[str, str]:
    return {
        str(path.relative_to(place)): path.read_text()
        for path in place.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def code_of(place: Path, digest: str, target: Path) -> str:
    with pytest.raises(Refused) as refused:
        read_image(place, digest, target / "files")
    return refused.value.code


def test_layers_lie_on_each_other_as_they_say(tmp_path: Path) -> None:
    digest = layout(tmp_path / "layout", [LOWER, UPPER], entry=["/run"], settings={"A": "b"})
    image = read_image(tmp_path / "layout", digest, tmp_path / "files")
    assert (image.entry, image.settings, image.folder) == (("/run",), ("A=b",), "")
    assert files_of(tmp_path / "files") == {
        "etc/kept": "kept", "old/c": "c", "usr/lib/run": "#!", "usr/lib/again": "#!",
        "usr/lib/more": "more",
    }  # fmt: skip
    assert os.readlink(tmp_path / "files" / "lib") == "usr/lib"
    modes = {path.lstat().st_mode & 0o7000 for path in (tmp_path / "files").rglob("*")}
    assert modes == {0}
    assert sorted(os.listdir(tmp_path)) == ["files", "layout"]


def test_arguments_replace_the_images_own_as_with_docker(tmp_path: Path) -> None:
    both = layout(tmp_path / "both", [LOWER], entry=["/run"], command=["--help"], folder="/opt")
    image = read_image(tmp_path / "both", both, tmp_path / "files")
    assert (image.entry, image.folder) == (("/run",), "/opt")
    alone = layout(tmp_path / "alone", [LOWER], command=["/run", "x"])
    assert read_image(tmp_path / "alone", alone, tmp_path / "more").entry == ("/run", "x")


@pytest.mark.skipif(shutil.which("umoci") is None, reason="umoci is not installed")
def test_umoci_unpacks_the_same_files(tmp_path: Path) -> None:
    place = tmp_path / "layout"
    digest = layout(place, [LOWER, UPPER])
    index = json.loads((place / "index.json").read_text())
    index["manifests"][0]["annotations"] = {"org.opencontainers.image.ref.name": "it"}
    (place / "index.json").write_text(json.dumps(index))
    read_image(place, digest, tmp_path / "files")
    done = subprocess.run(
        ["umoci", "unpack", "--rootless", "--image", f"{place}:it", str(tmp_path / "theirs")],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    theirs = files_of(tmp_path / "theirs" / "rootfs")
    assert {name: text for name, text in theirs.items() if name != "device"} == files_of(
        tmp_path / "files"
    )


def test_a_layer_writes_through_no_link(tmp_path: Path) -> None:
    host = tmp_path / "host"
    host.mkdir()
    (host / "file").write_text("the host's")
    climbing = "/".join([".."] * 40)
    lower = tar_of(
        [
            link("out", str(host)),
            link("up", f"{climbing}{host}"),
            link("file", str(host / "file")),
            link("into", "/srv/deep"),
            link("over", f"{climbing}/srv/deep"),
        ]
    )
    upper = tar_of([
        member("out/planted", b"!"), member("up/climbed", b"!"), member("file", b"ours"),
        member("out/.wh.file"), member("into/a", b"a"), member("over/b", b"b"),
    ])  # fmt: skip
    digest = layout(tmp_path / "layout", [lower, upper])
    read_image(tmp_path / "layout", digest, tmp_path / "files")
    assert files_of(host) == {"file": "the host's"}
    assert files_of(tmp_path / "files") == {
        "srv/deep/a": "a", "srv/deep/b": "b", "file": "ours",
    }  # fmt: skip


@pytest.mark.parametrize("hostile", [
    [member("a/../../climbs", b"!")],
    [member("hard", type=tarfile.LNKTYPE, linkname="../../etc/passwd")],
    [member("hard", type=tarfile.LNKTYPE, linkname="etc/passwd")],
    [link("l", "/etc"), member("hard", type=tarfile.LNKTYPE, linkname="l/passwd")],
    [member("file", b"!"), member("file/below", b"!")],
    [link("a", "b"), link("b", "a"), member("a/file", b"!")],
    [member("/".join(["d"] * 80), b"!")],
], ids=range(7))  # fmt: skip
def test_a_hostile_layer_is_refused(
    hostile: list[tuple[tarfile.TarInfo, bytes]], tmp_path: Path
) -> None:
    digest = layout(tmp_path / "layout", [tar_of(hostile)])
    assert code_of(tmp_path / "layout", digest, tmp_path) == "bad-environment"
    assert not (tmp_path / "files").exists()


def test_a_path_from_the_root_is_one_of_the_images_own(tmp_path: Path) -> None:
    """Some builders name files from the root on, and give a link several names."""
    hard = member("/again", type=tarfile.LNKTYPE, linkname="/etc/link")
    layer = tar_of([member("/etc/absolute", b"!"), link("/etc/link", "absolute"), hard])
    digest = layout(tmp_path / "layout", [layer])
    read_image(tmp_path / "layout", digest, tmp_path / "files")
    assert files_of(tmp_path / "files") == {"etc/absolute": "!"}
    assert os.readlink(tmp_path / "files/again") == "absolute"


def test_more_than_there_may_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = layout(tmp_path / "layout", [tar_of([member("a", bytes(6000)), member("b", b"!")])])
    monkeypatch.setattr(oci_layers, "MAX_BYTES", 6000)
    assert code_of(tmp_path / "layout", digest, tmp_path) == "bad-environment"
    monkeypatch.setattr(oci_layers, "MAX_BYTES", 6001)
    monkeypatch.setattr(oci_layers, "MAX_ENTRIES", 1)
    assert code_of(tmp_path / "layout", digest, tmp_path) == "bad-environment"
    monkeypatch.setattr(oci_layers, "MAX_ENTRIES", 2)
    assert read_image(tmp_path / "layout", digest, tmp_path / "files").digest == digest


def extended(kind: bytes, size: int) -> bytes:
    """Return a tar whose first header says that much of the second."""
    said = tarfile.TarInfo("x")
    said.type, said.size = kind, size
    padded = -(-size // 512) * 512
    return said.tobuf(tarfile.USTAR_FORMAT) + bytes(padded) + tar_of([member("y", b"1")])


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_what_a_member_says_of_itself_is_not_read_if_it_is_long(
    kind: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = layout(tmp_path / "layout", [extended(kind, (1 << 14) + 1)])
    asked: list[int] = []
    stream: Any = vars(tarfile)["_Stream"]  # what a tar is read through
    read = stream.read

    def reads(one: Any, size: int) -> Any:
        asked.append(size)
        return read(one, size)

    monkeypatch.setattr(stream, "read", reads)
    assert code_of(tmp_path / "layout", digest, tmp_path) == "bad-environment"
    assert 0 < max(asked) <= 1 << 14


def _sized(kind: bytes, size: int) -> bytes:
    said = tarfile.TarInfo("x")
    said.type, said.size = kind, size
    return said.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    "hostile",
    [
        _sized(b"Z", 1 << 80),
        _sized(b"Z", -1024),
        _sized(b"0", -1024),
        _sized(b"x", 21) + b"21 size=999999999999\n".ljust(512, b"\0") + _sized(b"Z", 0),
    ],
    ids=["unknown", "unknown and negative", "negative", "said of it"],
)
def test_nothing_is_skipped_that_no_layer_has(
    hostile: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes are counted off ten thousand at a time, long after there are no more: for ever."""
    stream: Any = vars(tarfile)["_Stream"]
    seek = stream.seek

    def seeks(one: Any, place: int = 0) -> Any:
        assert 0 <= place <= 1 << 33
        return seek(one, place)

    monkeypatch.setattr(stream, "seek", seeks)
    digest = layout(tmp_path / "layout", [tar_of([member("a", b"a")])[:1024] + hostile])
    assert code_of(tmp_path / "layout", digest, tmp_path) == "bad-environment"


def test_headers_of_headers_without_end_are_refused(tmp_path: Path) -> None:
    said = tarfile.TarInfo("x")
    said.type = tarfile.XHDTYPE
    digest = layout(tmp_path / "layout", [said.tobuf(tarfile.USTAR_FORMAT) * 3000])
    assert code_of(tmp_path / "layout", digest, tmp_path) == "bad-environment"


def test_folders_that_are_made_on_the_way_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oci_layers, "MAX_ENTRIES", 50)
    deep = [member("/".join([f"{one}", *["d"] * 20, "f"])) for one in range(3)]
    digest = layout(tmp_path / "layout", [tar_of(deep)])
    assert code_of(tmp_path / "layout", digest, tmp_path) == "bad-environment"


@pytest.mark.parametrize("name", ["n" * 300, "/".join(["n" * 200] * 40)], ids=["name", "path"])
def test_a_name_that_is_too_long_for_the_disk_is_refused(name: str, tmp_path: Path) -> None:
    if "/" in name:  # each member's own path is short; a link makes the rest of it
        above, below = "/".join(["n" * 200] * 15), "/".join(["m" * 200] * 15)
        tar = tar_of([member(f"{above}/f"), link("up", above), member(f"up/{below}/f")])
    else:
        tar = tar_of([member(name)])
    digest = layout(tmp_path / "layout", [tar])
    assert code_of(tmp_path / "layout", digest, tmp_path) == "bad-environment"


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_the_index_is_a_plain_file(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "layout"
    digest = layout(place, [LOWER])
    (place / "index.json").rename(tmp_path / "elsewhere")
    if kind == "link":
        (place / "index.json").symlink_to(tmp_path / "elsewhere")
    else:
        os.mkfifo(place / "index.json")
    assert code_of(place, digest, tmp_path) == "bad-environment"


def test_an_index_is_read_once_however_often_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "layout"
    digest = layout(place, [LOWER])
    kind = "application/vnd.oci.image.index.v1+json"
    named = json.loads((place / "index.json").read_text())["manifests"]
    for times in (1, 30, 30):
        named = [
            container_images._put(place, json.dumps({"manifests": named}).encode(), kind)
        ] * times
    (place / "index.json").write_text(json.dumps({"manifests": named[:1]}))
    reads = []
    read = oci_image._json_at
    monkeypatch.setattr(oci_image, "_json_at", lambda *of: reads.append(of) or read(*of))  # type: ignore[func-returns-value]
    assert code_of(place, f"sha256:{64 * '0'}", tmp_path) == "bad-environment"
    assert len(reads) == 2  # the index at the fourth level is not looked at
    named = json.loads(blob(place, named[0]["digest"]).read_text())["manifests"]
    (place / "index.json").write_text(json.dumps({"manifests": named}))
    assert read_image(place, digest, tmp_path / "files").digest == digest


def test_hard_links_count_as_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = [member(f"l{i}", type=tarfile.LNKTYPE, linkname="a") for i in range(9)]
    digest = layout(tmp_path / "layout", [tar_of([member("a", bytes(1000)), *links])])
    monkeypatch.setattr(oci_layers, "MAX_BYTES", 5000)
    assert code_of(tmp_path / "layout", digest, tmp_path) == "bad-environment"


@pytest.mark.parametrize("which", ["manifest", "config", "layer", "whole", "cut off"])
def test_a_blob_that_is_not_its_digest_is_refused(which: str, tmp_path: Path) -> None:
    place = tmp_path / "layout"
    digest = layout(place, [LOWER])
    manifest = json.loads(blob(place, digest).read_text())
    config, layer = (blob(place, d["digest"]) for d in (manifest["config"], *manifest["layers"]))
    if which == "manifest":
        blob(place, digest).write_text(json.dumps({**manifest, "annotations": {}}))
    elif which == "config":
        config.write_text(config.read_text() + " ")
    elif which == "layer":
        layer.write_bytes(gzip.compress(LOWER, 9))  # the same files, in other bytes
    elif which == "whole":
        digest = layout(place, [LOWER, UPPER])
        other = json.loads(blob(place, digest).read_text())
        said = json.loads(blob(place, other["config"]["digest"]).read_text())
        said["rootfs"]["diff_ids"].reverse()
        digest = _with_config(place, other, said)
    else:
        layer.write_bytes(layer.read_bytes()[:-20])
    assert code_of(place, digest, tmp_path) == "bad-environment"


def _with_config(place: Path, manifest: dict[str, object], config: dict[str, object]) -> str:
    manifest["config"] = container_images._put(place, json.dumps(config).encode(), "config")
    named = container_images._put(place, json.dumps(manifest).encode(), container_images.MANIFEST)
    (place / "index.json").write_text(json.dumps({"manifests": [named]}))
    return str(named["digest"])


def test_an_image_that_the_index_does_not_name_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "layout"
    digest = layout(place, [LOWER])
    (place / "index.json").write_text('{"manifests": []}')
    assert code_of(place, digest, tmp_path) == "bad-environment"
    assert code_of(tmp_path, digest, tmp_path) == "bad-environment"


def test_an_image_is_added_once_and_by_its_digest(tmp_path: Path) -> None:
    digest = layout(tmp_path / "layout", [LOWER, UPPER])
    kept = Environments(tmp_path / "own")
    made = kept.add_image(tmp_path / "layout", digest, "for a test")
    assert made.name == "image-" + digest.removeprefix("sha256:")
    shutil.rmtree(tmp_path / "layout")
    assert kept.add_image(tmp_path / "layout", digest) == made
    assert kept.all() == (made,)
    modes = {
        p.lstat().st_mode & 0o222 for p in kept.files(made.name).rglob("*") if not p.is_symlink()
    }
    assert modes == {0}
    kept.remove(made.name)
    assert kept.all() == ()
    assert os.listdir(tmp_path / "own") == []


def test_an_image_that_an_older_version_has_added_is_still_there(tmp_path: Path) -> None:
    digest = layout(tmp_path / "layout", [LOWER], entry=["/run"], labels={"a": "b"})
    kept = Environments(tmp_path / "own")
    made = kept.add_image(tmp_path / "layout", digest)
    assert kept.find(made.name) == made
    about = kept.root / made.name / "about.json"
    said = json.loads(about.read_text())
    for later in ("user", "labels", "manifest", "config", "source"):
        del said[later]
    about.write_text(json.dumps(said))
    found = kept.find(made.name)
    assert found is not None
    assert (found.entry, found.contents, found.labels) == (made.entry, made.contents, ())


def test_a_list_of_holes_is_not_read(tmp_path: Path) -> None:
    """A list of billions is a few megabytes when packed, and all of the memory when read."""
    said = {
        "GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "big",
        "GNU.sparse.realsize": "4",
    }  # fmt: skip
    holes = b"1\n0\n4\n".ljust(512, b"\0") + b"text"
    for kept in (said, {"GNU.sparse.size": "4", "GNU.sparse.map": "0,4"}):
        hostile = tar_of([member("big", holes, pax_headers=kept)])
        place = tmp_path / str(len(kept))
        place.mkdir()
        assert code_of(place, layout(place, [hostile]), place) == "bad-environment"


def test_a_layer_of_long_names_is_not_held_in_memory_with_every_name_whole(tmp_path: Path) -> None:
    deep = "/".join(["d" * 62] * 62)
    text = tar_of([member(f"{deep}/{place}") for place in range(500)])
    made = oci_layers.Layers(tmp_path)
    tracemalloc.start()
    try:
        made.add(io.BytesIO(text))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert made.has(f"{deep}/499")
    assert most < 3_000_000  # every name whole, and in parts, is 6 MB


class Touched(bytes):
    """Bytes that count how many of them are looked at; every slice of them is plain."""

    looked_at = 0

    def find(self, sub: Any, start: Any = 0, end: Any = None) -> int:  # Any: as bytes has it
        at = super().find(sub, start, end)
        stop = len(self) if end is None else min(end, len(self))
        self.looked_at += (stop if at < 0 else at + 1) - start
        return at

    def __getitem__(self, place: Any) -> Any:  # Any: as bytes has it
        got = super().__getitem__(place)
        self.looked_at += 1 if isinstance(got, int) else len(got)
        return got


NESTED = (b"2 " * 8000 + b"k=v\n")[: (1 << 14) - 1] + b"="  # a record at each letter, to the end
ODD = {
    "nested": NESTED,
    "digits": b"1" * (1 << 14),
    "a length of none": b"0 path=a\n" * 1000,
    "too long": b"99 path=a\n",
    "no end of a line": b"7 a=bcd",
    "no number": b"x path=a\n",
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
def test_what_is_said_of_a_member_is_looked_at_once_and_refused_if_it_is_odd(text: bytes) -> None:
    """Python's own reader looks at nested records again and again, and keeps 64 MB of these."""
    seen = Touched(text)
    with pytest.raises(ValueError):
        tar_members.records(seen)
    assert seen.looked_at <= 3 * len(text) + 64


def test_many_records_are_looked_at_once() -> None:
    seen = Touched(b"".join(b"17 k%d=%d\n" % (n, n * n) for n in range(1000, 2000)))
    assert tar_members.records(seen) == {}
    assert len(seen) <= seen.looked_at <= 4 * len(seen)


def test_the_librarys_reader_of_what_is_said_is_never_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it keeps of all members, it copies for each of them; what it reads, it reads again."""

    def asked(*_: object) -> None:
        pytest.fail("the library has read what a member says")

    monkeypatch.setattr(tarfile.TarInfo, "_proc_pax", asked)
    name, target = "n\u00e4" * 60, "t" * 150
    said = {"path": name, "SCHILY.xattr.user.a": "b", "mtime": "1.5"}
    of_all = tarfile.TarInfo.create_pax_global_header({"comment": "of all"})
    tar = of_all + tar_of([
        member("short", b"text", pax_headers=said),
        member("bytes", b"text", pax_headers={"hdrcharset": "BINARY", "path": "b\udcff"}),
        member("link", type=tarfile.SYMTYPE, linkname="x", pax_headers={"linkpath": target}),
        member("last", b"last"),
    ])  # fmt: skip
    read_image(tmp_path / "layout", layout(tmp_path / "layout", [tar]), tmp_path / "files")
    assert files_of(tmp_path / "files") == {name: "text", "b\udcff": "text", "last": "last"}
    assert os.readlink(tmp_path / "files" / "link") == target


def test_a_size_that_is_said_is_the_size(tmp_path: Path) -> None:
    first, second = member("a", bytes(1000)), member("b", b"b")
    head = first[0].tobuf(tarfile.USTAR_FORMAT)
    first[0].size = 0
    head = first[0].tobuf(tarfile.USTAR_FORMAT)
    said = tarfile.TarInfo("x")
    text = b"13 size=1000\n"
    said.type, said.size = tarfile.XHDTYPE, len(text)
    tar = said.tobuf(tarfile.USTAR_FORMAT) + text.ljust(512, b"\0") + head + bytes(1024)
    read_image(
        tmp_path / "layout", layout(tmp_path / "layout", [tar + tar_of([second])]),
        tmp_path / "files",
    )  # fmt: skip
    assert (tmp_path / "files" / "a").read_bytes() == bytes(1000)
    assert (tmp_path / "files" / "b").read_text() == "b"


@pytest.mark.parametrize("said", ["path", "linkpath", "size"])
def test_nothing_is_said_of_all_members(said: str, tmp_path: Path) -> None:
    of_all = tarfile.TarInfo.create_pax_global_header({said: "1"})
    digest = layout(tmp_path / "layout", [of_all + tar_of([member("a", b"a")])])
    assert code_of(tmp_path / "layout", digest, tmp_path) == "bad-environment"


def test_links_that_lead_on_and_on_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty links of two thousand names each, for each of half a million members, are hours."""
    chain = [link(f"l{i}", "./" * 2000 + f"l{i + 1}") for i in range(39)]
    tar = tar_of([member("l39/a"), *chain, *(member(f"l0/{i}") for i in range(3))])
    monkeypatch.setattr(oci_layers, "_MAX_STEPS", 3 * 39 * 4001)
    good = layout(tmp_path / "good", [LOWER, UPPER])
    read_image(tmp_path / "good", good, tmp_path / "files")
    shutil.rmtree(tmp_path / "files")
    digest = layout(tmp_path / "layout", [tar])
    assert code_of(tmp_path / "layout", digest, tmp_path) == "bad-environment"
    monkeypatch.setattr(oci_layers, "_MAX_STEPS", 4 * 39 * 4001)
    read_image(tmp_path / "layout", digest, tmp_path / "files")


def test_a_layer_that_is_named_twice_is_unpacked_within_one_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = layout(tmp_path / "layout", [LOWER, LOWER])
    monkeypatch.setattr(oci_image, "MAX_UNPACKED", 2 * len(LOWER) - 1)
    assert code_of(tmp_path / "layout", digest, tmp_path) == "bad-environment"
    monkeypatch.setattr(oci_image, "MAX_UNPACKED", 2 * len(LOWER))
    assert read_image(tmp_path / "layout", digest, tmp_path / "files").digest == digest


ZSTD = "application/vnd.oci.image.layer.v1.tar+zstd"


def zstd_layout(place: Path, tar: bytes, packed: bytes) -> str:
    """Write an image whose one layer is this tar, packed by zstd; return its digest."""
    manifest = json.loads(blob(place, layout(place, [tar])).read_text())
    manifest["layers"] = [container_images._put(place, packed, ZSTD)]
    named = container_images._put(place, json.dumps(manifest).encode(), container_images.MANIFEST)
    (place / "index.json").write_text(json.dumps({"manifests": [named]}))
    return str(named["digest"])


def zstd(text: bytes, *how: str) -> bytes:
    told = ["zstd", "--quiet", "--stdout", *how]
    return subprocess.run(told, input=text, check=True, capture_output=True).stdout


needs_zstd = pytest.mark.skipif(
    shutil.which("zstd") is None, reason="zstd is not installed: `make system` brings it"
)


@needs_zstd
def test_a_zstd_layer_may_have_several_frames_and_some_that_are_skipped(tmp_path: Path) -> None:
    """So podman writes it (`zstd:chunked`)."""
    skipped = struct.pack("<II", 0x184D2A50, 4) + b"skip"
    packed = zstd(LOWER[:700]) + skipped + zstd(LOWER[700:]) + skipped
    digest = zstd_layout(tmp_path / "layout", LOWER, packed)
    read_image(tmp_path / "layout", digest, tmp_path / "files")
    assert files_of(tmp_path / "files")["old/a"] == "a"


@needs_zstd
@pytest.mark.parametrize("which", ["cut off", "other", "more", "gzip", "window"])
def test_a_zstd_layer_that_is_not_as_it_has_to_be_is_refused(which: str, tmp_path: Path) -> None:
    tar = LOWER
    if which == "cut off":
        packed = zstd(LOWER)[:-9]
    elif which == "other":
        packed = zstd(UPPER)
    elif which == "more":
        packed = zstd(LOWER) + b"more"
    elif which == "gzip":
        packed = gzip.compress(LOWER)
    else:  # it needs more memory to be unpacked than there may be
        tar = LOWER + bytes((1 << 28) - len(LOWER))
        packed = zstd(tar, "--long=29", "-1")
    digest = zstd_layout(tmp_path / "layout", tar, packed)
    with pytest.raises(Refused, match="does not match its digest"):
        read_image(tmp_path / "layout", digest, tmp_path / "files")


@needs_zstd
def test_a_zstd_layer_is_unpacked_within_the_same_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few kilobytes can be packed billions: no more than the room is ever written."""
    tar = tar_of([member("big", bytes(50_000_000))])
    digest = zstd_layout(tmp_path / "layout", tar, zstd(tar))
    monkeypatch.setattr(oci_image, "MAX_UNPACKED", 3 << 20)
    taken: list[int] = []
    take = oci_image._Room.take

    def counted(room: oci_image._Room, size: int) -> None:
        taken.append(size)
        take(room, size)

    monkeypatch.setattr(oci_image._Room, "take", counted)
    with pytest.raises(Refused, match="layers are more than"):
        read_image(tmp_path / "layout", digest, tmp_path / "files")
    assert sum(taken) <= 4 << 20


def test_without_pyarrow_a_zstd_layer_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = zstd_layout(tmp_path / "layout", LOWER, b"anything")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Refused, match="dest-compress-format gzip"):
        read_image(tmp_path / "layout", digest, tmp_path / "files")


def of_platform(named: dict[str, object], system: str, machine: str, **more: str) -> object:
    return {**named, "platform": {"os": system, "architecture": machine, **more}}


def put_index(place: Path, *named: object, kind: str = oci_image.INDEXES[0]) -> str:
    """Write an index of these descriptors, which the layout's own index names."""
    put = container_images._put(place, json.dumps({"manifests": named}).encode(), kind)
    (place / "index.json").write_text(json.dumps({"manifests": [put]}))
    return str(put["digest"])


@pytest.mark.parametrize("kind", oci_image.INDEXES)
def test_the_digest_of_an_index_leads_to_the_image_for_this_machine(
    kind: str, tmp_path: Path
) -> None:
    place = tmp_path / "layout"
    images = []
    for layer in (LOWER, UPPER):
        layout(place, [layer])
        images.append(json.loads((place / "index.json").read_text())["manifests"][0])
    missing = {**images[0], "digest": f"sha256:{64 * '0'}"}
    digest = put_index(
        place,
        of_platform(missing, "linux", "arm64"),
        of_platform(missing, "unknown", "unknown"),  # a statement of the builder's
        of_platform(images[1], "linux", "amd64", variant="v3"),
        of_platform(images[0], "linux", "amd64"),
        kind=kind,
    )
    found = read_image(place, digest, tmp_path / "files")
    assert found.digest == images[0]["digest"]
    digest = put_index(
        place, of_platform(missing, "linux", "arm64"), of_platform(missing, "windows", "amd64")
    )
    with pytest.raises(Refused, match="only for linux/arm64, windows/amd64"):
        read_image(place, digest, tmp_path / "more")


def test_an_image_for_another_machine_is_refused_by_its_configuration(tmp_path: Path) -> None:
    place = tmp_path / "layout"
    manifest = json.loads(blob(place, layout(place, [LOWER])).read_text())
    config = json.loads(blob(place, manifest["config"]["digest"]).read_text())
    digest = _with_config(place, manifest, {**config, "architecture": "arm64"})
    with pytest.raises(Refused, match="the image is for linux/arm64"):
        read_image(place, digest, tmp_path / "files")


def test_labels_are_kept_and_very_many_or_long_ones_are_cut(tmp_path: Path) -> None:
    labels = {"b": "2", "a": "x" * 5000, **{f"c{n:04}": "" for n in range(500)}}
    digest = layout(tmp_path / "layout", [LOWER], labels=labels, user="0")
    found = read_image(tmp_path / "layout", digest, tmp_path / "files")
    assert (found.labels[0], found.labels[1], found.user) == (("a", "x" * 1000), ("b", "2"), "0")
    assert len(found.labels) == 100
