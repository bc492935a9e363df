"""The escape kit: whatever gets out of a bare process does not get out of the sandbox."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import sfumato
from sfumato.sandbox.sandbox_process import SandboxProcess
from support.sandbox_blocks import bubble, needs_bubbles, ran_in
from support.sandbox_escapes import BODIES, MAY_BE_OFF, SECRET, source

AS_ROOT_ONLY = frozenset({
    "write-usr", "write-root", "user-namespace", "mount-namespace", "pid-namespace",
    "net-namespace", "mount", "unmount", "change-root", "set-groups", "set-uid-file",
    "change-owner", "device", "clone-user", "bpf", "proc-core-pattern", "perf",
})  # fmt: skip
pytestmark = needs_bubbles


@pytest.fixture(scope="module")
def place() -> Iterator[dict[str, object]]:
    """What the probes look for: a listener, a file, a folder."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    with listener, tempfile.TemporaryDirectory(prefix="canary-") as folder:
        Path(folder, "canary").write_text(SECRET)
        yield {
            "port": listener.getsockname()[1],
            "canary": str(Path(folder, "canary")),
            "code": str(Path(sfumato.__file__)),
            "folder": folder,
            "mark": os.urandom(6).hex(),
        }


@pytest.fixture(scope="module")
def warm(runtime: str) -> Iterator[SandboxProcess]:
    os.environ["PLANTED"] = SECRET
    made = bubble(runtime)
    yield made
    made.kill()
    del os.environ["PLANTED"]


@functools.cache
def is_way_out(name: str, filled: tuple[tuple[str, object], ...]) -> bool:
    """Say whether the probe gets out of a bare process; tried once, whatever the runtimes."""
    with tempfile.TemporaryDirectory(dir=str(dict(filled)["folder"])) as folder:
        return got_out_bare(source(name, **{**dict(filled), "folder": folder}))


def got_out_bare(program: str) -> bool:
    say = "import sys, os\nsys.stdout.write(str(probe(None)))\nsys.stdout.flush()\nos._exit(0)"
    run = f"{program}\n{say}"
    done = subprocess.run(
        [sys.executable, "-I", "-c", run],
        env={"PLANTED": SECRET, "PATH": "/usr/bin"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.stdout == b"1.0"


@pytest.mark.parametrize("name", sorted(BODIES))
def test_what_gets_out_of_a_bare_process_stays_in_the_bubble(
    name: str, place: dict[str, object], warm: SandboxProcess
) -> None:
    if not is_way_out(name, tuple(place.items())):
        if name in MAY_BE_OFF or (name in AS_ROOT_ONLY and os.geteuid() != 0):
            pytest.skip("this host lets nobody do it")
        pytest.fail("the probe itself does not work")
    said = ran_in(warm, source(name, **{**place, "folder": "/work/tmp"}), "probe").output
    assert said in (b"", answer(0.0))
    assert SECRET.encode() not in said


def answer(value: float) -> bytes:
    return json.dumps({"answer.json": json.dumps({"m": value}).encode().hex()}).encode()


def test_the_kit_is_as_large_as_was_asked() -> None:
    assert len(BODIES) >= 60


def test_a_program_in_the_bubble_does_answer(warm: SandboxProcess) -> None:
    assert ran_in(warm, "def probe(rows): return 1.0", "probe").output == answer(1.0)


JOINS = """
import threading, fcntl, os
def probe(rows):
    said = []
    made = [threading.Thread(target=said.append, args=(1,)) for _ in range(8)]
    for one in made: one.start()
    for one in made: one.join()
    print("nobody hears this")
    return float(len(said) == 8 and len(os.urandom(4)) == 4 and os.dup(0) >= 0)
"""


def test_threads_descriptors_and_printing_still_work(warm: SandboxProcess) -> None:
    assert ran_in(warm, JOINS, "probe").output == answer(1.0)


DRAWS = """
import numpy as np
def probe(rows): return np.random.random()
"""


def test_two_blocks_of_one_bubble_draw_other_numbers(warm: SandboxProcess) -> None:
    assert ran_in(warm, DRAWS, "probe").output != ran_in(warm, DRAWS, "probe").output


def test_two_bubbles_hash_alike(warm: SandboxProcess) -> None:
    hashes = "def probe(rows): return float(hash('ann') % 1000)"
    other = bubble()
    assert ran_in(warm, hashes, "probe").output == ran_in(other, hashes, "probe").output
    other.kill()
