"""Seccomp filters for untrusted programs: allow-lists of system calls.

A call that is not listed fails with an error, and the program continues.

A function, or a Python file without an image, is one process (`filter_for`). An image's program is
a process tree (`tree_filter_for`): it may fork, execute programs, and wait for its children.

The filters close covert channels between blocks. No block may use sockets, lock files, or use the
host's pool of huge pages. No block may evict or merge pages. No block sees the host's free memory
or its numbers of mounts and threads. A single process also may not set file times or share futexes,
because another block may run beside it. On real rows, no other block runs beside a process tree
(sandbox_pool.py).

The kernel numbers all pipes of the host in one sequence, which would tell a block how many pipes an
earlier block made. So a tree's pipes are made by the keeper in a file system of the block's own
(`requests_of_a_tree`, process_tree.py).

Sleeping and syncing return at once. If a program still waits for something, the keeper's deadline
stops it (inside.py).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

_ARCH: Final = {"x86_64": 0xC000003E}  # AUDIT_ARCH_*; other processors number the calls differently
_NUMBER_AT, _ARCH_AT, _FIRST_AT, _SECOND_AT, _THIRD_AT, _FOURTH_AT = (
    0,
    4,
    16,
    24,
    32,
    40,
)  # in struct seccomp_data
_LOAD, _EQUAL, _HAS, _RETURN = 0x20, 0x15, 0x45, 0x06  # opcodes of classic BPF
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS, _ENOTTY, _EAGAIN = 1, 38, 25, 11
_THREAD: Final = 0x00010000  # CLONE_THREAD; a thread shares its process's memory and limits
_OF_THREADS: Final = 0x017D0F00  # that flag, and those that libraries combine with it: VM, FS,
# FILES, SIGHAND, SYSVSEM, SETTLS, PARENT_SETTID, CHILD_CLEARTID, DETACHED and CHILD_SETTID
_OF_PROCESSES: Final = _OF_THREADS | 0x40FF  # also VFORK, and the exit signal
_OPCODE: Final = struct.Struct("=HBBI")

ALLOWED: Final = {
    "read": 0, "write": 1, "open": 2, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "lseek": 8,
    "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14,
    "rt_sigreturn": 15, "pread64": 17, "pwrite64": 18, "readv": 19, "writev": 20, "access": 21,
    "sched_yield": 24, "mremap": 25, "dup": 32, "dup2": 33,
    "getpid": 39, "exit": 60, "uname": 63,
    "truncate": 76, "ftruncate": 77, "getdents": 78, "getcwd": 79, "chdir": 80, "fchdir": 81,
    "rename": 82, "mkdir": 83, "rmdir": 84, "creat": 85, "unlink": 87, "readlink": 89, "chmod": 90,
    "fchmod": 91, "umask": 95, "gettimeofday": 96, "getrlimit": 97, "getrusage": 98, "times": 100,
    "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108, "getppid": 110,
    "sigaltstack": 131, "gettid": 186, "time": 201,
    "sched_getaffinity": 204, "getdents64": 217, "set_tid_address": 218, "restart_syscall": 219,
    "clock_gettime": 228, "clock_getres": 229, "exit_group": 231, "tgkill": 234,
    "openat": 257, "mkdirat": 258, "newfstatat": 262, "unlinkat": 263, "renameat": 264,
    "readlinkat": 267, "fchmodat": 268, "faccessat": 269, "set_robust_list": 273,
    "fallocate": 285, "dup3": 292, "preadv": 295, "pwritev": 296,
    "getcpu": 309, "renameat2": 316, "getrandom": 318, "copy_file_range": 326,
    "rseq": 334, "close_range": 436, "faccessat2": 439,
}  # fmt: skip
_OUTPUT_FD: Final = 3  # descriptor of a block's output pipe (inside.py)
_LOOKS: Final = (5, 262)  # fstat, newfstatat; newfstatat also works on a descriptor alone
_COPIES: Final = (32, 33, 292)  # dup, dup2, dup3
_FCNTL, _FUTEX, _PRIVATE = 72, 202, 128  # FUTEX_PRIVATE_FLAG
_DESCRIPTORS: Final = (
    0,
    1,
    2,
    3,
    4,
    1030,
)  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC
_BECOMES: Final = {"execve": 59, "arch_prctl": 158}  # needed to execute another program
_READS: Final = {"wait4": 61, "kill": 62}  # what the reader of a tree's results needs to end it
TREE: Final = {  # what a process tree may call in addition
    **_BECOMES, **_READS, "poll": 7, "select": 23, "pause": 34, "getitimer": 36, "alarm": 37,
    "setitimer": 38, "sendfile": 40, "fork": 57, "vfork": 58, "link": 86, "symlink": 88,
    "chown": 92, "fchown": 93, "lchown": 94, "setuid": 105, "setgid": 106, "setpgid": 109,
    "getpgrp": 111, "setreuid": 113, "setregid": 114, "getgroups": 115, "setresuid": 117,
    "getresuid": 118, "setresgid": 119, "getresgid": 120, "getpgid": 121, "getsid": 124,
    "capget": 125, "rt_sigpending": 127, "rt_sigtimedwait": 128, "rt_sigsuspend": 130, "utime": 132,
    "mknod": 133, "getpriority": 140, "sched_getparam": 143, "sched_getscheduler": 145,
    "sched_get_priority_max": 146, "sched_get_priority_min": 147, "tkill": 200, "utimes": 235,
    "waitid": 247, "mknodat": 259, "fchownat": 260, "futimesat": 261, "linkat": 265,
    "symlinkat": 266, "pselect6": 270, "ppoll": 271, "get_robust_list": 274, "utimensat": 280,
    "timerfd_create": 283, "eventfd": 284, "timerfd_settime": 286, "timerfd_gettime": 287,
    "eventfd2": 290,
}  # fmt: skip
PIPE, PIPE2, SYSINFO = 22, 293, 99  # system calls that the keeper answers for a tree
_SIGACTION, _SIGCHLD = 13, 17
_NOTIFY: Final = 0x7FC00000  # SECCOMP_RET_USER_NOTIF
_XATTR: Final = tuple(range(188, 200))  # setxattr to fremovexattr, as of a file system without them
# epoll_create, signalfd, signalfd4, epoll_create1, memfd_create, membarrier, io_uring_setup and
# pidfd_open: libraries try others where these lack
_FALLBACKS: Final = (213, 282, 289, 291, 319, 324, 425, 434)
_ADVICE_ON_FILES: Final = (187, 221)  # readahead, fadvise64: there is no disk
_FOR_DESCRIPTORS: Final = (0x541B, 0x5421, 0x5450, 0x5451)  # FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
_PRCTL, _OWN_SETTINGS = 157, (1, 2, 3, 15, 16)  # PDEATHSIG (set, get), DUMPABLE (get), NAME
_ENOTSUP = 95
_MMAP, _HUGE = 9, 0x00040000  # MAP_HUGETLB
_SHARED, _ANONYMOUS, _SETSID = 1, 0x20, 112
_MADVISE, _ADVICE = 28, (4, 8, 14, 15)  # MADV_DONTNEED, _FREE, _HUGEPAGE, _NOHUGEPAGE: own pages
BATCH: Final = {  # what a process tree may call in addition if its timing is a batch
    "nanosleep": 35, "connect": 42, "accept": 43, "sendto": 44, "recvfrom": 45, "sendmsg": 46,
    "recvmsg": 47, "shutdown": 48, "bind": 49, "listen": 50, "getsockname": 51, "getpeername": 52,
    "getsockopt": 55, "flock": 73, "setsid": 112, "statfs": 137, "fstatfs": 138,
    "sched_setparam": 142, "sched_setscheduler": 144, "epoll_create": 213, "clock_nanosleep": 230,
    "epoll_wait": 232, "epoll_ctl": 233, "epoll_pwait": 281, "signalfd": 282, "accept4": 288,
    "signalfd4": 289, "epoll_create1": 291, "recvmmsg": 299, "sendmmsg": 307, "epoll_pwait2": 441,
}  # fmt: skip
_SOCKET, _SOCKETPAIR, _SETSOCKOPT = 41, 53, 54
_UNIX, _INTERNET = 1, (2, 10)  # address families; in a network that only the block has
_NETLINK, _ROUTE = 16, 0  # lists the addresses of that network (getifaddrs)
_PROTOCOLS: Final = (0, 6, 17)  # the default, TCP, UDP; any other could load a module of the kernel
# SO_REUSEADDR, BROADCAST, KEEPALIVE, LINGER, REUSEPORT, PASSCRED, timeouts;
# TCP_NODELAY, KEEPIDLE, KEEPINTVL, KEEPCNT, QUICKACK, USER_TIMEOUT; IPV6_V6ONLY
_OPTIONS: Final = {
    1: (2, 6, 9, 13, 15, 16, 20, 21, 66, 67),
    6: (1, 4, 5, 6, 12, 18),
    41: (26,),
}
_BUFFERS: Final = (7, 8)  # SO_SNDBUF, SO_RCVBUF: the answer is success, without effect
_TYPES: Final = tuple(kind | flags for kind in (1, 2) for flags in (0, 0x800, 0x80000, 0x80800))
_TYPES_OF_ROUTES: Final = tuple(
    kind | flags for kind in (2, 3) for flags in (0, 0x800, 0x80000, 0x80800)
)
_EAFNOSUPPORT, _ENOPROTOOPT = 97, 92
_LOCKS: Final = (5, 6, 7, 36, 37, 38, 1032)  # fcntl's locks, and F_GETPIPE_SZ
_INTERFACES: Final = (0x8912, 0x8913, 0x8915, 0x891B, 0x8927, 0x8933)  # SIOCGIFCONF, ...
_STATX: Final = 332  # reveals the host-wide mount number; libraries fall back to older calls
_TO_DISK: Final = (26, 74, 75)  # msync, fsync, fdatasync: there is no disk
_CLONE, _CLONE3, _IOCTL, _PRLIMIT, _NANOSLEEP, _CLOCK_NANOSLEEP = 56, 435, 16, 302, 35, 230


class UnknownMachine(Exception):
    """Raised when no seccomp filter exists for this processor, so no sandbox runs on it."""


def filter_for(machine: str) -> bytes:
    """Return the seccomp filter of a block for a processor architecture, as BPF bytes."""
    return _filter(machine, ALLOWED.values(), _one_process(_no_look_at_the_voice()))


def tool_filter_for(machine: str) -> bytes:
    """Return the seccomp filter of an unpacking tool: one process, which execve starts."""
    return _filter(machine, {**ALLOWED, **_BECOMES}.values(), _one_process([]))


def reader_filter_for(machine: str) -> bytes:
    """Return the seccomp filter of the reader: it ends a tree, then reads what the tree left."""
    return _filter(machine, {**ALLOWED, **_READS}.values(), _one_process(_no_look_at_the_voice()))


def tree_filter_for(machine: str) -> bytes:
    """Return the seccomp filter of an image's program, which is a process tree.

    The program has no output pipe, so descriptor 3 needs no protection: the first file that the
    program opens may get this number.
    """
    steps = [
        # the scheduler gives each session a share of its own
        *_answers((_SETSID,), _ERROR | 0),
        *_rules_of_a_tree(_FALLBACKS, _FOR_DESCRIPTORS, _DESCRIPTORS),
    ]
    return _filter(machine, {**ALLOWED, **TREE}.values(), steps)


def batch_filter_for(machine: str) -> bytes:
    """Return the seccomp filter of a process tree whose timing is a batch (soundness rule 27).

    It may also sleep, and use locks, sessions, epoll and sockets. Its sockets reach only itself,
    because a block has a network of its own.
    """
    steps = [
        *_sockets_of_its_own_network(),
        *_rules_of_a_tree(
            sorted(set(_FALLBACKS) - set(BATCH.values())),
            (*_FOR_DESCRIPTORS, *_INTERFACES),
            (*_DESCRIPTORS, *_LOCKS),
        ),
    ]
    return _filter(machine, {**ALLOWED, **TREE, **BATCH}.values(), steps, sleeps=True)


def _rules_of_a_tree(
    missing: Sequence[int], ioctls: Sequence[int], fcntls: Sequence[int]
) -> list[bytes]:
    """Return the rules of a process tree, with its missing calls and its ioctl and fcntl lists."""
    return [
        *_answers((*missing, _CLONE3), _ERROR | _ENOSYS),
        *_answers(_ADVICE_ON_FILES, _ERROR | 0),
        *_answers(_XATTR, _ERROR | _ENOTSUP),
        # `requests_of_a_tree` passes these to the keeper
        *_answers((PIPE, PIPE2, SYSINFO), _ALLOW),
        *_one_of(_IOCTL, _SECOND_AT, ioctls, _ERROR | _ENOTTY),
        *_one_of(_PRCTL, _FIRST_AT, _OWN_SETTINGS, _ERROR | _EPERM),
        *_one_of(_FCNTL, _SECOND_AT, fcntls, _ERROR | _EPERM),
        *_answers((_FUTEX,), _ALLOW),
        *_no_shared_memory_without_a_file(),
        *_no_namespaces(),
    ]


def requests_of_a_tree(machine: str) -> bytes:
    """Return the filter that passes a tree's calls for pipes and memory sizes to the keeper.

    It also passes each new handler of SIGCHLD, which is to restart those calls (process_tree.py).
    The filter comes on top of `tree_filter_for`, and allows all other calls.
    """
    if machine not in _ARCH:
        raise UnknownMachine(machine)
    return b"".join([
        _op(_LOAD, _NUMBER_AT),
        *_answers((PIPE, PIPE2, SYSINFO), _NOTIFY),
        _op(_EQUAL, _SIGACTION, 0, 5),
        _op(_LOAD, _FIRST_AT),
        _op(_EQUAL, _SIGCHLD, 0, 3),
        _op(_LOAD, _SECOND_AT),
        _op(_EQUAL, 0, 1, 0),  # it only asks which handler there is
        _op(_RETURN, _NOTIFY),
        _op(_RETURN, _ALLOW),
    ])  # fmt: skip


def requests_of_a_trial(machine: str) -> bytes:
    """Return the filter of requests for a trial, which passes each execve to the keeper too.

    The keeper notes the command, and lets the kernel execute it (trial_observer.py).
    """
    rest = requests_of_a_tree(machine)
    return b"".join([_op(_LOAD, _NUMBER_AT), *_answers((_BECOMES["execve"],), _NOTIFY), rest])


def _one_process(voice: Sequence[bytes]) -> list[bytes]:
    """Return the rules of a single process, beside which another block may run."""
    return [
        # its flags are in memory, which a filter cannot read
        *_answers((_CLONE3,), _ERROR | _ENOSYS),
        *_answers((_IOCTL,), _ERROR | _ENOTTY),
        *voice,
        *_threads_only(),
        *_no_locks_on_files(),
        *_private_futexes_only(),
    ]


def _filter(
    machine: str, allowed: Iterable[int], rules: Sequence[bytes], *, sleeps: bool = False
) -> bytes:
    if machine not in _ARCH:
        raise UnknownMachine(machine)
    sleep = () if sleeps else (_NANOSLEEP, _CLOCK_NANOSLEEP)
    steps = [
        _op(_LOAD, _ARCH_AT),
        _op(_EQUAL, _ARCH[machine], 1, 0),
        _op(_RETURN, _KILL),
        _op(_LOAD, _NUMBER_AT),
        *_answers((_STATX,), _ERROR | _ENOSYS),
        *_answers(_TO_DISK, _ERROR | 0),
        *_answers(sleep, _ERROR | 0),  # success without sleeping
        *rules,
        *_no_pages_of_the_pool(),
        *_advice_on_own_pages(),
        *_reading_limits_only(),
        *_answers(sorted(set(allowed)), _ALLOW),
        _op(_RETURN, _ERROR | _EPERM),
    ]
    return b"".join(steps)


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return _OPCODE.pack(code, if_true, if_false, value)


def _answers(numbers: Sequence[int], answer: int) -> list[bytes]:
    return [
        step
        for number in numbers
        for step in (_op(_EQUAL, number, 0, 1), _op(_RETURN, answer))
    ]  # fmt: skip


def _no_pages_of_the_pool() -> list[bytes]:
    """Allow mmap, but not from the host's pool of huge pages, which blocks share."""
    return [
        _op(_EQUAL, _MMAP, 0, 4),
        _op(_LOAD, _FOURTH_AT),
        _op(_HAS, _HUGE, 0, 1),
        _op(_RETURN, _ERROR | _EPERM),
        _op(_RETURN, _ALLOW),
    ]


