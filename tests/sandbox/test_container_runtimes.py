"""How runtimes are told to start a bubble, and that what they start is the same bubble."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sfumato.app import vault
from sfumato.app.doctor import checkup
from sfumato.dp.refusal import Refused
from sfumato.sandbox.base_environment import environment
from sfumato.sandbox.container_root import listening
from sfumato.sandbox.container_runtimes import (
    BUBBLEWRAP,
    ContainerSettings,
    calls,
    command,
    read_runtime,
)
from sfumato.sandbox.ports import SandboxLimits, SandboxStopped
from sfumato.sandbox.sandbox_pool import SandboxPool
from sfumato.sandbox.sandbox_process import Ran
from sfumato.sandbox.seccomp import ALLOWED
from sfumato.system.randomness import SystemRandomSource
from support.sandbox_blocks import ROWS, bubble, needs_bubbles, ran_in, starts

IMAGE = "sha256:" + "ab" * 32
WALL = ContainerSettings(
    files="/c/0123", own=None, control="/c/.control-x/control", root="/c/room/root",
    calls="/c/room/calls.json", uid=61200, gid=61200, cpu=3, memory_mb=9000,
)  # fmt: skip
GOLDEN = Path(__file__).with_name("golden")
NAMED = {"podman": "podman", "podman-runc": "podman:runc", "docker": f"docker:{IMAGE}",
         "apptainer": "apptainer"}  # fmt: skip


@pytest.mark.parametrize("name", sorted(NAMED))
@pytest.mark.parametrize("own", [None, "/c/own/lock-1/files"])
def test_a_runtime_is_told_this_and_no_more(name: str, own: str | None) -> None:
    said = command(read_runtime(NAMED[name]), replace(WALL, own=own))
    kept = GOLDEN / f"{name}{'' if own is None else '-own'}.txt"
    assert "\n".join(said) + "\n" == kept.read_text()


@pytest.mark.parametrize("name", sorted(NAMED))
def test_no_container_is_given_anything_of_the_host_or_a_right_that_matters(name: str) -> None:
    said = command(read_runtime(NAMED[name]), WALL)
    text = " ".join(said).lower()
    for ours in ("--hostname bubble", "--no-hosts", "--mount-proc"):
        text = text.replace(ours, "")
    for never in ("privileged", "unconfined", "sys_admin", "host", ":latest", "proc", ".sock"):
        assert never not in text
    assert f"seccomp={WALL.calls}" in said or f"seccomp:{WALL.calls}" in said
    assert said[said.index("--network") :][:2] == ["--network", "none"]
    assert "--pids-limit" in said
    assert f"{WALL.memory_mb}m" in said


@pytest.mark.parametrize(
    "name",
    ["", "bare", "none", "Podman", "podman:", "podman:kata", "docker", "docker:python:3.11",
     "docker:sha256:ab", f"docker:{IMAGE} --privileged", "bubblewrap:x", "apptainer:x", 3, False],
)  # fmt: skip
def test_a_sandbox_that_is_not_known_is_refused(name: object) -> None:
    with pytest.raises(Refused) as refused:
        read_runtime(name)
    assert refused.value.code == "sandbox-missing"


def test_a_vault_that_names_none_has_bubblewrap() -> None:
    assert read_runtime(None).name == BUBBLEWRAP


def test_the_list_of_calls_is_a_list_of_what_is_allowed() -> None:
    profile = json.loads(calls())
    allowed = set(profile["syscalls"][0]["names"])
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    assert [one["names"] for one in profile["syscalls"][1:]] == [["mknodat"]]
    assert profile["syscalls"][1]["args"] == [  # named pipes alone
        {"index": 2, "value": 0o170000, "valueTwo": 0o010000, "op": "SCMP_CMP_MASKED_EQ"}
    ]
    assert set(ALLOWED) <= allowed
    assert not allowed & {"keyctl", "add_key", "io_uring_setup", "ptrace", "bpf", "userfaultfd",
                          "perf_event_open", "setns", "init_module", "open_by_handle_at",
                          "process_vm_readv", "reboot", "kexec_load", "mknod",
                          "mknodat"}  # fmt: skip


def test_only_we_listen_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    with listening(environment(), 0, None) as (wall, _):
        control = Path(wall.control)
        assert control.stat().st_mode & 0o777 == 0o600
        assert not os.listdir(Path(wall.root) / "from")
    assert not control.parent.exists()


def test_what_was_killed_while_it_listened_is_swept_and_who_listens_is_not() -> None:
    with listening(environment(), 0, None) as (one, _):
        left = Path(one.root).parents[1] / ".control-left"
        left.mkdir(exist_ok=True)
        (left / "control").touch()
        with listening(environment(), 0, None):
            assert not left.exists()
            assert Path(one.control).exists()


def test_a_vault_that_names_an_unknown_sandbox_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(Refused):
        vault.create(tmp_path / "v", anchor=tmp_path / "anchor", sandbox="chroot")
    assert not (tmp_path / "v").exists()


def test_a_runtime_that_does_not_start_means_refused_and_nothing_else_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # where nothing is
    for name in ("apptainer", "podman:runc", f"docker:{IMAGE}"):
        sandbox = SandboxPool(environment, SystemRandomSource(), runtime=read_runtime(name))
        with pytest.raises(SandboxStopped):
            sandbox.check(SandboxLimits())
        assert sandbox.pids() == ()


def test_the_doctor_starts_what_the_vault_names(tmp_path: Path) -> None:
    vault.create(tmp_path / "v", anchor=tmp_path / "anchor", sandbox="apptainer")
    found = {name: (is_well, says) for name, is_well, says, _ in checkup(str(tmp_path / "v"))}
    is_well, says = found["sandbox"]
    assert is_well is starts("apptainer")
    assert "apptainer" in says


@needs_bubbles
@pytest.mark.skipif(
    shutil.which("podman") is None or shutil.which("runc") is None, reason="podman is not here"
)
def test_podman_starts_where_it_is_installed() -> None:
    """Else all that is asked of it would be left out, and nobody would be told."""
    assert starts("podman:runc") or starts("podman")


SAME = """
import ctypes, os, resource
C = ctypes.CDLL(None, use_errno=True)
def f(rows):
    found = {name: value for name, value in zip(('uid', 'gid', 'pid'), (
        os.getuid(), os.getgid(), os.getpid()))}
    for top in ('/', '/env', '/work', '/dev'):
        for name in os.listdir(top):
            found[f'{top} {name}'] = os.lstat(f'{top}/{name}').st_mode
    for name in ('AS', 'CPU', 'FSIZE', 'NOFILE', 'NPROC', 'CORE'):
        found[name] = resource.getrlimit(getattr(resource, f'RLIMIT_{name}'))[0]
    for name, value in os.environ.items():
        found[f'{name}={value}'] = 1
    found['host'] = len(os.uname().nodename)
    return found
