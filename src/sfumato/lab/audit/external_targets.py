"""Audit programs outside Python: a command line, or a service over HTTP."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import httpx

from sfumato.lab.audit.auditor import ALPHA, Audited, Random, audit

DATA: Final = "{data}"  # a placeholder in a command, for the data of one side
TIMEOUT_S: Final = 300.0
CLOCK: Final = "date"  # a header that is ignored, because it changes every second
Read = Callable[[object], object]
Said = dict[str, object]


@dataclass(frozen=True)
class Request:
    """The HTTP request that asks a service about one of the two neighbouring data sets."""

    url: str
    body: Mapping[str, object] | None = None  # the body; without a body, the request is a GET
    headers: Mapping[str, str] = field(default_factory=dict)


def everything(said: object) -> object:
    """Return the whole output unchanged, so that all of it is audited."""
    return said


def rows_or_code(said: object) -> object:
    """Return the private part of a sfumato answer: its rows, or the code of its refusal.

    Args:
        said: The output, as the `read` argument of an audit gets it.
    """
    match said:
        case {"rows": list(rows)}:
            return rows
        case {"body": body}:
            return rows_or_code(body)
        case {"refused": {"code": str(code)}}:
            return code
        case _:
            return said


def audit_command(  # noqa: PLR0913  # an auditor's terms
    command: Sequence[str],
    D: str,
    D2: str,
    *,
    read: Read = everything,
    epsilon: float,
    dice: Random,
    delta: float = 0.0,
    alpha: float = ALPHA,
    most: int | None = None,
) -> Audited:
    """Audit a command: run it on two neighbours, and return a lower bound of its epsilon.

    Its standard output, exit status and standard error are the output, byte by byte.

    Args:
        command: The command and its arguments; `{data}` in them becomes one side or the other.
        D: A data set, as the command takes it.
        D2: Its neighbour.
        read: Which part of the output is audited; by default all of it.
        epsilon: The claimed epsilon.
        dice: The random generator of the coin flips.
        delta: The claimed delta.
        alpha: The chance that the bound is wrong.
        most: The largest number of runs; without it, as many as `audit` takes.

    Returns:
        The lower bound, and whether it breaks the claim.

    Raises:
        Refused: `bad-request` if the claim, `alpha` or the number of runs is out of range, or if
            the outputs cannot be read.
    """
    return audit(
        lambda data: read(ran(command, data)),
        D,
        D2,
        epsilon=epsilon,
        delta=delta,
        alpha=alpha,
        most=most,
        dice=dice,
    )


def ran(command: Sequence[str], data: str) -> Said:
    """Run the command once, and return everything observable, including a timeout."""
    words = [word.replace(DATA, data) for word in command]
    try:
        ended = subprocess.run(words, capture_output=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return {"ended": "too late"}
    text = _spelled(ended.stdout)
    says = _spelled(ended.stderr)
    return {"status": ended.returncode, "body": _read(text), "text": text, "says": says}


def audit_http(  # noqa: PLR0913  # an auditor's terms
    D: Request,
    D2: Request,
    *,
    read: Read = everything,
    epsilon: float,
    dice: Random,
    delta: float = 0.0,
    alpha: float = ALPHA,
    most: int | None = None,
) -> Audited:
    """Audit a service: request answers on two neighbours, and return a lower bound of its epsilon.

    Every request must get a new answer: ask for fresh noise, and provide a budget for all runs.

    Args:
        D: The request for one data set.
        D2: The request for its neighbour.
        read: Which part of the answer is audited; by default all of it.
        epsilon: The claimed epsilon.
        dice: The random generator of the coin flips.
        delta: The claimed delta.
        alpha: The chance that the bound is wrong.
        most: The largest number of runs; without it, as many as `audit` takes.

    Returns:
        The lower bound, and whether it breaks the claim.

    Raises:
        Refused: `bad-request` if the claim, `alpha` or the number of runs is out of range, or if
            the outputs cannot be read.
    """
    with httpx.Client(timeout=TIMEOUT_S) as client:
        return audit(
            lambda request: read(came(client, request)),
            D,
            D2,
            epsilon=epsilon,
            delta=delta,
            alpha=alpha,
            most=most,
            dice=dice,
        )


def came(client: httpx.Client, request: Request) -> Said:
    """Send one HTTP request; return everything observable of its answer, or of its failure."""
    method = "GET" if request.body is None else "POST"
    try:
        said = client.request(method, request.url, json=request.body, headers=dict(request.headers))
    except httpx.HTTPError as failed:
        return {"failed": type(failed).__name__}
    text = _spelled(said.content)
    headers = {name: value for name, value in said.headers.items() if name != CLOCK}
    body = _read(text)
    return {"status": said.status_code, "headers": headers, "body": body, "text": text}


def _spelled(content: bytes) -> str:
    """Decode output bytes to text so that different bytes give different texts."""
    return content.decode("utf-8", "surrogateescape")


def _read(text: str) -> object:
    """Parse a text as JSON, or return it unchanged."""
    try:
        return json.loads(text)
    except ValueError:
        return text
