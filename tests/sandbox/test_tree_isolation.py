"""Nothing of a process tree gets out: no number, signal, link or bit, from any child."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from sfumato.release.unseal import unseal
from sfumato.sandbox.block_timing import turn_s
from sfumato.sandbox.ports import BATCH, ISOLATED, BlockJob, SandboxLimits
from sfumato.sandbox.program_outputs import read_outputs
from sfumato.sandbox.sandbox_process import DONE, Ran, SandboxProcess, SandboxProcessEnded
from support.covert_senders import SENDERS, source
from support.process_tree import children, is_there, waited
from support.sandbox_blocks import ROWS, needs_bubbles, run
from support.tree_images import RESULT, Image, Patient, answer, bash

pytestmark = needs_bubbles
SLACK_S = 2.0  # other tests run beside this one

SEES = """
import json, os, stat, sys
os.makedirs(sys.argv[2], exist_ok=True)
child = os.fork()  # all of it is asked by a child
if child:
    os.waitpid(child, 0)
    os._exit(0)
found = {}
def save():
    with open(sys.argv[2] + "/answer.txt", "w") as file:
        json.dump(found, file)
"""
DESCRIPTORS = """
for number in range(200):
    try: found[str(number)] = stat.S_ISCHR(os.fstat(number).st_mode)
    except OSError: pass
save()
"""


def test_a_program_begins_with_three_descriptors(image: Image) -> None:
    assert image.numbers(SEES + DESCRIPTORS) == {"0": True, "1": True, "2": True}


PIPES = """
r, w = os.pipe()
n, m = os.pipe2(os.O_NONBLOCK)
found["pipe"] = os.fstat(r).st_ino
found["is pipe"] = stat.S_ISFIFO(os.fstat(w).st_mode)
os.write(w, b"abc")
found["read"] = len(os.read(r, 9))
try:
    os.read(n, 1)
except BlockingIOError:
    found["does not block"] = 1
found["inherited"] = os.get_inheritable(r) + os.get_blocking(n)
for one in range(500):
    for end in os.pipe(): os.close(end)
made = [os.pipe() for _ in range(100)]
found["many"] = len({end for pair in made for end in pair})
save()
"""


@pytest.fixture
def one_processor() -> Iterator[None]:
    """Stay on one processor: the kernel gives each a stretch of its sequence of numbers."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(own)})
    yield
    os.sched_setaffinity(0, own)


def test_outside_the_number_of_a_pipe_counts_other_pipes(one_processor: None) -> None:
    before = pipe_number()
    made = [os.pipe() for _ in range(200)]
    assert pipe_number() - before >= 200
    for ends in made:
        for end in ends:
            os.close(end)


def test_the_number_of_a_pipe_tells_nothing_of_other_pipes(image: Image) -> None:
    first = image.numbers(SEES + PIPES)
    made = [os.pipe() for _ in range(400)]
    assert image.numbers(SEES + PIPES) == first
    for ends in made:
        for end in ends:
            os.close(end)
    assert first == {
        "pipe": first["pipe"],
        "is pipe": True,
        "read": 3,
        "does not block": 1,
        "inherited": 0,
        "many": 200,
    }
    assert first["pipe"] < 100


def pipe_number() -> int:
    ends = os.pipe()
    number = os.fstat(ends[0]).st_ino
    for end in ends:
        os.close(end)
    return number


HIDDEN = """
import fcntl, mmap
def tries(name, act):
    try:
        act(); found[name] = 1
    except OSError: pass
for name in ("/proc", "/sys"): found[name] = len(os.listdir(name))
for name in ("/dev/zero", "/dev/fd", "/proc/self"): tries(name, lambda: os.stat(name))
for number in range(3): tries(f"times of {number}", lambda: os.utime(number))
tries("times of a device", lambda: os.utime("/dev/null"))
tries("times of the image", lambda: os.utime("/bin/bash"))
tries("device", lambda: os.mknod("/tmp/null", 0o20600, os.makedev(1, 3)))
tries("lock of a device", lambda: fcntl.flock(0, fcntl.LOCK_SH))
tries("record of a device", lambda: fcntl.lockf(1, fcntl.LOCK_EX))
tries("lock of the image", lambda: fcntl.flock(os.open("/bin/bash", 0), fcntl.LOCK_SH))
tries("memory of no file", lambda: mmap.mmap(-1, 4096))
tries("private memory", lambda: mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
tries("signal to the reader", lambda: os.kill(1, 9))
tries("sockets", lambda: __import__("socket").socketpair())
found["session"] = os.getsid(0)
try: os.setsid()
except OSError: pass
found["session"] -= os.getsid(0)
save()
"""


def test_a_child_shares_nothing_that_another_block_or_the_host_can_see(image: Image) -> None:
    # the signal is sent, and process 1 of the block does not hear it
    assert image.numbers(SEES + HIDDEN) == {
        "/proc": 0, "/sys": 0, "private memory": 1, "signal to the reader": 1, "session": 0,
    }  # fmt: skip


