"""Blocks of a batch: side by side, in a fixed time, with sockets that reach only themselves."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sfumato.dp.ports import IntegerArray
from sfumato.release.unseal import unseal
from sfumato.sandbox.base_environment import environment
from sfumato.sandbox.block_batch import BlockBatch
from sfumato.sandbox.block_timing import batch_s, slot_s, turn_s
from sfumato.sandbox.ports import BATCH, BlockJob, SandboxLimits
from sfumato.sandbox.program_outputs import read_outputs
from sfumato.sandbox.sandbox_pool import SandboxPool
from sfumato.sandbox.sandbox_process import SandboxProcess, SandboxProcessEnded
from sfumato.system.randomness import SystemRandomSource
from support.process_tree import children
from support.sandbox_blocks import needs_bubbles
from support.tree_images import ENOUGH, RESULT, Image, answer, bash

pytestmark = needs_bubbles
IN_BATCH = replace(ENOUGH, timing=BATCH)
OUTPUTS = read_outputs([{"name": "m", "lower": 0, "upper": 100, "step": 1}])
MIDDLE = OUTPUTS[0].middle
MEAN = "def f(rows):\n return rows['height'].mean()\n"


def function(source: str, inputs: tuple[str, ...], limits: SandboxLimits) -> BlockJob:
    told: dict[str, object] = {
        "kind": "function", "source": source, "name": "f", "outputs": ["m"],
    }  # fmt: skip
    return BlockJob(told, inputs, OUTPUTS, limits)


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    made = SandboxPool(environment, SystemRandomSource(), sleep=lambda _: None)
    yield made
    made.close()


@pytest.fixture
def inputs(tmp_path: Path) -> tuple[str, ...]:
    paths = []
    for block in range(12):
        (tmp_path / f"{block}").write_text(f"height\n{block}\n")
        paths.append(str(tmp_path / f"{block}"))
    return tuple(paths)


def ran(pool: SandboxPool, job: BlockJob) -> IntegerArray:
    return np.asarray(unseal(pool.run(job)))[:, 0]


# --- time -----------------------------------------------------------------------------------------


def test_every_block_of_a_batch_gives_its_own_number(
    pool: SandboxPool, inputs: tuple[str, ...]
) -> None:
    limits = SandboxLimits(cpu_s=4, timing=BATCH)
    assert ran(pool, function(MEAN, inputs, limits)).tolist() == list(range(12))


def test_the_time_of_a_batch_is_known_before_it_runs() -> None:
    limits = SandboxLimits(cpu_s=0.08, timing=BATCH)
    isolated = SandboxLimits(cpu_s=0.08)
    assert slot_s(200, 2, limits) + 2 <= 20.5  # two seconds are for the engine
    assert slot_s(200, 2, isolated) >= 200 / 2 * turn_s(isolated)
    declared = replace(limits, job_s=7.5)
    assert batch_s(200, 2, declared) == 7.5
    assert slot_s(200, 2, declared) == pytest.approx(slot_s(400, 2, declared) - 200 * 0.02)


def test_a_job_waits_until_its_time_is_over(inputs: tuple[str, ...]) -> None:
    waited: list[float] = []
    pool = SandboxPool(environment, SystemRandomSource(), sleep=waited.append)
    limits = SandboxLimits(cpu_s=4, timing=BATCH, job_s=100)
    began = time.monotonic()
    pool.run(function(MEAN, inputs, limits))
    taken = time.monotonic() - began
    pool.close()
    assert taken < 100
    slot = slot_s(12, pool.lanes(limits), limits)
    assert slot - taken <= waited[-1] <= slot


BURNS = """
import time
def f(rows):
    while time.process_time() < 5: pass
    return 99
