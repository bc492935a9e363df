"""An image's program is a process tree: it forks, executes and pipes, within a block's limits."""

from __future__ import annotations

import os
import time

import pytest

from sfumato.sandbox.base_environment import environment
from sfumato.sandbox.container_runtimes import APPTAINER, DOCKER, Runtime
from sfumato.sandbox.ports import SandboxLimits
from sfumato.sandbox.sandbox_pool import SandboxPool
from sfumato.sandbox.sandbox_process import DONE, FULL, LATE
from sfumato.system.randomness import SystemRandomSource
from support.process_tree import children, waited
from support.sandbox_blocks import needs_bubbles
from support.tree_images import ENOUGH, Image, Patient, answer, bash

pytestmark = needs_bubbles

SCRIPTS = {
    "pipe": (
        """
cat $1/participants.tsv | tail -n +2 | cut -f2 | sort -n | head -1 > $2/answer.txt
""",
        "170\n",
    ),
    "substitution": (
        """
sum=$(seq 1 10 | awk '{s += $1} END {print s}'); echo $sum > $2/answer.txt
""",
        "55\n",
    ),
    "here document": (
        """
cat > $2/answer.txt <<END
$((6 * 7))
END
""",
        "42\n",
    ),
    "in the background": (
        """
for i in 1 2 3; do (echo $i > /tmp/$i) & done; wait
cat /tmp/[123] | wc -l > $2/answer.txt
""",
        "3\n",
    ),
    "own script": (
        """
printf '#!/bin/sh\\necho $((2 + 3))\\n' > /tmp/s; chmod +x /tmp/s; /tmp/s > $2/answer.txt
""",
        "5\n",
    ),
    "xargs": ("seq 20 | xargs -n 5 -P 4 sh -c 'echo $#' x | sort -u > $2/answer.txt", "5\n"),
    "find": (
        """
touch /tmp/a.txt /tmp/b.txt; find /tmp -name '*.txt' -exec cat {} +
find /tmp -name '?.txt' | wc -l > $2/answer.txt
""",
        "2\n",
    ),
    "make": (
        """
printf 'all: a\\n\\tcat a > $2/answer.txt\\na:\\n\\techo 8 > a\\n' > /tmp/Makefile
cd /tmp && make -s
""",
        "8\n",
    ),
    "many pipes": ("for i in $(seq 150); do true | true; done; echo $i > $2/answer.txt", "150\n"),
    "named pipe": ("mkfifo /tmp/f; (echo 3 > /tmp/f) & cat /tmp/f > $2/answer.txt", "3\n"),
    "pipes among signals": (
        "for i in $(seq 300); do (:) & x=$(echo $i); done; echo $x > $2/answer.txt",
        "300\n",
    ),
    "pipes of a shell whose handler restarts nothing": (
        """
for i in $(seq 100); do sh -c 'echo 1 2 | tr 1 3 | tail -n 1 | cat' || echo bad; done |
sort -u > $2/answer.txt
""",
        "3 2\n",
    ),
    "signals": (
        """
sleep 9 & trap 'echo 4 > $2/answer.txt; exit' TERM; kill -TERM $$; wait
""",
        "4\n",
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_shell_script_runs_as_its_author_wrote_it(name: str, image: Image) -> None:
    script, expected = SCRIPTS[name]
    if name == "signals":
        script = "out=$2\n" + script.replace("$2", "$out")
    if name == "make":
        script = script.replace("$2", "/work/out")
    tried = image.tried(bash(script))
    assert tried.output == answer(expected), tried.printed.decode()
    assert tried.ending == "exit status 0"


POOL = """#!/opt/python/bin/python3.11
import json, multiprocessing, subprocess, sys, threading
def square(x): return x * x
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(3) as pool:
        total = sum(pool.map(square, range(10)))
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        total += sum(pool.map(square, range(3)))
    said = subprocess.run(["sh", "-c", "cat; echo 5"], input=b"4 ", capture_output=True).stdout
    total += sum(map(int, said.split()))
    import os
    os.makedirs(sys.argv[2])if not os.path.isdir(sys.argv[2]) else None
    open(sys.argv[2] + "/answer.txt", "w").write(str(total))
"""


def test_python_starts_workers_and_other_programs(image: Image) -> None:
    version = environment().python.rpartition("/")[2]
    tried = image.tried(POOL.replace("python3.11", version))
    assert tried.output == answer(str(285 + 5 + 9)), tried.printed.decode()


SIGNALS = """#!/opt/python/bin/python3.11
import ctypes, os, signal, sys
libc = ctypes.CDLL(None)
def heard(*_):
    global seen
    seen += 1
def ended():
    child = os.fork()
    if child == 0: os._exit(0)
    return child
seen = failed = 0
signal.signal(signal.SIGCHLD, heard)   # as dash, and unlike bash, without SA_RESTART
for nowhere in (1, 2**47, 2**63, 2**64 - 8, 2**64 - 1):  # rt_sigaction answers EFAULT
    libc.syscall(13, 17, ctypes.c_ulong(nowhere), None, 8)
for _ in range(400):
    child = ended()
    try:
        for end in os.pipe(): os.close(end)
    except InterruptedError:
        failed += 1
    os.waitpid(child, 0)
if not seen: failed = "no signal"
os.makedirs(sys.argv[2], exist_ok=True)
open(sys.argv[2] + "/answer.txt", "w").write(str(failed))
"""


def test_no_pipe_fails_because_a_child_ended_meanwhile(image: Image) -> None:
    version = environment().python.rpartition("/")[2]
    tried = image.tried(SIGNALS.replace("python3.11", version))
    assert tried.output == answer("0"), tried.printed.decode()


def test_a_trial_gives_the_exit_status_of_the_first_process(image: Image) -> None:
    tried = image.tried(bash("echo to-error >&2; (exit 5); exit 7"))
    assert (tried.ending, tried.printed) == ("exit status 7", b"to-error\n")


def test_a_program_begins_in_the_working_directory_of_its_image(image: Image) -> None:
    assert image.ran(bash("pwd > $2/answer.txt")).output == answer("/opt/python\n")


USES = """
b = bytearray(60 << 20)
for _ in range(3):
    if os.fork() == 0:
        burn(0.3)
        os._exit(0)
for _ in range(3):
    os.wait()
"""


def test_a_trial_gives_what_all_processes_used(image: Image) -> None:
    use = image.tried(FORKS + USES).use
    assert 0.9 < use.cpu_s < 3.0
    assert 60 << 20 < use.memory < 500 << 20
    assert use.processes == 4


# --- limits ---------------------------------------------------------------------------------------

FORKS = """
import os, signal, sys, time
os.makedirs(sys.argv[2], exist_ok=True)
open(sys.argv[2] + "/answer.txt", "w").write("1")
def burn(s):
    until = time.process_time() + s
    while time.process_time() < until: pass
"""
BURNS = {
    "children at once": """
for _ in range(4):
 if os.fork() == 0: burn(0.5); os._exit(0)
for _ in range(4): os.wait()
""",
    "one after another": """
for _ in range(4):
 if os.fork() == 0: burn(0.5); os._exit(0)
 os.wait()
""",
    "grandchildren": """
hear, say = os.pipe()
if os.fork() == 0:
 for _ in range(4):
  if os.fork() == 0: burn(0.5); os._exit(0)
 os._exit(0)
os.close(say)
os.read(hear, 1)  # until the last of them has ended, or all are killed
""",
    "after the first has ended": """
for _ in range(8):
 if os.fork() == 0: os.setpgid(0, 0); burn(60)
burn(0.2)
""",
}


@pytest.mark.parametrize("name", [*BURNS][:3])
def test_the_clock_of_a_block_is_that_of_its_whole_tree(name: str, image: Image) -> None:
    assert image.ran(FORKS + BURNS[name].replace("0.5", "0.01"), Patient(cpu_s=1.0)).ended == DONE
    late = image.ran(FORKS + BURNS[name], Patient(cpu_s=1.0))
    assert (late.ended, late.output) == (LATE, b"")


def test_what_goes_on_after_the_first_process_is_ended(image: Image) -> None:
    ran = image.ran(FORKS + BURNS["after the first has ended"], Patient(cpu_s=20.0))
    assert (ran.ended, ran.output) == (DONE, answer("1"))
    assert waited(lambda: not left_behind(image))


MEMORY = {
    "of children": """
for _ in range(4):
 if os.fork() == 0: b = bytearray(100 << 20); signal.pause()
signal.pause()
""",
    "of threads whose first has ended": """
import ctypes, select, threading
def fill():
    global b
    select.select([], [], [], 0.3)  # the first thread has ended by then
    b = bytearray(100 << 20)
    signal.pause()
for _ in range(4):
    if os.fork() == 0:
        threading.Thread(target=fill).start()
        ctypes.CDLL(None).syscall(60, 0)
signal.pause()
""",
    "of page tables": """
import ctypes
call = ctypes.CDLL(None).mmap
call.restype = ctypes.c_void_p
call.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 5]
for child in range(6):
    if os.fork() == 0:
        for place in range(12_000):
            at = 0x100000000000 + place * (2 << 20)
            found = call(at, 4096, 3, 0x100022, (1 << 64) - 1, 0)
            ctypes.c_char.from_address(found).value
        signal.pause()
signal.pause()
""",
    "of programs that nobody may look into": """
import shutil
shutil.copy(os.path.realpath("/sbin/python3"), "/tmp/python")
os.chmod("/tmp/python", 0o111)
code = "b = bytearray(100 << 20); import signal; signal.pause()"
for _ in range(4):
    if os.fork() == 0:
        os.environ["PYTHONHOME"] = "/opt/python"
        os.execv("/tmp/python", ["python", "-c", code])
signal.pause()
""",
}


@pytest.mark.parametrize("name", MEMORY)
def test_all_processes_of_a_block_share_its_memory(name: str, image: Image) -> None:
    ran = image.ran(FORKS + MEMORY[name], Patient(cpu_s=30.0, memory_mb=256))
    assert (ran.ended, ran.output) == (FULL, b"")


SHARES = """
b = bytearray(120 << 20)
for _ in range(6):
    if os.fork() == 0:
        burn(0.1)
        os._exit(0)
for _ in range(6):
    os.wait()
"""


def test_pages_that_children_inherit_count_once(image: Image) -> None:
    ran = image.ran(FORKS + SHARES, Patient(cpu_s=30.0, memory_mb=256))
    assert (ran.ended, ran.output) == (DONE, answer("1"))


IGNORES = """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    try:
        if os.fork() == 0:
            burn(0.001)
            os._exit(0)
    except OSError:
        pass
"""
OF_THREADS = """
import threading
while True:
    try:
        threading.Thread(target=burn, args=(9,)).start()
    except RuntimeError:
        pass
"""
BOMBS = {
    "of a shell": bash("f() { f | f & }; f; while :; do :; done"),
    "that ignores its children": FORKS + IGNORES,
    "of threads": FORKS + OF_THREADS,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends_with_its_block_and_leaves_nothing(name: str, image: Image) -> None:
    began = time.monotonic()
    assert image.ran(BOMBS[name], SandboxLimits(cpu_s=1.0)).output in (b"", b"{}")
    assert time.monotonic() - began < 60
    assert waited(lambda: not left_behind(image))
    assert image.ran(bash("echo 1 > $2/answer.txt")).output == answer("1\n")


def left_behind(image: Image) -> set[int]:
    """Return the processes of the sandboxes that should not exist between two blocks."""
    pids = image.pool.pids()
    below = {pid: children(pid) for pid in pids}
    # a launcher is one process of ours, bubblewrap itself, and below it the zygote alone
    return {one for pid in pids for one in sorted(below[pid])[1:]}


def test_beside_a_process_tree_runs_no_other_block(image: Image) -> None:
    assert image.pool.lanes(ENOUGH) == min(2, len(os.sched_getaffinity(0)))
    assert image.pool.lanes(ENOUGH, image.own) == 1


def test_a_process_tree_runs_only_where_its_keeper_has_a_processor(image: Image) -> None:
    for runtime in (Runtime(DOCKER, f"sha256:{'a' * 64}"), Runtime(APPTAINER)):
        pool = SandboxPool(environment, SystemRandomSource(), own=image.kept, runtime=runtime)
        assert (pool.lanes(ENOUGH, image.own), pool.lanes(ENOUGH) > 0) == (0, True)
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(own)})
    try:
        assert (image.pool.lanes(ENOUGH, image.own), image.pool.lanes(ENOUGH)) == (0, 1)
    finally:
        os.sched_setaffinity(0, own)
