"""A worker process that can be killed at any moment, and the two pipes that lead to it."""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Final

from sfumato.engines.shared.exit_causes import cause_of, oom_kills, signal_of
from sfumato.engines.shared.message_frames import Header, framed, read_frame
from sfumato.system.child_process import ChildProcess
from sfumato.vault.engine_port import START


class Child(ChildProcess):
    """One worker process; whatever goes wrong with it, it is killed.

    `lost` says what of the host's ended it; None while it lives, and where it was a limit of the
    question's own, a complaint of the worker's, or nobody knows.
    """

    def __init__(self, module: str = "duckdb.worker") -> None:
        """Start the process, which runs a module of this folder."""
        self.owner = os.getpid()
        self.lost: str | None = None
        self._is_let_go = False
        self._oom_kills = oom_kills()
        super().__init__(f"engines.{module}")
        _CHILDREN.add(self)

    def is_ready(self) -> bool:
        """Say whether the process is ours (not of the parent we were forked from) and alive."""
        return self.owner == os.getpid() and self._process.poll() is None

    def begin(self, header: Header, deadline_s: float) -> None:
        """Send the first header; a worker that does not say that it is ready is lost.

        It has read no row by then, so no row can have ended it.
        """
        answer = self.ask(header, deadline_s)
        if answer is None or answer[0].get("ok") is not True:
            self.kill()
            self.lost = START

    def ask(self, header: Header, deadline_s: float) -> tuple[Header, bytes] | None:
        """Return the worker's answer, or None; without an answer the worker is dead."""
        if self._is_let_go:  # the numbers of its pipes may be another file's by now
            return None
        until = time.monotonic() + deadline_s
        answer = None
        try:
            self.write(framed(header), until)
            answer = read_frame(lambda count: self.read(count, until))
        except TimeoutError:  # its own limit; an OSError too, so it is looked for first
            answer = None
        except (OSError, EOFError):
            self.lost = cause_of(signal_of(self.pid), self._oom_kills, oom_kills())
        except ValueError:
            answer = None
        finally:  # also on Ctrl-C: a worker whose answer was not read must not answer the next one
            if answer is None:
                self.kill()
        return answer

    def kill(self) -> None:
        """End the process at once; let go of the pipes."""
        if self.owner == os.getpid():
            self._process.kill()
            self._process.wait()
        self.forget()

    def forget(self) -> None:
        """Close our ends of the pipes; the worker ends when nobody holds them."""
        self._is_let_go = True
        self.let_go()
        if self.owner != os.getpid():
            self._process.returncode = 0  # not ours to wait for


class Turn:
    """The lock by which threads take turns at one worker; in a forked process it begins free.

    It is made anew at the fork itself. Threads that made it anew when they first asked could make
    two, and read each other's answers off one pipe.
    """

    def __init__(self) -> None:
        """Hold a lock that nobody has."""
        self.lock = threading.Lock()
        _TURNS.add(self)


_CHILDREN: Final[weakref.WeakSet[Child]] = weakref.WeakSet()
_TURNS: Final[weakref.WeakSet[Turn]] = weakref.WeakSet()


def _forget_after_fork() -> None:
    """Let go of the parent's workers: they must not outlive it because a fork holds their pipes."""
    for turn in list(_TURNS):
        turn.lock = threading.Lock()
    for child in list(_CHILDREN):
        child.forget()


os.register_at_fork(after_in_child=_forget_after_fork)
