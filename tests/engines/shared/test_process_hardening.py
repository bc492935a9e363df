"""A child that sees rows: no dump of it, nobody reads its memory, no stray print gets out."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

BEFORE = """
import ctypes, json, os, resource, sys
from sfumato.engines.shared.process_hardening import disable_dumps, harden_process
prctl = ctypes.CDLL(None).prctl
before = prctl(3, 0, 0, 0, 0)
"""
SECLUDED = (
    BEFORE
    + """
resource.setrlimit(resource.RLIMIT_CORE, (4096, 4096))
read, write = harden_process()
print("stray")
sys.stdout.flush()
os.write(1, b"stray")
told = {
    "read": os.read(read, 100).decode(),
    "stdin": os.read(0, 1).decode(),
    "before": before,
    "dumpable": prctl(3, 0, 0, 0, 0),
    "core": resource.getrlimit(resource.RLIMIT_CORE),
    "umask": os.umask(0),
    "inherited": [os.get_inheritable(read), os.get_inheritable(write)],
}
os.write(write, json.dumps(told).encode())
"""
)
REFUSED = (
    BEFORE
    + """
class Libc:
    def prctl(self, *_: int) -> int:
        return -1

ctypes.CDLL = lambda _: Libc()
disable_dumps()
print("went on")
"""
)
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has prctl")


def told(script: str, said: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], input=said, capture_output=True, text=True, check=False
    )


@linux
def test_nothing_is_left_for_a_stray_print_a_dump_or_another_process() -> None:
    found = told(SECLUDED, "asked")
    assert json.loads(found.stdout) == {
        "read": "asked",
        "stdin": "",
        "before": 1,
        "dumpable": 0,
        "core": [0, 0],
        "umask": 0o077,
        "inherited": [False, False],
    }


@linux
def test_a_process_that_others_may_read_does_not_go_on() -> None:
    found = told(REFUSED)
    assert (found.returncode, found.stdout) == (1, "")