def _no_shared_memory_without_a_file() -> list[bytes]:
    """Refuse shared mappings of no file: they can hide memory from the keeper's measure."""
    return [
        _op(_EQUAL, _MMAP, 0, 6),
        _op(_LOAD, _FOURTH_AT),
        _op(_HAS, _HUGE, 3, 0),
        _op(_HAS, _ANONYMOUS, 0, 1),
        _op(_HAS, _SHARED, 1, 0),
        _op(_RETURN, _ALLOW),
        _op(_RETURN, _ERROR | _EPERM),
    ]


def _sockets_of_its_own_network() -> list[bytes]:
    """Allow sockets of Unix, TCP, UDP and routing tables, with the options that libraries set."""
    internet = [
        *_answers_if(_FIRST_AT, _INTERNET, _of(_TYPES, _PROTOCOLS)),
        *_answers_if(_FIRST_AT, (_UNIX,), _allow()),
        *_answers_if(_FIRST_AT, (_NETLINK,), _of(_TYPES_OF_ROUTES, (_ROUTE,))),
        _op(_RETURN, _ERROR | _EAFNOSUPPORT),
    ]
    buffers = _answers_if(_THIRD_AT, _BUFFERS, [_op(_RETURN, _ERROR | 0)])
    options = _answers_if(_SECOND_AT, (1,), buffers) + [
        step
        for level, names in _OPTIONS.items()
        for step in _answers_if(_SECOND_AT, (level,), _answers_if(_THIRD_AT, names, _allow()))
    ]
    return [
        *_if_call(_SOCKET, internet),
        *_one_of(_SOCKETPAIR, _FIRST_AT, (_UNIX,), _ERROR | _EAFNOSUPPORT),
        *_if_call(_SETSOCKOPT, [*options, _op(_RETURN, _ERROR | _ENOPROTOOPT)]),
    ]


