"""The escape kit, unchanged, for programs with a folder or in an image of their own.

In an image, each probe is tried by the program's first process, and by a child, a grandchild, a
thread, and a program that a shell script starts. The first has a block for each probe. The others
try all of them in one block.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sfumato.sandbox.base_environment import environment
from sfumato.sandbox.container_runtimes import BUBBLEWRAP, read_runtime
from sfumato.sandbox.environment_store import Environments
from sfumato.sandbox.ports import BATCH, ISOLATED, BlockJob, SandboxLimits
from sfumato.sandbox.sandbox_pool import SandboxPool
from sfumato.system.randomness import SystemRandomSource
from support.container_images import PYTHON, layout, python_layer, shell_layer
from support.sandbox_blocks import ROWS, needs_bubbles
from support.sandbox_escapes import (
    BODIES,
    PLACES,
    SECRET,
    from_each_process,
    planted_server,
    source,
)

pytestmark = needs_bubbles
LEAVES = """
import os, sys
os.makedirs(sys.argv[2] + "/out")
os.chdir("/work/tmp")
with open(sys.argv[2] + "/out/answer.txt", "w") as file:
    file.write(str(probe(None)))
"""
OUT = "out/answer.txt"
# probes that succeed in a process tree, beside which no other block runs. `ptrace` succeeds only
# because it forks and waits; the call itself is refused
OF_A_TREE = frozenset({
    "alarm", "dev-shm", "eventfd", "fifo", "file-times", "forget-pages", "fork",
    "fork-bomb", "hard-link", "open-device", "open-random", "path", "pipe",
    "ptrace", "set-uid", "shared-futex", "signal-parent", "signal-self", "symlink", "timerfd",
    "tmp", "wait-in-poll",
})  # fmt: skip

# probes that succeed in a batch too: what they reach is the block's own
OF_A_BATCH = frozenset({
    "abstract-socket", "descriptor-over-a-socket", "epoll", "free-space-of-descriptor",
    "link-an-unnamed-file", "lock-record", "lock-shared-file", "lookup", "netlink",
    "number-of-a-namespace", "number-of-a-socket", "proc-1", "proc-environ", "proc-fd",
    "proc-maps", "proc-mem", "proc-mounts", "proc-net", "proc-others", "proc-parent", "scheduler",
    "signals-by-descriptor", "sleep", "socket-pair", "udp", "unix-socket",
})  # fmt: skip
OF_A_CHILD = frozenset({"proc-parent"})  # its parent is a process of the block too
BREAKS = frozenset({"calls-of-32-bits"})  # its process is killed


@pytest.fixture(scope="module")
def place() -> Iterator[dict[str, object]]:
    with planted_server() as made:
        yield {**made, "folder": "."}


@dataclass
class Runs:
    """What runs a program's block in warm sandboxes of one kind, and returns its result."""

    case: str
    ran: Callable[[str], bytes]

    def result(self, program: str) -> str:
        return bytes.fromhex(json.loads(self.ran(program) or b"{}").get(OUT, "")).decode()

    def may(self, name: str) -> bool:
        if self.case == "folder":
            return False
        return name in OF_A_TREE or (name in OF_A_BATCH and self.case == BATCH)


@pytest.fixture(scope="module", params=["folder", ISOLATED, BATCH])
def runs(request: pytest.FixtureRequest, runtime: str, place: dict[str, object]) -> Iterator[Runs]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        kept = Environments(Path(folder, "own"))
        if request.param != "folder":
            layers = [shell_layer(), python_layer()]
            digest = layout(Path(folder, "layout"), layers, settings=PYTHON, packed=False)
            own = kept.add_image(Path(folder, "layout"), digest).name
        else:
            Path(folder, "mine").mkdir()
            Path(folder, "mine", "mine.py").write_text("X = 1")
            own = kept.add_folder(Path(folder, "mine")).name
        chosen = read_runtime(runtime)
        if request.param == BATCH and chosen.name != BUBBLEWRAP:
            pytest.skip("an image runs in batches in bubblewrap alone")
        timing = BATCH if request.param == BATCH else ISOLATED
        sandbox = SandboxPool(
            environment, SystemRandomSource(), sleep=lambda _: None, own=kept, runtime=chosen
        )
        rows = Path(folder, "rows")
        rows.write_text(ROWS)
        limits = SandboxLimits(cpu_s=100.0, timing=timing)

        def ran(program: str) -> bytes:
            told: dict[str, object] = {
                "kind": "program", "source": program, "name": "f", "outputs": ["m"],
                "paths": [OUT],
            }  # fmt: skip
            job = BlockJob(told, (str(rows),), (), limits, own=own)
            found = sandbox._run_blocks(job)
            assert found is not None
            return found[1][0].output

        yield Runs(request.param, ran)
        sandbox.close()
        kept.remove(own)


def test_a_program_does_answer(runs: Runs) -> None:
    assert runs.result("def probe(rows): return 1.0" + LEAVES) == "1.0"


@pytest.mark.parametrize("name", sorted(BODIES))
def test_what_gets_out_of_a_bare_process_does_not_get_out_of_there(
    name: str, place: dict[str, object], runs: Runs
) -> None:
    said = runs.result(source(name, **place) + LEAVES)
    assert SECRET not in said
    if runs.may(name) and name not in OF_A_CHILD:
        assert said == "1.0"
    else:
        assert said in ("", "0.0")


@pytest.mark.parametrize("runs", [ISOLATED, BATCH], indirect=True)  # a folder is one process
def test_nothing_gets_out_of_any_process_of_a_tree(place: dict[str, object], runs: Runs) -> None:
    said = runs.result(from_each_process(**place))
    assert SECRET not in said
    expected = {f"{where} out {name}" for where in PLACES for name in BODIES if runs.may(name)}
    expected |= {f"{where} broke {name}" for where in PLACES for name in BREAKS}
    assert set(said.splitlines()) == expected | {f"{where} end" for where in PLACES}
