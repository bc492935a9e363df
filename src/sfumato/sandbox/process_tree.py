"""How the keeper serves, measures and ends a block's process tree; copied into the sandbox.

It imports none of our modules, because the sandbox has none (inside.py). Three processes use it:

- The *block* installs the filter that passes some of its system calls to the keeper (seccomp.py).
- The *keeper* measures the processor time and the memory of all processes of the block, and answers
  the system calls that the block's filter passes to it (seccomp.py). A pipe that the kernel makes
  has a number that counts the pipes of the whole host. So the keeper makes a named pipe in a file
  system of the block's own, opens both ends, and hands them to the program. A signal can interrupt
  such a call, but a shell expects no interruption of `pipe`. So the kernel starts the call again.
- The *reader*, process 1 of the block, takes over orphans. When the program has ended, it kills
  every other process and reads the results.
"""

import contextlib
import ctypes
import fcntl
import os
import resource
import select
import signal
import socket
import struct
import time
from typing import Any

PIPES = "/from"  # where the keeper makes pipes; the block cannot see this folder
DONE, LATE, STALLED, FULL = 0, 1, 2, 4  # as in inside.py
_PIPE2, _SYSINFO, _SIGACTION = 293, 99, 13  # the only other call that arrives is pipe,
_EXECVE = 59  # and in a trial this one
_FLAGS_AT, _RESTART, _CONTINUE = 8, 0x10000000, 1  # sa_flags, SA_RESTART; let the kernel do it
_END_OF_MEMORY = 1 << 56  # more than any process can use
_SECCOMP, _SET_FILTER, _NEW_LISTENER, _WAIT_UNTIL_KILLED = 317, 1, 8, 32
_RECEIVE, _SEND, _IS_VALID, _ADD = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
_REQUEST = struct.Struct("<QIIiIQ6Q")  # struct seccomp_notif
_ANSWER = struct.Struct("<QqiI")  # struct seccomp_notif_resp
_HANDED = struct.Struct("<QIIII")  # struct seccomp_notif_addfd
_SYSTEM = struct.Struct("=q3Q6QHH4x2QI4x")  # struct sysinfo
_FAULT, _NO_MORE, _NOT_VALID = 14, 23, 22  # EFAULT, ENFILE, EINVAL
_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
_MANY, _LOOK_S, _LOOK_AT_MANY_S = 8, 0.004, 0.02
_MOST_SHARED = 4  # times the limit: the kernel takes long to free what many processes map
_SOCKET = 512 << 10  # bytes that a socket may hold, which no process's memory shows
_USUAL_BUFFER = 212_992
_CLONE3, _INTO_GROUP = 435, 1 << 33
_CLONE = struct.Struct("<11Q")  # struct clone_args
_CPU_CLOCK = 2  # CPUCLOCK_SCHED of a whole process, as the kernel numbers clocks
LIBC = ctypes.CDLL(None, use_errno=True)


# --- block ----------------------------------------------------------------------------------------


def pass_requests(code: bytes, to: socket.socket) -> None:
    """Let the keeper answer some system calls of this process and of all that it starts."""
    program = ctypes.create_string_buffer(code, len(code))
    shape = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(program))
    for how in (_NEW_LISTENER | _WAIT_UNTIL_KILLED, _NEW_LISTENER):  # before Linux 5.19
        listener = LIBC.syscall(_SECCOMP, _SET_FILTER, how, ctypes.c_char_p(shape))
        if listener >= 0:
            break
    else:
        os._exit(1)
    socket.send_fds(to, [b"l"], [listener])
    os.close(listener)  # a process with this descriptor could answer its own calls


# --- keeper ---------------------------------------------------------------------------------------


def make_place_for_pipes(files: int, megabytes: int) -> None:
    """Mount the file system in which this block's pipes are made.

    A trial block also prints to a file there, so that a full disk does not lose its error message.
    """
    room = f"size={megabytes}m,nr_inodes={files},mode=700".encode()
    if LIBC.mount(b"tmpfs", PIPES.encode(), b"tmpfs", _NOSUID_NODEV_NOEXEC, room) != 0:
        os._exit(1)