def _of(types: Sequence[int], protocols: Sequence[int]) -> list[bytes]:
    """Allow a socket of one of these types and protocols."""
    return _answers_if(_SECOND_AT, types, _answers_if(_THIRD_AT, protocols, _allow()))


def _allow() -> list[bytes]:
    return [_op(_RETURN, _ALLOW)]


def _if_call(call: int, then: Sequence[bytes]) -> list[bytes]:
    """Go through `then`, which ends with an answer, if the call has this number."""
    return [_op(_EQUAL, call, 0, len(then)), *then]


def _answers_if(place: int, values: Sequence[int], then: Sequence[bytes]) -> list[bytes]:
    """Go through `then` if the argument at `place` has one of these values, else go on behind it.

    Afterwards another argument may be loaded.
    """
    tests = [
        _op(_EQUAL, value, len(values) - 1 - index, 0 if index < len(values) - 1 else len(then))
        for index, value in enumerate(values)
    ]
    return [_op(_LOAD, place), *tests, *then]


def _advice_on_own_pages() -> list[bytes]:
    """Allow madvise on own pages; any other advice succeeds without effect."""
    return [
        _op(_EQUAL, _MADVISE, 0, 2 + 2 * len(_ADVICE)),
        _op(_LOAD, _THIRD_AT),
        *_answers(_ADVICE, _ALLOW),
        _op(_RETURN, _ERROR | 0),
    ]


