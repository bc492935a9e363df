"""A block of a process tree has a control group of its own, where the kernel offers groups (v2)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sfumato.sandbox.availability_report import held_in_words
from sfumato.sandbox.base_environment import environment, with_own
from sfumato.sandbox.container_runtimes import BUBBLEWRAP, PODMAN, Runtime
from sfumato.sandbox.control_group import (
    GroupHome,
    SandboxGroups,
    find_home,
    remove_leftovers,
    wall_mb,
)
from sfumato.sandbox.ports import BATCH, SandboxLimits
from sfumato.sandbox.sandbox_process import (
    BROKEN,
    DONE,
    FULL,
    LATE,
    SandboxProcess,
    SandboxProcessEnded,
)
from sfumato.system.randomness import SystemRandomSource
from support.process_tree import children, waited
from support.sandbox_blocks import needs_bubbles, run
from support.tree_images import ENOUGH, Image, Patient, answer, bash

pytestmark = needs_bubbles
HOME = find_home()
needs_groups = pytest.mark.skipif(
    HOME is None, reason="no control group can be made here: no cgroup v2, or it is read-only"
)


def is_offered(controller: str) -> bool:
    """Return True if the kernel offers this controller in cgroup v2 here."""
    return HOME is not None and controller in HOME.controllers


@pytest.fixture
def home() -> GroupHome:
    """Return where groups can be made here."""
    assert HOME is not None
    return HOME


@pytest.fixture
def groups(home: GroupHome) -> Iterator[SandboxGroups]:
    """Return the groups of one sandbox, without a sandbox."""
    made = SandboxGroups(home.place, None)
    yield made
    made.close()


@pytest.fixture
def sandbox(image: Image, home: GroupHome) -> Iterator[SandboxProcess]:
    """Return a sandbox with the image, whose blocks have control groups."""
    with_files = with_own(environment(), image.kept.files(image.own), is_image=True)
    made = SandboxProcess(with_files, min(os.sched_getaffinity(0)), SystemRandomSource(), home=home)
    assert made.has_groups
    yield made
    made.kill()


def place_of(made: SandboxProcess) -> Path:
    """Return the folder of a sandbox's groups."""
    assert made._groups is not None
    return made._groups.place


def below(group: Path) -> list[str]:
    return sorted(found.name for found in group.iterdir() if found.is_dir())


# --- processor time -------------------------------------------------------------------------------

SHORT_LIVED = """
import os, signal, sys, time
os.makedirs(sys.argv[2], exist_ok=True)
used = os.open("/tmp/used", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def burn():
    while time.process_time() < 0.002: pass
    os.write(used, b"%d\\n" % (time.process_time_ns() // 1000))
    os._exit(0)
def wait():
    try:
        while True: os.wait()
    except ChildProcessError: pass
BODY
total = sum(map(int, open("/tmp/used"))) + time.process_time_ns() // 1000
open(sys.argv[2] + "/answer.txt", "w").write(str(total))
"""
BODIES = {
    "of a parent that ignores its children": """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(200):
    if os.fork() == 0: burn()
    wait()
""",
    "of a parent that has ended": """
for _ in range(200):
    if os.fork() == 0:
        if os.fork() == 0: burn()
        os._exit(0)
    wait()
time.sleep(0.5)
""",
}


@needs_groups
@pytest.mark.parametrize("name", BODIES)
def test_the_time_of_every_short_lived_process_is_counted(name: str, image: Image) -> None:
    ran = image.ran(SHORT_LIVED.replace("BODY", BODIES[name]), Patient(cpu_s=30.0))
    assert ran.ended == DONE
    (hexed,) = json.loads(ran.output).values()
    assert ran.used_us >= int(bytes.fromhex(hexed))


@needs_groups
def test_a_block_is_late_by_processes_that_nobody_waits_for(image: Image) -> None:
    body = BODIES["of a parent that ignores its children"].replace("200", "100_000")
    late = image.ran(SHORT_LIVED.replace("BODY", body), Patient(cpu_s=1.0))
    assert (late.ended, late.output) == (LATE, b"")


FILLED = """
import os, signal
for _ in range(3):
    if os.fork() == 0:
        b = bytearray(60 << 20)
        signal.pause()
signal.pause()
"""
OUTCOMES = {
    "a number": (bash("seq 9 | wc -l > $2/answer.txt"), ENOUGH, DONE),
    "too much time": (bash("while :; do (:) & wait; done"), Patient(cpu_s=0.5), LATE),
    "too much memory": (FILLED, Patient(cpu_s=60.0, memory_mb=128), FULL),
    "killed": (bash("kill -9 $$"), ENOUGH, BROKEN),
}