def listener_from(block: socket.socket, until: float) -> int:
    """Return the seccomp listener, which the block sends; its requests arrive on it."""
    block.settimeout(max(0.0, until - time.monotonic()))
    with contextlib.suppress(OSError):
        _, found, _, _ = socket.recv_fds(block, 16, 1)
        if found:
            return found[0]
    os._exit(1)


class Group:
    """The control group of one block, by files that were opened outside (control_group.py)."""

    def __init__(self, folder: int, clock: int, end: int, memory: "int | None" = None) -> None:
        self._folder, self._clock, self._end, self._memory = folder, clock, end, memory

    def fork(self) -> int:
        """Fork as `os.fork` does; the child begins in the group. Return -1 if that fails.

        To move a process into a group later, the kernel waits some ten milliseconds.
        """
        order = _CLONE.pack(_INTO_GROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, self._folder)
        python = ctypes.pythonapi  # its calls keep the interpreter's lock, which the child needs
        python.PyOS_BeforeFork()
        child: int = python.syscall(_CLONE3, ctypes.c_char_p(order), ctypes.c_size_t(len(order)))
        if child == 0:
            python.PyOS_AfterFork_Child()
        else:
            python.PyOS_AfterFork_Parent()
        return child

    @property
    def used_s(self) -> float:
        """Return the processor seconds of all processes that were ever in the group."""
        return int(os.pread(self._clock, 64, 0).split()[1]) / 1e6

    @property
    def memory(self) -> int:
        """Return the bytes that the group holds, with the kernel's own; 0 if nobody counts."""
        return 0 if self._memory is None else int(os.pread(self._memory, 64, 0))

    def end(self) -> None:
        """Kill all processes of the group at once, also those that are being made."""
        os.write(self._end, b"1")


