"""BIDS folders as owners have them: odd encodings, links into git-annex, derivatives."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

IMAGE: Final = "anat/{sub}_T1w.nii.gz"
DERIVED: Final = "derivatives/fmriprep/{sub}/anat/{sub}_desc-preproc_T1w.nii.gz"
REPORT: Final = "derivatives/fmriprep/{sub}.html"
LEVELS: Final = {
    "m": {"Description": "male", "TermURL": "https://example.org/m"},
    "f": {"Description": "female", "TermURL": "https://example.org/f"},
    "o": {"Description": "other"},
}


def people(count: int) -> list[str]:
    """Return the ids of so many participants."""
    return [f"sub-pix{place:03d}" for place in range(count)]


def write_json(path: Path, fields: Mapping[str, Any], encoding: str = "utf-8") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(fields, ensure_ascii=False, indent=1), encoding)


def write_people(folder: Path, ids: Sequence[str], *, derivatives: bool = True) -> None:
    """Write participants.tsv and the files of each participant, which say whose they are."""
    folder.mkdir(exist_ok=True)
    lines = ["participant_id\tage\tsex\tcomment"]
    lines += [
        f"{one}\t{20 + at}\t{'mf'[at % 2] if at else 'o'}\t{'tall ship' if at == 1 else 'n/a'}"
        for at, one in enumerate(ids)
    ]
    (folder / "participants.tsv").write_text("\n".join(lines) + "\n")
    for one in ids:
        for pattern in (IMAGE, *((DERIVED, REPORT) if derivatives else ())):
            place = pattern.replace("{sub}", one)
            path = folder / (place if place.startswith("derivatives") else f"{one}/{place}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"of {one}")


def annexed(folder: Path, name: str, content: bytes | None) -> None:
    """Write a file as git-annex does: a link to its content, which may not be there."""
    store = folder / ".git" / "annex" / "objects"
    store.mkdir(parents=True, exist_ok=True)
    if content is not None:
        (store / name).write_bytes(content)
    os.symlink(f".git/annex/objects/{name}", folder / name)


def awkward(folder: Path, ids: Sequence[str]) -> Path:
    """Write a folder with everything that owners' folders have been seen to have."""
    write_people(folder, ids)
    write_json(
        folder / "dataset_description.json",
        {
            "Name": "Ångström's town",
            "BIDSVersion": "1.10.0",
            "Authors": ["Anna Å.", "Bo"],
            "Keywords": ["rest", "T1w"],
            "GeneratedBy": [{"Name": "dcm2bids", "Version": None}],
            "Acknowledgements": f"Thanks to {ids[3]}.",
            "Ours": {"deep": [1, 2.5, True, None], "said": "a tall ship came"},
        },
        "utf-8-sig",
    )
    readme = f'Größe "in" \\ """Metern"""\r\n{ids[2]} was excluded.\r\nPart 4 of 9\x07\r\n'
    annexed(folder, "README", readme.encode("latin-1"))
    annexed(folder, "LICENSE", None)
    (folder / "CHANGES").write_text("1.0.0 first\n" * 200_000)
    write_json(
        folder / "participants.json",
        {
            "participant_id": {"Description": "the participant"},
            "age": {"LongName": "Age", "Units": "years", "Minimum": 20, "Maximum": 20.5},
            "sex": {"Description": "sex", "Levels": LEVELS, "Derivative": False},
            "nowhere": {"Description": "no column"},
        },
    )
    write_json(
        folder / "task-rest_bold.json",
        {"RepetitionTime": 2.0, "EchoTime": 1e-05, "Scanner": {"Coil": {"Elements": [1, "two"]}}},
    )
    write_json(folder / "T1w.json", {"MagneticFieldStrength": 3, "PatientID": "PIX004"})
    write_json(folder / "derivatives" / "fmriprep" / "dataset_description.json", {"Name": "fMRI"})
    os.symlink("/etc/hostname", folder / "README.md")
    return folder