STARVES = """
import signal
for _ in range(230):
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGCONT, lambda *_: None)
        os.kill(os.getpid(), signal.SIGSTOP)
        while True: pass
b = bytearray(40 << 20)
for pid in range(2, 240):
    try: os.kill(pid, signal.SIGCONT)
    except OSError: pass
while True: pass
"""


def test_a_block_of_many_busy_processes_ends_in_its_turn(image: Image) -> None:
    limits = SandboxLimits(cpu_s=1.0)
    made = image.sandbox()
    began = time.monotonic()
    ran = run(made, image.told(SEES + STARVES), limits)
    took = time.monotonic() - began
    made.kill()
    assert ran.output == b""
    assert took < turn_s(limits, is_tree=True) + SLACK_S


LINKS = {
    "to a counter of the machine": "ln -s /proc/sys/kernel/pid_max $2/answer.txt",
    "to a file of the sandbox": "ln -s /env/inside/filter $2/answer.txt",
    "to a row": "ln -s $1/participants.tsv $2/answer.txt",
    "for the folder": "mkdir /tmp/x; echo 1 > /tmp/x/answer.txt; rmdir $2; ln -s /work/tmp/x $2",
    "a named pipe": "mkfifo $2/answer.txt",
    "a folder": "mkdir $2/answer.txt",
}


@pytest.mark.parametrize("name", LINKS)
def test_what_is_no_plain_file_is_no_result(name: str, image: Image) -> None:
    ran = image.ran(bash(LINKS[name]))
    assert (ran.ended, ran.output) == (DONE, b"{}")


GROUPS = {
    "its group": ("kill -9 0", b""),
    "everybody": ("kill -9 -1; echo 1 > $2/answer.txt", answer("1\n")),
    "its parent": ("kill -9 $PPID; echo 1 > $2/answer.txt", b""),
    "the reader": ("kill -9 1; kill -INT 1; kill -CHLD 1; echo 1 > $2/answer.txt", answer("1\n")),
}


@pytest.mark.parametrize("name", GROUPS)
def test_a_signal_reaches_no_process_of_ours(name: str, image: Image) -> None:
    script, output = GROUPS[name]
    before = image.pool.pids()
    ran = image.ran(bash(script))
    assert ran.output == output
    assert image.pool.pids() == before or before == ()


TREE = """
for depth in range(3):
    if os.fork() == 0:
        os.setpgid(0, 0)
        break
import select
select.select([], [], [], 2)
"""
SEEN = 8  # zygote, keeper, reader, and five of the program's own


def test_whichever_process_is_killed_nothing_is_left_behind(image: Image) -> None:
    made = image.sandbox()
    program = image.told(SEES + TREE)
    for place in range(SEEN):
        if not made.is_alive():
            made.kill()
            made = image.sandbox()
        others = children(made.pid)
        with ThreadPoolExecutor(1) as threads:
            block = threads.submit(outcome, made, program)
            assert waited(lambda sandbox=made: len(children(sandbox.pid)) >= SEEN)
            there = sorted(children(made.pid))
            os.kill(there[place], signal.SIGKILL)
            ran = block.result()
        assert ran is None or ran.output in (b"", b"{}")
        gone = set(there) - others
        if there[place] in others:  # the zygote: with it ends the sandbox
            assert waited(lambda sandbox=made: not sandbox.is_alive())
            gone = {made.pid, *there}
        assert waited(lambda ended=gone: not any(map(is_there, ended)))
    made.kill()


def outcome(made: SandboxProcess, program: dict[str, object]) -> Ran | None:
    try:
        return run(made, program, Patient(cpu_s=5.0))
    except SandboxProcessEnded:
        return None


# --- covert senders -------------------------------------------------------------------------------

ANSWERS = """
import json, os, sys
os.makedirs(sys.argv[2], exist_ok=True)
os.chdir("/work")
child = os.fork()
if child:
    os.waitpid(child, 0)
    os._exit(0)
if os.fork() == 0:
    with open(sys.argv[1] + "/participants.tsv") as file:
        rows = {"id": file.read().splitlines()[1:]}
    try:
        said = sent(rows)
        said = said if isinstance(said, dict) else {"m": said}
        with open(sys.argv[2] + "/answer.txt", "w") as file:
            file.write(str(said.get("m")))
    finally:
        sys.stdout.flush()
        os._exit(0)
os.wait()
os._exit(0)
"""
CHILD_TAKES = """
 pid = os.fork()
 if pid == 0:
  x = bytearray(bit * (99 << 20)); os._exit(0)
 os.waitpid(pid, 0); return 170.0
"""
PROCESSES = """
 for _ in range(bit * 20):
  if os.fork() == 0: os._exit(0)
 return 170.0
"""
GOES_ON = """
 if bit and os.fork() == 0:
  os.setpgid(0, 0)
  while True: pass
 return 170.0
"""
OF_A_TREE = {
    "number of processes": PROCESSES,
    "goes on": GOES_ON,
    "pipes": "[os.pipe() for _ in range(bit * 99)]; return 170.0",
    "device": "bit and os.open('/dev/null', os.O_RDWR | os.O_TRUNC); return 170.0",
    "memory of a child": CHILD_TAKES,
    # by the bytes of the file in which the answer is
    "spaces around the number": "return ' ' * bit * 99 + '170.0'",
    "long fraction": "return '170.' + '0' * (1 + bit * 29)",
    "empty or malformed": "return 'x' * (1 - bit)",
    "too long or empty": "return 'x' * (bit << 20)",
}
# they send by the text that a function's process writes, of which a tree's file has only the number
OF_A_FUNCTION = frozenset({
    "key-order", "extra-key", "long-answer", "missing-or-malformed", "too-long-or-missing",
    "spaces-in-answer", "half-an-answer", "deep-answer", "hex-of-nothing",
})  # fmt: skip
NUMBERS = read_outputs([
    {"name": "m", "lower": 100, "upper": 200, "step": "0.01", "path": RESULT}
])  # fmt: skip
ONE_MORE = ROWS + "cyd\t175\n"