class Tree:
    """The processes of one block: what they use, and what they ask of the keeper."""

    def __init__(
        self, listener: int, ours: set[int], memory: int, group: "Group | None", *,
        has_sockets: bool,
    ) -> None:  # fmt: skip
        """Watch all processes of this sandbox except `ours`; `memory` is the limit in bytes.

        If the block has a control group, that counts the processor time exactly. The sums below
        miss the last milliseconds of processes that nobody waits for.
        """
        self._has_sockets, self._group = has_sockets, group
        self._socket = max(_SOCKET, 2 * sum(map(_setting, ("rmem_default", "wmem_default"))))
        self._ours = {1, os.getppid(), os.getpid(), *ours}
        self._listener, self._memory = listener, memory
        self._used: dict[int, float] = {}  # seconds by process id, also of ended processes
        self._ended_s = 0.0  # seconds of ended processes whose id was used again
        self.peak, self.most = 0, 0  # bytes, and processes at once

    @property
    def used_s(self) -> float:
        """Return the processor seconds that were seen, of processes that run and that ended."""
        summed = self._ended_s + sum(self._used.values())
        return summed if self._group is None else max(summed, self._group.used_s)

    def end(self) -> None:
        """Kill the block's processes by its group; without a group, process 1 does that alone."""
        if self._group is not None:
            self._group.end()

    def watch(self, program: int, order: dict[str, Any], until: float) -> int:
        """Serve the tree until its first process ends or the block has used up a limit."""
        watched = os.pidfd_open(program)
        poll = select.poll()
        for descriptor in (self._listener, watched):
            poll.register(descriptor, select.POLLIN)
        try:
            look_at = 0.0
            while True:
                pause = max(0.0, look_at - time.monotonic())
                seen = {found for found, event in poll.poll(pause * 1000) if event}
                if self._listener in seen:
                    self._answer(order)
                if watched in seen:
                    return STALLED if time.monotonic() > until else DONE
                if time.monotonic() < look_at:
                    continue
                many = self._look(until)
                look_at = time.monotonic() + (_LOOK_S if many <= _MANY else _LOOK_AT_MANY_S)
                if self.used_s > order["cpu_s"]:
                    return LATE
                if self.peak > self._memory or self._is_over(order["wall_mb"] << 20):
                    return FULL
                if time.monotonic() > until:
                    return STALLED
        finally:
            os.close(watched)

    def _is_over(self, wall: int) -> bool:
        """Return True if the group holds more than that, with memory that no process shows."""
        return self._group is not None and self._group.memory > wall

    def _look(self, until: float) -> int:
        """Measure all processes of the block, at most until then; return their number."""
        found = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        own = [one for one in found if one not in self._ours]
        memory = 0
        for one in own:
            if time.monotonic() > until:
                return len(own)
            with contextlib.suppress(OSError, ValueError):
                used = time.clock_gettime((~one << 3) | _CPU_CLOCK)
                if used < self._used.get(one, 0.0):
                    self._ended_s += self._used[one]
                self._used[one] = used
                memory += _memory_with_shared(one)
        memory += self._memory_of_sockets()
        if self._memory < memory <= _MOST_SHARED * self._memory:
            # pages that processes share were counted once for each
            shares = [_share_of_memory(one) for one in own if time.monotonic() <= until]
            memory = sum(shares) + self._memory_of_sockets()
        self.peak, self.most = max(self.peak, memory), max(self.most, len(own))
        return len(own)

    def _memory_of_sockets(self) -> int:
        """Return the most memory that the sockets of a batch's block can hold."""
        if not self._has_sockets:
            return 0
        with open("/proc/self/net/sockstat", "rb") as lines:  # also of closed ones with data
            used = next(line for line in lines if line.startswith(b"sockets:"))
            return int(used.split()[2]) * self._socket

    def _answer(self, order: dict[str, Any]) -> None:
        """Answer one system call of the block."""
        request = bytearray(_REQUEST.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, request)
        except OSError:  # the process ended meanwhile
            return
        number, process, _, call, _, _, *arguments = _REQUEST.unpack(request)
        error, how = 0, 0
        try:
            if call == _SYSINFO:
                self._write(number, process, arguments[0], _memory_of(order))
            elif call == _SIGACTION:
                how = _CONTINUE
                self._let_restart(number, process, arguments[1] + _FLAGS_AT)
            elif call == _EXECVE:
                how = _CONTINUE
                self._observe(number, process, arguments, order["observer"])
            else:
                flags = arguments[1] & 0xFFFFFFFF if call == _PIPE2 else 0
                self._hand_pipe(number, process, arguments[0], flags)
        except OSError as failed:
            error = 0 if how else failed.errno or _FAULT
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._listener, _SEND, _ANSWER.pack(number, 0, -error, how))

    def _let_restart(self, number: int, process: int, place: int) -> None:
        """Let a handler of SIGCHLD restart the calls that the signal interrupts.

        `place` is where the process keeps the flags of the handler that it is about to install.
        Without the flag, a pipe often fails in a shell when an earlier command of a pipeline ends.
        """
        if place >= _END_OF_MEMORY:  # no place at all: the kernel will refuse it
            return
        memory = os.open(f"/proc/{process}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            flags = int.from_bytes(os.pread(memory, 8, place), "little")
        finally:
            os.close(memory)
        self._write(number, process, place, (flags | _RESTART).to_bytes(8, "little"))

    def _observe(
        self, number: int, process: int, arguments: list[int], observer: Any,  # Any: an Observer
    ) -> None:  # fmt: skip
        """Note the command that a process of a trial is about to become; let the kernel do it."""
        command = observer.command(process, *arguments[:2])
        fcntl.ioctl(self._listener, _IS_VALID, struct.pack("<Q", number))
        observer.add(command)

    def _hand_pipe(self, number: int, process: int, place: int, flags: int) -> None:
        """Make a pipe, give both ends to the process, and write their numbers to its memory."""
        if flags & ~(os.O_CLOEXEC | os.O_NONBLOCK | os.O_DIRECT):
            raise OSError(_NOT_VALID, "")
        ends = _new_pipe()
        try:
            if flags & os.O_NONBLOCK == 0:
                for end in ends:
                    os.set_blocking(end, True)
            handed = [self._hand(number, end, flags & os.O_CLOEXEC) for end in ends]
        finally:
            for end in ends:
                os.close(end)
        self._write(number, process, place, struct.pack("=ii", *handed))

    def _hand(self, number: int, end: int, flags: int) -> int:
        """Give a descriptor to the process that asks; return its number there."""
        order = bytearray(_HANDED.pack(number, 0, end, 0, flags))
        given: int = fcntl.ioctl(self._listener, _ADD, order)
        return given

    def _write(self, number: int, process: int, place: int, text: bytes) -> None:
        """Write into the memory of the process that asks; it must still be the one that asked."""
        fcntl.ioctl(self._listener, _IS_VALID, struct.pack("<Q", number))
        kept = ctypes.create_string_buffer(text, len(text))
        ours = struct.pack("PN", ctypes.addressof(kept), len(text))
        theirs = struct.pack("PN", place, len(text))
        written = LIBC.process_vm_writev(
            process, ctypes.c_char_p(ours), ctypes.c_ulong(1), ctypes.c_char_p(theirs),
            ctypes.c_ulong(1), ctypes.c_ulong(0),
        )  # fmt: skip
        if written != len(text):
            raise OSError(_FAULT, "")


def _setting(name: str) -> int:
    """Return a size in bytes that this machine gives each new socket."""
    try:
        with open(f"/proc/sys/net/core/{name}", "rb") as file:
            return int(file.read())
    except OSError:  # another name space than the first does not show it before Linux 6.17
        return _USUAL_BUFFER


def _new_pipe() -> tuple[int, int]:
    """Return both ends of a named pipe whose name is gone; they do not block yet."""
    name = f"{PIPES}/pipe"
    try:
        os.mkfifo(name, 0o600)
        reads = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return reads, os.open(name, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            os.close(reads)
            raise
    except OSError:
        raise OSError(_NO_MORE, "") from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)


def _memory_of(order: dict[str, Any]) -> bytes:
    """Return what a program is told of the machine's memory: the block's limit, all of it free."""
    size = order["memory_mb"] << 20
    return _SYSTEM.pack(1, 0, 0, 0, size, size, 0, 0, 0, 0, 1, 0, 0, 0, 1)


def _memory_with_shared(process: int) -> int:
    """Return the resident memory of the process in bytes, with shared pages and page tables."""
    return _of_any_thread(process, "status", (b"VmRSS:", b"VmSwap:", b"VmPTE:"))


def _share_of_memory(process: int) -> int:
    """Return its page tables and its proportional memory, where a shared page counts in parts."""
    found = 0
    with contextlib.suppress(OSError):  # a program file without read permission
        found = _of_any_thread(process, "smaps_rollup", (b"Pss:", b"SwapPss:"))
    if found == 0:
        return _memory_with_shared(process)
    return found + _of_any_thread(process, "status", (b"VmPTE:",))


def _of_any_thread(process: int, file: str, names: tuple[bytes, ...]) -> int:
    """Return the sum of these lines in bytes, from any thread: the first may have ended."""
    found = _sum_of(f"/proc/{process}/{file}", names)
    with contextlib.suppress(FileNotFoundError):
        for thread in os.listdir(f"/proc/{process}/task") if found == 0 else ():
            found = max(found, _sum_of(f"/proc/{process}/task/{thread}/{file}", names))
    return found


def _sum_of(place: str, names: tuple[bytes, ...]) -> int:
    try:
        with open(place, "rb") as lines:
            return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(names))
    except PermissionError:
        raise
    except OSError:  # the process or thread ended meanwhile
        return 0


# --- reader ---------------------------------------------------------------------------------------


def take_over_orphans() -> None:
    """Let process 1 collect every orphan as it ends, so that its time is counted."""
    signal.signal(signal.SIGCHLD, lambda *_: _collect(os.WNOHANG))


def end_all() -> int:
    """End every process of the block but this one; return their processor time in microseconds.

    It is the time of orphans alone: what a process has waited for is counted with that process.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    _collect(0)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return int((used.ru_utime + used.ru_stime) * 1e6)


def _collect(how: int) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, how)[0] != 0:
            pass


TREE: dict[str, Any] = {  # Any: as each is declared above
    "pass": pass_requests, "place": make_place_for_pipes, "listener": listener_from, "tree": Tree,
    "group": Group,
    "orphans": take_over_orphans, "end": end_all, "pipes": PIPES,
}  # fmt: skip
