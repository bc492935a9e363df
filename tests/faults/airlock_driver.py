"""One act of the airlock in a process of its own, killed before the n-th call that changes a thing.

Reads lines of JSON: the vault, the user, the verb, its body, and before which call to be killed (0:
never). Answers how many such calls there were, or that it was killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.features.airlock.client import Files
from support.unconfined_sandbox import lay_bare

CHANGES = frozenset({
    "execute", "commit", "fsync", "rename", "replace", "mkdir", "open", "write", "unlink", "rmdir",
    "flock", "executemany",
})  # fmt: skip


class Killer:
    """Counts the calls that change something, and ends the process before one of them."""

    def __init__(self, nth: int) -> None:
        self.count, self._nth = 0, nth

    def __call__(self, _frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called.__name__ in CHANGES:
            self.count += 1
            if self.count == self._nth:
                os.kill(os.getpid(), signal.SIGKILL)


def act(order: Any) -> int:
    """Do one act; return how many calls it made."""
    with sfumato.open(order["vault"]) as opened:
        lay_bare(opened)
        killer = Killer(order["nth"])
        sys.setprofile(killer)
        try:
            found = OpenVault(opened.house, order["user"]).call(order["verb"], order["body"])
            if "save" in order:
                Files(found).save(order["save"])
        finally:
            sys.setprofile(None)
        return killer.count


def main() -> None:
    """Do what each line says, in a fork of its own."""
    for line in sys.stdin:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            count = -1
            try:
                count = act(json.loads(line))
            finally:
                os.write(writer, b"%d" % count)
                os._exit(0)
        os.close(writer)
        _, status = os.waitpid(child, 0)
        with os.fdopen(reader, "rb") as pipe:
            said = pipe.read()
        is_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        print(json.dumps({"killed": is_killed, "count": int(said or b"0")}), flush=True)


if __name__ == "__main__":
    main()
