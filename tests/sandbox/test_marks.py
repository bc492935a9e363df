"""Nothing that blocks share can be marked: a block has no file of the host, and no cache of it."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sfumato.sandbox.base_environment import environment
from sfumato.sandbox.ports import SandboxLimits
from sfumato.sandbox.sandbox_process import BROKEN, DONE, Ran, SandboxProcess
from support.sandbox_blocks import bubble, needs_bubbles, ran_in

pytestmark = needs_bubbles
PATIENCE_S = 60


@pytest.fixture(scope="module")
def warm(runtime: str) -> Iterator[SandboxProcess]:
    made = bubble(runtime)
    yield made
    made.kill()


def numbers(ran: Ran) -> dict[str, float]:
    assert ran.ended == DONE
    found: dict[str, float] = json.loads(bytes.fromhex(json.loads(ran.output)["answer.json"]))
    return found


LOOKS = """
import os
def f(rows):
    found = {f'top {name}': 1 for name in os.listdir('/')}
    for name in os.listdir('/'):
        found[f'device {name}'] = os.stat(f'/{name}').st_dev
    for top in ('/env', '/lib64', '/usr', '/from', '/dev'):
        for folder, _, files in os.walk(top):
            for file in files:
                where = os.lstat(f'{folder}/{file}').st_dev
                found[f'at {top} {where}'] = where
    return found
"""


def test_the_room_is_made_and_every_right_gone_before_a_row_is_read(
    warm: SandboxProcess, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.write_text(json.dumps({"kind": "function", "source": "", "name": "f", "outputs": []}))
    unreadable = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)  # whoever reads it fails
    opened = os.open(program, os.O_RDONLY)
    try:
        ran = warm.run(opened, unreadable, SandboxLimits(cpu_s=2.0))
    finally:
        os.close(opened)
        os.close(unreadable)
    assert (ran.ended, ran.output) == (DONE, b"")  # it had said that it is ready; else: BubbleGone


def test_a_block_sees_no_file_of_the_host(warm: SandboxProcess) -> None:
    found = numbers(ran_in(warm, LOOKS, "f"))
    tops = {name.removeprefix("top ") for name in found if name.startswith("top ")}
    assert tops == {"dev", "env", "from", "lib64", "work"}
    hosts = {Path(place).stat().st_dev for place in ("/", "/usr/lib", environment().folder)}
    assert not hosts & {int(found[name]) for name in found if name.startswith(("device", "at"))}
    assert {name.split()[1] for name in found if name.startswith("at ")} == {
        "/env",
        "/lib64",  # a link into it
    }


TELLS = """
import fcntl, os
def f(rows):
    ways = {
        'fstat': lambda n: os.fstat(n), 'stat': lambda n: os.stat(n),
        'dup': lambda n: os.dup(n), 'dup2': lambda n: os.dup2(n, 20),
        'dup3': lambda n: os.dup2(n, 21, inheritable=False),
        'fcntl': lambda n: fcntl.fcntl(n, fcntl.F_DUPFD, 30),
        'cloexec': lambda n: fcntl.fcntl(n, fcntl.F_DUPFD_CLOEXEC, 40),
    }
    mine = os.open('/work/tmp/mine', os.O_CREAT | os.O_RDWR)
    found = {}
    for name, way in ways.items():
        for descriptor in (3, mine):
            try:
                way(descriptor)
                found[f'{name} {descriptor == 3}'] = 1
            except OSError:
                found[f'{name} {descriptor == 3}'] = 0
    return found
"""


def test_a_block_cannot_look_at_its_pipe_whose_number_counts_what_the_host_has_made(
    warm: SandboxProcess,
) -> None:
    found = numbers(ran_in(warm, TELLS, "f"))
    assert {name: said for name, said in found.items() if name.endswith("True") and said} == {}
    assert all(said for name, said in found.items() if name.endswith("False"))  # others', it can


WRITES = """
import os
def f(rows):
    done = 0
    for name in ('/env/mark', '/env/packages/mark', '/from/mark', '/mark', '/dev/mark'):
        try:
            open(name, 'w').close(); done += 1
        except OSError: pass
    for act in (lambda: os.chmod('/env/python', 0), lambda: os.rename('/env/libs', '/env/l')):
        try:
            act(); done += 1
        except OSError: pass
    return done
