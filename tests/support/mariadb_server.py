"""A real MariaDB, thrown away after the tests: its own folder, socket and loopback port."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pymysql


@dataclass(frozen=True)
class MariaDb:
    """A running MariaDB, whose superuser comes in by the socket alone."""

    folder: Path
    port: int

    def run(self, *statements: str, database: str | None = None) -> list[tuple[object, ...]]:
        """Run statements as the superuser; return the rows of the last one."""
        link = pymysql.connect(
            unix_socket=str(self.folder / "socket"), user="root", database=database, autocommit=True
        )
        found: Sequence[tuple[object, ...]] = ()
        with contextlib.closing(link), link.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                found = cursor.fetchall()
        return list(found)

    def url(self, user: str, password: str | None, database: str = "clinic") -> str:
        """Return the address of a database for a user."""
        secret = "" if password is None else f":{password}"
        return f"mariadb://{user}{secret}@127.0.0.1:{self.port}/{database}"


@contextmanager
def running(*options: str) -> Iterator[MariaDb]:
    """Start a throw-away MariaDB; stop it and delete its folder in the end."""
    assert shutil.which("mariadbd"), "MariaDB is not installed: run `make system`"
    folder = Path(tempfile.mkdtemp(prefix="sfumato-my-", dir="/tmp"))  # a socket's path is short
    user = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    if os.geteuid() == 0:  # MariaDB does not run as root
        shutil.chown(folder, user)
    server = MariaDb(folder, _free_port())
    place = ("--no-defaults", f"--datadir={folder / 'data'}", f"--user={user}")
    made = subprocess.run(
        ["mariadb-install-db", *place, "--auth-root-authentication-method=normal"],
        capture_output=True,
        timeout=300,
    )
    assert made.returncode == 0, made.stderr[-2000:]
    command = [
        "mariadbd", *place, f"--socket={folder / 'socket'}", f"--port={server.port}",
        "--bind-address=127.0.0.1", "--innodb-buffer-pool-size=16M", "--skip-log-bin",
        f"--log-error={folder / 'log.err'}", *options,
    ]  # fmt: skip
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig=KILL", "--", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_until_it_answers(server, process)
        yield server
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def _wait_until_it_answers(server: MariaDb, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        assert process.poll() is None, (server.folder / "log.err").read_text()[-2000:]
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as link:
            link.connect(str(server.folder / "socket"))
            return
        time.sleep(0.1)
    raise TimeoutError("MariaDB did not start")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])
