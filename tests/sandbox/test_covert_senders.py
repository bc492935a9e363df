"""Covert senders: what a program does besides its number is heard outside, and not by the door."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sfumato.release.unseal import unseal
from sfumato.sandbox import inside, sandbox_process
from sfumato.sandbox.base_environment import environment
from sfumato.sandbox.block_timing import drop_s, slot_s, turn_s, write_s
from sfumato.sandbox.container_runtimes import read_runtime
from sfumato.sandbox.ports import (
    MOST_THREADS,
    BlockJob,
    InputTiming,
    SandboxLimits,
    SandboxStopped,
)
from sfumato.sandbox.program_outputs import read_outputs
from sfumato.sandbox.sandbox_pool import SandboxPool
from sfumato.sandbox.sandbox_process import DONE, LATE, Ran
from sfumato.system.randomness import SystemRandomSource
from sfumato.vault.sealed import Sealed
from support.covert_senders import BY_USE, SENDERS, source
from support.sandbox_blocks import ROWS, bubble, needs_bubbles, ran_in

pytestmark = needs_bubbles
ONE_MORE = ROWS + "cyd\t175\n"
OUTPUTS = read_outputs([{"name": "m", "lower": 100, "upper": 200, "step": "0.01"}])
BARE = """
import os, resource, sys
os.makedirs('out', exist_ok=True)
os.dup2(os.open('said', os.O_RDWR | os.O_CREAT), 3)
said = sent({'id': list(range(int(sys.argv[1])))})
os.write(3, repr(said).encode())
sys.stdout.flush()
used = resource.getrusage(resource.RUSAGE_SELF)
peak = open('/proc/self/status').read().split('VmHWM:')[1].split()[0]  # its own, no parent's
took = used.ru_utime + used.ru_stime  # what is which is guessed by the kernel's ticks
os.write(9, b'%d %d' % (took * 3, int(peak) >> 16))
os._exit(0)
"""


@pytest.fixture(scope="module")
def sandbox(runtime: str) -> Iterator[SandboxPool]:
    chosen = read_runtime(runtime)
    made = SandboxPool(environment, SystemRandomSource(), sleep=lambda _: None, runtime=chosen)
    yield made
    made.close()


def heard_bare(name: str, people: int) -> object:
    """Return all that whoever watches a bare process sees."""
    with tempfile.TemporaryDirectory() as folder:
        hear, say = os.pipe()
        done = subprocess.run(
            [sys.executable, "-I", "-c", f"import os\nos.dup2({say}, 9)\n{source(name)}{BARE}",
             str(people)],
            cwd=folder, capture_output=True, pass_fds=(say,), timeout=60, check=False,
        )  # fmt: skip
        os.close(say)
        with os.fdopen(hear, "rb") as file:
            used = file.read()
        if name in BY_USE:
            return used
        files = [
            (path.name, path.stat().st_size, path.stat().st_mode, int(path.stat().st_mtime) < 9)
            for path in sorted(Path(folder, "out").rglob("*"))
        ]
        said = Path(folder, "said").read_bytes()
        return done.returncode, done.stdout, done.stderr[-60:], files, said


def heard_by_the_door(sandbox: SandboxPool, name: str, rows: str) -> list[int]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows")
        path.write_text(rows)
        program: dict[str, object] = {
            "kind": "function", "source": source(name), "name": "sent", "outputs": ["m"],
        }  # fmt: skip
        job = BlockJob(program, (str(path),), OUTPUTS, SandboxLimits(cpu_s=4.0))
        sealed = sandbox.run(job)
    assert isinstance(sealed, Sealed)
    found: list[int] = unseal(sealed).ravel().tolist()
    return found


@pytest.mark.parametrize("name", sorted(SENDERS))
def test_a_bit_that_is_heard_outside_is_not_heard_by_the_door(
    name: str, sandbox: SandboxPool
) -> None:
    assert heard_bare(name, 2) != heard_bare(name, 3), "the sender itself does not work"
    silent = heard_by_the_door(sandbox, name, ROWS)
    assert silent == heard_by_the_door(sandbox, name, ONE_MORE)
    assert silent in ([7000], [5000], [10000])


def test_there_are_as_many_senders_as_were_asked() -> None:
    assert len(SENDERS) >= 20


def run(sandbox: SandboxPool, program: str, inputs: list[str], cpu_s: float) -> list[int]:
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for place, text in enumerate(inputs):
            paths.append(str(Path(folder, str(place))))
            Path(paths[-1]).write_text(text)
        job = BlockJob(
            {"kind": "function", "source": program, "name": "f", "outputs": ["m"]},
            tuple(paths), OUTPUTS, SandboxLimits(cpu_s=cpu_s),
        )  # fmt: skip
        found: list[int] = unseal(sandbox.run(job)).ravel().tolist()
        return found


BURNS = """
def f(rows):
    if 'burn' in list(rows['id']):
        while True: pass
    return float(len(rows['id'])) + 100
