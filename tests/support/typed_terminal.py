"""A command in a real pseudo-terminal, and somebody who types one answer at each prompt."""

from __future__ import annotations

import os
import pty
import select
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CTRL_C = "\x03"
_PATIENCE_S = 120


@dataclass(frozen=True)
class Typed:
    """What the terminal showed, how the command ended, and which answers nobody asked for."""

    shown: str
    status: int
    left: list[str]


def at_terminal(vault: Path, words: Sequence[str], answers: Sequence[str], folder: Path) -> Typed:
    """Run the command line in that folder at a terminal, and type an answer at each prompt.

    If no answer is left, Ctrl-C is pressed.
    """
    child, terminal = pty.fork()
    if child == 0:
        _run(vault, words, folder)
    left, shown, typed = list(answers), b"", ""
    while True:
        # Ctrl-C is lost if it comes after the prompt and before the read, so it is pressed again
        ready, _, _ = select.select([terminal], [], [], 1 if typed == CTRL_C else _PATIENCE_S)
        if not ready and typed == CTRL_C:
            os.write(terminal, CTRL_C.encode())
            continue
        assert ready, f"the command is silent after: {shown[-300:]!r}"
        try:
            part = os.read(terminal, 65536)
        except OSError:  # Linux says so when the other side of a terminal is closed
            break
        if not part:
            break
        shown += part
        if _is_prompt(shown):
            typed = left.pop(0) if left else CTRL_C
            os.write(terminal, typed.encode() + (b"" if typed == CTRL_C else b"\n"))
    os.close(terminal)
    _, ended = os.waitpid(child, 0)
    text = shown.decode("utf-8").replace("\r\n", "\n")
    return Typed(text, os.waitstatus_to_exitcode(ended), left)


def _is_prompt(shown: bytes) -> bool:
    last = shown.rpartition(b"\n")[2]
    return last.startswith(b"  [") and last.endswith(b"] ")


def _run(vault: Path, words: Sequence[str], folder: Path) -> None:
    """Become the command line; never return."""
    program = "import sys; from sfumato.app.command_line import main; sys.exit(main())"
    os.chdir(folder)
    settings = {**os.environ, "SFUMATO_VAULT": str(vault), "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    command = [sys.executable, "-c", program, *words]
    os.execve(command[0], command, settings)  # noqa: S606  # our own command
