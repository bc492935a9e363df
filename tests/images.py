"""Image layouts for tests, written by hand: tars, digests, and an index."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from sfumato.sandbox.environment import environment

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


def layout(
    place: Path,
    layers: Sequence[bytes],
    *,
    entry: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    packed: bool = True,
) -> str:
    """Write an image of these tars to a layout in the folder; return its digest."""
    (place / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
    (place / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    kind = LAYER + "+gzip" if packed else LAYER
    blobs = [gzip.compress(tar, 1) if packed else tar for tar in layers]
    said = {"Entrypoint": list(entry), "Env": [f"{k}={v}" for k, v in (settings or {}).items()]}
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


def python_layer() -> bytes:
    """Return a layer with an interpreter, the one that bubbles have, at another place."""
    made, file = environment(), io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        tar.add(made.folder / "python", "opt/python", filter=_slim)
        tar.add(made.folder / "libs", "lib64")
        tar.addfile(link("sbin/python3", f"/opt/python/bin/{Path(made.python).name}")[0])
    return file.getvalue()


def _slim(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    heavy = ("unittest", "asyncio", "distutils", "xml", "multiprocessing", "curses", "lib-tk")
    return None if info.name.split("/")[-1] in heavy else info
