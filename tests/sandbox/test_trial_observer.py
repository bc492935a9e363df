"""A trial lists the commands of a process tree and the files it left; a real run has neither."""

from __future__ import annotations

import json
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sfumato.sandbox import sandbox_process
from sfumato.sandbox.base_environment import environment, with_own
from sfumato.sandbox.ports import SandboxLimits, TrialResult
from sfumato.sandbox.sandbox_process import DONE, Ran, SandboxProcess, SandboxProcessEnded
from sfumato.sandbox.trial_observer import LONGEST, MOST
from sfumato.system.randomness import SystemRandomSource
from support.sandbox_blocks import ROWS, needs_bubbles
from support.tree_images import ENOUGH, RESULT, Image, answer, bash

pytestmark = needs_bubbles

MANY = SandboxLimits(cpu_s=8.0, files=20_000)
PYTHON = f"#!/opt/python/bin/{environment().python.rpartition('/')[2]}\n"


def commands(tried: TrialResult) -> dict[str, int]:
    """Return the commands after the program itself and bash's `mkdir`, and how often each ran."""
    found = {one.text: one.times for one in tried.traces.commands}
    for first in (
        "/work/tmp/program.py /work/in /work/out group",
        "mkdir -p /work/out",
    ):
        found.pop(first, None)
    return found


def files(tried: TrialResult) -> dict[str, str]:
    return {one.name: one.says for one in tried.block_files([RESULT])}


def test_a_trial_lists_every_command_in_the_order_in_which_they_first_ran(image: Image) -> None:
    tried = image.tried(
        bash(
            "for i in $(seq 200); do true | cat; /bin/cat /dev/null; done; sort $1/participants.tsv"
        )
    )
    names = [one.text for one in tried.traces.commands]
    assert names[:3] == [
        "/work/tmp/program.py /work/in /work/out group", "mkdir -p /work/out", "seq 200",
    ]  # fmt: skip
    assert commands(tried) == {
        "seq 200": 1, "cat": 200, "/bin/cat /dev/null": 200, "sort /work/in/participants.tsv": 1,
    }  # fmt: skip  # `true` alone is the shell's own
    assert tried.traces.more_commands == 0


def test_a_folder_of_the_path_that_lacks_a_command_is_no_command(image: Image) -> None:
    tried = image.tried(
        PYTHON + "import os, subprocess\n"
        "os.environ['PATH'] = '/nowhere:/usr/local/bin:/usr/bin:/bin'\n"
        "subprocess.run(['cat', '/dev/null'], close_fds=False)\n"
        "try: subprocess.run(['nowhere'])\n"
        "except FileNotFoundError: print('not there')\n"
    )
    assert tried.printed == b"not there\n"
    assert commands(tried) == {"cat /dev/null": 1}


def test_more_commands_than_are_listed_are_counted(image: Image) -> None:
    tried = image.tried(bash("for i in $(seq 80); do sh -c : $i; sh -c : $i; done"))
    listed = len(tried.traces.commands)
    assert listed == MOST
    ran = sum(one.times for one in tried.traces.commands) + tried.traces.more_commands
    assert ran == 3 + 160


HOSTILE = "$'a\\nThe trial gave all results.' $'\\e[31m\\a' '<script>alert(1)</script>' $'\\xff'"


def test_hostile_commands_are_one_line_without_control_characters(image: Image) -> None:
    tried = image.tried(bash(f"sh -c : {HOSTILE}"))
    assert list(commands(tried)) == [
        "sh -c : $'a\\nThe trial gave all results.' $'\\x1b[31m\\x07' '<script>alert(1)</script>' "
        "$'\\ufffd'".replace("$'\\ufffd'", "'\ufffd'")
    ]


def test_a_command_line_of_a_megabyte_is_cut(image: Image) -> None:
    tried = image.tried(
        bash("x=$(printf %120000s | tr ' ' a); sh -c 'echo $#' $x $x $x $x $x $x $x $x $x $x")
    )
    assert tried.printed == b"9\n"
    text = next(one for one in commands(tried) if one.startswith("sh"))
    assert text.endswith("aaa ...")
    assert len(text) <= LONGEST + 10


