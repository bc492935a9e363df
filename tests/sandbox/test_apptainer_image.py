"""Apptainer's own image files: read strictly, unfolded in a bubble, and laid down as layers are.

No Apptainer was there to write one: their headers are written here, by the format's description.
"""

from __future__ import annotations

import io
import os
import random
import stat
import struct
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sfumato.dp.refusal import Refused
from sfumato.sandbox import oci_layers
from sfumato.sandbox import squashfs as squashes
from sfumato.sandbox.apptainer_image import part_of
from sfumato.sandbox.base_environment import environment
from sfumato.sandbox.environment_store import Environments
from sfumato.sandbox.ports import SandboxLimits, TrialJob
from sfumato.sandbox.program_environment import OwnEnvironment
from sfumato.sandbox.program_outputs import read_output, read_outputs
from sfumato.sandbox.sandbox_pool import SandboxPool
from sfumato.system.randomness import SystemRandomSource
from support.container_images import (
    DEFINITION,
    SIGNATURE,
    SQUASHFS,
    Object,
    joined,
    link,
    member,
    needs_squash,
    python_layer,
    sif,
    sif_at,
    squash,
    tar_of,
)
from support.sandbox_blocks import needs_bubbles

COMMAND = squashes.command
CLIMBS = "/".join([".."] * 40)
FILES = [
    member("etc", type=tarfile.DIRTYPE, mode=0o700),
    member("etc/kept", b"kept" * 100_000),
    member("usr/bin/run", b"#!", mode=0o6755),
    member("usr/bin/again", type=tarfile.LNKTYPE, linkname="usr/bin/run"),
    member("big", bytes(3_000_000)),
    member("n" * 90 + "/" + "m" * 120, b"long"),
    member(".wh.odd", b"no layer below it"),
    member("device", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
    member("disk", type=tarfile.BLKTYPE, devmajor=8),
    member("pipe", type=tarfile.FIFOTYPE),
    link("bin", "usr/bin"),
    link("out", "/etc/passwd"),
    link("up", f"{CLIMBS}/etc/passwd"),
]
TAR = tar_of(FILES)


@pytest.fixture
def kept() -> Iterator[Environments]:
    """Give a place that the uid of a bubble reaches, which pytest's own folders are not."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        made = Environments(Path(place, "own"))
        yield made
        for one in made.all():
            made.remove(one.name)


def refused(act: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as found:
        act()
    return found.value


def added(kept: Environments, place: Path, text: bytes) -> OwnEnvironment:
    return kept.add_image(*sif_at(place / "image.sif", text))


def seen(place: Path) -> dict[str, tuple[int, object]]:
    """Return every path below with its mode, and its text or where it leads."""
    found: dict[str, tuple[int, object]] = {}
    for path in place.rglob("*"):
        mode = path.lstat().st_mode
        read = os.readlink if stat.S_ISLNK(mode) else Path.read_bytes
        found[str(path.relative_to(place))] = mode, None if stat.S_ISDIR(mode) else read(path)
    return found


@needs_squash
@pytest.mark.parametrize("compressor", ["gzip", "xz", "zstd", "lz4"])
def test_an_image_is_laid_down_as_a_layer_of_the_same_files_is(
    kept: Environments, tmp_path: Path, compressor: str
) -> None:
    definition, signature = Object(b"from", DEFINITION, b""), Object(b"signed", SIGNATURE, b"")
    made = added(kept, tmp_path, sif(definition, Object(squash(TAR, compressor)), signature))
    (tmp_path / "bytes").mkdir()
    merged = oci_layers.Layers(tmp_path / "bytes")
    merged.add(io.BytesIO(TAR))
    merged.write(tmp_path / "files")
    for path in (tmp_path / "files", *(tmp_path / "files").rglob("*")):
        if not path.is_symlink():
            path.chmod(0o555 if path.is_dir() or os.access(path, os.X_OK) else 0o444)
    ours = seen(tmp_path / "files")
    for path in (tmp_path / "files").rglob("*"):
        if path.is_file() and not path.is_symlink():
            mode = 0o555 if path.name in ("run", "again") else 0o444
            ours[str(path.relative_to(tmp_path / "files"))] = (
                stat.S_IFREG | mode, path.read_bytes(),
            )  # fmt: skip
    assert seen(kept.files(made.name)) == ours
    assert os.readlink(kept.files(made.name) / "up") == f"{CLIMBS}/etc/passwd"
    assert os.listdir(kept.root) == [made.name]


@needs_squash
def test_an_image_is_added_once_and_by_the_digest_of_its_file(
    kept: Environments, tmp_path: Path
) -> None:
    place, digest = sif_at(tmp_path / "image.sif", sif(Object(squash(TAR))))
    made = kept.add_image(place, digest, "for a test")
    assert (made.name, made.entry, made.through) == ("image-" + digest[7:], (), ())
    place.unlink()
    assert kept.add_image(place, digest) == made
    assert kept.find(made.name) == made
    place.write_bytes(sif(Object(squash(TAR))) + b" ")
    other = f"sha256:{digest[8:]}0"
    assert "digest" in refused(lambda: kept.add_image(place, other)).cause
    assert os.listdir(kept.root) == [made.name]


@needs_squash
@pytest.mark.parametrize(("text", "labels"), [
    (b'{"org.label-schema.schema-version": "1.0", "n": 7}',
     (("org.label-schema.schema-version", "1.0"),)),
    (b"{", ()), (b"[]", ()), (None, ()),
], ids=range(4))  # fmt: skip
def test_the_labels_of_an_image_are_kept_if_they_can_be_read(
    kept: Environments, tmp_path: Path, text: bytes | None, labels: tuple[tuple[str, str], ...]
) -> None:
    more = [] if text is None else [member(".singularity.d/labels.json", text)]
    image = sif(Object(squash(tar_of([*FILES, *more]))))
    assert kept.add_image(*sif_at(tmp_path / "image.sif", image)).labels == labels


HEAD = sif(Object(b"hsqs".ljust(96, b"\0")))
OVERLAY = Object(b"x" * 96, extra=struct.pack("<ii3s", SQUASHFS, 4, b"02"))


def put(offset: int, text: bytes) -> bytes:
    return HEAD[:offset] + text + HEAD[offset + len(text) :]


def of_line(offset: int, shape: str, value: int) -> bytes:
    """Return the file with another value at that offset of line one of its table."""
    return put(4096 + offset, struct.pack(shape, value))


NO_IMAGE = "neither an Apptainer image"
OUTSIDE = "outside the file"


@pytest.mark.parametrize(("text", "word"), [
    (b"", NO_IMAGE), (HEAD[:127], NO_IMAGE), (put(32, b"sif_magic"), NO_IMAGE),
    (put(42, b"02"), NO_IMAGE), (put(45, b"04"), "amd64"),
    (put(88, struct.pack("<q", 0)), "table"), (put(88, struct.pack("<q", -1)), "table"),
    (put(88, struct.pack("<q", 10**18)), "table"), (put(96, struct.pack("<q", 0)), "table"),
    (put(96, struct.pack("<q", 2**63 - 1)), "table"), (put(96, struct.pack("<q", -585)), "table"),
    (of_line(0, "<i", 0x4010), "kind"), (of_line(0, "<i", 0x400A), "layout"),
    (of_line(0, "<i", DEFINITION), "one partition"), (of_line(4, "<B", 0), "one partition"),
    (of_line(4, "<B", 2), "kind"), (of_line(17, "<q", 0), OUTSIDE),
    (of_line(17, "<q", -1), OUTSIDE),
    (of_line(17, "<q", 2**63 - 1), OUTSIDE), (of_line(25, "<q", -1), OUTSIDE),
    (of_line(25, "<q", 2**63 - 1), OUTSIDE), (of_line(25, "<q", 10), OUTSIDE),
    (of_line(25, "<q", 8192), OUTSIDE), (of_line(201, "<i", 5), "encrypted"),
    (of_line(201, "<i", 2), "squashfs"), (of_line(205, "<i", 3), "squashfs"),
    (put(4096 + 209, b"04"), "squashfs"),
    (sif(Object(b"hsqs".ljust(96, b"\0")), OVERLAY), "squashfs"),
    (sif(*(Object(b"hsqs".ljust(96, b"\0")),) * 2), "one partition"), (sif(), "one partition"),
], ids=range(30))  # fmt: skip
def test_a_head_that_is_not_as_it_has_to_be_is_refused(text: bytes, word: str) -> None:
    found = refused(lambda: part_of(text, max(len(text), len(HEAD))))
    assert found.code == "bad-environment"
    assert word in found.cause


def test_no_head_does_anything_but_name_a_part_of_its_file_or_be_refused() -> None:
    dice, named = random.Random(1), 0
    for _ in range(3000):
        text = bytearray(HEAD[:5000])
        for _ in range(dice.randrange(1, 4)):
            text[dice.choice((dice.randrange(128), dice.randrange(4096, 4400)))] = dice.randrange(
                256
            )
        try:
            part = part_of(bytes(text) + HEAD[5000:], len(HEAD))
        except Refused:
            continue
        named += 1
        assert 4096 <= part.offset <= part.offset + part.size <= len(HEAD)
    assert 0 < named < 3000


@needs_squash
def test_what_is_no_squashfs_is_refused_and_nothing_is_left(
    kept: Environments, tmp_path: Path
) -> None:
    whole, dice = squash(TAR), random.Random(2)
    broken = [b"gsqs" + whole[4:], whole[:200], b"hsqs" + bytes(4096)]
    for _ in range(12):
        changed = bytearray(whole)
        for _ in range(40):
            changed[dice.randrange(96)] = dice.randrange(256)
        broken.append(bytes(changed))
    for text in broken:
        assert refused(lambda: added(kept, tmp_path, sif(Object(text)))).code == "bad-environment"  # noqa: B023  # called at once
        assert os.listdir(kept.root) == []


@needs_squash
def test_what_unfolds_to_too_much_is_refused(
    kept: Environments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = squash(tar_of([member("zeros", bytes(8_000_000))]))
    assert len(bomb) < 100_000
    many = squash(tar_of([member(f"f{place}") for place in range(300)]))
    monkeypatch.setattr(oci_layers, "MAX_BYTES", 7_000_000)
    monkeypatch.setattr(oci_layers, "MAX_ENTRIES", 200)
    for text in (bomb, many):
        assert refused(lambda: added(kept, tmp_path, sif(Object(text)))).code == "bad-environment"  # noqa: B023  # called at once
        assert os.listdir(kept.root) == []


def in_its_place(source: str, image: Path, code: int) -> list[str]:
    """Return how somebody else is started in the tool's place: the house's interpreter."""
    made = environment()
    argv = COMMAND(made.folder, image, code)
    python = made.python.replace("/env/", "/tool/")
    return [*argv[: argv.index("/tool/sqfs2tar")], python, "-I", "-S", "-B", "-c", source]


FILES_FOR_EVER = """
import io, sys, tarfile
with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as tar:
    for place in range(10**9):
        info = tarfile.TarInfo(str(place))
        info.size = 100_000
        tar.addfile(info, io.BytesIO(bytes(info.size)))
"""


HALF = """
import sys, tarfile
with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as tar:
    tar.addfile(tarfile.TarInfo("one"))
sys.stdout.flush()
raise SystemExit(1)
"""


@needs_squash
@pytest.mark.parametrize("source", [
    "while True: print('x' * 1000)", FILES_FOR_EVER, "while True: pass",
    "import os; os.write(1, bytes(1024)); os.write(1, bytes(1 << 22))", "raise SystemExit(1)",
    HALF,
], ids=["babbles", "files", "nothing", "more than all", "fails", "half"])  # fmt: skip
def test_whoever_is_in_the_tools_place_is_heard_only_so_far(
    kept: Environments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """As if a stranger's squashfs had taken the tool over."""

    def command(_tool: Path, image: Path, code: int) -> list[str]:
        return in_its_place(source, image, code)

    monkeypatch.setattr(squashes, "command", command)
    monkeypatch.setattr(squashes, "_MAX_S", 2)
    monkeypatch.setattr(oci_layers, "MAX_BYTES", 7_000_000)
    assert refused(lambda: added(kept, tmp_path, HEAD)).code == "bad-environment"
    assert os.listdir(kept.root) == []


def test_without_the_tool_an_image_is_refused_and_what_brings_it_is_said(
    kept: Environments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = refused(lambda: added(kept, tmp_path, HEAD))
    assert found.code == "sandbox-missing"
    assert "squashfs-tools-ng" in found.next_step


PROBE = """
import ctypes, os, socket
def may(act):
    try:
        act()
    except BaseException:
        return False
    return True
libc = ctypes.CDLL(None, use_errno=True)
mount = lambda: libc.mount(b"/image", b"/image", b"squashfs", 1, None) == 0 or 1 / 0
found = {
    "writes": any(may(lambda p=p: open(p, "w")) for p in ("/x", "/tool/x", "/image", "/tmp/x")),
    "calls": may(socket.socket), "forks": may(os.fork), "mounts": may(mount),
    "sees": sorted(os.listdir("/")) != ["image", "tool"],
    "knows": not set(os.environ) <= {"LC_CTYPE", "PWD"},
    "is root": os.getuid() == 0, "has much": may(lambda: bytearray(3 << 30)),
    "kills": may(lambda: os.kill(1, 9)),
}
print("".join(sorted(name + ";" for name, is_so in found.items() if is_so)) + "looked")
"""


@needs_squash
def test_who_unfolds_can_write_call_start_and_see_nothing() -> None:
    """A stranger's code in the tool's place, the house's interpreter in the tool's folder."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        image = Path(folder, "image")
        image.write_bytes(b"x")
        with (
            squashes._filter() as code,
            squashes._begun(in_its_place(PROBE, image, code), code) as process,
        ):
            assert process.stdout is not None
            assert process.stdout.read() == b"looked\n"


RUNSCRIPT = '#!/bin/sh\nexec python3 -I /opt/run.py "$@" "$ADDED"\n'
PROGRAM = """
import json, os, sys
source, target, level, *more = sys.argv[1:]
lines = open(source + "/participants.tsv").read().splitlines()
said = more == ["40"] or os.environ["ADDED"] == "40"
with open(target + "/answer.json", "w") as file:
    json.dump({"m": len(lines) + 10 * (level == "group") + int(os.environ["ADDED"]) * said}, file)
"""


def system() -> bytes:
    """Return an image as Apptainer builds one: a shell, what it runs, and what it sets before."""
    shell = Path("/bin/dash").read_bytes()
    libc = Path("/lib/x86_64-linux-gnu/libc.so.6").read_bytes()
    paths = b'export LD_LIBRARY_PATH="/lib64"\nexport PATH="${PATH:-"/bin"}:/sbin"\n'
    beside = tar_of(
        [
            member("bin/dash", shell, mode=0o755),
            link("bin/sh", "dash"),
            member("lib/x86_64-linux-gnu/libc.so.6", libc, mode=0o755),
            member("opt/run.py", PROGRAM.encode()),
            member(".singularity.d/runscript", RUNSCRIPT.encode(), mode=0o755),
            member(".singularity.d/env/10-docker2singularity.sh", paths),
            member(".singularity.d/env/90-environment.sh", b"ADDED=40\nexport ADDED\n"),
        ]
    )
    return squash(joined(python_layer(), beside))


@pytest.mark.slow
@needs_squash
@needs_bubbles
def test_what_an_image_runs_is_run_as_apptainer_runs_it_with_what_it_sets(
    kept: Environments, tmp_path: Path
) -> None:
    made = added(kept, tmp_path, sif(Object(system())))
    assert made.entry == ("/.singularity.d/runscript",)
    outputs = read_outputs([{"name": "m", "lower": 0, "upper": 98, "step": 1,
                             "path": "answer.json", "at": ["m"]}])  # fmt: skip
    said: list[bytes] = []
    sandbox = SandboxPool(environment, SystemRandomSource(), own=kept)
    try:
        for source in ("", PROGRAM):
            told: dict[str, object] = {
                "kind": "program",
                "source": source,
                "paths": ["answer.json"],
            }
            rows = (b"participant_id\tage\nsub-1\t4\nsub-2\t5\n",)
            job = TrialJob(told, rows, SandboxLimits(cpu_s=4.0), made.name)
            said += [one.output for one in sandbox.try_out(job)]
    finally:
        sandbox.close()
    assert [read_output(one, outputs) for one in said] == [[53], [53]]
