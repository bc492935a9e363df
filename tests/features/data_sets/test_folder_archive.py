"""Archives are unpacked to the folder that was packed, or refused with a sentence."""

from __future__ import annotations

import gzip
import io
import os
import struct
import tarfile
import unicodedata
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.refusal import Refused
from sfumato.features.data_sets import folder_archive
from sfumato.features.data_sets.folder_archive import PartFile, unpack
from sfumato.features.data_sets.folder_client import folder_stream
from sfumato.system.folder_stream import PART_BYTES, Kind, archive_kind, header
from sfumato.vault.card.bids_patterns import is_listed
from support.bids_folders import content_of, member, tar_of, write_tar, write_zip

ROWS = b"participant_id\tage\nsub-01\t30\n"
TABLE = "participants.tsv"
GB = 10**9


def unpacked(kind: Kind, text: bytes, folder: Path, most: int = GB) -> dict[str, bytes]:
    """Return what a file of these bytes is unpacked to; its bytes are in parts of odd sizes."""
    size = 1000
    paths = []
    for number, begin in enumerate(range(0, max(1, len(text)), size)):
        path = folder / f"part-{number}"
        path.write_bytes(text[begin : begin + size])
        paths.append(path)
    with PartFile(paths, size, len(text)) as file:
        return content_of(unpack(kind, file, folder / "tree", most).root)


# --- the same bytes from a folder, a zip and a tar

