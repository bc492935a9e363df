"""`sfumato serve`: a parent process that starts two children, door (vault) and edge (HTTP).

The parent restarts them when they die, and holds the listening socket, so that no client is dropped
when an edge dies. A child ends with its parent: it watches for the end of its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.engines.shared.process_hardening import disable_dumps
from sfumato.features.federated.tensors.tensor_processes import RoomLimits
from sfumato.system.garbage_collection import collect_normally, collect_seldom
from sfumato.system.ip_networks import Network
from sfumato.system.optional_packages import need
from sfumato.system.temporary_folders import temporary_folder

LOCAL: Final = ("localhost", "127.0.0.1", "[::1]")
PAUSE_S: Final = 0.5  # seconds before a dead child process is restarted
START_S: Final = 120.0  # seconds for an edge to start listening, once the door is ready
# the interpreter's switch interval: with it, threads that return from the disk wait less
SWITCH_S: Final = 0.0005
_GO: Final = b"go\n"
_HOME: Final = str(Path(__file__).resolve().parents[2])
_BEGIN: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); from sfumato.app.processes import child; "
    "child(sys.argv[2])"
)


@dataclass(frozen=True)
class Serving:
    """The settings of `sfumato serve`, as plain values that can be sent to child processes."""

    vault: str
    host: str = "127.0.0.1"
    port: int = 8765
    names: tuple[str, ...] = ()  # host names besides those of this machine
    tls_cert: str | None = None
    tls_key: str | None = None
    is_behind_proxy: bool = False
    proxies: tuple[str, ...] = ()  # networks of the proxies; only they and this machine may connect
    quantum_ms: int = 250
    is_logged: bool = False
    max_upload_mb: int = 2000
    max_folder_mb: int = 20_000
    head_s: float = 10.0  # time limit for a request's head; the next one for its body
    body_s: float = 60.0
    idle_s: int = 30  # how long an idle connection stays open
    connections: int = 2000
    of_one_place: int = 1000
    # the most callers whose tensors are held at once; 0 if the vault is not a site
    tensor_rooms: int = 0
    tensor_mb: int = 256  # memory limit for each of them, in megabytes
    sources: tuple[tuple[str, str], ...] = ()  # database connections: name and file of each
    at_rest_key: str | None = None  # where the owner's key is; never the key itself

    @property
    def is_secure(self) -> bool:
        """Return True if browsers' connections are encrypted, here or at a proxy."""
        return self.tls_cert is not None or self.is_behind_proxy

    @property
    def address(self) -> str:
        """Return the URL for a browser on this machine."""
        scheme = "https" if self.tls_cert else "http"
        name = self.names[0] if self.names else "localhost"
        return f"{scheme}://{name}:{self.port}"


def check(serving: Serving) -> None:
    """Refuse settings with which other machines would connect without encryption."""
    need("serve", *(("federated",) if serving.tensor_rooms else ()))
    from sfumato.server.http.security_headers import is_loopback

    if (serving.tls_cert is None) != (serving.tls_key is None):
        raise Refused(
            "serve-unsafe", "--tls-cert and --tls-key work only together.", "Give both options."
        )
    proxy_networks(serving)
    if not is_loopback(serving.host) and not serving.is_secure:
        raise Refused(
            "serve-unsafe",
            f"Other machines can reach {serving.host}, and the connection would not be encrypted.",
            "Give --tls-cert and --tls-key, or --behind-proxy if a proxy does the encryption.",
        )
    if not is_loopback(serving.host) and serving.tls_cert is None and not serving.proxies:
        raise Refused(
            "serve-unsafe",
            f"Other machines can reach {serving.host} without the proxy, and would then "
            "send tokens in clear text.",
            "Name the proxy with --proxy ADDRESS, so that only it can connect, or listen on "
            "127.0.0.1. Otherwise, give --tls-cert and --tls-key.",
        )


def proxy_networks(serving: Serving) -> tuple[Network, ...]:
    """Parse the networks from which the proxies connect; refuse an invalid or unlimited one."""
    if serving.proxies and not serving.is_behind_proxy:
        raise Refused(
            "serve-unsafe", "--proxy works only with --behind-proxy.", "Give both options."
        )
    found = []
    for text in serving.proxies:
        with contextlib.suppress(ValueError):
            found.append(ipaddress.ip_network(text))
    if len(found) < len(serving.proxies) or any(one.prefixlen == 0 for one in found):
        raise Refused(
            "serve-unsafe",
            "--proxy takes an address, such as 192.0.2.7, or a network, such as 192.0.2.0/28.",
            "Give the address from which the proxy connects.",
        )
    return tuple(found)


def serve(serving: Serving, say: Callable[[str], None]) -> None:
    """Serve a vault over HTTP until stopped; restart and report processes that die."""
    check(serving)
    listening = _bound(serving)
    port = int(listening.getsockname()[1])
    serving = Serving(**{**asdict(serving), "port": port})
    with temporary_folder() as folder:
        keeper = _Supervisor(serving, folder / "door", listening, say)
        keeper.run()


