"""Ways out of a sandbox: each is a function of a program's rows that says 1.0 if it got out.

Every one of them gets out of a process that is in no sandbox, which is how we know that it works.
"""

from __future__ import annotations

from typing import Final

SECRET: Final = "the-planted-secret-of-the-server-7f3a"  # noqa: S105  # planted to be looked for

HEAD: Final = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(*parts):  # each a whole word: what is left of one on the stack is anything
    return libc.syscall(*(ctypes.c_long(p) if isinstance(p, int) else p for p in parts))
def reads(path):
    with open(path, "rb") as file: return len(file.read(4096)) >= 0
"""

# name -> the body of a function that returns a truth; {…} is filled in by the test
BODIES: Final[dict[str, str]] = {
    # what the server has in its environment
    "environment": "return os.environ.get('PLANTED') is not None",
    "environment-of-libc": (
        "libc.getenv.restype = ctypes.c_char_p; return libc.getenv(b'PLANTED') is not None"
    ),
    "environment-in-memory": (
        "at = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, 'environ')\n"
        " return any(b'PLANTED' in at[i] for i in range(99) if at and at[i] is not None)"
        " if at else False"
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
}  # fmt: skip
# what a kernel or a host may refuse even to a bare process: no fault of the probe then
MAY_BE_OFF: Final = frozenset({
    "abstract-socket", "add-key", "bpf", "cgroup", "clone-user", "file-handle", "io-uring",
    "keyctl", "message-queue", "mount", "mount-namespace", "net-namespace", "perf", "personality",
    "pid-namespace", "proc-core-pattern", "read-memory", "semaphore", "shared-memory", "unmount",
    "user-fault", "user-namespace",
})  # fmt: skip


def source(name: str, **filled: object) -> str:
    """Return the probe as a program: a function `probe` of the rows, 1.0 if it got out."""
    body = BODIES[name].format(**filled)
    return (
        f"{HEAD}\ndef tried():\n {body}\n"
        "def probe(rows):\n try: return 1.0 if tried() else 0.0\n"
        " except BaseException: return 0.0\n"
    )
