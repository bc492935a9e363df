"""A child process that copies tables of a database to files: its orders, and its failures.

A failure is one of our own constant words. No text of a server or driver is passed on, because it
may quote a value or the address.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sfumato.dp.refusal import Refused
from sfumato.engines.shared.driver_process import START_S, DriverChild, RequestHandler, serve
from sfumato.engines.shared.message_frames import Header

_WHY: Final[Mapping[str, tuple[str, str, str]]] = {
    "unreachable": (
        "engine-unavailable",
        "The database of the connection cannot be reached.",
        "Try again later, or tell the operator.",
    ),
    "unsafe": (
        "engine-unsafe",
        "The role of the connection has more rights than reading tables, so the vault does not "
        "use it.",
        "The operator must give it a role that has SELECT and nothing else.",
    ),
    "unencrypted": (
        "engine-unsafe",
        "The database server is on another machine, and the connection to it is not encrypted.",
        "The operator must let the server offer TLS, and name its certificate in the address.",
    ),
    "no-driver": (
        "not-installed",
        "The driver of the connection's database is not installed, or does not know its address.",
        "Tell the operator: the driver is a Python package beside SQLAlchemy.",
    ),
    "no-table": (
        "source-unreadable",
        "The database connection has no table of that name that it may read.",
        "Name another table, or ask the operator for it.",
    ),
    "too-large": (
        "too-large",
        "The table is larger than the upload space that you have left.",
        (
            "Add or remove your uploaded files, take fewer rows, or ask the operator for "
            "--max-upload."
        ),
    ),
    "late": (
        "source-unreadable",
        "Reading the table took too much time or memory.",
        "Read a part of the table through a database view, or try again later.",
    ),
}


# --- in the parent


def ask_source(module: str, order: Header, memory_mb: int, limit_s: float) -> Mapping[str, Any]:
    """Let a child process read a database, and return its answer; refuse for its failure.

    Args:
        module: The module of the child process, below `engines`.
        order: What it does.
        memory_mb: The limit of its address space; it streams the rows piece by piece.
        limit_s: The longest time for it.

    Returns:
        The facts of its answer.  # values of the child's JSON
    """
    child = DriverChild(module)
    try:
        child.begin({"memory_mb": memory_mb}, START_S)
        answer = child.ask(order, limit_s)
    finally:
        child.kill()
    said: dict[str, Any] = {"why": "late"}
    if answer is not None and answer[0].get("ok"):
        said = json.loads(answer[1])
    if said["why"] is not None:
        raise Refused(*_WHY.get(str(said["why"]), _WHY["late"]))
    return said


# --- in the child


class ReportedFailure(Exception):
    """Failure that is reported to the parent process as one of our own constant words."""


def answer_of(**facts: object) -> bytes:
    """Return the answer of a request that was done."""
    return json.dumps({"why": None, **facts}).encode("ascii")


def limit_file(request: Header) -> tuple[Path, int]:
    """Return the file to write, which exists, and its most bytes; no file can become larger."""
    most = int(str(request["most"]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    return Path(str(request["target"])), most


def serve_source(handlers: Mapping[str, RequestHandler]) -> None:
    """Serve the parent's requests until the parent closes the pipe."""

    def begun(start: Header) -> Mapping[str, RequestHandler]:
        space = int(str(start["memory_mb"])) << 20
        resource.setrlimit(resource.RLIMIT_AS, (space, space))
        return {name: _reported(handler) for name, handler in handlers.items()}

    serve(begun)


def _reported(handler: RequestHandler) -> RequestHandler:
    """Wrap a request handler: a `ReportedFailure` becomes an answer with its word."""

    def done(request: Header) -> bytes:
        try:
            return handler(request)
        except ReportedFailure as failure:
            return json.dumps({"why": str(failure)}).encode("ascii")

    return done