def _no_look_at_the_voice() -> list[bytes]:
    """Forbid fstat and copies of the output pipe; a block may only write to the pipe.

    The pipe's inode number is host-wide and would reveal the activity of other blocks. A copied
    descriptor would allow fstat again.
    """
    steps = []
    for number in (*_LOOKS, *_COPIES, _FCNTL):
        steps += [
            _op(_EQUAL, number, 0, 4),
            _op(_LOAD, _FIRST_AT),
            _op(_EQUAL, _OUTPUT_FD, 0, 1),
            _op(_RETURN, _ERROR | _EPERM),
            _op(_LOAD, _NUMBER_AT),
        ]
    return steps


def _threads_only() -> list[bytes]:
    """Allow clone for threads only; CLONE_THREAD excludes new processes and namespaces.

    CLONE_PIDFD is refused too. The inode number of a pidfd counts the processes and threads of the
    whole host, so it would reveal the activity of other blocks.
    """
    return [
        _op(_EQUAL, _CLONE, 0, 5),
        _op(_LOAD, _FIRST_AT),
        _op(_HAS, 0xFFFFFFFF & ~_OF_THREADS, 2, 0),
        _op(_HAS, _THREAD, 0, 1),
        _op(_RETURN, _ALLOW),
        _op(_RETURN, _ERROR | _EPERM),
    ]


