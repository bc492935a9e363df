"""Which files of the owner's folder are sent, and what is refused before a byte is sent."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.folder_client import (
    folder_files,
    folder_stream,
    proposed_patterns,
)
from sfumato.system.folder_stream import PART_BYTES, part_name
from support.bids_folders import IMAGE, bids_card, write_folder, write_zip

PATTERNS = (IMAGE,)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a BIDS folder of four people."""
    return write_folder(tmp_path / "study")


def sent(folder: Path, *patterns: str) -> list[str]:
    return [path for path, _ in folder_files(folder, patterns or PATTERNS)]


def test_only_what_the_card_lists_is_sent(folder: Path) -> None:
    (folder / "derivatives").mkdir()
    (folder / "derivatives" / "x.tsv").write_text("x")
    (folder / "phenotype").mkdir()
    (folder / "phenotype" / "moods.tsv").write_text("x")
    (folder / ".bidsignore").write_text("x")
    (folder / "sub-01" / "anat" / "sub-01_T2w.nii.gz").write_text("x")
    (folder / "sub-01" / "anat" / "sub-02_T1w.nii.gz").write_text("another's")
    people = [
        f"sub-0{n}/anat/sub-0{n}_T1w.{end}" for n in range(1, 5) for end in ("json", "nii.gz")
    ]
    top = ["dataset_description.json", "participants.tsv", "phenotype/moods.tsv"]
    assert sent(folder) == sorted(top + people)
    assert "sub-01/anat/sub-01_T2w.nii.gz" in sent(folder, IMAGE, "anat/{sub}_T2w.nii.gz")


def test_a_draft_proposes_what_half_of_the_people_have(folder: Path) -> None:
    for name in ("sub-01", "sub-02"):
        (folder / name / "anat" / f"{name}_T2w.nii.gz").write_text("x")
    (folder / "sub-01" / "anat" / "sub-01_rare.nii.gz").write_text("x")
    (folder / "sub-01" / "notes.txt").write_text("x")
    assert proposed_patterns(folder) == [IMAGE, "anat/{sub}_T2w.nii.gz"]


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "participants.tsv"])
def test_a_link_that_leads_elsewhere_is_refused(folder: Path, target: str) -> None:
    (folder.parent / "outside").write_text("x")
    image = folder / "sub-01" / "anat" / "sub-01_T1w.nii.gz"
    image.unlink()
    image.symlink_to(folder / target)
    with pytest.raises(Refused, match=r"1 file \(sub-01/anat/sub-01_T1w.nii.gz\) is no regular"):
        sent(folder)


def test_a_link_to_a_folder_is_refused(folder: Path) -> None:
    (folder / "phenotype").symlink_to("/etc")
    with pytest.raises(Refused, match=r"\(phenotype\) is no regular"):
        sent(folder)


def test_a_pipe_is_refused(folder: Path) -> None:
    os.mkfifo(folder / "README")
    with pytest.raises(Refused, match=r"\(README\) is no regular"):
        sent(folder)


def annexed(folder: Path, name: str, *, is_there: bool) -> None:
    """Replace a file by a link as git-annex makes it."""
    file = folder / name
    key = folder / ".git" / "annex" / "objects" / "aa" / "bb" / "KEY" / f"KEY-{file.name}"
    key.parent.mkdir(parents=True, exist_ok=True)
    file.rename(key)
    file.symlink_to(os.path.relpath(key, file.parent))
    if not is_there:
        key.unlink()


def test_links_into_the_annex_are_followed(folder: Path) -> None:
    before = folder_stream(folder, bids_card())
    annexed(folder, "sub-01/anat/sub-01_T1w.nii.gz", is_there=True)
    annexed(folder, "participants.tsv", is_there=True)
    assert list(folder_stream(folder, bids_card()).part_names()) == list(before.part_names())


def test_missing_annex_content_is_counted_and_named(folder: Path) -> None:
    for n in range(1, 5):
        annexed(folder, f"sub-0{n}/anat/sub-0{n}_T1w.nii.gz", is_there=False)
    pointer = "/annex/objects/MD5E-s9--0123.json\n"  # an unlocked file
    (folder / "sub-01" / "anat" / "sub-01_T1w.json").write_text(pointer)
    with pytest.raises(Refused) as refused:
        sent(folder)
    assert refused.value.cause.startswith("5 files (sub-01/anat/sub-01_T1w.json, sub-01/anat/sub-")
    assert ", …) are not on this machine" in refused.value.cause
    assert "datalad get" in refused.value.next_step


@pytest.mark.skipif(shutil.which("git-annex") is None, reason="git-annex is not installed")
@pytest.mark.parametrize("is_locked", [True, False])
def test_a_real_annex_is_read_and_its_missing_content_is_named(
    folder: Path, is_locked: bool
) -> None:
    before = list(folder_stream(folder, bids_card()).part_names())

    def git(*words: str) -> None:
        own = {"GIT_CONFIG_GLOBAL": "/dev/null", "HOME": str(folder.parent)}
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(
            ["git", *who, "-C", str(folder), *words],
            env={**os.environ, **own},
            check=True,
            capture_output=True,
        )

    git("init")
    git("annex", "init")
    git("annex", "add", ".")
    if not is_locked:
        git("annex", "unlock", ".")
    git("commit", "-m", "x")
    assert list(folder_stream(folder, bids_card()).part_names()) == before
    git("annex", "drop", "--force", "sub-02")
    with pytest.raises(Refused, match=r"^source-unreadable: 2 files \(sub-02/anat/sub-02_T1w.json"):
        folder_stream(folder, bids_card())


def test_a_folder_without_participants_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"has no participants\.tsv"):
        sent(tmp_path)


def test_the_parts_of_a_stream_are_its_bytes(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "large", 3, PART_BYTES // 2)
    stream = folder_stream(folder, bids_card())
    parts = [stream.part(number) for number in range(stream.parts)]
    assert [len(part) for part in parts[:-1]] == [PART_BYTES]
    assert sum(map(len, parts)) == stream.size
    assert list(stream.part_names()) == [part_name(part) for part in parts]
    archive = write_zip(folder, tmp_path / "large.zip")
    zipped = folder_stream(archive, {})
    assert b"".join(zipped.part(n) for n in range(zipped.parts)) == archive.read_bytes()


def test_a_file_that_shrinks_while_it_is_sent_is_noticed(folder: Path) -> None:
    stream = folder_stream(folder, bids_card())
    (folder / "sub-04" / "anat" / "sub-04_T1w.nii.gz").write_bytes(b"x")
    with pytest.raises(Refused, match="changed while it was sent"):
        stream.part(0)
