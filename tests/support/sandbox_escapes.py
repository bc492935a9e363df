"""Ways out of a sandbox: each is a function of a program's rows that says 1.0 if it got out.

Every one of them gets out of a process that is in no sandbox, which is how we know that it works.
Where the test machine's kernel or rights do not let it (`MAY_BE_OFF`, `AS_ROOT_ONLY`), it has no
such control, and is tried in the sandbox all the same.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import sfumato

SECRET: Final = "the-planted-secret-of-the-server-7f3a"  # noqa: S105  # planted to be looked for

HEAD: Final = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(*parts):  # each a whole word: what is left of one on the stack is anything
    return libc.syscall(*(ctypes.c_long(p) if isinstance(p, int) else p for p in parts))
def reads(path):
    with open(path, "rb") as file: return len(file.read(4096)) >= 0
def says(path):
    with open(path, "rb") as file: return len(file.read(64)) > 0
def writes(path, text):
    with open(path, "w") as file: file.write(text)
    return True
def taken(*parts):  # the kernel would do it, and finds fault with nothing but what is asked
    return call(*parts) >= 0 or ctypes.get_errno() not in (1, 13, 38)
"""

# name -> the body of a function that returns a truth; {…} is filled in by the test
BODIES: Final[dict[str, str]] = {
    # what the server has in its environment
    "environment": "return os.environ.get('PLANTED') is not None",
    "environment-of-libc": (
        "libc.getenv.restype = ctypes.c_char_p; return libc.getenv(b'PLANTED') is not None"
    ),
    "environment-in-memory": (
        "named = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, 'environ')\n"
        " return bool(named) and any(named[i].startswith(b'PLANTED') for i in range(99)"
        " if not any(named[j] is None for j in range(i + 1)))"
    ),
    "environment-at-the-start": (  # where the kernel put it, whatever was cleared since
        "at = ctypes.c_void_p.in_dll(libc, '__libc_stack_end').value\n"
        " count = ctypes.c_long.from_address(at).value\n"
        " named = ctypes.cast(at + 8 * (count + 2), ctypes.POINTER(ctypes.c_char_p))\n"
        " return any(named[i].startswith(b'PLANTED') for i in range(99)"
        " if not any(named[j] is None for j in range(i + 1)))"
    ),
    "path": "return bool(os.environ.get('PATH'))",
    # /proc and /sys
    "proc-environ": "return reads('/proc/self/environ')",
    "proc-1": "return bool(os.stat('/proc/1'))",
    "proc-parent": "return reads('/proc/%d/cmdline' % os.getppid())",
    "proc-maps": "return reads('/proc/self/maps')",
    "proc-mem": "return bool(open('/proc/self/mem', 'rb'))",
    "proc-mounts": "return reads('/proc/self/mounts')",
    "proc-fd": "return bool(os.listdir('/proc/self/fd'))",
    "proc-others": "return len([n for n in os.listdir('/proc') if n.isdigit()]) > 1",
    "proc-core-pattern": "return reads('/proc/sys/kernel/core_pattern')",
    "proc-net": "return reads('/proc/net/tcp')",
    "sys": "return bool(os.listdir('/sys'))",
    "cgroup": "return bool(os.listdir('/sys/fs/cgroup'))",
    # files of the host
    "passwd": "return reads('/etc/passwd')",
    "hosts": "return reads('/etc/hosts')",
    "var": "return bool(os.listdir('/var'))",
    "tmp": "return bool(os.listdir('/tmp'))",
    "home": "return bool(os.listdir('/home') or True)",
    "canary-file": "return reads({canary!r})",
    "our-code": "return reads({code!r})",
    "programs-of-the-host": "return bool(os.listdir('/usr/bin'))",
    "usr-local": "return bool(os.listdir('/usr/local'))",
    "dev-zero": "return reads('/dev/zero')",
    "dev-ptmx": "return bool(open('/dev/ptmx', 'rb', 0))",
    "dev-shm": "return bool(open('/dev/shm/probe-{mark}', 'wb')) and not os.unlink("
    "'/dev/shm/probe-{mark}')",
    "dotdot": "os.chdir('/'); return os.path.exists('../../..{canary}')",
    "write-usr": "open('/usr/probe-{mark}', 'wb'); os.unlink('/usr/probe-{mark}'); return True",
    "write-root": "open('/probe-{mark}', 'wb'); os.unlink('/probe-{mark}'); return True",
    "write-var": "open('/var/tmp/p-{mark}', 'wb'); os.unlink('/var/tmp/p-{mark}'); return True",
    # network
    "tcp": (
        "import socket; return bool(socket.create_connection(('127.0.0.1', {port}), timeout=5))"
    ),
    "udp": "import socket; return bool(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))",
    "unix-socket": "import socket; return bool(socket.socket(socket.AF_UNIX))",
    "abstract-socket": (
        "import socket; s = socket.socket(socket.AF_UNIX); s.bind(b'\\0{mark}'); return True"
    ),
    "netlink": "import socket; return bool(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))",
    "socket-pair": "import socket; return bool(socket.socketpair())",
    "lookup": "import socket; return bool(socket.getaddrinfo('127.0.0.1', 1)) and bool("
    "socket.socket())",
    # processes
    "fork": "pid = os.fork()\n if pid == 0: os._exit(0)\n os.waitpid(pid, 0); return True",
    "fork-bomb": (
        "made = []\n for _ in range(200):\n  pid = os.fork()\n  if pid == 0: os._exit(0)\n"
        "  made.append(pid)\n for pid in made: os.waitpid(pid, 0)\n return True"
    ),
    "exec": "import subprocess; return subprocess.run(['/usr/bin/env', 'true']).returncode == 0",
    "spawn": (
        "pid = os.posix_spawn('/usr/bin/env', ['env', 'true'], {{}}); os.waitpid(pid, 0)\n"
        " return True"
    ),
    "thousand-threads": (
        "import threading; gate = threading.Event()\n"
        " made = [threading.Thread(target=gate.wait, daemon=True) for _ in range(300)]\n"
        " try:\n  for t in made: t.start()\n finally: gate.set()\n return True"
    ),
    "signal-parent": "os.kill(os.getppid(), 0); return True",
    "signal-self": "os.kill(os.getpid(), 0); return True",
    "pidfd": "return os.pidfd_open(os.getpid()) >= 0",
    "ptrace": (
        "pid = None\n if call(56, 17, 0, 0, 0, 0) == 0: call(101, 0, 0, 0, 0); os._exit(0)\n"
        " return os.wait()[0] > 0"
    ),
    "read-memory": (
        "text = ctypes.create_string_buffer(8); other = ctypes.create_string_buffer(8)\n"
        " vec = lambda b: (ctypes.c_void_p * 2)(ctypes.addressof(b), 8)\n"
        " return call(310, os.getpid(), vec(text), 1, vec(other), 1, 0) == 8"
    ),
    # namespaces and mounts
    "user-namespace": "return libc.unshare(0x10000000) == 0",
    "mount-namespace": "return libc.unshare(0x00020000) == 0",
    "pid-namespace": "return libc.unshare(0x20000000) == 0",
    "net-namespace": "return libc.unshare(0x40000000) == 0",
    "clone-user": "pid = call(56, 0x10000000 | 17, 0, 0, 0, 0)\n"
    " if pid == 0: os._exit(0)\n return pid > 0",
    "mount": "libc.unshare(0x00020000)\n libc.mount(b'none', b'/', None, 0x44000, None)\n"
    " return libc.mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0",
    "unmount": "libc.unshare(0x00020000)\n libc.mount(b'none', b'/', None, 0x44000, None)\n"
    " libc.mount(b'none', {folder!r}.encode(), b'tmpfs', 0, None)\n"
    " return libc.umount2({folder!r}.encode(), 2) == 0",
    "change-root": "os.chroot('/'); return True",
    # rights
    "set-uid": "os.setuid(os.getuid()); return True",
    "set-groups": "os.setgroups([1]); return True",
    "set-uid-file": "open('{folder}/s', 'wb'); os.chmod('{folder}/s', 0o4755)\n"
    " os.chown('{folder}/s', 1, 1); return True",
    "change-owner": "open('{folder}/o', 'wb'); os.chown('{folder}/o', 7, 7); return True",
    "device": "os.mknod('{folder}/d', 0o20600, os.makedev(1, 3)); return True",
    "raise-limit": "import resource; a = resource.RLIMIT_NOFILE\n"
    " resource.setrlimit(a, resource.getrlimit(a)); return True",
    "other-processor": "os.sched_setaffinity(0, [0, 1]); return True",
    "priority": "return os.nice(0) >= -20 and os.setpriority(os.PRIO_PROCESS, 0, 0) is None",
    "personality": "return libc.personality(0xffffffff) >= 0",
    "dumpable": "return libc.prctl(4, 1, 0, 0, 0) == 0",
    # the kernel's side doors
    "keyctl": "return call(250, 0, -3, 1) > 0",
    "add-key": "return call(248, b'user', b'{mark}', b'x', 1, -2) > 0",
    "io-uring": "return call(425, 4, ctypes.create_string_buffer(512)) >= 0",
    "bpf": "return call(321, 0, ctypes.create_string_buffer(b'\\2\\0\\0\\0\\4\\0\\0\\0"
    "\\4\\0\\0\\0\\1', 128), 128) >= 0",
    "user-fault": "return call(323, 1) >= 0",
    "perf": "a = ctypes.create_string_buffer(128); a[0] = 1; a[4] = 112\n"
    " return call(298, a, 0, -1, -1, 0) >= 0",
    "memfd": "return os.memfd_create('x') >= 0",
    "inotify": "return call(294, 0) >= 0",
    "epoll": "import select; return bool(select.epoll())",
    "eventfd": "return os.eventfd(0) >= 0",
    "timerfd": "return call(283, 1, 0) >= 0",
    "shared-memory": "return call(29, 0, 4096, 0o1600) >= 0",
    "semaphore": "return call(64, 0, 1, 0o1600) >= 0",
    "message-queue": "return call(68, 0, 0o1600) >= 0",
    "pipe": "return bool(os.pipe())",
    "seccomp": "return call(317, 2, 0, ctypes.byref(ctypes.c_uint32(0))) == 0",
    "file-handle": "return call(303, -100, b'{folder}', (ctypes.c_uint32 * 40)(128),"
    " ctypes.byref(ctypes.c_int()), 0) == 0",
    # marks that another block could read
    "touch-device": "os.utime('/dev/null'); return True",
    "open-device": "return os.open('/dev/null', os.O_RDWR) >= 0",
    "open-random": "return os.open('/dev/urandom', os.O_RDONLY) >= 0",
    "file-times": "open('{folder}/t', 'wb'); os.utime('{folder}/t'); return True",
    "lock-shared-file": "import fcntl; f = os.open(os.__file__, os.O_RDONLY)\n"
    " fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB); fcntl.flock(f, fcntl.LOCK_UN); return True",
    "lock-record": "import fcntl; f = os.open(os.__file__, os.O_RDONLY)\n"
    " fcntl.lockf(f, fcntl.LOCK_SH | fcntl.LOCK_NB); return True",
    "lease": "import fcntl; open('{folder}/e', 'wb').close()\n"
    " return fcntl.fcntl(os.open('{folder}/e', os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK) == 0",
    "owner-of-signals": "import fcntl; return fcntl.fcntl(0, fcntl.F_GETOWN) >= 0",
    "free-space": "return os.statvfs('/usr').f_blocks > 0",
    "free-space-of-descriptor": "return os.fstatvfs(os.open('/', os.O_RDONLY)).f_blocks > 0",
    "shared-futex": (  # a wake on a page of a library reaches whoever maps the same file
        "word = ctypes.c_int(7); return call(202, ctypes.byref(word), 1, 1, 0, 0, 0) >= 0"
    ),
    "forget-pages": "return call(221, os.open(os.__file__, os.O_RDONLY), 0, 0, 4) == 0",
    # room
    "ten-gigabytes": "import mmap; return bool(mmap.mmap(-1, 10 << 30))",
    "ten-gigabyte-file": (
        "f = open('{folder}/big', 'wb'); f.truncate(10 << 30); os.unlink('{folder}/big')\n"
        " return True"
    ),
    "hundred-megabyte-file": (
        "f = open('{folder}/big', 'wb')\n"
        " for _ in range(100): f.write(bytes(1 << 20))\n"
        " f.flush(); os.unlink('{folder}/big'); return True"
    ),
    "many-files": (
        "for i in range(6000): open(f'{folder}/n{{i}}', 'wb').close()\n return True"
    ),
    "many-descriptors": "return len([os.open('/dev/null', 0) for _ in range(400)]) == 400",
    "locked-memory": "return libc.mlock(ctypes.create_string_buffer(1 << 20), 1 << 20) == 0",
    # names that are not files
    "symlink": "os.symlink('/etc/passwd', '{folder}/l'); return True",
    "hard-link": "open('{folder}/h', 'wb'); os.link('{folder}/h', '{folder}/h2'); return True",
    "fifo": "os.mkfifo('{folder}/f'); return True",
    # time
    "sleep": "import time; a = time.monotonic(); time.sleep(1); return time.monotonic() - a > .9",
    "alarm": "import signal; signal.setitimer(signal.ITIMER_REAL, 9); return True",
    "wait-in-poll": "import select; return select.poll().poll(1) == []",
    # the newer calls of mounts, and the older ways about a root
    "file-system-opened": "return call(430, b'tmpfs', 0) >= 0",
    "file-system-picked": "return call(433, -100, b'/', 0) >= 0",
    "open-tree": "return call(428, -100, b'/', 1) >= 0",
    "move-mount": (
        "libc.unshare(0x20000)\n libc.mount(b'none', b'/', None, 0x44000, None)\n"
        " made = call(430, b'tmpfs', 0)\n call(431, made, 6, None, None, 0)\n"
        " return call(429, call(432, made, 0, 0), b'', -100, b'{folder}', 4) == 0"
    ),
    "mount-attributes": (
        "libc.unshare(0x20000)\n libc.mount(b'none', b'/', None, 0x44000, None)\n"
        " return call(442, -100, b'/', 0, (ctypes.c_uint64 * 4)(1), 32) == 0"
    ),
    "list-mounts": (
        "asked = (ctypes.c_uint64 * 3)(24, 2**64 - 1)\n"
        " return call(458, asked, (ctypes.c_uint64 * 64)(), 64, 0) > 0"
    ),
    "pivot-root": (
        "libc.unshare(0x20000)\n libc.mount(b'none', b'/', None, 0x44000, None)\n"
        " libc.mount(b'none', b'{folder}', b'tmpfs', 0, None)\n"
        " return call(155, b'{folder}', b'{folder}') == 0"
    ),
    "out-of-a-changed-root": (
        "os.mkdir('{folder}/root'); back = os.open('/', os.O_RDONLY); os.chroot('{folder}/root')\n"
        " os.fchdir(back); os.chroot('.'); return os.path.exists({canary!r})"
    ),
    "open-by-handle": (
        "named = (ctypes.c_uint32 * 40)(128); at = ctypes.byref(ctypes.c_int())\n"
        " call(303, -100, b'{folder}', named, at, 0)\n"
        " return call(304, os.open('{folder}', os.O_RDONLY), named, 0) >= 0"
    ),
    "open-with-rules": "return call(437, -100, b'/', (ctypes.c_uint64 * 3)(), 24) >= 0",
    "extended-stat": (
        "return call(332, -100, b'/', 0, 0xFFF, ctypes.create_string_buffer(256)) == 0"
    ),
    # other namespaces
    "ipc-namespace": "return libc.unshare(0x08000000) == 0",
    "uts-namespace": "return libc.unshare(0x04000000) == 0",
    "cgroup-namespace": "return libc.unshare(0x02000000) == 0",
    "time-namespace": "return libc.unshare(0x80) == 0",
    "set-namespace": (
        "return call(308, os.open('/proc/self/ns/uts', os.O_RDONLY), 0x04000000) == 0"
    ),
    "set-namespace-by-process": "return call(308, call(434, os.getpid(), 0), 0x04000000) == 0",
    "owner-of-a-namespace": (
        "import fcntl; return fcntl.ioctl(os.open('/proc/self/ns/uts', os.O_RDONLY), 0xb701) >= 0"
    ),
    "number-of-a-namespace": "return 'uts' in os.readlink('/proc/self/ns/uts')",
    # other processes
    "take-a-descriptor": "return call(438, call(434, os.getpid(), 0), 1, 0) >= 0",
    "signal-by-descriptor": "return call(424, call(434, os.getpid(), 0), 0, None, 0) == 0",
    "queue-a-signal": (
        "told = ctypes.create_string_buffer(bytes(8) + bytes([255] * 4), 128)\n"
        " return call(129, os.getpid(), 0, told) == 0"
    ),
    "write-memory": (
        "text = ctypes.create_string_buffer(8); other = ctypes.create_string_buffer(8)\n"
        " vec = lambda b: (ctypes.c_void_p * 2)(ctypes.addressof(b), 8)\n"
        " return call(311, os.getpid(), vec(text), 1, vec(other), 1, 0) == 8"
    ),
    "compare-objects": "return call(312, os.getpid(), os.getpid(), 0, 0, 1) >= 0",
    "advise-another": (
        "import mmap; room = mmap.mmap(-1, 4096, flags=34)\n"
        " vec = (ctypes.c_void_p * 2)(ctypes.addressof(ctypes.c_char.from_buffer(room)), 4096)\n"
        " return call(440, call(434, os.getpid(), 0), vec, 1, 20, 0) == 4096"
    ),
    "trace-a-child": (
        "pid = os.fork()\n if pid == 0: os.kill(os.getpid(), 19); os._exit(0)\n"
        " found = call(101, 0x4206, pid, 0, 0) == 0\n"
        " os.kill(pid, 9); os.waitpid(pid, 0); return found"
    ),
    "traced-by-its-parent": (
        "pid = os.fork()\n if pid == 0: os._exit(call(101, 0, 0, 0, 0) != 0)\n"
        " return os.waitpid(pid, 0)[1] == 0"
    ),
    "clone-3": (
        "pid = call(435, (ctypes.c_uint64 * 8)(0, 0, 0, 0, 17), 64)\n"
        " if pid == 0: os._exit(0)\n return pid > 0 and os.waitpid(pid, 0)[1] == 0"
    ),
    "clone-with-a-descriptor": (
        "found = ctypes.c_int(-1)\n pid = call(56, 0x1000 | 17, 0, ctypes.byref(found), 0, 0)\n"
        " if pid == 0: os._exit(0)\n"
        " return pid > 0 and os.waitpid(pid, 0)[1] == 0 and found.value >= 0"
    ),
    "clone-for-the-parent": (  # the new process is no child of this one
        "pid = os.fork()\n if pid == 0:\n  pid = call(56, 0x8000 | 17, 0, 0, 0, 0)\n"
        "  os._exit(0 if pid >= 0 else 1)\n"
        " return os.waitpid(pid, 0)[1] == 0"
    ),
    "adopt-orphans": "return libc.prctl(36, 1, 0, 0, 0) == 0",
    "run-by-descriptor": (
        "file = os.path.realpath(sys.executable).encode(); opened = os.open(file, os.O_RDONLY)\n"
        " told = (ctypes.c_char_p * 5)(file, b'-I', b'-c', b'', None); pid = os.fork()\n"
        " if pid == 0: call(322, opened, b'', told, None, 0x1000); os._exit(9)\n"
        " return os.waitpid(pid, 0)[1] == 0"
    ),
    "core-file": (
        "pid = os.fork()\n if pid == 0:\n  import resource; os.chdir('{folder}')\n"
        "  try: resource.setrlimit(4, (resource.getrlimit(4)[1],) * 2)\n"
        "  finally: os.abort()\n"
        " return os.WCOREDUMP(os.waitpid(pid, 0)[1])"
    ),
    "answer-own-calls": (
        "libc.prctl(38, 1, 0, 0, 0); code = (ctypes.c_uint32 * 2)(6, 0x7FFF0000)\n"
        " return call(317, 1, 8, (ctypes.c_uint64 * 2)(1, ctypes.addressof(code))) >= 0"
    ),
    "another-filter": (
        "libc.prctl(38, 1, 0, 0, 0); code = (ctypes.c_uint32 * 2)(6, 0x7FFF0000)\n"
        " return libc.prctl(22, 2, (ctypes.c_uint64 * 2)(1, ctypes.addressof(code)), 0, 0) == 0"
    ),
    "landlock": "return call(444, None, 0, 1) > 0",
    "calls-of-32-bits": (  # numbers that no filter of 64 bits means
        "import mmap; room = mmap.mmap(-1, 4096, flags=34, prot=7)\n"
        " room.write(bytes([0xB8, 20, 0, 0, 0, 0xCD, 0x80, 0xC3]))\n"
        " at = ctypes.addressof(ctypes.c_char.from_buffer(room))\n"
        " return ctypes.CFUNCTYPE(ctypes.c_int)(at)() == os.getpid()"
    ),
    # the processor and its clocks
    "scheduler": "os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)); return True",
    "real-time": "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)); return True",
    "scheduler-attributes": (
        "return call(314, 0, (ctypes.c_uint32 * 12)(48, 3), 0) == 0"
    ),
    "priority-of-input": "return call(251, 1, 0, 2 << 13 | 7) == 0",
    "timer-slack": "return libc.prctl(29, 1, 0, 0, 0) == 0",
    "speculation": "return libc.prctl(52, 0, 0, 0, 0) >= 0",
    "barrier-on-all-processors": "return call(324, 0, 0, 0) >= 0",
    "posix-timer": "return call(222, 1, None, ctypes.byref(ctypes.c_int())) == 0",
    "set-time": "return call(164, None, None) == 0",
    "set-a-clock": "return taken(227, 0, (ctypes.c_long * 2)(0, -1))",
    "clock-discipline": "return call(159, ctypes.create_string_buffer(256)) >= 0",
    # memory
    "memory-policy": "return call(239, 0, 0, 0, 0, 0) == 0",
    "set-memory-policy": "return call(238, 0, 0, 0) == 0",
    "move-pages": (
        "room = ctypes.create_string_buffer(64)\n"
        " at = (ctypes.c_void_p * 1)(ctypes.addressof(room))\n"
        " return call(279, 0, 1, at, None, (ctypes.c_int * 1)(), 0) == 0"
    ),
    "migrate-pages": "m = (ctypes.c_ulong * 2)(1); return call(256, 0, 65, m, m) >= 0",
    "merge-pages": "return libc.prctl(67, 1, 0, 0, 0) == 0",
    "lock-all-memory": "return libc.mlockall(1) == 0",
    "lock-memory-later": (
        "room = ctypes.create_string_buffer(64)\n"
        " return call(325, ctypes.addressof(room) & ~4095, 4096, 1) == 0"
    ),
    "secret-memory": "return call(447, 0) >= 0",
    "pages-in-the-cache": (
        "import mmap; room = mmap.mmap(os.open(os.__file__, os.O_RDONLY), 4096, flags=2)\n"
        " at = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(room)))\n"
        " return libc.mincore(at, 4096, ctypes.create_string_buffer(1)) == 0"
    ),
    "statistics-of-the-cache": (
        "asked = (ctypes.c_uint64 * 2)(0, 4096); file = os.open(os.__file__, os.O_RDONLY)\n"
        " return call(451, file, asked, (ctypes.c_uint64 * 5)(), 0) == 0"
    ),
    "read-if-cached": (
        "f = os.open(os.__file__, os.O_RDONLY)\n"
        " try: os.preadv(f, [bytearray(8)], 0, os.RWF_NOWAIT)\n"
        " except BlockingIOError: pass\n return True"
    ),
    # queues, words and notes
    "asynchronous-input": "return call(206, 1, ctypes.byref(ctypes.c_ulong())) == 0",
    "wait-on-many-words": (
        "word = ctypes.c_uint32(7)\n"
        " call(449, (ctypes.c_uint64 * 3)(8, ctypes.addressof(word), 2), 1, 0, 0, 0)\n"
        " return ctypes.get_errno() == 11"
    ),
    "named-queue": (
        "return call(240, b'{mark}', 0o102, 0o600, None) >= 0 and call(241, b'{mark}') == 0"
    ),
    "signals-by-descriptor": "return call(289, -1, ctypes.byref(ctypes.c_uint64()), 8, 0) >= 0",
    "fanotify": "return call(300, 0, 0) >= 0",
    "notes-of-a-folder": (
        "import fcntl; f = os.open('{folder}', os.O_RDONLY); return fcntl.fcntl(f, 1026, 2) == 0"
    ),
    "owner-of-a-descriptor": (
        "import fcntl; f = os.open('{folder}', os.O_RDONLY)\n"
        " return fcntl.fcntl(f, fcntl.F_SETOWN, os.getpid()) == 0"
    ),
    "life-of-what-is-written": (
        "import fcntl; f = os.open('{folder}/w', os.O_RDWR | os.O_CREAT)\n"
        " return len(fcntl.fcntl(f, 1035, bytes(8))) == 8"
    ),
    "pipe-size": "import fcntl; return fcntl.fcntl(os.pipe()[1], 1031, 65536) > 0",
    "splice": (
        "a, b = os.pipe(); c, d = os.pipe(); os.write(b, b'x')\n"
        " return call(275, a, None, d, None, 1, 0) == 1"
    ),
    "tee": (
        "a, b = os.pipe(); c, d = os.pipe(); os.write(b, b'x')\n"
        " return call(276, a, d, 1, 0) == 1"
    ),
    "memory-into-a-pipe": (
        "text = ctypes.create_string_buffer(8); at = ctypes.addressof(text)\n"
        " return call(278, os.pipe()[1], (ctypes.c_void_p * 2)(at, 8), 1, 0) == 8"
    ),
    "key-request": (
        "call(249, b'user', b'{mark}', 0, -2); return ctypes.get_errno() in (2, 126)"
    ),
    # files
    "sync-the-disk": "return call(306, os.open('{folder}', os.O_RDONLY)) == 0",
    "sync-a-range": (
        "return call(277, os.open('{folder}/y', os.O_RDWR | os.O_CREAT), 0, 0, 2) == 0"
    ),
    "extended-attribute": (
        "open('{folder}/x', 'wb'); os.setxattr('{folder}/x', 'user.mark', b'1'); return True"
    ),
    "file-capability": (
        "open('{folder}/k', 'wb')\n"
        " told = bytes([1, 0, 0, 2, 0, 4]) + bytes(14)\n"
        " os.setxattr('{folder}/k', 'security.capability', told); return True"
    ),
    "file-flags": (
        "import fcntl; f = os.open('{folder}', os.O_RDONLY)\n"
        " return len(fcntl.ioctl(f, 0x80086601, bytes(8))) == 8"
    ),
    "places-on-the-disk": (
        "import fcntl; open('{folder}/i', 'wb').write(bytes(9)); f = os.open('{folder}/i', 0)\n"
        " told = bytes(8) + bytes([255] * 8) + bytes(16)\n"
        " return len(fcntl.ioctl(f, 0xC020660B, told)) > 0"
    ),
    "link-an-unnamed-file": (
        "f = os.open('{folder}', os.O_TMPFILE | os.O_RDWR)\n"
        " named = b'/proc/self/fd/%d' % f\n"
        " return call(265, -100, named, -100, b'{folder}/u', 0x400) == 0"
    ),
    "times-of-a-library": (
        "own = os.stat(os.__file__); os.utime(os.__file__, ns=(own.st_atime_ns, own.st_mtime_ns))\n"
        " return True"
    ),
    "write-a-library": "return bool(open(os.__file__, 'r+b'))",
    "pool-of-random-numbers": (
        "import fcntl; f = os.open('/dev/urandom', os.O_RDONLY)\n"
        " return len(fcntl.ioctl(f, 0x80045200, bytes(4))) == 4"
    ),
    "type-into-a-terminal": (
        "import fcntl, os; _, end = os.openpty(); fcntl.ioctl(end, 0x5412, b'x'); return True"
    ),
    # what the server has open, and who it is
    "inherited-descriptor": (
        "for number in range(3, 300):\n"
        "  try:\n   if {planted!r} in os.pread(number, 99, 0): return True\n"
        "  except OSError: pass\n"
        " return False"
    ),
    "name-of-the-host": "return os.uname().nodename == {host!r}",
    "groups": "return len(os.getgroups()) > {groups}",
    "socket-of-the-host": (
        "import socket; socket.socket(socket.AF_UNIX).connect({unix!r}); return True"
    ),
    "abstract-socket-of-the-host": (
        "import socket; socket.socket(socket.AF_UNIX).connect('\\0heard-{mark}'); return True"
    ),
    # more rights
    "become-another": "return call(117, 5, 5, 5) == 0",
    "user-for-files": "return call(122, os.geteuid()) >= 0",
    "set-rights": (
        "head, own = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()\n"
        " return call(125, head, own) == 0 and call(126, head, own) == 0"
    ),
    "bounding-set": "return libc.prctl(23, 0, 0, 0, 0) >= 0",
    "raise-limit-of-a-process": (
        "import resource; own = (ctypes.c_ulong * 2)(*resource.getrlimit(7))\n"
        " return call(302, os.getpid(), 7, own, None) == 0"
    ),
    # what only an administrator of the host does
    "accounting": "return taken(163, b'/nowhere/file')",
    "swap-on": "return taken(167, b'/nowhere/file', 0)",
    "reboot": "return taken(169, 0, 0, 0, None)",
    "another-kernel": "return taken(246, 0, 0, None, 0x4000)",
    "load-a-module": "return taken(175, b'', 0, b'')",
    "unload-a-module": "return taken(176, b'{mark}', 0o4000)",
    "log-of-the-kernel": "return call(103, 3, ctypes.create_string_buffer(4096), 4096) >= 0",
    "size-of-the-log": "return call(103, 10, None, 0) > 0",
    "ports-of-the-machine": "return call(172, 3) == 0",
    "one-port-of-the-machine": "return call(173, 0x80, 1, 1) == 0",
    "local-descriptor-table": "return call(154, 0, ctypes.create_string_buffer(64), 64) >= 0",
    "quota": "return call(179, 0x80000100, None, 0, None) == 0",
    "kinds-of-file-systems": "return call(139, 3) > 0",
    "set-name-of-the-host": (
        "own = os.uname().nodename.encode(); return call(170, own, len(own)) == 0"
    ),
    # more of /proc
    "proc-symbols": "return says('/proc/kallsyms')",
    "proc-interrupts": "return says('/proc/interrupts')",
    "proc-kernel-memory": "return says('/proc/kcore')",
    "proc-slabs": "return says('/proc/slabinfo')",
    "proc-timers": "return says('/proc/timer_list')",
    "proc-key-users": "return says('/proc/key-users')",
    "proc-pressure": "return says('/proc/pressure/cpu')",
    "proc-free-pages": "return says('/proc/buddyinfo')",
    "proc-open-files": "return says('/proc/sys/fs/file-nr')",
    "proc-boot": "return says('/proc/sys/kernel/random/boot_id')",
    "proc-shared-memory": "return says('/proc/sysvipc/shm')",
    "proc-1-memory": "return bool(open('/proc/1/mem', 'rb'))",
    "proc-1-root": "return bool(os.listdir('/proc/1/root'))",
    "proc-1-descriptors": "return bool(os.listdir('/proc/1/fd'))",
    "proc-1-environment": "return says('/proc/1/environ')",
    "physical-pages": (
        "text = ctypes.create_string_buffer(b'x', 8); at = ctypes.addressof(text) >> 12\n"
        " found = os.pread(os.open('/proc/self/pagemap', os.O_RDONLY), 8, at * 8)\n"
        " return int.from_bytes(found, 'little') & (1 << 55) - 1 > 0"
    ),
    "proc-sysrq": (
        "f = os.open('/proc/sysrq-trigger', os.O_WRONLY); return os.fstat(f).st_rdev == 0"
    ),
    "proc-setting": "return writes('/proc/sys/kernel/hostname', os.uname().nodename)",
    "proc-out-of-memory": "return writes('/proc/self/oom_score_adj', '1000')",
    "proc-forget-use": "return writes('/proc/self/clear_refs', '1')",
    "proc-name": "return writes('/proc/self/comm', 'x')",
    # more of the network
    "packets": "import socket; return bool(socket.socket(17, socket.SOCK_RAW, 0))",
    "hypervisor": "import socket; return bool(socket.socket(40, socket.SOCK_STREAM))",
    "ciphers": "import socket; return bool(socket.socket(38, socket.SOCK_SEQPACKET))",
    "express-packets": "import socket; return bool(socket.socket(44, socket.SOCK_RAW))",
    "audit": "import socket; return bool(socket.socket(16, socket.SOCK_RAW, 9))",
    "device-events": "import socket; return bool(socket.socket(16, socket.SOCK_RAW, 15))",
    "socket-diagnosis": "import socket; return bool(socket.socket(16, socket.SOCK_RAW, 4))",
    "generic-netlink": "import socket; return bool(socket.socket(16, socket.SOCK_RAW, 16))",
    "packet-filters": "import socket; return bool(socket.socket(16, socket.SOCK_RAW, 12))",
    "process-events": "import socket; return bool(socket.socket(16, socket.SOCK_RAW, 11))",
    "raw-packets": "import socket; return bool(socket.socket(2, socket.SOCK_RAW, 1))",
    "ping": "import socket; return bool(socket.socket(2, socket.SOCK_DGRAM, 1))",
    "multipath": "import socket; return bool(socket.socket(2, socket.SOCK_STREAM, 262))",
    "light-datagrams": "import socket; return bool(socket.socket(2, socket.SOCK_DGRAM, 136))",
    "filter-of-a-socket": (
        "import socket, struct; code = (ctypes.c_uint32 * 2)(6, 0xFFFF)\n"
        " told = struct.pack('HxxxxxxP', 1, ctypes.addressof(code))\n"
        " socket.socket().setsockopt(1, 26, told); return True"
    ),
    "congestion-control": "import socket; socket.socket().setsockopt(6, 13, b'reno'); return True",
    "number-of-a-socket": "import socket; return len(socket.socket().getsockopt(1, 57, 8)) == 8",
    "descriptor-over-a-socket": (
        "import socket; a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [0])\n"
        " return len(socket.recv_fds(b, 9, 1)[1]) == 1"
    ),
    "interfaces-of-the-host": (
        "import socket; return any(name != 'lo' for _, name in socket.if_nameindex())"
    ),
    "route-to-outside": (
        "import socket; socket.socket(2, socket.SOCK_DGRAM).connect(('192.0.2.1', 9)); return True"
    ),
    "change-the-network": (
        "import fcntl, socket; s, told = socket.socket(2, 2), b'lo' + bytes(38)\n"
        " fcntl.ioctl(s, 0x8914, fcntl.ioctl(s, 0x8913, told)); return True"
    ),
}  # fmt: skip
# what a kernel or a host may refuse even to a bare process: no fault of the probe then
MAY_BE_OFF: Final = frozenset({
    "abstract-socket", "accounting", "add-key", "advise-another", "another-kernel",
    "asynchronous-input", "audit", "bpf", "calls-of-32-bits", "cgroup", "cgroup-namespace",
    "change-the-network", "ciphers", "clock-discipline", "clone-user", "compare-objects",
    "congestion-control", "core-file", "device-events", "express-packets", "extended-attribute",
    "fanotify", "file-capability", "file-flags", "file-handle", "file-system-opened",
    "file-system-picked", "filter-of-a-socket", "generic-netlink", "hypervisor",
    "interfaces-of-the-host", "io-uring", "ipc-namespace", "key-request", "keyctl",
    "kinds-of-file-systems", "landlock", "light-datagrams", "link-an-unnamed-file", "list-mounts",
    "load-a-module", "local-descriptor-table", "lock-all-memory", "log-of-the-kernel",
    "memory-policy", "merge-pages", "message-queue", "migrate-pages", "mount", "mount-attributes",
    "mount-namespace", "move-mount", "move-pages", "multipath", "named-queue", "net-namespace",
    "one-port-of-the-machine", "open-by-handle", "open-tree", "packet-filters", "packets", "perf",
    "personality", "physical-pages", "pid-namespace", "ping", "pivot-root", "places-on-the-disk",
    "ports-of-the-machine", "priority-of-input", "proc-1-descriptors", "proc-1-environment",
    "proc-1-memory", "proc-1-root", "proc-core-pattern", "proc-free-pages", "proc-kernel-memory",
    "proc-key-users", "proc-pressure", "proc-setting", "proc-shared-memory", "proc-slabs",
    "proc-symbols", "proc-sysrq", "proc-timers", "process-events", "quota", "raw-packets",
    "read-if-cached", "read-memory", "real-time", "reboot", "route-to-outside", "secret-memory",
    "semaphore", "set-memory-policy", "set-name-of-the-host", "set-namespace",
    "set-namespace-by-process", "set-time", "shared-memory", "size-of-the-log",
    "socket-diagnosis", "speculation", "statistics-of-the-cache", "swap-on", "time-namespace",
    "times-of-a-library", "type-into-a-terminal", "unload-a-module", "unmount", "user-fault",
    "user-namespace", "uts-namespace", "wait-on-many-words", "write-a-library", "write-memory",
})  # fmt: skip
AS_ROOT_ONLY: Final = frozenset({
    "become-another", "bpf", "change-owner", "change-root", "clone-user", "device", "groups",
    "mount", "mount-namespace", "net-namespace", "out-of-a-changed-root", "perf", "pid-namespace",
    "proc-core-pattern", "set-groups", "set-uid-file", "unmount", "user-namespace", "write-root",
    "write-usr",
})  # fmt: skip
_A_GROUP: Final = 4  # that a server may be in; `groups` asks whether a program is


