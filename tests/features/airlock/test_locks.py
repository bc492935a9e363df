"""Whoever is at a request of the airlock is alone, whatever a sweep does at the same moment."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from sfumato.features.airlock import store as airlock_store
from sfumato.features.airlock.store import FileAirlock
from sfumato.system.randomness import SystemRandomSource


def test_a_sweep_takes_no_lock_that_was_made_while_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first leaves, and a second comes, between the sweep's opening of the lock and its look.

    What the sweep holds then is the first one's file, which lies nowhere any more.
    """
    files, is_free = FileAirlock(tmp_path, SystemRandomSource()), airlock_store._is_free
    first, second = ExitStack(), ExitStack()
    first.enter_context(files.holding("request"))

    def look(held: int, how: int) -> bool:
        first.close()
        monkeypatch.undo()
        second.enter_context(files.holding("request"))
        return is_free(held, how)

    monkeypatch.setattr(airlock_store, "_is_free", look)
    files.sweep(set)
    with second:
        assert files.is_held("request")
    assert not files.is_held("request")


def test_a_sweep_removes_what_the_killed_have_left(tmp_path: Path) -> None:
    files = FileAirlock(tmp_path, SystemRandomSource())
    (tmp_path / "request.lock").touch()
    (tmp_path / "place").mkdir()
    files.sweep(set)
    assert [left.name for left in tmp_path.iterdir()] == ["writes.lock"]