def _no_namespaces() -> list[bytes]:
    """Allow clone for threads and processes, but without new namespaces and pidfds."""
    return [
        _op(_EQUAL, _CLONE, 0, 4),
        _op(_LOAD, _FIRST_AT),
        _op(_HAS, 0xFFFFFFFF & ~_OF_PROCESSES, 1, 0),
        _op(_RETURN, _ALLOW),
        _op(_RETURN, _ERROR | _EPERM),
    ]


def _one_of(call: int, place: int, values: Sequence[int], otherwise: int) -> list[bytes]:
    """Allow a call if its argument at `place` has one of these values; else answer `otherwise`."""
    return [
        _op(_EQUAL, call, 0, 2 + 2 * len(values)),
        _op(_LOAD, place),
        *_answers(values, _ALLOW),
        _op(_RETURN, otherwise),
    ]


def _reading_limits_only() -> list[bytes]:
    """Allow prlimit64 for reading only: the pointer to new limits must be null."""
    return [
        _op(_EQUAL, _PRLIMIT, 0, 6),
        _op(_LOAD, _THIRD_AT),
        _op(_EQUAL, 0, 0, 3),
        _op(_LOAD, _THIRD_AT + 4),
        _op(_EQUAL, 0, 0, 1),
        _op(_RETURN, _ALLOW),
        _op(_RETURN, _ERROR | _EPERM),
    ]


def _no_locks_on_files() -> list[bytes]:
    """Allow fcntl for copying descriptors and setting flags, but not for locks.

    A lock on a shared file would be a covert channel.
    """
    return _one_of(_FCNTL, _SECOND_AT, _DESCRIPTORS, _ERROR | _EPERM)


def _private_futexes_only() -> list[bytes]:
    """Allow private futexes, so that threads of one process can wait for each other.

    Joining a thread uses a futex that is not private. That call gets EAGAIN, so the caller spins.
    """
    return [
        _op(_EQUAL, _FUTEX, 0, 4),
        _op(_LOAD, _SECOND_AT),
        _op(_HAS, _PRIVATE, 0, 1),
        _op(_RETURN, _ALLOW),
        _op(_RETURN, _ERROR | _EAGAIN),
    ]