@contextmanager
def planted_server() -> Iterator[dict[str, object]]:
    """Make this process a server with secrets; yield what probes look for.

    A sandbox that starts meanwhile must inherit nothing of it: no setting, no descriptor, no group.
    """
    groups = os.getgroups()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="canary-"))
        canary, mark = Path(folder, "canary"), os.urandom(6).hex()
        canary.write_text(SECRET)
        opened = os.open(canary, os.O_RDONLY)
        stack.callback(os.close, opened)
        os.set_inheritable(opened, True)
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        for name in (f"{folder}/socket", f"\0heard-{mark}"):
            hidden = stack.enter_context(socket.socket(socket.AF_UNIX))
            hidden.bind(name)
            hidden.listen(64)
        os.environ["PLANTED"] = SECRET
        stack.callback(os.environ.pop, "PLANTED")
        if os.geteuid() == 0:
            os.setgroups([*groups, _A_GROUP])
            stack.callback(os.setgroups, groups)
        yield {
            "port": listener.getsockname()[1],
            "unix": f"{folder}/socket",
            "canary": str(canary),
            "planted": SECRET.encode(),
            "descriptor": opened,
            "host": os.uname().nodename,
            "code": str(Path(sfumato.__file__)),
            # only root can give up its groups; of another server a program sees how many there are
            "groups": 0 if os.geteuid() == 0 else len(groups),
            "folder": folder,
            "mark": mark,
        }