"""


def test_nobody_writes_into_the_copy(warm: SandboxProcess) -> None:
    assert numbers(ran_in(warm, WRITES, "f")) == {"m": 0.0}


LATE_IMPORTS = """
def f(rows):
    import sqlite3, statistics, decimal, ssl, lzma, bz2, zoneinfo, csv, xml.etree.ElementTree
    import numpy.fft, pandas
    berlin = pandas.Timestamp('2026-07-01', tz='Europe/Berlin').utcoffset().seconds
    with sqlite3.connect(':memory:') as made:
        two = made.execute('SELECT 1 + 1').fetchone()[0]
    return {'berlin': berlin, 'two': two}
"""


def test_libraries_that_are_imported_late_are_all_there(warm: SandboxProcess) -> None:
    pytest.importorskip("pandas")
    assert numbers(ran_in(warm, LATE_IMPORTS, "f")) == {"berlin": 7200.0, "two": 2.0}


THREADS = """
import ctypes, mmap, os
C = ctypes.CDLL(None, use_errno=True)
USUAL = 0x50F00  # VM, FS, FILES, SIGHAND, THREAD and SYSVSEM
KEPT = []
def begun(flags):
    stack, number = mmap.mmap(-1, 65536), ctypes.c_int(-1)
    KEPT.append(stack)
    top = ctypes.addressof(ctypes.c_char.from_buffer(stack)) + 65536 - 64
    ends = ctypes.cast(C.sched_yield, ctypes.c_void_p)
    told = ctypes.byref(number)
    got = C.clone(ends, ctypes.c_void_p(top), ctypes.c_int(flags), None, told, None, None)
    return (got if got > 0 else -ctypes.get_errno()), number.value
def f(rows):
    found = {'usual': begun(USUAL)[0], 'detached': begun(USUAL | 0x400000)[0]}
    got, descriptor = begun(USUAL | 0x1000)
    found['descriptor'] = got
    found['counts'] = os.fstat(descriptor).st_ino if got > 0 else 0
    for bit in range(32):
        if not 0x17D0F00 >> bit & 1:
            found[f'flag {bit}'] = begun(0x17D0F00 & ~0x380000 | 1 << bit)[0]
    return found
"""
OUTSIDE = """
found = [begun(USUAL | 0x1000) for _ in range(2)]
print([got for got, _ in found], [os.fstat(n).st_ino for got, n in found if got > 0])
import sys; sys.stdout.flush(); os._exit(0)
"""


def test_a_thread_has_no_descriptor_whose_number_counts_what_the_host_has_begun(
    warm: SandboxProcess,
) -> None:
    found = numbers(ran_in(warm, THREADS, "f"))
    assert found.pop("usual") > 0
    assert found.pop("detached") > 0
    assert found.pop("counts") == 0
    assert len(found) > 10
    assert set(found.values()) == {-1}  # EPERM


def test_outside_such_a_descriptor_tells_how_many_have_begun() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-c", THREADS + OUTSIDE], capture_output=True, check=True
    )
    gots, numbers = ast.literal_eval("[" + done.stdout.decode().replace("] [", "], [") + "]")
    if gots == [-22, -22]:
        pytest.skip("this kernel gives threads no descriptors (Linux 6.9 is the first)")
    assert min(gots) > 0
    assert numbers[1] > numbers[0]


CALLS = """
import ctypes
C = ctypes.CDLL(None, use_errno=True)
def asked(*call):
    C.syscall.restype = ctypes.c_long
    back = C.syscall(*(ctypes.c_long(one) for one in call))
    return back if back >= 0 else -ctypes.get_errno()
