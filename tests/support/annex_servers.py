"""DataLad data sets (git-annex repositories) on a web server of this machine."""

from __future__ import annotations

import http.server
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any


def git(folder: Path, *words: str) -> None:
    """Run git in a repository, with no settings of this machine."""
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(folder.parent)}
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")
    done = subprocess.run(
        ["git", *who, "-C", str(folder), *words],
        env={"PATH": os.environ["PATH"], **own},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (words, done.stderr)


def make_repository(folder: Path) -> None:
    """Make a folder a git-annex repository, which a web server can serve as files."""
    git(folder, "init")
    git(folder, "annex", "init", "origin")
    git(folder, "config", "annex.largefiles", "include=*.nii.gz")
    commit(folder)


def commit(folder: Path) -> None:
    """Commit whatever is in the folder; images go into the annex."""
    git(folder, "annex", "add", ".")
    git(folder, "add", "-A")
    git(folder, "commit", "-m", "x")
    git(folder, "update-server-info")


@dataclass
class AnnexServer:
    """A running web server, and what was asked of it."""

    port: int
    asked: list[str] = field(default_factory=list)
    cut: str = ""  # contents whose path contains this are cut off in the middle, if it is not empty
    held: str = ""  # and these wait in the middle, until `go` is set
    is_held: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    @property
    def contents(self) -> list[str]:
        """Return the contents of the annex that were sent, by their names."""
        return [path.rpartition("/")[2] for path in self.asked if "/annex/objects/" in path]


@contextmanager
def serve_folder(root: Path) -> Iterator[AnnexServer]:
    """Serve a folder over HTTP until the block ends."""
    server = AnnexServer(0)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its name there
            """Write nothing."""

        def do_GET(self) -> None:
            path = self.translate_path(self.path)
            if os.path.isfile(path):
                server.asked.append(self.path)
            if server.cut and server.cut in self.path and os.path.isfile(path):
                text = Path(path).read_bytes()
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text[: len(text) // 2])
                self.close_connection = True
                return
            if server.held and server.held in self.path and os.path.isfile(path):
                server.is_held.set()
                server.go.wait(60)
            super().do_GET()

    handler = partial(Handler, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as web:
        server.port = web.server_address[1]
        thread = threading.Thread(target=web.serve_forever, daemon=True)
        thread.start()
        yield server
        web.shutdown()
        thread.join()