WILD = """
import ctypes, os
libc = ctypes.CDLL(None)
places = (0, 1, 2**47, 2**56, 2**63, 2**64 - 8, 2**64 - 1)
for path in places:
    for argv in places:
        assert libc.syscall(59, ctypes.c_ulong(path), ctypes.c_ulong(argv), None) == -1
name = ctypes.create_string_buffer(b"/bin/cat")
wild = (ctypes.c_ulong * 4)(ctypes.addressof(name), 1, 2**63, 0)
assert libc.syscall(59, name, wild, None) == -1
os.execv("/bin/cat", ["-", "a b", "", "/dev/null"])
"""


def test_a_command_at_no_place_in_memory_harms_nobody(image: Image) -> None:
    tried = image.tried(PYTHON + WILD)
    assert b"Traceback" not in tried.printed
    assert list(commands(tried))[-1] == "- 'a b' '' /dev/null"


def test_a_trial_lists_what_a_program_left_and_what_became_of_it(image: Image) -> None:
    tried = image.tried(
        bash(f"""
echo 1 > $2/{RESULT}; echo 22 > $2/plot.png; mkdir -p $2/a/b $2/shut; echo 3 > $2/a/b/c.txt
ln -s /etc/passwd $2/link; mkfifo $2/pipe; chmod 0 $2/shut; touch "$2/<script>" $2/$'a\\n\\e[31m'
""")
    )
    assert tried.output == answer("1\n")
    assert files(tried) == {
        RESULT: "taken",
        "<script>": "not taken: no output declares it",
        "a\\n\\x1b[31m": "not taken: no output declares it",
        "a/b/c.txt": "not taken: no output declares it",
        "link": "not taken: a link, and no link is followed",
        "pipe": "not taken: a named pipe, and a result is a plain file",
        "plot.png": "not taken: no output declares it",
        "shut": "a folder that cannot be read",
    }
    assert {one.name: one.size for one in tried.traces.files}["plot.png"] == 3


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (f"ln -s $1/participants.tsv $2/{RESULT}", "not taken: a link, and no link is followed"),
        (f"mkdir $2/{RESULT}", "not taken: a folder, and a result is a file"),
        (f"mkfifo $2/{RESULT}", "not taken: a named pipe, and a result is a plain file"),
        (f"echo 1 > $2/{RESULT}; chmod 0 $2/{RESULT}", "not taken: it cannot be read"),
        (
            f"printf %70000s > $2/{RESULT}",
            "not taken: all results together have more than about 32 kB",
        ),
        (
            f"echo 1 > $2/{RESULT}; while :; do :; done",
            "not taken: the program failed or was stopped before",
        ),
    ],
    ids=["link", "folder", "pipe", "shut", "long", "late"],
)
def test_a_declared_result_that_is_not_taken_says_why(
    image: Image, script: str, expected: str
) -> None:
    tried = image.tried(bash(script), replace(ENOUGH, cpu_s=1.0))
    assert files(tried) == {RESULT: expected}


def test_a_device_is_no_result(image: Image) -> None:
    tried = image.tried(
        PYTHON + "import os, socket, stat, sys\n"
        f"os.mknod(sys.argv[2] + '/{RESULT}', stat.S_IFCHR | 0o600, 0)\n"
    )
    assert files(tried) == {RESULT: "not taken: a device, and a result is a plain file"}


@pytest.mark.parametrize("where", ["/", "/work/in", "/nowhere"])
def test_an_output_folder_that_leads_elsewhere_shows_nothing_of_it(
    image: Image, where: str
) -> None:
    tried = image.tried(
        PYTHON + f"import os\nos.rmdir('/work/out')\nos.symlink('{where}', '/work/out')"
    )
    assert files(tried) == {".": "not taken: a link, and no link is followed"}


