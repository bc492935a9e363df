"""Trials on made-up rows show what a program printed and how it ended; runs on rows never do."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator

import pytest

from sfumato.sandbox import sandbox_process as bubble_module
from sfumato.sandbox.base_environment import environment
from sfumato.sandbox.ports import SandboxLimits, TrialJob, TrialResult
from sfumato.sandbox.sandbox_pool import SandboxPool
from sfumato.sandbox.sandbox_process import (
    MAX_PRINTED,
    STALLED,
    Ran,
    SandboxProcess,
    TrialEnd,
)
from sfumato.system.randomness import SystemRandomSource
from support.sandbox_blocks import ROWS, bubble, needs_bubbles

LIMITS = SandboxLimits(cpu_s=0.5)
ANSWER = 'def m(rows):\n    print("seen", rows["height"].sum())\n    return 170'
PROGRAMS = {
    "fails at import": ("import nowhere_to_be_found", "exit status 1", "ModuleNotFoundError"),
    "no Python": ("#!/bin/sh\necho 1 > $2/x.txt\n", "exit status 1", "SyntaxError"),
    "writes nothing": ("x = 1", "exit status 0", ""),
    "leaves with a status": ("import sys\nsys.exit(7)", "exit status 7", ""),
    "leaves with words": ("import sys\nsys.exit('no rows')", "exit status 1", "no rows"),
    "ends at once": ("import os\nos._exit(9)", "exit status 9", ""),
    "is killed": ("import ctypes\nctypes.string_at(0)", "ended by signal 11", ""),
    "computes on": ("while True: pass", "stopped: it", ""),
    "says too much": (
        "import sys\nprint('much', flush=True)\n"
        "open(sys.argv[2] + '/x.txt', 'w').write('9' * 60_000)",
        "stopped: its results were too long", "much",
    ),
    "writes to standard error": ("import sys\nsys.stderr.write('why')", "exit status 0", "why"),
    "prints very much": ("for i in range(10_000): print(i)", "exit status 0", "9999\n"),
}  # fmt: skip


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxPool]:
    made = SandboxPool(environment, SystemRandomSource())
    yield made
    made.close()


def program(source: str) -> dict[str, object]:
    return {"kind": "program", "source": source, "name": "g", "outputs": ["m"], "paths": ["x.txt"]}


def function(source: str) -> dict[str, object]:
    return {"kind": "function", "source": source, "name": "m", "outputs": ["m"]}


def tried(sandbox: SandboxPool, told: dict[str, object]) -> TrialResult:
    (found,) = sandbox.try_out(TrialJob(told, (ROWS.encode(),), LIMITS))
    return found


@needs_bubbles
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_trial_shows_how_a_program_ended_and_what_it_printed(
    sandbox: SandboxPool, name: str
) -> None:
    source, ending, printed = PROGRAMS[name]
    found = tried(sandbox, program(source))
    assert found.ending.startswith(ending)
    assert printed in found.printed.decode()
    assert len(found.printed) <= MAX_PRINTED


@needs_bubbles
def test_a_trial_shows_the_line_of_a_function_that_failed_and_none_of_ours(
    sandbox: SandboxPool,
) -> None:
    found = tried(sandbox, function('def m(rows):\n    return rows["weight"].mean()'))
    assert found.ending == "exit status 1"
    assert 'File "<function>", line 2, in m' in found.printed.decode()
    assert "KeyError: 'weight'" in found.printed.decode()
    assert "inside.py" not in found.printed.decode()


@needs_bubbles
def test_a_trial_gives_what_the_program_says_as_a_run_does(sandbox: SandboxPool) -> None:
    found = tried(sandbox, function(ANSWER))
    assert found.printed == b"seen 350\n"
    assert json.loads(bytes.fromhex(json.loads(found.output)["answer.json"])) == {"m": 170}


LEFT = """
import os, sys
for name, text in (("x.txt", "170"), ("more.png", "12"), ("a\\n<script>\\x1b[31m", "")):
    with open(sys.argv[2] + "/" + name, "w") as file:
        file.write(text)
