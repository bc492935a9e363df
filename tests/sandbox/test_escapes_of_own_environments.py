"""The escape kit, unchanged, for programs with a folder or in an image of their own."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sfumato
from sfumato.sandbox.base_environment import environment
from sfumato.sandbox.container_runtimes import BUBBLEWRAP, read_runtime
from sfumato.sandbox.environment_store import Environments
from sfumato.sandbox.ports import BATCH, ISOLATED, BlockJob, SandboxLimits
from sfumato.sandbox.sandbox_pool import SandboxPool
from sfumato.system.randomness import SystemRandomSource
from support.container_images import PYTHON, layout, python_layer
from support.sandbox_blocks import ROWS, needs_bubbles
from support.sandbox_escapes import BODIES, SECRET, source

pytestmark = needs_bubbles
Says = Callable[[str], bytes]
LEAVES = """
import os, sys
os.makedirs(sys.argv[2] + "/out")
with open(sys.argv[2] + "/out/answer.txt", "w") as file:
    file.write(str(probe(None)))
"""
FROM_A_GRANDCHILD = """
import os, sys
os.makedirs(sys.argv[2] + "/out")
child = os.fork()
if child:
    os.waitpid(child, 0)
    os._exit(0)
grandchild = os.fork()
if grandchild:
    os.waitpid(grandchild, 0)
    os._exit(0)
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
    "abstract-socket", "epoll", "free-space-of-descriptor", "lock-record", "lock-shared-file",
    "lookup", "netlink", "proc-1", "proc-environ", "proc-fd", "proc-maps",
    "proc-mem", "proc-mounts", "proc-net", "proc-others", "proc-parent", "sleep", "socket-pair",
    "udp", "unix-socket",
})  # fmt: skip


@pytest.fixture(scope="module", params=["folder", "image", "grandchild", "batch"])
def says(request: pytest.FixtureRequest, runtime: str) -> Iterator[Says]:
    """Give what runs a probe in a warm bubble with a program's own files, and says what it said."""
    os.environ["PLANTED"] = SECRET
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        kept = Environments(Path(place, "own"))
        if request.param != "folder":
            digest = layout(Path(place, "layout"), [python_layer()], settings=PYTHON, packed=False)
            own = kept.add_image(Path(place, "layout"), digest).name
        else:
            Path(place, "mine").mkdir()
            Path(place, "mine", "mine.py").write_text("X = 1")
            own = kept.add_folder(Path(place, "mine")).name
        leaves = FROM_A_GRANDCHILD if request.param in ("grandchild", "batch") else LEAVES
        chosen = read_runtime(runtime)
        if request.param == "batch" and chosen.name != BUBBLEWRAP:
            pytest.skip("an image runs in batches in bubblewrap alone")
        timing = BATCH if request.param == "batch" else ISOLATED
        sandbox = SandboxPool(
            environment, SystemRandomSource(), sleep=lambda _: None, own=kept, runtime=chosen
        )
        rows = Path(place, "rows")
        rows.write_text(ROWS)

        def ran(program: str) -> bytes:
            told: dict[str, object] = {
                "kind": "program", "source": program + leaves, "name": "f", "outputs": ["m"],
                "paths": [OUT],
            }  # fmt: skip
            job = BlockJob(told, (str(rows),), (), SandboxLimits(cpu_s=4.0, timing=timing), own=own)
            found = sandbox._run_blocks(job)
            assert found is not None
            return found[1][0].output

        yield ran
        sandbox.close()
        kept.remove(own)
    del os.environ["PLANTED"]


def answer(value: str) -> bytes:
    return b'{"%s": "%s"}' % (OUT.encode(), value.encode().hex().encode())


def test_a_program_does_answer(says: Says) -> None:
    assert says("def probe(rows): return 1.0") == answer("1.0")


@pytest.fixture(scope="module")
def place() -> Iterator[dict[str, object]]:
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    with listener, tempfile.TemporaryDirectory(prefix="canary-") as folder:
        Path(folder, "canary").write_text(SECRET)
        yield {
            "port": listener.getsockname()[1],
            "canary": str(Path(folder, "canary")),
            "code": str(Path(sfumato.__file__)),
            "folder": "/work/tmp",
            "mark": os.urandom(6).hex(),
        }


@pytest.mark.parametrize("name", sorted(BODIES))
def test_what_gets_out_of_a_bare_process_does_not_get_out_of_there(
    name: str, place: dict[str, object], says: Says, request: pytest.FixtureRequest
) -> None:
    said = says(source(name, **place))
    assert SECRET.encode() not in said
    may = OF_A_TREE | (OF_A_BATCH if "batch" in request.node.callspec.id else frozenset())
    if name in may and "folder" not in request.node.callspec.id:
        assert said == answer("1.0")
    else:
        assert said in (b"", b"{}", answer("0.0"), answer(""))