"""


def test_blocks_that_have_not_ended_with_the_job_are_the_middle(
    pool: SandboxPool, inputs: tuple[str, ...]
) -> None:
    limits = SandboxLimits(cpu_s=30, timing=BATCH, job_s=2)
    assert ran(pool, function(BURNS, inputs, limits)).tolist() == [MIDDLE] * 12
    few = function(BURNS, inputs[:1], replace(limits, job_s=60))
    assert ran(pool, few).tolist() == [99]


def test_no_program_without_an_image_has_more_calls_in_a_batch(pool: SandboxPool) -> None:
    pool.check(SandboxLimits(timing=BATCH))
    kept = pool.pids()
    pool.check(SandboxLimits())
    assert pool.pids() == kept  # the same sandboxes serve both


# --- failures of the host -------------------------------------------------------------------------


class Dying(SandboxProcess):
    """A sandbox of which the host ends the first blocks."""

    def __init__(self, times: int) -> None:
        super().__init__(environment(), min(os.sched_getaffinity(0)), SystemRandomSource())
        self.times = times

    def run(self, program: int, rows: int, limits: SandboxLimits):  # type: ignore[no-untyped-def]  # as its parent
        self.times -= 1
        if self.times >= 0:
            for zygote in children(self.pid):
                os.kill(zygote, signal.SIGKILL)
            assert self._control.recv(1) == b""  # until the zygote has ended too
        return super().run(program, rows, limits)


@pytest.mark.parametrize(("times", "succeeds"), [(1, True), (3, True), (4, False)])
def test_a_block_that_the_host_has_ended_runs_again(
    inputs: tuple[str, ...], pool: SandboxPool, times: int, succeeds: bool
) -> None:
    job = function(MEAN, inputs, SandboxLimits(cpu_s=4, timing=BATCH))
    made = [Dying(times)]

    def restart(_lane: int) -> SandboxProcess:
        made.append(Dying(made[-1].times))
        return made[-1]

    with memory_file(pool._program_message(job)) as program:
        said = BlockBatch(job, program, time.monotonic() + 60, restart).run(made[:1])
    for one in made:
        one.kill()
    assert (said is not None and sorted(said) == list(range(12))) == succeeds


def test_a_job_fails_if_no_sandbox_starts_again(inputs: tuple[str, ...], pool: SandboxPool) -> None:
    job = function(MEAN, inputs, SandboxLimits(cpu_s=4, timing=BATCH))

    def restart(_lane: int) -> SandboxProcess:
        raise SandboxProcessEnded

    dying = Dying(1)
    with memory_file(pool._program_message(job)) as program:
        assert BlockBatch(job, program, time.monotonic() + 60, restart).run([dying]) is None
    dying.kill()


class memory_file:  # noqa: N801  # used like a function
    """An anonymous file in memory with this content."""

    def __init__(self, text: bytes) -> None:
        self.descriptor = os.memfd_create("text")
        os.write(self.descriptor, text)

    def __enter__(self) -> int:
        return self.descriptor

    def __exit__(self, *_exc: object) -> None:
        os.close(self.descriptor)


# --- what an image's program may do ---------------------------------------------------------------

LOOPBACK = """
import asyncio, fcntl, os, select, signal, socket, sys, time
os.makedirs(sys.argv[2], exist_ok=True)
async def echoes():
    async def answers(reader, writer):
        writer.write(await reader.read(5))
        await writer.drain()
        writer.close()
    server = await asyncio.start_server(answers, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"hello")
    return await reader.read(9)