@needs_groups
@pytest.mark.parametrize("name", OUTCOMES)
def test_a_block_ends_alike_with_and_without_a_group(name: str, image: Image) -> None:
    program, limits, expected = OUTCOMES[name]
    with_group = image.ran(program, limits)
    with without_groups(image):
        without = image.ran(program, limits)
    assert (with_group.ended, with_group.output) == (without.ended, without.output)
    assert with_group.ended == expected


@contextmanager
def without_groups(image: Image) -> Iterator[None]:
    """Run blocks as on a machine where no control group can be made."""
    image.pool.close()
    image.pool.find_home, kept = lambda: None, image.pool.find_home
    try:
        yield
        assert not any(one.has_groups for one in image.pool._sandboxes)
    finally:
        image.pool.close()
        image.pool.find_home = kept


# their first process never ends, so the sums at a block's end say nothing
BURNS_FOR_EVER = {
    "of children that run": """
for _ in range(3):
    if os.fork() == 0:
        while True: pass
""",
    "of children that have ended": """
for _ in range(60):
    if os.fork() == 0:
        while time.process_time() < 0.2: pass
        os._exit(0)
    os.wait()
""",
}


@pytest.mark.parametrize("name", BURNS_FOR_EVER)
def test_without_a_group_the_time_of_the_whole_tree_is_watched(name: str, image: Image) -> None:
    program = f"import os, signal, time{BURNS_FOR_EVER[name]}signal.pause()"
    with without_groups(image):
        late = image.ran(program, Patient(cpu_s=1.0))
    assert (late.ended, late.output) == (LATE, b"")


# --- ends -----------------------------------------------------------------------------------------

HOPS = """
import os, sys
os.write(1, b"begun")
while True:  # its process id is always another one
    if os.fork(): os._exit(0)
"""


def enter(group: Path) -> None:
    (group / "cgroup.procs").write_text("0")


@needs_groups
def test_a_process_that_forks_faster_than_it_is_found_ends_with_its_group(
    groups: SandboxGroups,
) -> None:
    group = groups.place / "block"
    with groups.block(SandboxLimits()):
        for _ in range(4):
            with subprocess.Popen(
                [sys.executable, "-c", HOPS],
                stdout=subprocess.PIPE,
                preexec_fn=lambda: enter(group),
            ) as begun:
                assert begun.stdout is not None
                assert begun.stdout.read(5) == b"begun"
        assert "populated 1" in (group / "cgroup.events").read_text()
    assert below(groups.place) == ["warm"]


@needs_groups
def test_a_group_is_new_for_each_block(groups: SandboxGroups) -> None:
    for _ in range(2):
        with groups.block(SandboxLimits()) as (_, clock, *_rest):
            assert os.pread(clock, 64, 0).splitlines()[0] == b"usage_usec 0"
            entered = [sys.executable, "-c", "sum(range(10**6))"]
            subprocess.run(entered, check=True, preexec_fn=lambda: enter(groups.place / "block"))
            assert os.pread(clock, 64, 0).splitlines()[0] != b"usage_usec 0"


STORM = bash("f() { f | f & }; f; while :; do :; done")


@needs_groups
@pytest.mark.parametrize("timing", ["isolated", BATCH])
def test_no_process_and_no_group_outlives_a_block(timing: str, image: Image) -> None:
    limits = SandboxLimits(cpu_s=1.0, timing=timing)
    assert image.ran(STORM, limits).output in (b"", b"{}")
    for made in image.pool._sandboxes:
        assert made.has_groups
        assert below(place_of(made)) == ["warm"]
    assert image.ran(bash("echo 1 > $2/answer.txt"), limits).output == answer("1\n")
    places = [place_of(made) for made in image.pool._sandboxes]
    image.pool.close()
    assert not any(place.exists() for place in places)


@needs_groups
def test_a_block_whose_keeper_was_killed_leaves_nothing(
    image: Image, sandbox: SandboxProcess
) -> None:
    before = children(sandbox.pid)
    place = place_of(sandbox)
    ended: list[bool] = []

    def begin() -> None:
        limits = Patient(cpu_s=60.0)
        try:
            run(sandbox, image.told(bash("while :; do :; done")), limits)
        except SandboxProcessEnded:
            ended.append(True)

    thread = threading.Thread(target=begin)
    thread.start()
    assert waited(lambda: "populated 1" in text_of(place / "block" / "cgroup.events"))
    (keeper,) = [one for one in children(sandbox.pid) - before if parent(one) in before]
    os.kill(keeper, signal.SIGKILL)
    thread.join()
    assert ended == [True]
    assert below(place) == ["warm"]
    assert waited(lambda: children(sandbox.pid) == before)


