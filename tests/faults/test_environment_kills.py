"""kill -9 while an environment is made or let go of: nothing of it is left, and nobody is robbed.

Whoever adds a lock is held up for good by an index that hears and never answers.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import sfumato
from sfumato.dp.refusal import Refused
from sfumato.sandbox.base_environment import default_folder, own_folder
from sfumato.sandbox.environment_store import Environments
from sfumato.sandbox.locked_folders import DRAFT, GONE, held_folder, sweep
from support.process_tree import children, is_there, waited
from support.small_vaults import make_vault

ADDING = """
import sys
from pathlib import Path
from sfumato.sandbox.environment_store import Environments
Environments(Path(sys.argv[1])).add_lock(Path(sys.argv[2]))
"""
HOLDING = """
import sys
from pathlib import Path
from sfumato.sandbox.locked_folders import held_folder
with held_folder(Path(sys.argv[1]), sys.argv[2]) as held:
    inside = held.place / "files"
    inside.mkdir()
    (inside / "one").write_text("1")
    inside.chmod(0o555)
    print(flush=True)
    sys.stdin.read()
"""
FULL = """
import os, resource, sys
from pathlib import Path
from sfumato.sandbox import locked_folders as drafts
free = os.open(os.devnull, os.O_RDONLY)
os.close(free)
resource.setrlimit(resource.RLIMIT_NOFILE, (free, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
try:
    # newer Pythons' glob, before, says nothing of it
    drafts.new_locked(Path(sys.argv[1]), drafts.DRAFT)
except OSError as error:
    print(os.strerror(error.errno))
"""


@pytest.fixture
def mute_index() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        yield listener


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_what_pip_writes_into_stays_until_pip_is_gone_and_is_swept_then(
    tmp_path: Path, mute_index: socket.socket
) -> None:
    root, lock = tmp_path / "own", tmp_path / "lock"
    lock.write_text(f"mine==1.0 --hash=sha256:{64 * '0'}\n")
    index = f"http://127.0.0.1:{mute_index.getsockname()[1]}/simple"
    own = {"PIP_INDEX_URL": index, "PIP_RETRIES": "0", "PIP_NO_INDEX": "0", "TMPDIR": "/nowhere"}
    adding = subprocess.Popen(
        [sys.executable, "-c", ADDING, str(root), str(lock)],
        env={**os.environ, **own}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    asked, _ = mute_index.accept()
    with asked:
        (pip,) = children(adding.pid)
        adding.send_signal(signal.SIGKILL)
        adding.wait()
        assert is_there(pip)
        (draft,) = names(root)
        Environments(root).sweep()
        assert names(root) == [draft]
        assert (root / draft / "files" / "lock.txt").exists()
    assert waited(lambda: not is_there(pip))
    Environments(root).sweep()
    assert names(root) == []


@pytest.mark.parametrize("kind", [".draft-", ".gone-", ".control-"])
def test_what_a_killed_one_held_goes_when_the_next_is_made_and_no_sooner(
    tmp_path: Path, kind: str
) -> None:
    holding = subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(tmp_path), kind],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holding.stdout is not None
    assert holding.stdout.readline() == b"\n"
    (theirs,) = names(tmp_path)
    with held_folder(tmp_path) as mine:
        assert names(tmp_path) == sorted([theirs, mine.place.name])
    holding.send_signal(signal.SIGKILL)
    holding.communicate()
    assert names(tmp_path) == [theirs]
    with held_folder(tmp_path) as mine:
        assert names(tmp_path) == [mine.place.name]
    assert names(tmp_path) == []


def test_one_that_was_removed_by_half_is_swept_when_a_vault_is_opened(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    above = own_folder(default_folder())
    left = [
        Path(tempfile.mkdtemp(prefix=kind, dir=place))
        for place in (above, own_folder(above / "own"))
        for kind in (DRAFT, GONE)
    ]
    for place in left:
        (place / "files").mkdir()
        (place / "files").chmod(0o555)
    sfumato.open(vault).close()
    assert not [place for place in left if place.exists()]


def test_a_link_is_not_followed_and_what_is_used_is_not_swept(tmp_path: Path) -> None:
    kept = tmp_path / "lock-1"
    kept.mkdir()
    (tmp_path / ".draft-link").symlink_to(kept)
    sweep(tmp_path)
    assert names(tmp_path) == [".draft-link", "lock-1"]


def test_a_lock_that_fails_leaves_nothing(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text("mine\n")
    with pytest.raises(Refused):
        Environments(tmp_path / "own").add_lock(lock)
    assert not (tmp_path / "own").exists() or names(tmp_path / "own") == []


def test_a_process_that_may_open_no_more_gives_up_and_fills_no_disk(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert said.stdout.strip() == os.strerror(errno.EMFILE)
    assert len(names(tmp_path)) <= 1  # nothing can be removed then either; the next sweep does
