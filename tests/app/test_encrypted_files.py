"""What a sealed vault keeps besides its tables: uploads, the airlock's files, keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfumato import Refused
from sfumato.features.airlock.model import DraftFiles
from sfumato.features.airlock.store import FileAirlock
from sfumato.features.data_sets.upload_service import Uploads
from sfumato.features.surveys.ballot_key_store import FileBallotKeys
from sfumato.storage.key_files import site_secret
from sfumato.storage.run_folders import FileDrafts
from sfumato.system.clock import SystemClock
from sfumato.system.randomness import SystemRandomSource
from sfumato.vault.encryption_at_rest import MAGIC, PIECE, AtRest
from sfumato.vault.users import Caller

ADA = Caller("ada", frozenset({"own"}))
REST = AtRest(bytes(range(32)), SystemRandomSource().draw)
ROWS = b"who,what\nkanarienvogel,1\n" * (PIECE // 12)


def uploads(folder: Path, most: int = 10**8) -> Uploads:
    drafts = FileDrafts(folder / "memory")
    place = folder / "incoming"
    return Uploads(place, SystemRandomSource(), SystemClock(), most, rest=REST, drafts=drafts)


def test_what_another_process_fetches_is_sealed_and_what_it_wrote_is_gone(tmp_path: Path) -> None:
    kept = uploads(tmp_path)
    incoming = kept.begin(ADA, "rows.tsv", None)
    with incoming.filling() as place:
        assert place.is_relative_to(tmp_path / "memory")
        assert place.stat().st_mode & 0o077 == 0
        place.write_bytes(ROWS)
    upload = incoming.kept()
    incoming.end(is_kept=True)
    assert upload.size == len(ROWS)
    sealed = upload.path.read_bytes()
    assert b"kanarienvogel" not in sealed
    assert REST.decrypt(upload.path.name, sealed) == ROWS
    left = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert left == set((tmp_path / "incoming").iterdir())
    assert kept.one(ADA, upload.id) == upload
    kept.remove([upload.id])
    assert list(kept.folder.iterdir()) == []


def test_a_sealed_upload_has_no_more_room_than_another(tmp_path: Path) -> None:
    incoming = uploads(tmp_path, 1000).begin(ADA, "rows.csv", None)
    incoming.take(b"x" * 1000)
    with pytest.raises(Refused) as refused:
        incoming.take(b"x")
    incoming.end(is_kept=False)
    assert refused.value.code == "too-large"


def test_files_of_the_airlock_are_sealed_and_one_that_was_changed_is_missing(
    tmp_path: Path,
) -> None:
    store = FileAirlock(tmp_path / "airlock", SystemRandomSource(), REST)
    held = DraftFiles("ab" * 32, {"table.csv": b"kanarienvogel", "more.csv": b"1"}, "{}")
    place = store.put(held)
    assert store.read(place) == held
    files = sorted((tmp_path / "airlock" / place).iterdir())
    assert [path.read_bytes().startswith(MAGIC) for path in files] == [True] * 3
    for path in files:
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        found = store.read(place)
        assert found is None or len(found.files) == 1
        path.write_bytes(whole)
    (files[0]).rename(tmp_path / "one")
    files[1].rename(files[0])
    (tmp_path / "one").rename(files[1])  # each under the other's name
    swapped = store.read(place)
    assert swapped is not None
    assert swapped.files == {}


def test_keys_of_ballots_and_of_a_site_are_sealed_and_serve(tmp_path: Path) -> None:
    keys = FileBallotKeys(tmp_path / "ballots", SystemRandomSource(), REST)
    _, waiting = keys.make()
    keys.keep(waiting, "survey")
    (file,) = (tmp_path / "ballots").iterdir()
    assert file.read_bytes().startswith(MAGIC)
    again = FileBallotKeys(tmp_path / "ballots", SystemRandomSource(), REST)
    assert again.proof("survey")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(Refused) as refused:
        FileBallotKeys(tmp_path / "ballots", SystemRandomSource(), REST).proof("survey")
    assert refused.value.code == "vault-missing"
    secret = site_secret(tmp_path / "site", SystemRandomSource(), REST)
    assert site_secret(tmp_path / "site", SystemRandomSource(), REST) == secret
    assert secret not in (tmp_path / "site").read_bytes()
