"""A real service for tests: `sfumato serve` in processes of its own, on a port of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sfumato
from support import command_line, warm_workers

PASSWORD = "soft edges, no outline"  # noqa: S105  # of nobody but these tests
_COMMAND = "import sys; from sfumato.app.command_line import main; sys.exit(main())"
_WITH = (  # settings that have no option on the command line
    "import json, sys; from sfumato.app.command_line import serve_vault\n"
    "def say(text): print(text, file=sys.stderr, flush=True)\n"
    "serve_vault(sys.argv[1], ledger=None, say=say, **json.loads(sys.argv[2]))"
)


@dataclass
class Service:
    """A running service, and the tokens of whoever has come in."""

    process: subprocess.Popen[str] | command_line.Kept
    url: str
    invitation: str
    said: list[str]
    tokens: dict[str, str] = field(default_factory=dict)

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Return the status and the JSON that one request gives."""
        sent = dict(headers or {})
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        if token:
            sent["Authorization"] = f"Bearer {token}"
        request = urllib.request.Request(self.url + path, data, sent, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:  # noqa: S310
                status, text = reply.status, reply.read()
        except urllib.error.HTTPError as error:
            with error:
                status, text = error.code, error.read()
        return status, json.loads(text)

    def owner(self) -> str:
        """Return the first owner's token; their invitation is taken up once."""
        if "owner" not in self.tokens:
            self.tokens["owner"] = self.taken_up(self.invitation)
        return self.tokens["owner"]

    def user(self, name: str, *roles: str) -> str:
        """Return the token of a user with these roles, invited by the owner."""
        if name not in self.tokens:
            body = {"user": name, "roles": list(roles)}
            status, made = self.call("POST", "/v1/users", body, token=self.owner())
            assert status == 200, made
            self.tokens[name] = self.taken_up(made["invitation"])
        return self.tokens[name]

    def user_from_folder(self, name: str, *roles: str) -> str:
        """Return the token of a user whom whoever runs the machine has invited."""
        args = self.process.args
        assert isinstance(args, list)
        with sfumato.open(str(args[args.index("--vault") + 1])) as opened:
            made = opened.call("invite", {"user": name, "roles": list(roles)})
        self.tokens[name] = self.taken_up(str(made["invitation"]))
        return self.tokens[name]

    def taken_up(self, invitation: str) -> str:
        """Return the token of who takes up an invitation."""
        body = {"invitation": invitation, "password": PASSWORD}
        for _ in range(40):
            status, made = self.call("POST", "/v1/invitations", body)
            if status != 429:  # several users come from this one place within a minute
                break
            time.sleep(2)
        assert status == 200, made
        return str(made["token"])

    def kill(self) -> None:
        """Kill the keeper, as a power cut would."""
        self.process.kill()
        self.process.wait()


@contextmanager
def served(vault: Path, *options: str, **environment: str) -> Iterator[Service]:
    """Serve the vault until the block ends."""
    with _ended(start(vault, *options, **environment)) as service:
        yield service


@contextmanager
def sited(vault: Path, *options: str) -> Iterator[Service]:
    """Serve the vault as a site, by `sfumato site`, until the block ends."""
    command = [sys.executable, "-c", _COMMAND, "site", "--vault", str(vault), "--port", "0"]
    with _ended(_begun([*command, *options], {})) as service:
        yield service


@contextmanager
def _ended(service: Service) -> Iterator[Service]:
    try:
        yield service
    finally:
        service.process.terminate()
        service.process.wait(20)
        if service.process.stderr is not None:
            service.process.stderr.close()


@contextmanager
def served_with(vault: Path, **settings: object) -> Iterator[Service]:
    """Serve the vault with settings that no option of the command line sets."""
    how = json.dumps({"port": 0, "quantum_ms": 0, **settings})
    with _ended(_begun([sys.executable, "-c", _WITH, str(vault), how], {})) as service:
        yield service


def start(vault: Path, *options: str, **environment: str) -> Service:
    """Return the service once it has said where it is."""
    command = [sys.executable, "-c", _COMMAND, "serve", "--vault", str(vault)]
    if "--port" not in options:
        command += ["--port", "0"]
    if "--quantum" not in options:
        command += ["--quantum", "0"]
    return _begun([*command, *options], environment)


def _begun(command: list[str], environment: Mapping[str, str]) -> Service:
    process = _process(command, {**os.environ, **environment})
    said: list[str] = []
    has_url, is_over = threading.Event(), threading.Event()

    def listen() -> None:
        assert process.stderr is not None
        with suppress(ValueError):  # closed by whoever has ended it, before its last line was read
            for line in process.stderr:
                said.append(line)
                if " at http" in line:
                    has_url.set()
        has_url.set()
        is_over.set()

    threading.Thread(target=listen, daemon=True).start()
    has_url.wait(300)
    found = re.search(r" at (https?://\S+)", "".join(said))
    if found is None:
        process.kill()
        process.wait()
        is_over.wait(10)
        if process.stderr is not None:
            process.stderr.close()
        raise AssertionError("".join(said))
    time.sleep(0.05)  # the owner's link comes right after
    link = re.search(r"/welcome/(\S+)", "".join(said))
    return Service(process, found[1], link[1] if link else "", said)


def _process(
    command: list[str], environment: Mapping[str, str]
) -> subprocess.Popen[str] | command_line.Kept:
    """Begin it: forked, but for a site, settings without a word, and where the start is tested."""
    _, _, text, *words = command
    if warm_workers.is_warm() and (text, words[0]) == (_COMMAND, "serve"):
        process = command_line.Kept(words, environment)
        process.args = command
        return process
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