HOW
"""
OTHER = "not taken: no output declares it"


@needs_bubbles
@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("pass", "taken"),
        ("sys.exit(7)", "taken"),
        ("raise ValueError", "not taken: the program failed or was stopped before"),
        ("os._exit(0)", "not taken: the program failed or was stopped before"),
        ("while True: pass", "not taken: the program failed or was stopped before"),
    ],
    ids=["ends", "status", "fails", "at once", "late"],
)
def test_a_trial_without_an_image_lists_its_files_and_has_no_commands(
    sandbox: SandboxPool, how: str, says: str
) -> None:
    found = tried(sandbox, program(LEFT.replace("HOW", how)))
    assert [(one.name, one.size, one.says) for one in found.block_files(["x.txt"])] == [
        ("x.txt", 3, says), ("a\\n<script>\\x1b[31m", 0, OTHER), ("more.png", 2, OTHER),
    ]  # fmt: skip
    assert (found.traces.commands, found.traces.more_commands) == ((), 0)


LOUD = """
import os, sys
def m(rows):
    print("ann is here", flush=True)
    sys.stderr.write("ann is here" * 10_000)
    sys.stderr.flush()
    HOW
    return 170
"""


@needs_bubbles
@pytest.mark.parametrize(("cpu_s", "times"), [(0.5, 11), (4, 6), (60, 2)])
def test_a_block_that_only_waits_is_tried_again_for_a_bounded_time(
    sandbox: SandboxPool, monkeypatch: pytest.MonkeyPatch, cpu_s: float, times: int
) -> None:
    ran: list[int] = []

    def stalls(_: SandboxProcess, _told: int, rows: int, _limits: object) -> tuple[Ran, TrialEnd]:
        ran.append(rows)
        return Ran(STALLED, 0, b""), TrialEnd(0, 0, 1, b"")

    monkeypatch.setattr(SandboxProcess, "try_out", stalls)
    job = TrialJob(function(ANSWER), (ROWS.encode(),), SandboxLimits(cpu_s=cpu_s))
    assert [one.ended for one in sandbox.try_out(job)] == ["stalled"]
    assert len(ran) == times


WAYS = {
    "quiet": "pass", "fails": "raise ValueError('ann')", "leaves": "sys.exit(7)",
    "ends": "os._exit(9)",
}  # fmt: skip


def on_rows(made: SandboxProcess, source: str, kind: str = "function") -> tuple[Ran, bytes]:
    """Return what a block of real rows says, and every byte that came out of the bubble."""
    heard: list[bytes] = []

    def to_the_end(hear: int, limits: SandboxLimits) -> Ran:
        del limits
        with open(os.dup(hear), "rb") as file:
            heard.append(file.read())
        ended, used, length = struct.unpack_from("<BQI", heard[0])
        return Ran(ended, used, heard[0][13 : 13 + length])

    told, rows = os.memfd_create("told"), os.memfd_create("rows")
    job = function(source) if kind == "function" else program(source)
    os.pwrite(told, json.dumps(job).encode(), 0)
    os.pwrite(rows, ROWS.encode(), 0)
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(bubble_module, "_receive", to_the_end)
            ran = made.run(told, rows, SandboxLimits(cpu_s=2.0))
    finally:
        for one in (told, rows):
            os.close(one)
    return ran, heard[0]


@needs_bubbles
def test_of_real_rows_nothing_printed_and_no_exit_status_comes_out_of_the_bubble() -> None:
    made = bubble()
    try:
        quiet, loud = "def m(rows):\n    HOW\n    return 170", LOUD
        seen = {
            way: [
                on_rows(made, "import os, sys\n" + text.replace("HOW", how))
                for text in (quiet, loud)
            ]
            for way, how in WAYS.items()
        }
    finally:
        made.kill()
    for (still, quiet_bytes), (noisy, loud_bytes) in seen.values():
        assert (still.ended, still.output) == (noisy.ended, noisy.output)
        assert len(quiet_bytes) == len(loud_bytes)  # the head has the time that was used
        assert b"ann" not in loud_bytes
    failed = [pair[1][0] for way, pair in seen.items() if way != "quiet"]
    assert {(one.ended, one.output) for one in failed} == {(0, b"")}  # whatever the exit status was
    assert seen["quiet"][1][0].output


@needs_bubbles
def test_on_real_rows_an_exit_status_changes_no_result() -> None:
    text = "import sys\nopen(sys.argv[2] + '/x.txt', 'w').write('170')\nsys.exit(%s)"
    made = bubble()
    try:
        ends = [on_rows(made, text % how, "program")[0] for how in ("0", "7", "'ann'")]
    finally:
        made.kill()
    assert {(one.ended, one.output) for one in ends} == {(0, b'{"x.txt": "313730"}')}
