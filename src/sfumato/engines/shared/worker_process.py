"""Start, query and kill a worker process over two pipes."""

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
    """One worker process; any failure kills it.

    `lost` is the cause if the host ended the worker. It is None while the worker lives. It is also
    None if the query hit its own limit, if the worker failed, or if the cause is unknown.
    """

    def __init__(self, module: str = "duckdb.worker") -> None:
        """Start a process that runs `main` of a module below `engines`."""
        self.owner = os.getpid()
        self.lost: str | None = None
        self._is_let_go = False
        self._oom_kills = oom_kills()
        super().__init__(f"engines.{module}")
        _CHILDREN.add(self)

    def is_ready(self) -> bool:
        """Return whether the process is alive, and ours (not of the parent we were forked from)."""
        return self.owner == os.getpid() and self._process.poll() is None

    def begin(self, header: Header, deadline_s: float) -> None:
        """Send the start message, and wait for the worker's answer that it is ready.

        Without this answer, the worker counts as lost by the host. It has read no row yet, so no
        row can be the cause.
        """
        answer = self.ask(header, deadline_s)
        if answer is None or answer[0].get("ok") is not True:
            self.kill()
            self.lost = START

    def ask(self, header: Header, deadline_s: float) -> tuple[Header, bytes] | None:
        """Send a request and return the answer; None if there is none, and the worker is killed."""
        if self._is_let_go:  # other files may use the descriptors of its pipes by now
            return None
        until = time.monotonic() + deadline_s
        answer = None
        try:
            self.write(framed(header), until)
            answer = read_frame(lambda count: self.read(count, until))
        except TimeoutError:  # our own deadline; a subclass of OSError, so it is caught first
            answer = None
        except (OSError, EOFError):
            self.lost = cause_of(signal_of(self.pid), self._oom_kills, oom_kills())
        except ValueError:
            answer = None
        finally:  # also on Ctrl-C: an unread answer must not be taken for the next request's
            if answer is None:
                self.kill()
        return answer

    def kill(self) -> None:
        """Kill the process and close the pipes."""
        if self.owner == os.getpid():
            self._process.kill()
            self._process.wait()
        self.forget()

    def forget(self) -> None:
        """Close our ends of the pipes; the worker ends when all copies of these ends are closed."""
        self._is_let_go = True
        self.let_go()
        if self.owner != os.getpid():
            self._process.returncode = 0  # the parent waits for it, not this process


class WorkerLock:
    """Lock that serialises the threads that use one worker; it is unlocked in a forked process.

    The fork handler replaces the lock. If threads replaced it on first use, two threads could
    create two locks and read each other's answers from one pipe.
    """

    def __init__(self) -> None:
        """Create an unlocked lock."""
        self.lock = threading.Lock()
        _LOCKS.add(self)


_CHILDREN: Final[weakref.WeakSet[Child]] = weakref.WeakSet()
_LOCKS: Final[weakref.WeakSet[WorkerLock]] = weakref.WeakSet()


def _forget_after_fork() -> None:
    """Close the parent's worker pipes in a fork.

    Otherwise the fork would keep the workers alive.
    """
    for turn in list(_LOCKS):
        turn.lock = threading.Lock()
    for child in list(_CHILDREN):
        child.forget()


os.register_at_fork(after_in_child=_forget_after_fork)