"""


def test_one_block_that_burns_everything_moves_no_other(sandbox: SandboxPool) -> None:
    plain = ["id\n" + "x\n" * count for count in range(1, 9)]
    quiet = run(sandbox, BURNS, plain, 1.0)
    assert quiet == [100 * count for count in range(1, 9)]
    loud = run(sandbox, BURNS, [*plain[:3], "id\nburn\n", *plain[4:]], 1.0)
    assert loud == [*quiet[:3], OUTPUTS[0].middle, *quiet[4:]]


LOOKS = """
import os, time, threading
def f(rows):
    if 'burn' in list(rows['id']):
        while True: pass
    if 'wait' in list(rows['id']):
        threading.Event().wait()
    return 100 + (time.time() - BEGAN)
"""
NAMES_LANE = """
import os
def f(rows):
    if 'burn' in list(rows['id']):
        while True: pass
    return 100 + min(os.sched_getaffinity(0))
"""


ATTEMPTS = 8  # of a host that is busy: what a block did would show in every one of them


@pytest.mark.parametrize("victim", ["burn", "wait", "x"])
def test_no_clock_and_no_lane_tells_what_another_block_did(victim: str) -> None:
    patient = SandboxPool(environment, SystemRandomSource())
    kept_time = any(keeps_time(patient, victim) for _ in range(ATTEMPTS))
    lanes, inputs = patient.lanes(SandboxLimits(cpu_s=1.0)), victims(patient, victim)
    cpus = run(patient, NAMES_LANE, inputs, 1.0)
    patient.close()
    assert kept_time
    allowed = sorted(os.sched_getaffinity(0))
    for block in range(lanes, 3 * lanes):
        assert cpus[block] == 100 * allowed[block % lanes]


def victims(sandbox: SandboxPool, victim: str) -> list[str]:
    lanes = sandbox.lanes(SandboxLimits(cpu_s=1.0))
    return [f"id\n{victim}\n", *["id\nx\n"] * (3 * lanes - 1)]


def keeps_time(patient: SandboxPool, victim: str) -> bool:
    """Say whether the blocks after the victim's began when they were to, by their own clocks."""
    limits = SandboxLimits(cpu_s=1.0)
    lanes = patient.lanes(limits)
    program = LOOKS.replace("BEGAN", repr(time.time()))
    try:
        patient.check(limits)
        clocks = np.array(run(patient, program, victims(patient, victim), 1.0)) / 100
    except SandboxStopped:  # the host missed a start again and again
        return False
    between = (clocks[2 * lanes :] - clocks[lanes : 2 * lanes]) / turn_s(limits)
    later = (clocks[lanes + 1 :: lanes] - clocks[lanes::lanes]) / turn_s(limits)
    is_a_turn = np.allclose(between, 1.0, atol=0.25)  # whatever was over sooner
    return bool(is_a_turn and np.allclose(later, 0.0, atol=0.25))  # lanes keep step