def f(rows):
    found = {f'advice {n}': asked(28, 4096, 4096, n) for n in range(0, 32)}
    found['pool'] = asked(9, 0, 1 << 21, 3, 0x40022, -1, 0)
    found['own'] = min(0, asked(9, 0, 1 << 21, 3, 0x22, -1, 0))
    found['statx'] = asked(332, -100, 0, 0, 0, 0)
    for name, number in (('fsync', 74), ('fdatasync', 75)):
        found[name] = asked(number, 99)
    found['msync'] = asked(26, 4096, 4096, 4)
    return found
"""


def test_calls_that_would_mark_something_shared_never_reach_the_kernel(
    warm: SandboxProcess,
) -> None:
    """Each is asked of something that is not there, which the kernel would say."""
    found = numbers(ran_in(warm, CALLS, "f"))
    heard = {name for name, said in found.items() if name.startswith("advice") and said != 0}
    assert heard <= {"advice 4", "advice 8", "advice 14", "advice 15"}
    assert found["advice 4"] == -12  # ENOMEM, by the kernel
    assert (found["pool"], found["own"], found["statx"]) == (-1, 0, -38)
    assert found["fsync"] == found["fdatasync"] == found["msync"] == 0


ANSWERS_AND_STAYS = """
import json, os
def f(rows):
    os.write(3, json.dumps({"answer.json": json.dumps({"m": 200}).encode().hex()}).encode())
    while True: pass
"""


def line_below(pid: int) -> list[int]:
    """Return the children's children, down to the zygote, or to keeper and block."""
    try:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return max(([int(one), *line_below(int(one))] for one in below), key=len, default=[])


def begun_by(launcher: int) -> int:
    """Return what leads to the zygote: of a daemon's container not the launcher, but its first."""
    if line_below(launcher):
        return launcher
    found = {int(one): said_of(int(one)) for one in os.listdir("/proc") if one.isdigit()}
    own = {pid for pid, (uid, _) in found.items() if uid == said_of(launcher)[0]}
    (first,) = (pid for pid in own - {launcher} if found[pid][1] not in own)
    return first


def said_of(pid: int) -> tuple[str, int]:
    """Return whose the process is, a uid that no other bubble has; and its parent."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return "gone", 0
    said = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    return said["Uid"].split()[0], int(said["PPid"])


def test_a_block_that_the_kernel_ends_has_said_nothing_and_the_bubble_goes_on(
    warm: SandboxProcess,
) -> None:
    """Where memory runs out the kernel sends the signal that is sent here."""
    ran: list[Ran] = []
    limits = SandboxLimits(cpu_s=60.0)
    running = threading.Thread(
        target=lambda: ran.append(ran_in(warm, ANSWERS_AND_STAYS, "f", limits=limits))
    )
    first = begun_by(warm.pid)
    depth = min(len(line_below(first)) for _ in looks(20)) + 2  # the last keeper may be there still
    running.start()
    until = time.monotonic() + PATIENCE_S
    while len(line := line_below(first)) < depth or processor_time(line[-1]) < 0.2:
        assert time.monotonic() < until  # until it has spoken, and goes round and round
        time.sleep(0.01)
    victim = line[-1]
    assert Path(f"/proc/{victim}/oom_score_adj").read_text().strip() == "1000"
    os.kill(victim, signal.SIGKILL)
    running.join()
    assert (ran[0].ended, ran[0].output) == (BROKEN, b"")
    assert numbers(ran_in(warm, "def f(rows): return 1.0", "f")) == {"m": 1.0}


def looks(count: int) -> Iterator[int]:
    """Yield so many times, with a moment in between."""
    for look in range(count):
        time.sleep(0.05)
        yield look


def processor_time(pid: int) -> float:
    """Return the seconds that a process has used; the zygote and the keeper use next to none."""
    used = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")
