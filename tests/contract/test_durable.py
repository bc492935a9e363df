"""A new file is on the disk, private, and never over another; a name is there once it is synced."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sfumato.features.airlock.store import FileAirlock
from sfumato.features.streams.store import FileStreams
from sfumato.features.surveys.ballot_key_store import FileBallotKeys
from sfumato.features.surveys.device_files import KeptDevice
from sfumato.storage.key_files import site_secret
from sfumato.system.durable_files import make_folder, sync, write_new
from sfumato.system.randomness import SystemRandomSource


def test_a_new_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_new(tmp_path / "a", b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "a").read_bytes() == b"x"


def test_no_file_is_written_over_another(tmp_path: Path) -> None:
    write_new(tmp_path / "a", b"first")
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for name in ("a", "link"):
        with pytest.raises(FileExistsError):
            write_new(tmp_path / name, b"second")
    assert (tmp_path / "a").read_bytes() == b"first"
    assert not (tmp_path / "gone").exists()


def test_content_is_on_the_disk_before_anybody_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, int]] = []

    def fsync(file: int) -> None:
        synced.append((Path(os.readlink(f"/proc/self/fd/{file}")).name, os.fstat(file).st_size))

    monkeypatch.setattr(os, "fsync", fsync)
    write_new(tmp_path / "a", b"abc")
    assert synced == [("a", 3)]
    sync(tmp_path)
    assert [name for name, _ in synced] == ["a", tmp_path.name]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is brought to the disk from now on, by its path."""
    paths: list[str] = []
    real = os.fsync

    def fsync(file: int) -> None:
        paths.append(os.readlink(f"/proc/self/fd/{file}"))
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    return paths


def test_a_folder_and_those_above_it_are_private_and_their_names_on_the_disk(
    tmp_path: Path, synced: list[str]
) -> None:
    make_folder(tmp_path / "a" / "b")
    assert synced == [str(tmp_path), str(tmp_path / "a")]
    for made in (tmp_path / "a", tmp_path / "a" / "b"):
        assert made.stat().st_mode & 0o777 == 0o700
    make_folder(tmp_path / "a" / "b")
    assert len(synced) == 2


def _ballot_key(folder: Path) -> None:
    FileBallotKeys(folder, SystemRandomSource()).make()


def _stream(folder: Path) -> None:
    with FileStreams(folder / "all").lock("one"):
        pass


def _request(folder: Path) -> None:
    with FileAirlock(folder, SystemRandomSource()).writing():
        pass


def _device(folder: Path) -> None:
    KeptDevice(folder / "device", SystemRandomSource().draw)._make()


@pytest.mark.parametrize("kept", [_ballot_key, _stream, _request, _device])
def test_the_name_of_a_folder_that_something_is_kept_in_is_on_the_disk(
    tmp_path: Path, synced: list[str], kept: Callable[[Path], None]
) -> None:
    """What was written into a folder whose name is gone after a power cut is gone with it."""
    kept(tmp_path / "folder")
    assert str(tmp_path) in synced


def test_the_name_of_a_sites_secret_is_on_the_disk_before_its_key_is_told(
    tmp_path: Path, synced: list[str]
) -> None:
    site_secret(tmp_path / "site", SystemRandomSource())
    assert synced[-1] == str(tmp_path)