"""


@needs_bubbles
def test_a_block_sees_the_same_in_every_runtime(runtime: str) -> None:
    here, there = bubble(), bubble(runtime)
    seen = told(ran_in(here, SAME, "f"))
    assert seen["uid"] == 1000
    assert told(ran_in(there, SAME, "f")) == seen
    here.kill()
    there.kill()


def told(ran: Ran) -> dict[str, float]:
    found: dict[str, float] = json.loads(bytes.fromhex(json.loads(ran.output)["answer.json"]))
    return found


LEAVES_IT = """
import os, sys, time
sys.path.insert(0, sys.argv[2])
from support.sandbox_blocks import bubble
made = bubble(sys.argv[1])
print(made.pid, flush=True)
sys.stdin.read()
"""


@needs_bubbles
def test_nothing_of_a_bubble_outlives_who_started_it(runtime: str) -> None:
    tests = str(Path(__file__).parents[1])
    owner = subprocess.Popen(
        [sys.executable, "-c", LEAVES_IT, runtime, tests],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert owner.stdin is not None
    assert owner.stdout is not None
    first = int(owner.stdout.readline())
    line = {first: _birth(first), **{pid: _birth(pid) for pid in _below(first)}}
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    until = time.monotonic() + 60
    while any(_is_running(pid, birth) for pid, birth in line.items()):
        assert time.monotonic() < until
        time.sleep(0.05)
    owner.stdin.close()
    owner.stdout.close()


def _below(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [one for child in map(int, text.split()) for one in (child, *_below(child))]


def _birth(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def _is_running(pid: int, birth: str) -> bool:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[19] == birth and fields[0] != "Z"


@needs_bubbles
def test_a_block_that_will_not_end_is_ended_and_the_next_one_runs(runtime: str) -> None:
    made = bubble(runtime)
    goes_on = "def f(rows):\n while True: pass"
    assert ran_in(made, goes_on, "f", ROWS, SandboxLimits(cpu_s=0.2)).output == b""
    assert ran_in(made, "def f(rows): return 1.0", "f").output != b""
    made.kill()
