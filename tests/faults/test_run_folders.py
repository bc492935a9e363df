"""Rows of a run that could not be removed at once are removed by a later sweep."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sfumato.storage.run_folders import FileDrafts


def test_a_folder_that_stays_keeps_its_lock_and_is_swept_later(tmp_path: Path) -> None:
    drafts = FileDrafts(tmp_path / "runs")
    with pytest.MonkeyPatch.context() as broken:
        with drafts.draft() as folder:
            Path(folder, "rows").write_text("ann")
            broken.setattr(shutil, "rmtree", lambda *_, **__: None)  # a disk that errs
        assert Path(folder, "rows").exists()
        assert Path(f"{folder}.lock").exists()
    drafts.sweep()
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_folder_without_a_lock_is_swept_and_one_in_use_is_not(tmp_path: Path) -> None:
    drafts = FileDrafts(tmp_path / "runs")
    drafts.sweep()  # where no run ever was
    with drafts.draft() as used:
        (tmp_path / "runs" / "orphan").mkdir()
        (tmp_path / "runs" / "orphan" / "rows").write_text("ann")
        drafts.sweep()
        assert Path(used).is_dir()
        assert not (tmp_path / "runs" / "orphan").exists()