def _bound(serving: Serving) -> socket.socket:
    family = socket.AF_INET6 if ":" in serving.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with contextlib.suppress(OSError):
        listening.bind((serving.host, serving.port))
        listening.listen(1024)
        return listening
    listening.close()
    raise Refused(
        "serve-unsafe",
        f"sfumato cannot listen on port {serving.port} of {serving.host}.",
        "Choose another --port, or stop the server that uses this one.",
    )


def serve_lab(port: int, say: Callable[[str], None]) -> None:
    """Serve the lab's pages over HTTP, to this machine only, until stopped."""
    need("serve", "lab")
    import uvicorn

    from sfumato.server.http.connection_limits import Limits, guarded
    from sfumato.server.http.edge_app import lab_app

    listening = _bound(Serving(vault="", port=port))
    say(f"The lab is at http://localhost:{listening.getsockname()[1]}/lab (Ctrl-C stops it).")
    config = uvicorn.Config(
        lab_app(LOCAL),
        http=guarded(Limits()),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=2,
    )
    uvicorn.Server(config).run(sockets=[listening])


class _Supervisor:
    """The parent process: it starts, watches and stops the door (vault) and the edge (HTTP)."""

    def __init__(
        self, serving: Serving, line: Path, listening: socket.socket, say: Callable[[str], None]
    ) -> None:
        self._serving = serving
        self._line = line
        self._listening = listening
        self._say = say
        self._stop = threading.Event()

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())
        door = edge = None
        try:
            # both children load their modules at the same time
            door, edge = self._started("door"), self._started("edge")
            link = _heard(door, self._stop)
            _open_the_gate(edge)
            _heard(edge, self._stop, START_S)
            if not self._stop.is_set():
                self._greet(link)
            while not self._stop.wait(PAUSE_S):
                door, edge = self._kept("door", door), self._kept("edge", edge)
        finally:
            for process in (edge, door):
                _end(process)
            self._listening.close()

    def _greet(self, link: str) -> None:
        address = self._serving.address
        self._say(f"sfumato serves {self._serving.vault} at {address}")
        if self._serving.is_secure and not self._serving.names:
            self._say(
                "sfumato answers only requests to localhost: add --name NAME for the host "
                "name that browsers use"
            )
        if link:
            self._say(
                f"First owner: open {address}/welcome/{link} within seven days. The link "
                "works once."
            )

    def _kept(self, what: str, process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        if process.poll() is None:
            return process
        self._say(f"the {what} process ended ({process.returncode}); restarting it")
        _end(process)
        begun = self._started(what)
        if what == "edge":
            _open_the_gate(begun)
        try:
            link = _heard(begun, self._stop, START_S if what == "edge" else None)
            if link:
                self._greet(link)
        except Refused:  # the child ended or hangs, so the next pass restarts it
            begun.kill()
            begun.wait()
        return begun

    def _started(self, what: str) -> subprocess.Popen[bytes]:
        if what == "door":
            self._line.unlink(missing_ok=True)
        descriptor = self._listening.fileno()
        process = subprocess.Popen(
            [sys.executable, "-c", _BEGIN, _HOME, what],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(descriptor,) if what == "edge" else (),
            start_new_session=True,  # the parent handles Ctrl-C
        )
        settings = {"serving": asdict(self._serving), "line": str(self._line), "fd": descriptor}
        if process.stdin is not None:
            process.stdin.write(json.dumps(settings).encode() + b"\n")
            process.stdin.flush()
        return process


def _open_the_gate(edge: subprocess.Popen[bytes]) -> None:
    """Tell the edge (HTTP) process that the vault is ready, so that it accepts connections."""
    with contextlib.suppress(OSError):  # the edge is dead; the parent notices that elsewhere
        if edge.stdin is not None:
            edge.stdin.write(_GO)
            edge.stdin.flush()


def _heard(
    process: subprocess.Popen[bytes], stop: threading.Event, patience_s: float | None = None
) -> str:
    """Wait until a child process reports that it is ready; return the text that it reports.

    The text is empty if the service must stop. Refuse if the child ends, or is not ready in time.
    """
    line = _line_of(process, stop, patience_s)
    if stop.is_set():
        return ""
    said = json.loads(line) if line else {}
    if said.get("refused"):
        code, cause, next_step = said["refused"]
        raise Refused(code, cause, next_step)
    if "ready" not in said:
        raise Refused(
            "service-down", "A process of the service did not start.", "Read its messages above."
        )
    return str(said["ready"])


def _line_of(
    process: subprocess.Popen[bytes], stop: threading.Event, patience_s: float | None
) -> bytes:
    """Wait for the first line of a child process's output, and return it.

    It is empty if the child ends or is late, or if the service must stop.
    """
    until = None if patience_s is None else time.monotonic() + patience_s
    if process.stdout is None:
        return b""
    while not stop.is_set() and (until is None or time.monotonic() < until):
        if select.select([process.stdout], [], [], PAUSE_S)[0]:
            return process.stdout.readline()  # the child writes its line in one call
    return b""


def _end(process: subprocess.Popen[bytes] | None) -> None:
    if process is None:
        return
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def child(what: str) -> None:
    """Run as a child process of `sfumato serve`: "door" (the vault) or "edge" (HTTP).

    The settings come from standard input. The function returns when the process must end.
    """
    settings = json.loads(sys.stdin.buffer.readline())
    said = settings["serving"]
    lists = {name: tuple(said.get(name, ())) for name in ("names", "proxies")}
    serving = Serving(**{**said, **lists})
    disable_dumps()  # a compromised edge cannot read keys from the door's memory
    line = Path(settings["line"])
    try:
        if what == "door":
            _end_with_the_keeper()
            _be_door(serving, line)
        else:
            _be_edge(serving, line, int(settings["fd"]))
    except Refused as refused:
        _tell({"refused": [refused.code, refused.cause, refused.next_step]})


def _end_with_the_keeper() -> None:
    threading.Thread(target=_listen_to_the_keeper, daemon=True).start()


def _listen_to_the_keeper() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


def _tell(said: dict[str, object]) -> None:
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(said).encode() + b"\n")


