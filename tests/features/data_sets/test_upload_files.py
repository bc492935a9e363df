"""How long uploaded files are kept, and whose they are while they come in."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from sfumato import Refused
from sfumato.features.data_sets.upload_service import Uploads
from sfumato.system.randomness import SystemRandomSource
from sfumato.vault.users import Caller

ADA, BOB = (Caller(name, frozenset({"own"})) for name in ("ada", "bob"))


@dataclass
class At:
    """A clock that stands."""

    time: str = "2026-11-21T10:00:00.000+00:00"

    def now(self) -> str:
        """Return the time at which it stands."""
        return self.time


@pytest.fixture
def uploads(tmp_path: Path) -> Uploads:
    """Return a place for files of a thousand bytes."""
    return Uploads(tmp_path / "incoming", SystemRandomSource(), At(), 1000)


def sent(uploads: Uploads, caller: Caller = ADA, size: int = 10) -> str:
    incoming = uploads.begin(caller, "rows.csv", size)
    incoming.take(b"x" * size)
    kept = incoming.kept()
    incoming.end(is_kept=True)
    return kept.id


def test_a_file_is_kept_for_a_day(uploads: Uploads) -> None:
    upload = sent(uploads)
    assert isinstance(uploads.clock, At)
    uploads.clock.time = "2026-11-22T09:59:59.000+00:00"
    uploads.sweep()
    assert uploads.one(ADA, upload).size == 10
    uploads.clock.time = "2026-11-22T10:00:00.001+00:00"
    with pytest.raises(Refused):
        uploads.one(ADA, upload)
    uploads.sweep()
    assert list(uploads.folder.iterdir()) == []


def test_what_still_comes_in_is_not_swept(uploads: Uploads) -> None:
    incoming = uploads.begin(ADA, "rows.csv", None)
    incoming.take(b"a")
    uploads.sweep()
    with pytest.raises(Refused):
        uploads.one(ADA, incoming.stem)
    incoming.take(b"b")
    upload = incoming.kept()
    incoming.end(is_kept=True)
    assert upload.path.read_bytes() == b"ab"


def test_what_a_dead_process_has_left_is_swept(uploads: Uploads) -> None:
    incoming = uploads.begin(ADA, "rows.csv", None)
    incoming.take(b"a")
    incoming.uploads.leave("ada")
    os.close(incoming.descriptor)  # as a kill does
    uploads.sweep()
    assert list(uploads.folder.iterdir()) == []


def test_nothing_is_written_after_the_end(uploads: Uploads, tmp_path: Path) -> None:
    incoming = uploads.begin(ADA, "rows.csv", None)
    incoming.end(is_kept=False)
    with (tmp_path / "another").open("wb") as another, pytest.raises(Refused):
        incoming.take(b"rows")
    assert another.closed
    assert (tmp_path / "another").read_bytes() == b""


def test_an_owners_files_share_a_room_of_their_own(uploads: Uploads) -> None:
    for _ in range(4):
        sent(uploads, size=1000)
    with pytest.raises(Refused) as refused:
        uploads.begin(ADA, "rows.csv", 1)
    assert refused.value.code == "too-large"
    sent(uploads, BOB, 1000)


def test_few_files_come_in_at_once(uploads: Uploads) -> None:
    coming = [uploads.begin(ADA, "rows.csv", None) for _ in range(2)]
    with pytest.raises(Refused) as refused:
        uploads.begin(ADA, "rows.csv", None)
    assert refused.value.code == "too-many"
    coming += [uploads.begin(BOB, "rows.csv", None) for _ in range(2)]
    for incoming in coming:
        incoming.end(is_kept=False)
    sent(uploads)


@pytest.mark.parametrize("size", [1000, None])
def test_what_comes_in_at_one_time_has_no_more_room_than_one_after_another(
    uploads: Uploads, size: int | None
) -> None:
    """An owner's files are four of the largest together; this would have been the fifth."""
    for _ in range(3):
        sent(uploads, size=1000)
    fourth = uploads.begin(ADA, "rows.csv", size)
    with pytest.raises(Refused) as refused:
        uploads.begin(ADA, "rows.csv", size).take(b"x")
    assert refused.value.code == "too-large"
    fourth.take(b"x" * 1000)
    fourth.kept()
    fourth.end(is_kept=True)