NAMES = st.text("abz09-_+é漢 ", min_size=1, max_size=12).map(lambda one: f"x{one}x")
# a file that begins like a pointer of git-annex stands for content that is elsewhere
CONTENTS = st.binary(max_size=3000).filter(lambda one: not one.startswith(b"/annex/objects/"))
FILES = st.dictionaries(
    st.one_of(
        NAMES,
        NAMES.map(lambda one: f".{one}"),
        NAMES.map(lambda one: f"phenotype/{one}.tsv"),
        NAMES.map(lambda one: f"derivatives/{one}"),
        st.tuples(st.sampled_from(["sub-01", "sub-02"]), NAMES).map(
            lambda pair: f"{pair[0]}/anat/{pair[0]}_{pair[1]}"
        ),
        st.tuples(st.sampled_from(["sub-01", "sub-02"]), NAMES).map(
            lambda pair: f"{pair[0]}/.{pair[1]}/{pair[1]}"
        ),
    ),
    CONTENTS,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(FILES, st.booleans())
def test_a_folder_a_zip_and_a_tar_give_the_same_files(
    files: Mapping[str, bytes], is_below: bool
) -> None:
    with TemporaryDirectory() as place:
        here = Path(place)
        root = here / "study"
        for path, content in {**files, TABLE: ROWS}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
        wanted = {
            path: content
            for path, content in content_of(root).items()
            if not any(name.startswith(".") for name in path.split("/"))
        }
        above = "study/" if is_below else ""
        archives = [
            write_zip(root, here / "a.zip", above),
            write_tar(root, here / "a.tar", above or "."),
            write_tar(root, here / "a.tar.gz", above or "."),
        ]
        for number, archive in enumerate(archives):
            kind = archive_kind(archive.name)
            assert kind is not None
            (here / str(number)).mkdir()
            assert unpacked(kind, archive.read_bytes(), here / str(number)) == wanted, kind
        patterns = tuple(
            path.replace("sub-01", "{sub}").partition("/")[2]
            for path in files
            if path.startswith("sub-01")
        )
        stream = folder_stream(root, {"bids": {"files": list(patterns)}})
        text = b"".join(stream.part(number) for number in range(stream.parts))
        assert len(text) == stream.size
        (here / "stream").mkdir()
        listed = {path: text for path, text in wanted.items() if is_listed(path, patterns)}
        assert unpacked("folder", text, here / "stream") == listed


# --- what is unusual and read right


def zip_of(entries: Mapping[str, bytes], change: Callable[[Any], None] | None = None) -> bytes:
    text = io.BytesIO()
    with zipfile.ZipFile(text, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {TABLE: ROWS, **entries}.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            if change is not None and name != TABLE:
                change(info)
            archive.writestr(info, content)
    return text.getvalue()


def zip64() -> bytes:
    text = io.BytesIO()
    with zipfile.ZipFile(text, "w") as archive:
        for name, content in ((TABLE, ROWS), ("a", b"1")):
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as file:
                file.write(content)
    return text.getvalue()


def streamed_zip() -> bytes:
    """Return a zip whose sizes come after the content, as a pipe writes it."""

    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.text = bytearray()

        def writable(self) -> bool:
            return True

        def write(self, piece: Any, /) -> int:
            self.text += bytes(piece)
            return len(piece)

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w") as archive:
        archive.writestr(TABLE, ROWS)
        archive.writestr("a", b"1")
    return bytes(pipe.text)


def unmarked_utf8() -> bytes:
    """Return a zip with a name in UTF-8 that does not say so, as some programs write it."""
    return zip_of({"é": b"1"}).replace(
        struct.pack("<HH", 0x800, zipfile.ZIP_DEFLATED), struct.pack("<HH", 0, zipfile.ZIP_DEFLATED)
    )


ONE = tar_of([(member(TABLE), ROWS), (member("a"), b"1")])
LONG = "x" * 120 + "/" + "y" * 150
READ_RIGHT: Mapping[str, tuple[Kind, bytes, dict[str, bytes]]] = {
    "zip64": ("zip", zip64(), {"a": b"1"}),
    "a zip from a pipe": ("zip", streamed_zip(), {"a": b"1"}),
    "unmarked UTF-8": ("zip", unmarked_utf8(), {"é": b"1"}),
    "long names, pax": (
        "tar",
        tar_of([(member(TABLE), ROWS), (member(LONG), b"1")], format=tarfile.PAX_FORMAT),
        {LONG: b"1"},
    ),
    "long names, GNU": (
        "tar",
        tar_of([(member(TABLE), ROWS), (member(LONG), b"1")], format=tarfile.GNU_FORMAT),
        {LONG: b"1"},
    ),
    "two gzip members": (
        "tar.gz",
        gzip.compress(ONE[:700]) + gzip.compress(ONE[700:]),
        {"a": b"1"},
    ),
    "hidden links": (
        "tar",
        tar_of([(member(TABLE), ROWS), (member(".git/a", tarfile.SYMTYPE, "/etc"), b"")]),
        {},
    ),
}


@pytest.mark.parametrize("case", READ_RIGHT)
def test_an_unusual_archive_is_read_right(case: str, tmp_path: Path) -> None:
    kind, text, wanted = READ_RIGHT[case]
    assert unpacked(kind, text, tmp_path) == {TABLE: ROWS, **wanted}


# --- what is refused


def tar_with(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    return tar_of([(member(TABLE), ROWS), (member(name, kind, link), b"")])


def of_two(first: str, second: str) -> bytes:
    return tar_of([(member(TABLE), ROWS), (member(first), b"1"), (member(second), b"2")])


def zip_with_mode(mode: int) -> bytes:
    def change(info: zipfile.ZipInfo) -> None:
        info.create_system, info.external_attr = 3, mode << 16

    return zip_of({"a": b"/etc/passwd"}, change)


def zip_with_size(size: int) -> bytes:
    """Return a zip that declares another size for its last file, in both places."""
    text = zip_of({"a": b"1234567890"})
    return text.replace(struct.pack("<L", 10), struct.pack("<L", size))


def sparse_tar() -> bytes:
    info = member("a")
    info.pax_headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": "99"}
    return tar_of([(member(TABLE), ROWS), (info, b"1")], format=tarfile.PAX_FORMAT)


def pax_name(name: str) -> bytes:
    info = member("harmless")
    info.pax_headers = {"path": name}
    return tar_of([(member(TABLE), ROWS), (info, b"1")], format=tarfile.PAX_FORMAT)


TAR = of_two("a", "b")
NFD = unicodedata.normalize("NFD", "é")
DEEP = "/".join("d" * 40)
HOSTILE: Mapping[str, tuple[Kind, bytes, str]] = {
    "an absolute path": ("tar", tar_with("/etc/passwd"), "absolute"),
    "a path above": ("tar", tar_with("a/../../b"), "'..'"),
    "a path above, pax": ("tar", pax_name("../b"), "'..'"),
    "a path above, zip": ("zip", zip_of({"../b": b"1"}), "'..'"),
    "an absolute path, zip": ("zip", zip_of({"/b": b"1"}), "absolute"),
    "a path above, stream": ("folder", header("../b", 1) + b"1", "'..'"),
    "an empty name, stream": ("folder", header("", 1) + b"1", "absolute"),
    "a backslash": ("zip", zip_of({"a\\b": b"1"}), "'\\'"),
    "a line end": ("tar", tar_with("a\nb"), "not text"),
    "a symbolic link": ("tar", tar_with("a", tarfile.SYMTYPE, "/etc/passwd"), "is a link"),
    "a hard link": ("tar", tar_with("a", tarfile.LNKTYPE, TABLE), "is a link"),
    "a link, zip": ("zip", zip_with_mode(0o120777), "is a link"),
    "a device": ("tar", tar_with("a", tarfile.CHRTYPE), "device"),
    "a pipe": ("tar", tar_with("a", tarfile.FIFOTYPE), "pipe"),
    "a device, zip": ("zip", zip_with_mode(0o020666), "device"),
    "an unknown kind": ("tar", tar_with("a", b"Q"), "does not know"),
    "the same name": ("tar", of_two("a", "a"), "earlier entry"),
    "another case": ("tar", of_two("a/B", "a/b"), "earlier entry"),
    "a folder in another case": ("tar", of_two("a/x", "A/y"), "earlier entry"),
    "another Unicode form": ("tar", of_two("é", NFD), "earlier entry"),
    "a file as a folder": ("tar", of_two("a", "a/b"), "earlier entry"),
    "a folder as a file": ("tar", of_two("a/b", "a"), "earlier entry"),
    "the same name, zip": ("zip", zip_of({"a": b"1", "A": b"2"}), "earlier entry"),
    "sparse files": ("tar", sparse_tar(), "sparse"),
    "GNU sparse files": ("tar", tar_with("a", tarfile.GNUTYPE_SPARSE), "sparse"),
    "a long name": ("tar", tar_with("x" * 300), "255"),
    "many folders": ("tar", tar_with(DEEP), "32 names"),
    "a tar cut in a file": ("tar", TAR[:700], "cut off"),
    "a tar cut after a file": ("tar", TAR[:1024], "cut off"),
    "a tar with a broken header": ("tar", TAR[:1024] + b"x" * 512 + TAR[1536:], "cut off"),
    "a gzip cut off": ("tar.gz", gzip.compress(TAR)[:-12], "cut off"),
    "a gzip with another sum": ("tar.gz", gzip.compress(TAR)[:-8] + bytes(8), "cannot be read"),
    "no gzip": ("tar.gz", TAR, "cannot be read"),
    "no tar": ("tar", b"x" * 2048, "cannot be read"),
    "no zip": ("zip", b"x" * 2048, "cannot be read"),
    "a zip cut off": ("zip", zip_of({"a": b"1"})[:-30], "cannot be read"),
    "a larger size": ("zip", zip_with_size(11), "another size"),
    "a smaller size": ("zip", zip_with_size(9), "cannot be read"),
    "another sum": ("zip", zip64().replace(ROWS, ROWS[::-1]), "cannot be read"),
    "a stream cut in a head": ("folder", header(TABLE, 1) + b"1" + b"\0", "cut off"),
    "a stream cut in a file": ("folder", header(TABLE, 9) + b"1", "cut off"),
    "a stream cut in a name": ("folder", header(TABLE, 9)[:15], "cut off"),
    "no UTF-8": ("folder", struct.pack("<HQ", 1, 0) + b"\xff", "cannot be read"),
    "no participants": ("tar", tar_of([(member("a"), b"1")]), TABLE),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_archive_is_refused_with_a_sentence(case: str, tmp_path: Path) -> None:
    kind, text, sentence = HOSTILE[case]
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(Refused, match="source-unreadable") as refused:
        unpacked(kind, text, inside)
    assert sentence in refused.value.cause
    assert os.listdir(tmp_path) == ["inside"]
    tree = inside / "tree"
    assert all(path.is_file() or path.is_dir() for path in tree.rglob("*"))
    assert not any(path.is_symlink() for path in tree.rglob("*"))


def encrypted(info: zipfile.ZipInfo) -> None:
    info.flag_bits |= 1


def bzip2(info: zipfile.ZipInfo) -> None:
    info.compress_type = zipfile.ZIP_BZIP2


@pytest.mark.parametrize("change", [encrypted, bzip2])
def test_an_encrypted_or_oddly_packed_zip_is_refused(
    change: Callable[[zipfile.ZipInfo], None], tmp_path: Path
) -> None:
    text = zip_of({"a": b"1"}, change)
    if change is encrypted:  # the writer clears the flag
        place = text.rindex(b"PK\1\2") + 8
        text = text[:place] + b"\1" + text[place + 1 :]
    with pytest.raises(Refused, match="encrypted, or compressed"):
        unpacked("zip", text, tmp_path)


def test_a_name_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    text = zip_of({"aa": b"1"}).replace(b"aa", b"a\xe9")
    with pytest.raises(Refused, match="not UTF-8"):
        unpacked("zip", text, tmp_path)


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "folder"])
def test_a_bomb_is_refused_before_it_fills_the_disk(kind: Kind, tmp_path: Path) -> None:
    zeros = bytes(20_000_000)
    text = {
        "zip": lambda: zip_of({"a": zeros}),
        "tar.gz": lambda: gzip.compress(tar_of([(member(TABLE), ROWS), (member("a"), zeros)])),
        "folder": lambda: header("a", 10**15),
    }[kind]()
    with pytest.raises(Refused, match="too-large"):
        unpacked(kind, text, tmp_path, most=1_000_000)
    written = sum(len(content) for content in content_of(tmp_path / "tree").values())
    assert written <= 1_000_000


@pytest.mark.parametrize("place", [".git/x", "behind the end"])
def test_what_is_passed_over_has_the_same_limit(place: str, tmp_path: Path) -> None:
    zeros = bytes(40_000_000)
    hidden = [(member(".git/x"), zeros)] if place == ".git/x" else []
    text = tar_of([(member(TABLE), ROWS), *hidden]) + (b"" if hidden else zeros)
    with pytest.raises(Refused, match=r"too-large|cannot be read"):
        unpacked("tar.gz", gzip.compress(text), tmp_path, most=1_000_000)


def test_names_of_many_folders_count_as_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_archive, "MAX_FILES", 30)
    deep = "/".join(f"d{n}" for n in range(20))
    text = tar_of([(member(f"{name}/{deep}/f"), b"") for name in ("a", "b")])
    with pytest.raises(Refused, match="more than 30 entries"):
        unpacked("tar", text, tmp_path)


def test_a_zip_that_says_less_than_it_holds_is_stopped_at_what_it_says(tmp_path: Path) -> None:
    zeros = bytes(5_000_000)
    text = zip_of({"a": zeros}).replace(struct.pack("<L", len(zeros)), struct.pack("<L", 10))
    with pytest.raises(Refused, match="cannot be read"):
        unpacked("zip", text, tmp_path)
    assert len(content_of(tmp_path / "tree").get("a", b"")) <= 10


def test_a_full_disk_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_archive, "free_bytes", lambda _folder: 1000)
    with pytest.raises(Refused, match="not enough free space"):
        unpacked("tar", TAR, tmp_path)


