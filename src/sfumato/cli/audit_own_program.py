"""`sfumato audit --command` and `--url`: audit the epsilon that your own program claims."""

from __future__ import annotations

import json
import math
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict
from urllib.parse import quote

import httpx

from sfumato.cli.shell import Shell, show_elapsed
from sfumato.dp.refusal import Refused
from sfumato.lab.audit import Audited, Request, audit_command, audit_http, rows_or_code
from sfumato.lab.audit.audit_page import shape_of
from sfumato.lab.audit.audit_suite import dice_of
from sfumato.lab.audit.auditor import Random, could_prove
from sfumato.lab.audit.external_targets import DATA, TIMEOUT_S, Read, Said, came, everything, ran


class Terms(TypedDict):
    """Arguments that the audit of a command and the audit of a service have in common."""

    epsilon: float
    delta: float
    most: int
    dice: Random


@dataclass(frozen=True)
class Own:
    """The command-line options of an audit of your own program or service."""

    command: str | None
    url: str | None
    body: str | None
    headers: tuple[str, ...]
    pair: tuple[str, str] | None
    epsilon: float | None
    delta: float
    runs: int
    rows_only: bool
    seed: int

    @property
    def read(self) -> Read:
        """Return the function that picks from a reply what the audit compares.

        A reply comes from the program or the service under audit.
        """
        return rows_or_code if self.rows_only else everything

    @property
    def name(self) -> str:
        """Return the command or the URL under audit, as it was typed."""
        return self.command or self.url or ""


def run(shell: Shell, own: Own) -> bool:
    """Run the audit and print its finding; return False if the claimed epsilon is violated."""
    pair, terms = _checked(own)
    with show_elapsed("auditing"):
        found = (_of_command if own.command else _of_service)(own, pair, terms)
    most = could_prove(own.runs, own.delta)
    shape = shape_of(own.name, found, "ACCUSED" if found.is_violated else "not accused")
    lines = [found.finding]
    if not found.is_violated:
        lines.append(
            f"This number of runs can prove an epsilon of at most {most:.3g}. The audit had "
            "no positive control, so it may have missed a fault."
        )
    shell.show(
        {"ok": not found.is_violated, "could_prove": most, "audits": [shape]}, "\n".join(lines)
    )
    return not found.is_violated


def _checked(own: Own) -> tuple[tuple[str, str], Terms]:
    """Return the audit's two inputs and terms; refuse an audit that can't find a violation."""
    if (own.command is None) == (own.url is None):
        raise _wrong("The audit takes a command or a URL, not both.", "Give one of the two.")
    if own.pair is None or own.epsilon is None:
        raise _wrong(
            "An audit needs two neighbouring inputs and the claimed epsilon.",
            "Give --pair D D2 and --epsilon E.",
        )
    if own.command is not None and (own.body is not None or own.headers):
        raise _wrong(
            "--body and --header work only with --url.",
            "Leave them out, or give --url instead of --command.",
        )
    if own.pair[0] == own.pair[1]:
        raise _wrong("Both inputs are the same.", "Name two inputs that differ by one person.")
    if DATA not in f"{own.command}{own.url}{own.body}":
        raise _wrong(
            f"{DATA} is missing, so both runs would get the same input.",
            f"Write {DATA} in the place of the input.",
        )
    if not math.isfinite(own.epsilon):
        raise _wrong("The epsilon is not a finite number.", "Give a number from 0 up, such as 1.")
    most = could_prove(own.runs, own.delta)
    if not own.epsilon < most:
        raise _wrong(
            f"This number of runs can prove an epsilon of at most {most:.3g}, so the audit "
            "could never find a violation.",
            "Give more --runs or a smaller --epsilon.",
        )
    terms = Terms(epsilon=own.epsilon, delta=own.delta, most=own.runs, dice=dice_of(own.seed))
    return own.pair, terms


def _of_command(own: Own, pair: tuple[str, str], terms: Terms) -> Audited:
    words = _words(own.command or "")
    if all(ran(words, data).get("status") != 0 for data in pair):
        raise _failing("The command")
    return audit_command(words, *pair, read=own.read, **terms)


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError:
        raise _wrong("The command has an unclosed quote.", "Close the quote.") from None
    if not words or shutil.which(words[0]) is None:
        raise _wrong(
            f"The program {words[0] if words else ''!r} was not found.",
            "Name a program and its arguments; the audit does not start a shell.",
        )
    return words


def _of_service(own: Own, pair: tuple[str, str], terms: Terms) -> Audited:
    sides = {data: _request(own, data) for data in pair}
    with httpx.Client(timeout=TIMEOUT_S) as client:
        if not any(_is_served(came(client, side)) for side in sides.values()):
            raise _failing("The service")
    return audit_http(sides[pair[0]], sides[pair[1]], read=own.read, **terms)


def _is_served(said: Said) -> bool:
    status = said.get("status")
    return isinstance(status, int) and status < 400


def _failing(what: str) -> Refused:
    """Return the refusal of an audit whose program or service fails on both inputs.

    Equal failures would look private.
    """
    return _wrong(
        f"{what} fails on both inputs, so the audit has no outputs.",
        "Try it by hand first. It must work for at least one input.",
    )


def _request(own: Own, data: str) -> Request:
    url = (own.url or "").replace(DATA, quote(data, safe=""))
    body = None if own.body is None else _filled(_object(own.body), data)
    headers = dict(_header(line) for line in _lines(own.headers))
    return Request(url, body if isinstance(body, Mapping) else None, headers)


def _object(text: str) -> object:
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise _wrong("The body is not a JSON object.", """Write --body '{"sql": "…"}'.""")
    return body


def _filled(body: object, data: str) -> object:
    """Insert the audit's input into the texts of a parsed JSON body, in place of {data}.

    The input cannot change the structure of the body, because the body is parsed before.
    """
    match body:
        case str():
            return body.replace(DATA, data)
        case list():
            return [_filled(one, data) for one in body]
        case dict():
            return {name: _filled(one, data) for name, one in body.items()}
        case _:
            return body


def _lines(headers: tuple[str, ...]) -> list[str]:
    """Return the HTTP header lines of the --header options.

    `@FILE` stands for the lines of a file, because other users can see typed arguments.
    """
    lines: list[str] = []
    for one in headers:
        lines += _from_file(one[1:]) if one.startswith("@") else [one]
    return lines


def _from_file(path: str) -> list[str]:
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        raise _wrong(
            f"sfumato cannot read the file {path!r}.", "Name a file with one header per line."
        ) from None
    return [line for line in text.splitlines() if line.strip()]


def _header(line: str) -> tuple[str, str]:
    name, mark, value = line.partition(":")
    if not mark or not name.strip():
        raise _wrong("A header has no name or no value.", "Write --header 'NAME: VALUE'.")
    return name.strip(), value.strip()


def _wrong(cause: str, next_step: str) -> Refused:
    return Refused("bad-request", cause, next_step)