def test_a_host_that_misses_a_start_begins_the_job_anew() -> None:
    naps: list[float] = []

    def oversleeps(wait: float) -> None:
        naps.append(wait)
        if len(naps) == 1:
            time.sleep(wait + turn_s(limits))

    limits = SandboxLimits(cpu_s=0.2)
    slow = SandboxPool(environment, SystemRandomSource(), sleep=oversleeps)
    many = ["id\nx\n"] * (2 * slow.lanes(limits))
    assert run(slow, BURNS, many, 0.2) == [100] * len(many)
    assert len(naps) > len(many) + 1
    slow.close()


@pytest.mark.parametrize("source", [BURNS, "def f(rows):\n return 1.0\n"])
def test_a_block_that_had_to_be_stopped_and_ends_late_is_no_reason_to_run_again(
    monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    limits = SandboxLimits(cpu_s=0.2)
    pool = SandboxPool(environment, SystemRandomSource())
    runs: list[str] = []
    as_it_is = SandboxPool._run_block

    def ends_late(
        self: SandboxPool, lane: int, program: int, path: str, most: SandboxLimits
    ) -> Ran:
        ran = as_it_is(self, lane, program, path, most)
        if not runs:
            time.sleep(2 * turn_s(limits))
        runs.append(path)
        return ran

    monkeypatch.setattr(SandboxPool, "_run_block", ends_late)
    inputs = ["id\nburn\n"] * (4 * pool.lanes(limits))
    if source == BURNS:
        with pytest.raises(SandboxStopped):
            run(pool, source, inputs, 0.2)
        assert len(runs) < len(inputs)
    else:  # it ended by itself, so that the host was late
        run(pool, source, inputs, 0.2)
        assert len(runs) > len(inputs)
    pool.close()


def test_a_block_that_does_not_end_is_no_reason_to_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = SandboxPool(environment, SystemRandomSource())
    limits = SandboxLimits(cpu_s=0.2)
    pool.check(limits)
    runs: list[str] = []
    as_it_is = SandboxPool._run_block

    def counted(self: SandboxPool, lane: int, program: int, path: str, most: SandboxLimits) -> Ran:
        runs.append(path)
        return as_it_is(self, lane, program, path, most)

    monkeypatch.setattr(SandboxPool, "_run_block", counted)
    monkeypatch.setattr(sandbox_process, "_GRACE_S", -limits.wall_s)  # all the patience is over
    inputs = ["id\nburn\n"] * (4 * pool.lanes(limits))
    with pytest.raises(SandboxStopped):
        run(pool, BURNS, inputs, 0.2)
    assert len(runs) == pool.lanes(limits)
    pool.close()


def test_the_rest_after_a_block_covers_the_reads_that_its_threads_finish() -> None:
    """They take 0.04 seconds a gigabyte, and a call reads two gigabytes at most."""
    for disk_mb in (64, 512, 2048, 4096):
        limits = SandboxLimits(disk_mb=disk_mb)
        alone, tree = turn_s(limits), turn_s(limits, is_tree=True)
        gigabytes = min(2.0, disk_mb / 1024)
        assert alone - limits.wall_s > 0.3 + 0.04 * MOST_THREADS * gigabytes
        assert tree - limits.wall_s > 0.3 + 0.04 * limits.processes * gigabytes


def test_a_block_of_one_process_has_as_many_threads_as_its_rest_is_made_for() -> None:
    assert inside._MOST_THREADS == MOST_THREADS


LEAVES = """
import os, builtins
def f(rows):
    seen = [os.path.exists(f'/work/{n}/mark') for n in ('in', 'out', 'tmp')]
    seen += [hasattr(builtins, 'mark'), 'MARK' in os.environ]
    import gc
    seen += [any(isinstance(o, str) and o == 'mar' + 'k-of-ann' for o in gc.get_objects())]
    for n in ('in', 'out', 'tmp'):
        open(f'/work/{n}/mark', 'w').close()
    builtins.mark = 'mark-of-' + str(rows['id'][0]); os.environ['MARK'] = '1'
    return 150.0 + sum(map(bool, seen))
"""


def test_a_block_finds_nothing_that_another_left(sandbox: SandboxPool) -> None:
    assert run(sandbox, LEAVES, ["id\nann\n"] * 8, 1.0) == [5000] * 8


def test_whoever_only_waits_is_late_and_holds_nobody_up(sandbox: SandboxPool) -> None:
    waits = "import threading\ndef f(rows):\n threading.Lock().acquire(); threading.Event().wait()"
    assert run(sandbox, waits, ["id\nx\n"] * 4, 0.1) == [OUTPUTS[0].middle] * 4


GOES_ON = """
import json, os, threading
def f(rows):
    os.write(3, json.dumps({"answer.json": json.dumps({"m": 200}).encode().hex()}).encode())
    while rows['id'][0] == 'burns':
        pass
    if rows['id'][0] == 'waits':
        threading.Event().wait()
    os._exit(0)
"""


def test_whoever_answers_and_is_late_all_the_same_has_said_nothing(sandbox: SandboxPool) -> None:
    inputs = ["id\nburns\n", "id\nwaits\n", "id\nends\n"]
    assert run(sandbox, GOES_ON, inputs, 0.5) == [5000, 5000, 10_000]


class Patient(SandboxLimits):
    """Limits of a host that is never in a hurry, however busy it is."""

    @property
    def wall_s(self) -> float:
        """Return more than any test takes."""
        return 120.0


def test_a_block_is_late_by_its_own_processor_time_and_by_no_clock() -> None:
    warm = bubble()
    late = ran_in(warm, GOES_ON, "f", "id\nburns\n", Patient(cpu_s=0.3))
    in_time = ran_in(warm, GOES_ON, "f", "id\nends\n", Patient(cpu_s=0.3))
    warm.kill()
    assert (late.ended, late.output) == (LATE, b"")
    assert (in_time.ended, in_time.output != b"") == (DONE, True)


def test_a_job_takes_its_slot_or_a_whole_number_of_them() -> None:
    waited: list[float] = []
    sandbox = SandboxPool(environment, SystemRandomSource(), sleep=waited.append)
    began = time.monotonic()
    sandbox._wait_out(began, 50.0)
    sandbox._wait_out(began - 70.0, 50.0)
    assert np.allclose(waited, [50.0, 30.0], atol=5.0)


def test_nothing_begins_when_the_engine_is_done_but_when_it_must_be(tmp_path: Path) -> None:
    waited: list[float] = []
    sandbox = SandboxPool(environment, SystemRandomSource(), sleep=waited.append)
    program: dict[str, object] = {
        "kind": "function", "source": BURNS, "name": "f", "outputs": ["m"]
    }  # fmt: skip
    for began in (5.0, 250.0):  # seconds ago
        (tmp_path / "rows").write_text("id\nx\n")
        laid = InputTiming(time.monotonic() - began, turns=900, megabytes=4_000)
        job = BlockJob(
            program, (str(tmp_path / "rows"),), OUTPUTS, SandboxLimits(cpu_s=1.0), laid
        )  # fmt: skip
        sandbox.run(job)
        assert not (tmp_path / "rows").exists()
    sandbox.close()
    assert write_s(laid) == 100
    assert drop_s(laid) == 0.005 * 4_450
    assert np.allclose([waited[0], waited[-3]], [95.0, 50.0], atol=10.0)


def test_there_is_time_to_read_every_file_that_a_block_says() -> None:
    limits = SandboxLimits()
    assert slot_s(10, 2, limits, 64) - slot_s(10, 2, limits) == pytest.approx(63 * 10 * 0.02)