WAITS_BARE = """
import os, resource, sys
said = sent({'id': list(range(int(sys.argv[1])))})
used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # kilobytes of the largest child
os.write(int(sys.argv[2]), b'%d %d' % (used >> 16, len(str(said))))
os.read(int(sys.argv[3]), 1)  # while it is watched
os._exit(0)
"""
# what whoever watches a bare process sees of the sender, and how much more of it for the bit
HEARD_BARE = {
    "number of processes": ("children", 20),
    "goes on": ("left behind", 1),
    "pipes": ("pipes", 198),
    "device": ("devices", 1),
    "memory of a child": ("memory", 1),
    "spaces around the number": ("letters", 99),
    "long fraction": ("letters", 29),
    "empty or malformed": ("letters", -1),
    "too long or empty": ("letters", 1 << 20),
}


@pytest.mark.parametrize("name", OF_A_TREE)
def test_a_bit_of_a_tree_is_heard_of_a_bare_process(name: str) -> None:
    what, more = HEARD_BARE[name]
    assert heard_bare(name, 3)[what] - heard_bare(name, 2)[what] == more


def heard_bare(name: str, people: int) -> dict[str, int]:
    """Return what is seen from outside of a process that runs the sender without a sandbox."""
    (hear, say), (told, tell) = os.pipe(), os.pipe()
    words = [sys.executable, "-I", "-c", f"import os\n{sender(name)}{WAITS_BARE}"]
    with subprocess.Popen([*words, str(people), str(say), str(told)], pass_fds=(say, told)) as bare:
        memory, letters = map(int, os.read(hear, 19).split())
        folder = Path(f"/proc/{bare.pid}/fd")
        held = [os.readlink(one) for one in folder.iterdir()]
        seen = {
            "memory": memory,
            "letters": letters,
            "pipes": sum(one.startswith("pipe:") for one in held),
            "devices": held.count("/dev/null"),
        }
        below = children(bare.pid)
        os.write(tell, b"x")
    left = list(filter(is_there, below))
    for one in left:
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    for end in (hear, say, told, tell):
        os.close(end)
    return {**seen, "children": len(below), "left behind": len(left)}


@pytest.mark.parametrize("name", [*sorted(SENDERS.keys() - OF_A_FUNCTION), *OF_A_TREE])
@pytest.mark.parametrize("sends", ["child", "grandchild"])
@pytest.mark.parametrize("timing", [ISOLATED, BATCH])
def test_a_bit_that_another_process_sends_is_not_heard(
    name: str, sends: str, timing: str, image: Image
) -> None:
    answers = ANSWERS if sends == "grandchild" else ANSWERS.replace("os.fork() == 0", "True")
    program = "import os\n" + sender(name) + answers
    heard = [heard_by_the_release(image, program, rows, timing) for rows in (ROWS, ONE_MORE)]
    assert heard[0] == heard[1]
    assert heard[0] in ([7000], [5000], [10_000])


def test_every_sender_that_a_tree_lacks_is_one_of_a_function() -> None:
    assert SENDERS.keys() > OF_A_FUNCTION


def sender(name: str) -> str:
    if name in SENDERS:
        return source(name)
    body = OF_A_TREE[name].strip()
    return f"def send(bit):\n {body}\ndef sent(rows): return send(len(rows['id']) - 2)\n"


def heard_by_the_release(image: Image, program: str, rows: str, timing: str) -> list[int]:
    (image.place / "sent").write_text(rows)
    told = {**image.told(program), "paths": [RESULT]}
    limits = SandboxLimits(cpu_s=8.0, timing=timing, job_s=60 if timing == BATCH else None)
    job = BlockJob(told, (str(image.place / "sent"),), NUMBERS, limits, own=image.own)
    found: list[int] = unseal(image.pool.run(job)).ravel().tolist()
    return found