def _be_door(serving: Serving, line: Path) -> None:
    import uvloop

    from sfumato.app.vault import open_services
    from sfumato.server.ipc.call_metrics import CallMetrics, to_nowhere, to_standard_error
    from sfumato.server.ipc.door_server import DoorEnd

    sys.setswitchinterval(SWITCH_S)
    house = open_services(
        Path(serving.vault),
        most_upload=serving.max_upload_mb * 10**6,
        most_folder=serving.max_folder_mb * 10**6,
        connections=dict(serving.sources),
        rooms=_rooms(serving),
        at_rest_key=serving.at_rest_key,
    )
    link = house.desk.access.owner_link() or ""
    tally = CallMetrics(to_standard_error if serving.is_logged else to_nowhere)
    end = DoorEnd(house.desk, quantum_s=serving.quantum_ms / 1000, tally=tally)
    collect_seldom()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
            loop.run(_until_told(end.serve(line, lambda: _tell({"ready": link}))))
    finally:
        house.close()
        collect_normally()


def _rooms(serving: Serving) -> RoomLimits | None:
    if not serving.tensor_rooms:
        return None
    return RoomLimits(serving.tensor_rooms, serving.tensor_mb)


async def _until_told(work) -> None:  # type: ignore[no-untyped-def]
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _be_edge(serving: Serving, line: Path, descriptor: int) -> None:
    import uvicorn

    from sfumato.server.http.connection_limits import Limits, guarded
    from sfumato.server.http.edge_app import edge_app
    from sfumato.server.http.tls_event_loop import guarded_loop
    from sfumato.server.ipc.edge_client import DoorConnection
    from sfumato.system.randomness import SystemRandomSource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each connection needs one descriptor
    hosts = (*LOCAL, *serving.names)
    app = edge_app(
        DoorConnection(line), hosts, SystemRandomSource().draw, is_secure=serving.is_secure
    )
    limits = Limits(
        head_s=serving.head_s,
        body_s=serving.body_s,
        connections=serving.connections,
        # behind a proxy all connections have its address; the proxy limits its clients
        of_one_place=serving.connections if serving.is_behind_proxy else serving.of_one_place,
        only=proxy_networks(serving),
    )
    # uvicorn's warnings are about client input; clients must not be able to fill our log.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    config = uvicorn.Config(
        app,
        loop="none",  # the loop comes from `guarded_loop`
        http=guarded(limits),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=serving.is_behind_proxy,
        forwarded_allow_ips=["127.0.0.1", *serving.proxies],
        ssl_certfile=serving.tls_cert,
        ssl_keyfile=serving.tls_key,
        timeout_keep_alive=serving.idle_s,
        timeout_graceful_shutdown=5,
    )

    class TellingServer(uvicorn.Server):
        """A server that tells the parent process itself when it listens.

        A separate watcher could die unnoticed.
        """

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            """Start listening, and tell the parent process that the edge is ready."""
            await super().startup(sockets=sockets)
            if self.started:
                _tell({"ready": ""})

    server = TellingServer(config)
    config.load()  # load modules now, while the door opens its vault
    collect_seldom()
    # wait for the parent's signal; empty input means that the parent is gone
    sys.stdin.buffer.readline()
    _end_with_the_keeper()
    listening = socket.socket(fileno=descriptor)
    with asyncio.Runner(loop_factory=guarded_loop(limits)) as runner:
        runner.run(server.serve(sockets=[listening]))