def source(name: str, **filled: object) -> str:
    """Return the probe as a program: a function `probe` of the rows, 1.0 if it got out."""
    body = BODIES[name].format(**filled)
    return (
        f"{HEAD}\ndef tried():\n {body}\n"
        "def probe(rows):\n try: return 1.0 if tried() else 0.0\n"
        " except BaseException: return 0.0\n"
    )


# --- from the processes of a tree -----------------------------------------------------------------

PLACES: Final = ("child", "grandchild", "thread", "script")
_IN_EACH_PROCESS: Final = """
import ctypes, fcntl, mmap, os, resource, select, shutil, signal, socket, struct, subprocess, sys
import threading
PROBES = {name: compile(text, name, "exec") for name, text in PROBES.items()}
def say(*words):
    with open(sys.argv[2] + "/out/answer.txt", "a") as file:
        file.write(" ".join(words) + "\\n")
def tried(name, place):
    os.mkdir(f"/work/tmp/{place}-{name}")
    os.chdir(f"/work/tmp/{place}-{name}")
    names = {}
    exec(PROBES[name], names)
    if names["probe"](None) == 1.0:
        say(place, "out", name)
def in_a_child(act, *parts):
    child = os.fork()
    if child == 0:
        status = 1
        try: status = bool(act(*parts))
        finally: os._exit(status)
    return os.waitpid(child, 0)[1]
def in_a_thread(act, *parts):
    thread = threading.Thread(target=act, args=parts)
    thread.start()
    thread.join()
def all_from(place, act, *parts):
    for name in PROBES:
        if in_a_child(act, *parts, name, place):
            say(place, "broke", name)
        os.chdir("/work")
        shutil.rmtree(f"/work/tmp/{place}-{name}", ignore_errors=True)
    say(place, "end")
def script():
    told = ["bash", "-c", 'python3 "$@"; true', "bash", sys.argv[0], *sys.argv[1:3], "script"]
    os.execv("/bin/bash", told)
if sys.argv[3] == "script":
    all_from("script", tried)
else:
    os.makedirs(sys.argv[2] + "/out")
    all_from("child", tried)
    all_from("grandchild", in_a_child, tried)
    all_from("thread", in_a_thread, tried)
    in_a_child(script)
os._exit(0)
"""


def from_each_process(**filled: object) -> str:
    """Return a program that tries every probe from each of `PLACES`, in a process of its own.

    Its result has a line for each probe that got out, or that broke its process, and an end.
    """
    probes = {name: source(name, **filled) for name in BODIES}
    return f"PROBES = {probes!r}\n{_IN_EACH_PROCESS}"
