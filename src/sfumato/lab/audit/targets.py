"""Other things to audit than Python: a command line, and whatever answers over HTTP."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Required, TypedDict, Unpack

import httpx

from sfumato.lab.audit.auditing import Audited, Random, audit

DATA: Final = "{data}"  # in a command, stands for the data of one side
TIMEOUT_S: Final = 300.0
CLOCK: Final = "date"  # the header that says what time it is: it is another in every second
Read = Callable[[object], object]
Said = dict[str, object]


class Terms(TypedDict, total=False):
    """What `audit` takes besides the mechanism and its two sides."""

    epsilon: Required[float]
    delta: float
    alpha: float
    most: int
    dice: Required[Random]


@dataclass(frozen=True)
class Request:
    """One side of a pair, as it is asked over HTTP."""

    url: str
    body: Mapping[str, object] | None = None  # without one, it is a GET
    headers: Mapping[str, str] = field(default_factory=dict)


def everything(said: object) -> object:
    """Return all that was said."""
    return said


def rows_or_code(said: object) -> object:
    """Return what is private of an answer of this house: its rows, or why it was refused."""
    match said:
        case {"rows": list(rows)}:
            return rows
        case {"body": body}:
            return rows_or_code(body)
        case {"refused": {"code": str(code)}}:
            return code
        case _:
            return said


def audit_command(
    command: Sequence[str],
    D: str,
    D2: str,
    *,
    read: Read = everything,
    **terms: Unpack[Terms],
) -> Audited:
    """Return what runs of a command prove; `{data}` in it becomes the one side or the other.

    What it prints, its status and its complaints are the output, to the byte; JSON is read as well.
    """
    return audit(lambda data: read(ran(command, data)), D, D2, **terms)


def ran(command: Sequence[str], data: str) -> Said:
    """Return what is seen of one run of a command; that it is late is seen as well."""
    words = [word.replace(DATA, data) for word in command]
    try:
        ended = subprocess.run(words, capture_output=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return {"ended": "too late"}
    text = _spelled(ended.stdout)
    says = _spelled(ended.stderr)
    return {"status": ended.returncode, "body": _read(text), "text": text, "says": says}


def audit_http(
    D: Request,
    D2: Request,
    *,
    read: Read = everything,
    **terms: Unpack[Terms],
) -> Audited:
    """Return what asking over HTTP proves; all that comes is the output, unless `read` chooses.

    Every request has to be answered anew: ask for fresh noise, and have a budget for all runs.
    """
    with httpx.Client(timeout=TIMEOUT_S) as client:
        return audit(lambda request: read(came(client, request)), D, D2, **terms)


def came(client: httpx.Client, request: Request) -> Said:
    """Return what is seen of one request; that nobody answers is seen as well."""
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
    """Return bytes as a text that no other bytes make: line ends and what is no UTF-8 stay told."""
    return content.decode("utf-8", "surrogateescape")


def _read(text: str) -> object:
    """Return the JSON that a text is, or the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
