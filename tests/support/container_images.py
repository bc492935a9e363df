"""Images for tests, written by hand: layouts of tars, and files as Apptainer writes them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import struct
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from sfumato.sandbox.base_environment import environment
from sfumato.sandbox.shared_libraries import copy_libraries

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
PYTHON = {"LD_LIBRARY_PATH": "/lib64"}


def member(name: str, text: bytes = b"", **said: object) -> tuple[tarfile.TarInfo, bytes]:
    """Return one member of a tar: a file unless something else is said."""
    made = tarfile.TarInfo(name)
    made.size, made.mode = len(text), 0o644
    for key, value in said.items():
        setattr(made, key, value)
    return made, text


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.SYMTYPE, linkname=target)


def tar_of(members: Sequence[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for info, text in members:
            tar.addfile(info, io.BytesIO(text) if info.isreg() else None)
    return file.getvalue()


def joined(*tars: bytes) -> bytes:
    """Return one tar of what all of them hold."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as made:
        for one in tars:
            with tarfile.open(fileobj=io.BytesIO(one)) as tar:
                for info in tar:
                    made.addfile(info, tar.extractfile(info) if info.isreg() else None)
    return file.getvalue()


def layout(
    place: Path,
    layers: Sequence[bytes],
    *,
    entry: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    packed: bool = True,
    folder: str = "",
    command: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    user: str = "",
) -> str:
    """Write an image of these tars to a layout in the folder; return its digest."""
    (place / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
    (place / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    kind = LAYER + "+gzip" if packed else LAYER
    blobs = [gzip.compress(tar, 1, mtime=0) if packed else tar for tar in layers]
    said = {
        "Entrypoint": list(entry), "Env": [f"{k}={v}" for k, v in (settings or {}).items()],
        "Cmd": list(command), "WorkingDir": folder, "Labels": labels or {}, "User": user,
    }  # fmt: skip
    whole = [f"sha256:{hashlib.sha256(tar).hexdigest()}" for tar in layers]
    config = {
        "architecture": "amd64", "os": "linux", "config": said,
        "rootfs": {"type": "layers", "diff_ids": whole},
    }  # fmt: skip
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _put(
            place, json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json"
        ),
        "layers": [_put(place, blob, kind) for blob in blobs],
    }
    named = _put(place, json.dumps(manifest).encode(), MANIFEST)
    (place / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [named]}))
    return str(named["digest"])


def blob(place: Path, digest: str) -> Path:
    return place / "blobs" / "sha256" / digest.removeprefix("sha256:")


def _put(place: Path, text: bytes, kind: str) -> dict[str, object]:
    digest = f"sha256:{hashlib.sha256(text).hexdigest()}"
    blob(place, digest).write_bytes(text)
    return {"mediaType": kind, "digest": digest, "size": len(text)}


def python_layer(*, slim: bool = True) -> bytes:
    """Return a layer with an interpreter, the one that sandboxes have, at another place."""
    made, file = environment(), io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        tar.add(made.folder / "python", "opt/python", filter=_slim if slim else None)
        tar.add(made.folder / "libs", "lib64")
        tar.addfile(link("sbin/python3", f"/opt/python/bin/{Path(made.python).name}")[0])
    return file.getvalue()


COMMANDS = (
    "awk", "bash", "cat", "chmod", "cp", "cut", "date", "dd", "df", "env", "expr",
    "find", "grep", "head",
    "id", "ln", "ls", "make", "mkdir", "mkfifo", "mv", "nice", "nohup", "nproc", "printf", "rm",
    "sed", "seq", "setsid", "sh", "sleep", "sort", "tail", "tee", "timeout", "touch", "tr", "uniq",
    "wc", "xargs", "yes",
)  # fmt: skip


def shell_layer() -> bytes:
    """Return a layer with a shell and the usual commands: this machine's own."""
    with tempfile.TemporaryDirectory() as folder:
        place, file = Path(folder), io.BytesIO()
        found = {name: Path(str(shutil.which(name))).resolve() for name in COMMANDS}
        copy_libraries(found.values(), place, place)
        with tarfile.open(fileobj=file, mode="w") as tar:
            for name, source in found.items():
                tar.add(source, f"bin/{name}")
            tar.add(place / "libs", "lib64")
        return file.getvalue()


def _slim(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    heavy = ("unittest", "asyncio", "distutils", "xml", "multiprocessing", "curses", "lib-tk")
    return None if info.name.split("/")[-1] in heavy else info


# --- Apptainer's own files ------------------------------------------------------------------------

needs_squash: Final = pytest.mark.skipif(
    not all(map(shutil.which, ("sqfs2tar", "tar2sqfs", "bwrap"))),
    reason="squashfs-tools-ng or bubblewrap is not installed: `make system` brings them",
)
PARTITION, DEFINITION, SIGNATURE = 0x4004, 0x4001, 0x4005
SQUASHFS, PRIMARY = 1, 2


def squash(tar: bytes, compressor: str = "gzip") -> bytes:
    """Return a squashfs of what the tar holds."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "squash")
        told = ["tar2sqfs", "--quiet", "--compressor", compressor, "--num-jobs", "1", str(made)]
        subprocess.run(told, input=tar, check=True, capture_output=True)
        return made.read_bytes()


@dataclass(frozen=True)
class Object:
    """What lies in a file of Apptainer's, as its table says it."""

    data: bytes
    kind: int = PARTITION
    extra: bytes = struct.pack("<ii3s", SQUASHFS, PRIMARY, b"02")
    used: int = 1


def sif(*objects: Object, arch: bytes = b"02", lines: int = 48) -> bytes:
    """Return a file of Apptainer's: a header, a table of so many lines, and these, one by one."""
    table, at, data = b"", 32_768, b""
    for number, one in enumerate(objects, 1):
        table += struct.pack(
            "<iBIII7q128s384s", one.kind, one.used, number, 0xF0000001, 0,
            at + len(data), len(one.data), len(one.data), 0, 0, 0, 0, b"", one.extra,
        )  # fmt: skip
        data += one.data + bytes(-len(one.data) % 4096)
    header = struct.pack(
        "<32s10s3s3s16s8q", b"#!/usr/bin/env run-singularity\n", b"SIF_MAGIC", b"01", arch,
        bytes(16), 0, 0, lines - len(objects), lines, 4096, lines * 585, at, len(data),
    )  # fmt: skip
    return (header.ljust(4096, b"\0") + table).ljust(at, b"\0") + data


def sif_at(place: Path, text: bytes) -> tuple[Path, str]:
    """Write it; return where, and its digest."""
    place.write_bytes(text)
    return place, f"sha256:{hashlib.sha256(text).hexdigest()}"