found = {"echo": asyncio.run(echoes()) == b"hello", "epoll": hasattr(select, "epoll")}
began = time.monotonic()
time.sleep(0.2)
found["sleeps"] = time.monotonic() - began > 0.19
with open("/tmp/lock", "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    fcntl.lockf(file, fcntl.LOCK_EX)
found["processes"] = sorted(int(one) for one in os.listdir("/proc") if one.isdigit()) == [1, 2]
found["own"] = os.readlink("/proc/self") == str(os.getpid())
found["load"] = all(open(f"/proc/{one}").read() for one in ("stat", "meminfo", "cpuinfo"))
found["free"] = os.statvfs("/tmp").f_bfree > 0
child = os.fork()
if child == 0:
    os.setsid()
    os._exit(os.getsid(0) != os.getpid())
found["session"] = os.waitpid(child, 0)[1] == 0
with open(sys.argv[2] + "/answer.txt", "w") as file:
    file.write(" ".join(sorted(name for name, is_so in found.items() if not is_so)))
"""


def test_a_program_has_sockets_locks_sessions_and_proc_in_a_batch_only(image: Image) -> None:
    tried = image.tried(LOOPBACK, IN_BATCH)
    assert (tried.ending, tried.output) == ("exit status 0", answer(""))
    assert image.tried(LOOPBACK).ending != "exit status 0"


OUTSIDE = """
import os, socket, sys
os.makedirs(sys.argv[2], exist_ok=True)
found = {}
def reaches(name, family, address, kind=socket.SOCK_STREAM, protocol=0):
    try:
        with socket.socket(family, kind, protocol) as one:
            one.settimeout(1)
            one.connect(address)
            one.send(b"rows")
        found[name] = 1
    except OSError:
        pass
port, name = PORT, NAME
for host in ("127.0.0.1", "10.0.0.1", "8.8.8.8"):
    reaches(host, socket.AF_INET, (host, port))
    reaches(host + " raw", socket.AF_INET, (host, 0), socket.SOCK_RAW, 1)
reaches("datagram out", socket.AF_INET, ("8.8.8.8", 53), socket.SOCK_DGRAM)
reaches("ipv6", socket.AF_INET6, ("2001:db8::1", port))
reaches("abstract", socket.AF_UNIX, name)
found |= {name: 1 for _, name in socket.if_nameindex() if name != "lo"}
for protocol in range(1, 23):  # netlink, but for routes
    try:
        socket.socket(16, 3, protocol).close()
        found[f"netlink {protocol}"] = 1
    except OSError:
        pass
for family in (3, 4, 17, 29, 31, 38, 40, 44):  # packets, Bluetooth, VSOCK, XDP, ...
    for kind in (1, 2, 3, 5):
        try:
            socket.socket(family, kind).close()
            found[f"family {family} {kind}"] = 1
        except OSError:
            pass
for protocol in (33, 132, 136, 262):
    try:
        socket.socket(socket.AF_INET, 1, protocol).close()
        found[f"protocol {protocol}"] = 1
    except OSError:
        pass
with socket.socket() as one:
    for level, option in ((1, 26), (1, 50), (1, 36), (0, 64), (6, 31), (6, 13), (6, 19), (255, 1)):
        try:
            one.setsockopt(level, option, b"\\0" * 16)
            found[f"option {level} {option}"] = 1
        except OSError:
            pass
for place in ("/proc/kmsg", "/proc/keys", "/proc/kallsyms", "/proc/kcore", "/proc/1/environ",
              "/proc/1/mem", "/proc/1/fd/0", "/proc/1/root/env", "/sys/kernel"):
    try:
        if open(place, "rb").read(1):
            found[place] = 1
    except OSError:
        pass
texts = sum(int(line.split()[1]) for line in open("/proc/stat") if line.startswith("processes"))
if texts != 1 or os.path.exists("/proc/sys/fs"):
    found["counts of the machine"] = 1
for place in ("/proc/self/mem", "/proc/self/oom_score_adj", "/proc/sys/kernel/osrelease",
              "/proc/stat", "/proc/meminfo", "/proc/sysrq-trigger"):
    try:
        with open(place, "r+b", buffering=0) as file:
            file.write(b"1")
        if place != "/proc/sysrq-trigger":  # which is /dev/null here
            found["write " + place] = 1
    except OSError:
        pass
with open(sys.argv[2] + "/answer.txt", "w") as file:
    file.write(" ".join(sorted(found)))
"""


def test_a_block_of_a_batch_reaches_nothing_outside(image: Image) -> None:
    name = f"\0sfumato-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(1) as hidden:
        hidden.bind(name)
        hidden.listen()
        port = listener.getsockname()[1]
        said = f"PORT, NAME = {port}, {name!r}\n{OUTSIDE}"
        tried = image.tried(said, IN_BATCH)
        assert (tried.ending, tried.output) == ("exit status 0", answer("")), tried.printed
        for one in (listener, hidden):
            one.settimeout(0)
            with pytest.raises(BlockingIOError):
                one.accept()


MEETS = """
import ctypes, fcntl, os, socket, sys, time
NAME, PORT, KEY = "meet-MARK", 31_337, 0x5F0A70
os.makedirs(sys.argv[2], exist_ok=True)
began, heard = time.monotonic(), set()
libc = ctypes.CDLL(None)
shared = os.open(os.path.realpath(sys.executable), os.O_RDONLY)
sockets = {"abstract": (socket.AF_UNIX, "\\0" + NAME), "unix": (socket.AF_UNIX, "/tmp/" + NAME),
           "tcp": (socket.AF_INET, ("127.0.0.1", PORT))}
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def hears(name, act):
    try:
        if act(): heard.add(name)
    except BlockingIOError:
        if name == "lock": heard.add(name)
    except OSError:
        pass
def reaches(name):
    family, address = sockets[name]
    with socket.socket(family) as one:
        return one.connect_ex(address) == 0
def is_named(process):
    with open(f"/proc/{process}/comm") as file:
        return file.read().strip() == NAME
if "ann" in open(sys.argv[1] + "/participants.tsv").read():
    kept = []
    for family, address in sockets.values():
        kept.append(socket.socket(family))
        kept[-1].bind(address)
        kept[-1].listen(99)
    datagrams.bind(("127.0.0.1", PORT))
    datagrams.setblocking(False)
    open("/dev/shm/" + NAME, "w").close()
    memory = libc.shmget(KEY, 4096, 0o1600)
    libc.prctl(15, NAME.encode(), 0, 0, 0)
    fcntl.flock(shared, fcntl.LOCK_EX)
    while time.monotonic() < began + 4:
        hears("datagram", lambda: datagrams.recv(9))
        time.sleep(0.02)
    libc.shmctl(memory, 0, None)
    os.unlink("/dev/shm/" + NAME)
    os.unlink("/tmp/" + NAME)
else:
    while time.monotonic() < began + 2:
        for name in sockets: hears(name, lambda: reaches(name))
        hears("file", lambda: os.path.exists("/dev/shm/" + NAME))
        hears("memory", lambda: libc.shmget(KEY, 0, 0) >= 0)
        hears("lock", lambda: fcntl.flock(shared, fcntl.LOCK_EX | fcntl.LOCK_NB))
        fcntl.flock(shared, fcntl.LOCK_UN)
        for one in os.listdir("/proc"):
            if one.isdigit(): hears("name", lambda: is_named(one))
        hears("sent", lambda: datagrams.sendto(b"rows", ("127.0.0.1", PORT)) == 0)
        time.sleep(0.02)
with open(sys.argv[2] + "/answer.txt", "w") as file:
    file.write(" ".join([str(began), str(time.monotonic()), *sorted(heard)]))
"""
WAYS = {"abstract", "file", "lock", "memory", "name", "tcp", "unix"}
ATTEMPTS = 5  # of a busy machine, which may start the second block when the first has ended


def meetings(place: Path) -> tuple[str, list[Path]]:
    """Return the program, and the rows of two blocks: one is to be found, the other looks."""
    paths = [place / name for name in ("ann", "bob")]
    for path in paths:
        path.write_text(f"id\n{path.name}\n")
    return MEETS.replace("MARK", f"{os.getpid()}"), paths


def overlap(said: list[list[str]]) -> bool:
    (began, ended, *_), (other_began, other_ended, *_) = said
    return float(began) + 1 < float(other_ended) and float(other_began) < float(ended) - 1


def test_outside_two_processes_side_by_side_find_each_other_in_many_ways(tmp_path: Path) -> None:
    program, paths = meetings(tmp_path)
    for _ in range(ATTEMPTS):
        begun = []
        for path in paths:
            (tmp_path / f"in-{path.name}").mkdir(exist_ok=True)
            (tmp_path / f"in-{path.name}" / "participants.tsv").write_text(path.read_text())
            folders = [str(tmp_path / f"{kind}-{path.name}") for kind in ("in", "out")]
            begun.append(subprocess.Popen([sys.executable, "-I", "-c", program, *folders]))
        assert [one.wait(60) for one in begun] == [0, 0]
        said = [(tmp_path / f"out-{path.name}" / RESULT).read_text().split() for path in paths]
        if overlap(said):
            break
    assert set(said[0][2:]) == {"datagram"}
    assert set(said[1][2:]) == WAYS


def test_two_blocks_side_by_side_do_not_find_each_other(image: Image, tmp_path: Path) -> None:
    if image.pool.lanes(IN_BATCH, image.own) < 2:
        pytest.skip("this machine runs one block at a time")
    program, paths = meetings(tmp_path)
    limits = replace(IN_BATCH, job_s=60)
    for _ in range(ATTEMPTS):
        job = BlockJob(image.told(program), tuple(map(str, paths)), (), limits, own=image.own)
        found = image.pool._run_blocks(job)
        assert found is not None
        texts = [json.loads(found[1][block].output)[RESULT] for block in range(2)]
        said = [bytes.fromhex(text).decode().split() for text in texts]
        assert [one[2:] for one in said] == [[], []]
        if overlap(said):
            return
    pytest.fail("the blocks never ran side by side")


STAYS = """
import os, socket, sys, time
os.makedirs(sys.argv[2], exist_ok=True)
found = []
for name in ("\\0kept", ("127.0.0.1", 4444)):
    with socket.socket(socket.AF_UNIX if name == "\\0kept" else socket.AF_INET) as one:
        if one.connect_ex(name) == 0:
            found.append("a socket")
    listening = socket.socket(socket.AF_UNIX if name == "\\0kept" else socket.AF_INET)
    listening.bind(name)
    listening.listen()
lines = [line.split() for line in open("/proc/net/snmp") if line.startswith("Tcp:")]
opened = int(dict(zip(*lines))["PassiveOpens"])
if opened:
    found.append("a count of connections")
with socket.create_server(("127.0.0.1", 0)) as one, socket.create_connection(one.getsockname()):
    pass
found += os.listdir("/dev/shm") + os.listdir("/tmp")
open("/dev/shm/kept", "w").write("x")
if os.fork() == 0:
    os.setsid()
    time.sleep(30)
with open(sys.argv[2] + "/answer.txt", "w") as file:
    file.write(" ".join(one for one in found if one != "program.py" and one != "run"))
"""


def test_nothing_of_a_block_stays_for_the_next(image: Image) -> None:
    for _ in range(4):  # on each processor there is an earlier block
        tried = image.tried(STAYS, IN_BATCH)
        assert (tried.ending, tried.output) == ("exit status 0", answer(""))


HOARDS = """
import socket, sys
kept = []
for _ in range(120):
    kept += socket.socketpair()
for one in kept:
    one.setblocking(False)
    try:
        while True: one.send(bytes(60_000))
    except OSError: pass
while True: pass
"""


HIDES = """
import ctypes, socket
kept, room = [], bytes(60_000)
for _ in range(200):  # receivers that hold data and whose port is gone
    one, other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket(2, 2)
    one.bind(("127.0.0.1", 0))
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    other.connect(one.getsockname())
    for _ in range(8): other.send(room)  # what does not fit is lost
    other.close()
    ctypes.CDLL(None).connect(one.fileno(), bytes(16), 16)  # AF_UNSPEC
    kept.append(one)
while True: pass
"""


@pytest.mark.parametrize("hoards", [HOARDS, HIDES])
def test_what_sockets_hold_counts_as_memory(image: Image, hoards: str) -> None:
    small = replace(IN_BATCH, memory_mb=100)
    assert image.tried(hoards, small).ended == "full"


def test_a_tree_may_run_on_each_processor_in_a_batch(image: Image) -> None:
    assert image.pool.lanes(IN_BATCH, image.own) == image.pool.lanes(IN_BATCH)
    image.pool.check(IN_BATCH, image.own)
    pids = image.pool.pids()
    image.pool.check(ENOUGH, image.own)
    assert image.pool.pids() != pids  # sandboxes with fewer calls
    image.pool.check(IN_BATCH, image.own)
    script = bash(f"sleep 0.1; echo 1 >$2/{RESULT}")
    job = BlockJob(
        image.told(script), (str(image.place / "rows"),) * 4, (), IN_BATCH, own=image.own
    )
    found = image.pool._run_blocks(job)
    assert found is not None
    assert [found[1][block].output for block in range(4)] == [answer("1\n")] * 4
