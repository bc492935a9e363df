"""A real PostgreSQL, thrown away after the tests: its own folder, socket and loopback port."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psycopg
import pytest

_BINARIES = Path("/usr/lib/postgresql/15/bin")
_SCHEMAS = count(1)


@dataclass(frozen=True)
class Server:
    """A running PostgreSQL."""

    folder: Path
    port: int
    user: str

    def url(self, schema: str = "public") -> str:
        """Return the address of one schema."""
        place = f"host={self.folder} port={self.port} user={self.user} dbname=postgres"
        return f"{place} options='-c search_path={schema}'"

    def fresh_url(self) -> str:
        """Return the address of a new, empty schema."""
        schema = f"vault_{os.getpid()}_{next(_SCHEMAS)}"
        self.run(f"CREATE SCHEMA {schema}")
        return self.url(schema)

    def own_database(self) -> str:
        """Return the name of a new database whose texts sort by the rules of a language."""
        name = f"engine_{os.getpid()}_{next(_SCHEMAS)}"
        self.run(
            f"CREATE DATABASE {name} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"
        )
        return name

    def database_url(self, database: str, user: str | None = None) -> str:
        """Return the address of a database, for the superuser or another."""
        place = f"host={self.folder} port={self.port} dbname={database}"
        return f"{place} user={user or self.user}"

    def run(self, sql: str) -> list[tuple[object, ...]]:
        """Run one statement as the superuser."""
        with psycopg.connect(self.url(), autocommit=True) as link:
            found = link.execute(sql)
            return found.fetchall() if found.description else []

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Run the server; it falls with the test process, however that ends."""
        place = (f"port={self.port}", "listen_addresses=127.0.0.1")
        settings = [word for setting in place for word in ("-c", setting)]
        command = self._command("postgres", "-D", "data", "-k", str(self.folder), *settings)
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        try:
            self._wait_until_it_answers()
            yield
        finally:
            self._call("pg_ctl", "-D", "data", "-m", "immediate", "-w", "stop", check=False)
            process.wait(30)

    def _wait_until_it_answers(self) -> None:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            with contextlib.suppress(psycopg.OperationalError):
                self.run("SELECT 1")
                return
            time.sleep(0.05)
        raise TimeoutError("PostgreSQL did not start")

    def kill(self, pid: int) -> bool:
        """Kill one process of a PostgreSQL (of nothing else), unless it has gone by itself."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"postgres:"):
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def make(self) -> None:
        """Make the data folder."""
        self._call("initdb", "-N", "-D", "data", "-A", "trust", "-U", self.user, "-E", "UTF8")
        small = "shared_buffers = 16MB\nmax_connections = 60\nautovacuum_naptime = 5s\n"
        with (self.folder / "data" / "postgresql.conf").open("a") as file:
            file.write(small)

    def ask_passwords(self) -> None:
        """Let nobody in without a password but the superuser, from the next start on."""
        rules = f"local all {self.user} trust\nlocal all all scram-sha-256\n"
        (self.folder / "data" / "pg_hba.conf").write_text(rules)

    @contextmanager
    def replica(self) -> Iterator[Server]:
        """Run a copy that follows this server."""
        with _folder(self.user) as folder:
            other = Server(folder, _free_port(), self.user)
            place = ("-h", str(self.folder), "-p", str(self.port), "-U", self.user)
            other._call("pg_basebackup", *place, "-D", "data", "-R", "-c", "fast")
            with other.serving():
                yield other

    def promote(self) -> None:
        """Make a replica a server of its own."""
        self._call("pg_ctl", "-D", "data", "-w", "promote")

    def caught_up(self, primary: Server) -> None:
        """Wait until this replica has all that the primary has written."""
        place = primary.run("SELECT pg_current_wal_lsn()::text")[0][0]
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if self.run(f"SELECT pg_last_wal_replay_lsn() >= '{place}'::pg_lsn")[0][0]:
                return
            time.sleep(0.05)
        raise TimeoutError("the replica did not catch up")

    def pause(self) -> None:
        """Cut a replica from its primary, so that it stays behind."""
        self.run("ALTER SYSTEM SET primary_conninfo = ''")
        self.run("SELECT pg_reload_conf()")
        end = time.monotonic() + 30
        while self.run("SELECT 1 FROM pg_stat_wal_receiver") and time.monotonic() < end:
            time.sleep(0.05)

    def stop_smoothly(self) -> None:
        """Stop the server as an operator does, with all of it on the disk."""
        self._call("pg_ctl", "-D", "data", "-m", "fast", "-w", "stop")

    @contextmanager
    def restored(self, dump: Path) -> Iterator[Server]:
        """Run a new server that holds what was dumped from another."""
        with made() as other, other.serving():
            other._call("psql", *other._place(), "-q", "-v", "ON_ERROR_STOP=1", "-f", str(dump))
            yield other

    def dump(self, schema: str) -> Path:
        """Write the schema down as SQL; return where."""
        path = self.folder / f"{schema}.sql"
        self._call("pg_dump", *self._place(), "-n", schema, "-f", str(path))
        path.chmod(0o644)
        self.folder.chmod(0o755)
        return path

    @contextmanager
    def upgraded(self) -> Iterator[Server]:
        """Run what `pg_upgrade` makes of this server, which must not run: another cluster."""
        with made() as other:
            folders = ("-d", str(self.folder / "data"), "-D", str(other.folder / "data"))
            place = str(binary("postgres").resolve().parent)
            programs = ("-b", place, "-B", place)
            other._call("pg_upgrade", *folders, *programs, "-U", self.user, timeout_s=240)
            with other.serving():
                yield other

    def _place(self) -> tuple[str, ...]:
        return "-h", str(self.folder), "-p", str(self.port), "-U", self.user, "-d", "postgres"

    def _call(self, name: str, *words: str, check: bool = True, timeout_s: float = 60) -> None:
        command = self._command(name, *words)
        run = subprocess.run(command, cwd=self.folder, capture_output=True, timeout=timeout_s)
        if check and run.returncode:
            raise RuntimeError(f"{name}: {run.stdout[-2000:]!r} {run.stderr[-2000:]!r}")

    def _command(self, name: str, *words: str) -> list[str]:
        prefix = ["setpriv", "--pdeathsig=INT"]
        if os.geteuid() == 0:  # PostgreSQL does not run as root
            prefix += [f"--reuid={self.user}", "--clear-groups"]
        return [*prefix, "--", str(binary(name)), *words]


def binary(name: str) -> Path:
    """Return where a program of PostgreSQL lies (perhaps nowhere)."""
    found = shutil.which(name)
    return Path(found) if found else _BINARIES / name


def _user() -> str:
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def need_binaries() -> None:
    """Skip without PostgreSQL's programs; in CI, fail."""
    if binary("initdb").exists():
        return
    if os.environ.get("CI") == "true":
        pytest.fail("PostgreSQL is missing in CI: run `make system`")
    pytest.skip("PostgreSQL is not installed: run `make system`")


@contextmanager
def _folder(user: str) -> Iterator[Path]:
    # Not pytest's folder: another user must get in, and a socket's path has at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="sfumato-pg-", dir="/tmp"))
    if os.geteuid() == 0:
        shutil.chown(folder, user)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def made() -> Iterator[Server]:
    """Make a throw-away PostgreSQL that does not run yet; delete its folder in the end."""
    need_binaries()
    with _folder(_user()) as folder:
        server = Server(folder, _free_port(), _user())
        server.make()
        yield server


@contextmanager
def running() -> Iterator[Server]:
    """Start a throw-away PostgreSQL; stop it and delete its folder in the end."""
    with made() as server, server.serving():
        yield server
