"""The escape kit: whatever gets out of a bare process does not get out of the sandbox."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

from sfumato.sandbox.sandbox_process import SandboxProcess
from support.sandbox_blocks import bubble, needs_bubbles, ran_in
from support.sandbox_escapes import (
    AS_ROOT_ONLY,
    BODIES,
    MAY_BE_OFF,
    SECRET,
    planted_server,
    source,
)  # fmt: skip

pytestmark = needs_bubbles


@pytest.fixture(scope="module")
def place() -> Iterator[dict[str, object]]:
    with planted_server() as made:
        yield made


@pytest.fixture(scope="module")
def warm(runtime: str, place: dict[str, object]) -> Iterator[SandboxProcess]:
    made = bubble(runtime)
    yield made
    made.kill()


@functools.cache
def is_way_out(name: str, filled: tuple[tuple[str, object], ...]) -> bool:
    """Say whether the probe gets out of a bare process; tried once, whatever the runtimes."""
    told = dict(filled)
    with tempfile.TemporaryDirectory(dir=str(told["folder"])) as folder:
        program = source(name, **{**told, "folder": folder})
        say = "import sys, os\nsys.stdout.write(str(probe(None)))\nsys.stdout.flush()\nos._exit(0)"
        done = subprocess.run(
            [sys.executable, "-I", "-c", f"{program}\n{say}"],
            env={"PLANTED": SECRET, "PATH": "/usr/bin"},
            pass_fds=(int(str(told["descriptor"])),),
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
        is_off = name in MAY_BE_OFF or (name in AS_ROOT_ONLY and os.geteuid() != 0)
        assert is_off, "the probe itself does not work"  # else this host lets nobody do it
    said = ran_in(warm, source(name, **{**place, "folder": "/work/tmp"}), "probe").output
    assert said in (b"", answer(0.0))
    assert SECRET.encode() not in said


def answer(value: float) -> bytes:
    return json.dumps({"answer.json": json.dumps({"m": value}).encode().hex()}).encode()


@pytest.mark.skipif(os.geteuid() != 0, reason="a third of the ways out need an administrator")
def test_as_many_ways_out_as_were_asked_do_get_out(place: dict[str, object]) -> None:
    assert sum(is_way_out(name, tuple(place.items())) for name in BODIES) >= 161


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
