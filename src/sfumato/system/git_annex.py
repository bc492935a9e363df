"""Clone a git-annex repository (a DataLad data set) over HTTPS, and get contents of its files.

Only the repository's own server is contacted: git follows no redirect, knows no other protocol and
no submodule, and git-annex gets contents from the origin alone and enables no other remote. The
repository brings neither hooks nor settings. git-annex checks every content against its hash.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

CLONE_S: Final = 3600.0  # the longest time for a clone
GET_S: Final = 24 * 3600.0  # the longest time for contents; a stalled transfer ends much sooner
_SIZE: Final = re.compile(rb"-s([0-9]{1,15})-")  # in the name of a content
_POINTER: Final = b"/annex/objects/"
_POINTER_BYTES: Final = 32_768
_FIXED: Final = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "protocol.allow=never",
    "protocol.https.allow=always", "http.followRedirects=false", "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=60", "submodule.recurse=false", "credential.helper=",
    "user.name=sfumato", "user.email=sfumato@localhost", "annex.stalldetection=1KB/120s",
    "annex.security.allowed-url-schemes=https", "annex.diskreserve=256mb",
)  # fmt: skip


def is_installed() -> bool:
    """Return True if git-annex is on this machine."""
    return shutil.which("git-annex") is not None


@dataclass(frozen=True)
class Repository:
    """A repository at a URL, with its clone in a private folder."""

    url: str
    clone: Path

    def make(self, most: int) -> bool:
        """Clone the repository without contents; return False if that fails.

        Args:
            most: The most bytes of one file that git may write.
        """
        for url in (f"{self.url}/.git", self.url):  # a folder on a web server, or a git server
            shutil.rmtree(self.clone, ignore_errors=True)
            clone = ("clone", "--quiet", "--template=", "--no-tags", url, str(self.clone))
            if self._run(clone, self.clone.parent, most, CLONE_S):
                begin = ("annex", "init", "--quiet", "--no-autoenable", "sfumato")
                return self._run(begin, self.clone, most, CLONE_S)
        return False

    def get(self, paths: Sequence[str], most: int) -> bool:
        """Get the contents of these files; return False if one of them cannot be had.

        What an earlier, interrupted call has got is not sent again.
        """
        text = b"".join(path.encode() + b"\0" for path in paths)
        words = ("annex", "get", "--quiet", "--from=origin", "--batch", "-z")
        return self._run(words, self.clone, most, GET_S, text)

    def _run(
        self, words: Sequence[str], folder: Path, most: int, limit_s: float, text: bytes = b""
    ) -> bool:
        settings = [word for one in (*_FIXED, *self._network()) for word in ("-c", one)]
        try:
            started = subprocess.Popen(
                ["prlimit", f"--fsize={most}", "--core=0", "git", *settings, *words],
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=_environment(folder),
                start_new_session=True,
            )
        except OSError:
            return False
        with started:
            try:
                started.communicate(text, timeout=limit_s)
            except (OSError, subprocess.TimeoutExpired):
                with contextlib.suppress(ProcessLookupError):  # git-annex and its transfers too
                    os.killpg(started.pid, signal.SIGKILL)
                return False
        return started.returncode == 0

    def _network(self) -> tuple[str, ...]:
        """Return the settings that allow this host: git-annex contacts no private network else."""
        host = urlsplit(self.url).hostname or ""
        addresses = addresses_of(host)
        found = (f"annex.security.allowed-ip-addresses={' '.join(addresses)}",)
        if self.url.startswith("http://") and all(map(_is_loopback, addresses)):
            return (
                *found,
                "protocol.http.allow=always",
                "annex.security.allowed-url-schemes=http https",
            )
        return found


def is_absent(file: Path) -> bool:
    """Return True if a clone has only the name of a file's content: a broken link, or a pointer."""
    if file.is_symlink():
        return not file.is_file()
    return _pointer(file) is not None


def content_size(file: Path) -> int | None:
    """Return the size of an absent content, which its name says; None if it says no size."""
    name = os.readlink(file).encode() if file.is_symlink() else _pointer(file) or b""
    found = _SIZE.search(name.rpartition(b"/")[2])
    return None if found is None else int(found[1])


def addresses_of(host: str) -> tuple[str, ...]:
    """Return the IP addresses of a host; none if its name is unknown."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return tuple(dict.fromkeys(str(one[4][0]) for one in found))


def is_loopback_host(host: str) -> bool:
    """Return True if a host name means this machine and nothing else."""
    addresses = addresses_of(host)
    return bool(addresses) and all(map(_is_loopback, addresses))


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _pointer(file: Path) -> bytes | None:
    """Return the text of a pointer file of git-annex; None for any other file."""
    if not file.is_file() or file.stat().st_size > _POINTER_BYTES:
        return None
    with file.open("rb") as opened:
        text = opened.read(_POINTER_BYTES).partition(b"\n")[0]
    return text if text.startswith(_POINTER) else None


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment without settings, secrets and programs that could ask somebody."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "false",
        "GIT_SSH_COMMAND": "false",
    }
