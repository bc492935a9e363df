"""A new file is on the disk, private, and never over another; a name is there once it is synced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sfumato.durable import sync, write_new


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