def test_of_ten_thousand_files_the_declared_ones_and_the_first_are_listed(image: Image) -> None:
    tried = image.tried(
        bash(f"cd $2; for i in $(seq 10000); do : > a$i; done; echo 1 > {RESULT}"), MANY
    )
    names = [one.name for one in tried.traces.files]
    assert names == [RESULT, *sorted(f"a{n}" for n in range(1, 10_001))[: MOST - 1]]
    assert tried.traces.more_files == 10_001 - MOST
    assert files(tried)[RESULT] == "taken"


def test_a_long_path_is_cut_and_a_deep_folder_ends_the_look(image: Image) -> None:
    tried = image.tried(
        bash("cd $2; n=$(printf %250s | tr ' ' n); for i in $(seq 40); do mkdir $n; cd $n; done")
    )
    assert [one.kind for one in tried.traces.files] == ["folder"]
    assert len(tried.traces.files[0].name) == LONGEST + 3


# --- a real run has none of it ----------------------------------------------------------------


SPOILS = """
import contextlib, os
for one in range(3, 64):
    with contextlib.suppress(OSError):
        os.write(one, b"observed")
raise ValueError
"""


@pytest.fixture
def real(image: Image) -> Iterator[SandboxProcess]:
    """Return a sandbox with the image, in which whoever loads the observer spoils all messages."""
    made = environment()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        copy = Path(folder, "environment")
        shutil.copytree(made.folder, copy, ignore=shutil.ignore_patterns("packages"))
        (copy / "packages").mkdir(exist_ok=True)
        (copy / "inside" / "trial_observer.py").write_text(SPOILS)
        files = image.kept.files(image.own)
        own = with_own(replace(made, folder=copy), files, is_image=True)
        sandbox = SandboxProcess(own, min(os.sched_getaffinity(0)), SystemRandomSource())
        yield sandbox
        sandbox.kill()


def descriptors(image: Image, script: str) -> tuple[int, int]:
    told, rows = os.memfd_create("told"), os.memfd_create("rows")
    os.pwrite(told, json.dumps(image.told(script)).encode(), 0)
    os.pwrite(rows, ROWS.encode(), 0)
    return told, rows


SCRIPT = bash(f"cat $1/participants.tsv | wc -l > $2/{RESULT}; touch $2/$(printf ann); sh -c : ann")


def on_rows(made: SandboxProcess, image: Image) -> bytes:
    """Return every byte that comes out of the sandbox for a block of real rows."""
    heard: list[bytes] = []

    def to_the_end(hear: int, limits: SandboxLimits) -> Ran:
        del limits
        with open(os.dup(hear), "rb") as file:
            heard.append(file.read())
        return Ran(DONE, 0, b"")

    told, rows = descriptors(image, SCRIPT)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sandbox_process, "_receive", to_the_end)
        made.run(told, rows, ENOUGH)
    for one in (told, rows):
        os.close(one)
    return heard[0]


def test_of_real_rows_nobody_looks_at_commands_and_files(
    real: SandboxProcess, image: Image
) -> None:
    usual = image.sandbox()
    try:
        said = [on_rows(usual, image), on_rows(real, image)]
    finally:
        usual.kill()
    for one in said:  # how it ended, its processor time, and the results: no byte more
        ended, _, length = struct.unpack_from("<BQI", one)
        assert (ended, one[13:]) == (DONE, answer("3\n"))
        assert length == len(one) - 13
    told, rows = descriptors(image, SCRIPT)
    with pytest.raises(SandboxProcessEnded):  # a trial loads the observer
        real.try_out(told, rows, ENOUGH)
    for descriptor in (told, rows):
        os.close(descriptor)


def test_the_same_block_as_a_trial_shows_both(image: Image) -> None:
    tried = image.tried(SCRIPT)
    assert commands(tried)["sh -c : ann"] == 1
    assert files(tried) == {RESULT: "taken", "ann": "not taken: no output declares it"}