@pytest.mark.parametrize("kind", ["zip", "tar", "folder"])
def test_too_many_files_are_refused(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_archive, "MAX_FILES", 3)
    names = [f"f{n}" for n in range(4)]
    text = {
        "zip": lambda: zip_of(dict.fromkeys(names, b"")),
        "tar": lambda: tar_of([(member(name), b"") for name in names]),
        "folder": lambda: b"".join(header(name, 0) for name in names),
    }[kind]()
    with pytest.raises(Refused, match="more than 3 entries"):
        unpacked(kind, text, tmp_path)


def test_a_zip_of_millions_of_entries_is_refused_before_they_are_in_memory(tmp_path: Path) -> None:
    """The table of contents is counted, or not even read if it is too long."""
    for count in (1_500_000, 250_000):
        table = (b"PK\1\2" + bytes(24) + b"\1" + bytes(17) + b"a") * count
        end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 65535, 65535, len(table), 0, 0)
        path = tmp_path / "a.zip"
        path.write_bytes(table + end)
        with (
            PartFile.of(path) as file,
            pytest.raises(Refused, match="more than 200,000 entries"),
        ):
            unpack("zip", file, tmp_path / f"tree{count}", GB)


def test_a_part_file_reads_like_one_file(tmp_path: Path) -> None:
    assert PART_BYTES == 8_388_608  # written into the docs and the console
    text = bytes(range(256)) * 10
    paths = []
    for number in range(3):
        path = tmp_path / str(number)
        path.write_bytes(text[number * 1000 : (number + 1) * 1000])
        paths.append(path)
    with PartFile(paths, 1000, len(text)) as file:
        assert file.read() == text
        assert file.seek(-5, os.SEEK_END) == len(text) - 5
        assert file.read(100) == text[-5:]
        file.seek(999)
        assert file.read(2) == text[999:1001]
        assert file.seek(-1, os.SEEK_CUR) == file.tell() == 1000
