"""Small BIDS folders, their archives, and what a vault has kept of them."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Any

IMAGE = "anat/{sub}_T1w.nii.gz"


def write_folder(root: Path, people: int = 4, image_bytes: int = 1000, seed: int = 1) -> Path:
    """Write a BIDS folder of so many people, each with an image of random bytes."""
    random = Random(seed)
    root.mkdir(parents=True)
    names = [f"sub-{n:02d}" for n in range(1, people + 1)]
    rows = "".join(f"{name}\t{20 + n}\n" for n, name in enumerate(names))
    (root / "participants.tsv").write_text("participant_id\tage\n" + rows)
    (root / "dataset_description.json").write_text('{"Name": "small", "BIDSVersion": "1.8.0"}')
    for number, name in enumerate(names):
        place = root / name / "anat"
        place.mkdir(parents=True)
        (place / f"{name}_T1w.nii.gz").write_bytes(random.randbytes(image_bytes))
        (place / f"{name}_T1w.json").write_text(f'{{"RepetitionTime": {number}}}')
    return root


def bids_card(
    files: Iterable[str] = (IMAGE,), people: int = 10, person_mb: int = 64, **more: Any
) -> dict[str, Any]:
    """Return a card for such a folder."""
    return {
        "unit": "participant_id",
        "people": "scanned",
        "version": "1",
        "budget": {"epsilon": 3},
        "bids": {"people": people, "files": list(files), "person_mb": person_mb},
        "columns": {"age": {"type": "integer", "lower": 0, "upper": 120}},
        "ask": {"who": ["researchers"]},
        **more,
    }


def write_zip(root: Path, target: Path, above: str = "") -> Path:
    """Pack a folder, below the folder `above` if it is named."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(root.rglob("*")):
            archive.write(path, above + path.relative_to(root).as_posix())
    return target


def write_tar(root: Path, target: Path, above: str = ".") -> Path:
    """Pack a folder; the suffix of the target says whether it is compressed."""
    mode: Any = "w:gz" if target.name.endswith("gz") else "w"
    with tarfile.open(target, mode, format=tarfile.PAX_FORMAT) as archive:
        archive.add(root, above)
    return target


def tar_of(members: Iterable[tuple[tarfile.TarInfo, bytes]], **options: Any) -> bytes:
    """Return a tar file with exactly these members."""
    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode="w", **options) as archive:
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return text.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    """Return the header of a tar member."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def content_of(root: Path) -> dict[str, bytes]:
    """Return each file below a folder, with its content."""
    paths = (Path(folder, name) for folder, _, names in os.walk(root) for name in names)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def kept_people(vault: Path) -> list[Mapping[str, bytes]]:
    """Return what each version keeps of people's files, by their keyed hashes, oldest first."""
    folders = sorted(vault.glob("tables/*.folders"), key=lambda one: one.stat().st_mtime_ns)
    return [content_of(folder) for folder in folders]