def parent(process: int) -> int:
    """Return the process that has started this one; 0 if this one has ended."""
    lines = text_of(Path(f"/proc/{process}/status")).splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("PPid:")), 0)


def text_of(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


DIES = """
import os, sys
from pathlib import Path
from sfumato.sandbox.control_group import SandboxGroups
from sfumato.sandbox.ports import SandboxLimits
made = SandboxGroups(Path(sys.argv[1]), None)
with made.block(SandboxLimits()):
    print(made.place, flush=True)
    if os.fork() == 0:
        os.closerange(0, 256)  # also the lock
        Path(made.place, "block", "cgroup.procs").write_text("0")
        os.kill(os.getppid(), 9)
        while True: pass
    while True: pass
"""


@needs_groups
def test_the_next_start_removes_the_groups_of_a_killed_process(
    home: GroupHome, groups: SandboxGroups
) -> None:
    died = subprocess.run(
        [sys.executable, "-c", DIES, str(home.place)], capture_output=True, check=False, text=True
    )
    left = Path(died.stdout.strip())
    assert died.returncode == -signal.SIGKILL
    assert left.parent == home.place
    remove_leftovers(home.place)
    assert not left.exists()
    assert below(groups.place) == ["warm"]  # one that is in use stays


# --- what a program sees --------------------------------------------------------------------------

LOOKS = """
import json, os, sys
os.makedirs(sys.argv[2], exist_ok=True)
found = {}
for number in range(3, 1024):
    try:
        os.fstat(number)
        found[f"descriptor {number}"] = 1
    except OSError: pass
for folder, below, names in os.walk("/", onerror=None):
    for name in names + below:
        if name.startswith("cgroup.") or name in ("cpu.stat", "pids.max", "memory.max"):
            found[folder + "/" + name] = 1
    below[:] = [one for one in below if folder + one not in ("/proc", "/opt")]
try:
    lines = open("/proc/self/cgroup").read().split()
    found["below the top"] = sum(not line.endswith(":/") for line in lines)
    found["cgroup in mounts"] = open("/proc/self/mountinfo").read().count(" - cgroup")
    try:
        open("/proc/self/cgroup", "w").write("0")
        found["written"] = 1
    except OSError: pass
except FileNotFoundError: found["no /proc"] = 1
open(sys.argv[2] + "/answer.txt", "w").write(json.dumps(found))
"""


@needs_groups
@pytest.mark.parametrize(
    ("timing", "expected"),
    [("isolated", {"no /proc": 1}), (BATCH, {"below the top": 0, "cgroup in mounts": 0})],
)
def test_a_program_sees_no_group(timing: str, expected: dict[str, int], image: Image) -> None:
    ran = image.ran(LOOKS, replace(ENOUGH, timing=timing, memory_mb=512))
    (hexed,) = json.loads(ran.output).values()
    assert json.loads(bytes.fromhex(hexed)) == expected
    assert all(made.has_groups for made in image.pool._sandboxes)


# --- limits ---------------------------------------------------------------------------------------

FORKS = """
import os, signal, sys
os.makedirs(sys.argv[2], exist_ok=True)
made = 0
try:
    while made < 500:
        if os.fork() == 0: signal.pause()
        made += 1
except OSError: pass
open(sys.argv[2] + "/answer.txt", "w").write(str(made))
"""


@needs_groups
def test_a_group_has_no_more_processes_than_a_block(groups: SandboxGroups, tmp_path: Path) -> None:
    group = groups.place / "block"
    with groups.block(SandboxLimits(processes=20)):
        if not is_offered("pids"):  # then no group has such a limit
            assert not (group / "pids.max").exists()
            return
        subprocess.run(
            [sys.executable, "-c", FORKS, "", str(tmp_path)],
            check=True,
            preexec_fn=lambda: enter(group),
        )
        made = int((tmp_path / "answer.txt").read_text())
    assert made == 19


FILLS = "import sys; b = bytearray(int(sys.argv[1]) << 20); print(len(b) >> 20)"


@needs_groups
def test_a_group_holds_far_more_memory_than_a_block_and_not_everything(
    groups: SandboxGroups,
) -> None:
    limits = SandboxLimits(memory_mb=16, disk_mb=1)
    for size, expected in ((wall_mb(limits), 0), (wall_mb(limits) + 1100, -signal.SIGKILL)):
        with groups.block(limits) as opened:
            if not is_offered("memory"):  # then no group has such a limit
                assert len(opened) == 3
                return
            assert len(opened) == 4
            filled = subprocess.run(
                [sys.executable, "-c", FILLS, str(size)],
                check=False,
                preexec_fn=lambda: enter(groups.place / "block"),
            )
            assert filled.returncode == expected


MAKES_FILES = """
import os
for place in range(1_000_000):
    os.close(os.open(f"/tmp/{place:0200d}", os.O_CREAT | os.O_WRONLY))
"""


@needs_groups
def test_a_block_that_fills_memory_of_the_kernel_is_full(
    image: Image, sandbox: SandboxProcess, groups: SandboxGroups
) -> None:
    limits = Patient(cpu_s=60.0, memory_mb=32, disk_mb=1, files=1_000_000)
    if not is_offered("memory"):  # then nobody counts that memory (sharp-edges.md)
        with groups.block(limits):
            assert not (groups.place / "block" / "memory.current").exists()
        return
    assert run(sandbox, image.told(MAKES_FILES), limits).ended == FULL


# --- where ----------------------------------------------------------------------------------------

MOUNTS = """22 1 0:20 / /proc rw,nosuid - proc proc rw
31 22 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755
32 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
41 31 0:38 ROOT PLACE rw,relatime shared:9 - cgroup2 cgroup2 rw
"""


@pytest.mark.parametrize("root", ["/", "/system.slice/a"])
def test_no_group_is_made_where_the_kernel_does_not_offer_it(root: str, tmp_path: Path) -> None:
    mounts, own, place = tmp_path / "mountinfo", tmp_path / "cgroup", tmp_path / "groups"
    place.mkdir()
    mounts.write_text(MOUNTS.replace("ROOT", root).replace("PLACE", str(place)))
    for line in ("", "0::/../b\n", "0::/\n", "0::/system.slice/b\n", "4:memory:/\n"):
        own.write_text(f"5:cpu:/\n{line}")
        assert find_home(mounts, own) is None
    mounts.unlink()
    assert find_home(mounts, own) is None


FINDS = """
import os, sys
from sfumato.sandbox.control_group import find_home
print(find_home().place)
"""


@needs_groups
@pytest.mark.skipif(os.geteuid() != 0, reason="only root marks a group as systemd does")
@pytest.mark.parametrize("mark", [b"1", b"0", b""])
def test_groups_are_made_beside_ours_where_systemd_has_delegated_the_one_above(
    mark: bytes, home: GroupHome
) -> None:
    above = home.place / f"test-{os.getpid()}"
    (above / "main").mkdir(parents=True)
    try:
        if mark:
            os.setxattr(above, "user.delegate", mark)
        found = subprocess.run(
            [sys.executable, "-c", FINDS],
            capture_output=True,
            check=True,
            text=True,
            preexec_fn=lambda: enter(above / "main"),
        )
        assert Path(found.stdout.strip()) == (above if mark == b"1" else above / "main")
    finally:
        (above / "main").rmdir()
        above.rmdir()


@needs_groups
@pytest.mark.skipif(os.geteuid() != 0, reason="else a sandbox has our own uid, and our rights")
def test_where_a_sandbox_may_not_enter_a_group_blocks_run_without_one(
    image: Image, home: GroupHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: set[Path] = set()
    monkeypatch.setattr(SandboxGroups, "_hand_over", lambda groups, _: tried.add(groups.place))
    with_files = with_own(environment(), image.kept.files(image.own), is_image=True)
    made = SandboxProcess(with_files, min(os.sched_getaffinity(0)), SystemRandomSource(), home=home)
    try:
        assert not made.has_groups
        assert [place.exists() for place in tried] == [False]
        ran = run(made, image.told(bash("echo 1 > $2/answer.txt")), ENOUGH)
        assert ran.output == answer("1\n")
    finally:
        made.kill()


# --- what the doctor says -------------------------------------------------------------------------

SAYS = {
    "all limits": (BUBBLEWRAP, {"memory", "pids"}, "outer limits on memory and the number of"),
    "one limit": (
        BUBBLEWRAP,
        {"pids"},
        "an outer limit on the number of processes. They do not limit",
    ),
    "no limit": (
        BUBBLEWRAP,
        set[str](),
        "do not limit memory and the number of processes, because",
    ),
    "no groups": (BUBBLEWRAP, None, "Delegate=memory pids, DelegateSubgroup=main and"),
    "containers": (PODMAN, None, "use bubblewrap instead of containers"),
}


@pytest.mark.parametrize("name", SAYS)
def test_the_doctor_says_which_limits_groups_have_and_how_to_get_them(name: str) -> None:
    runtime, controllers, expected = SAYS[name]
    home = None if controllers is None else GroupHome(Path("/g"), frozenset(controllers))
    assert expected in held_in_words(Runtime(runtime), home)


@needs_groups
def test_the_doctor_finds_the_groups_that_blocks_get(image: Image, home: GroupHome) -> None:
    assert image.pool.group_home() == home
