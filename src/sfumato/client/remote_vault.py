"""A vault behind an HTTP service, with the same verbs as an embedded vault.

The generator `conversation` holds the retry logic; the blocking and the asynchronous transport
drive it. A retry has the operation id of the first try, so that a question pays once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn, cast
from urllib.parse import quote, urlsplit

from sfumato.client import owner
from sfumato.client.ask_terms import Json, Number, named_terms, unknown_term_refusal
from sfumato.client.card_file import CardOrFile, card_of
from sfumato.client.data_frames import Rows
from sfumato.client.display import AddReport
from sfumato.client.http_replies import PLAIN, HttpReply, lost, read_whole, read_whole_later
from sfumato.client.owner import Added
from sfumato.client.query_builder import Builder
from sfumato.client.vault import Vault
from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.folder_client import FolderStream, changed, folder_stream
from sfumato.system.folder_stream import part_name
from sfumato.wire.json_text import bad_request, json_text, read_reply
from sfumato.wire.query_json import read_refusal
from sfumato.wire.verb import Verb
from sfumato.wire.verb_table import BY_NAME
from sfumato.wire.version import WIRE

TIMEOUT_S: Final = 300.0  # the time limit is long, because a request may wait in a queue
PAUSES_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True)
class HttpRequest:
    """An HTTP request to the service: method, path, body and query parameters."""

    method: str
    path: str
    body: str | None
    query: Mapping[str, str]


@dataclass(frozen=True)
class Pause:
    """A step of a conversation with the service: wait before the next request."""

    seconds: float


Draw = Callable[[int], bytes]  # random bytes for operation ids
Conversation = Generator[HttpRequest | Pause, HttpReply | None, Json]


def conversation(verb: str, body: Json, draw: Draw) -> Conversation:
    """Yield a verb's HTTP requests and return its reply.

    Requests are repeated, after a pause, while the service is down or busy.
    """
    request = _request(verb, body, draw)
    last: Json = {}
    for pause in (*PAUSES_S, None):
        came = yield request
        if came is None:
            raise _unreachable()
        if came.is_untrusted:  # a retry would get the same certificate
            raise _untrusted()
        if came.status not in (0, 429, 503):
            return _read(came)
        last = _read(came) if came.body else {}
        if pause is None:
            break
        yield Pause(max(pause, came.retry_after_s or 0.0))
    if last:
        return last
    raise _unreachable()


PAID_ONCE: Final = (  # by their operation id
    "ask", "begin", "add", "append", "dp-twin", "run-pipeline", "begin-pipeline-run",
)  # fmt: skip
PADDED: Final = 2048  # larger than any ballot: the encrypted size then hides the report's


def _request(verb: str, body: Json, draw: Draw) -> HttpRequest:
    route = BY_NAME.get(verb)
    if route is None:
        raise bad_request(f"there is no verb {verb!r}")
    rest = dict(body)
    places = {place: _in_a_path(place, str(rest.pop(place))) for place in route.places}
    query = {key: str(rest.pop(key)) for key in route.query if key in rest}
    if verb in PAID_ONCE:
        rest.setdefault("op", draw(16).hex())
    text = json_text(rest) if route.has_body else None
    if text is not None and verb in ("survey-token", "survey-report"):
        text = text.ljust(PADDED)
    return HttpRequest(route.method, route.path.format(**places), text, query)


def _in_a_path(place: str, name: str) -> str:
    """Quote a name for a URL path.

    A name that can't be in a path, such as "..", is refused like an unknown name.
    """
    if "/" in name or name in (".", ".."):
        code = _NO_SUCH.get(place, "bad-request")
        raise Refused(
            code,
            f"There is no {place.replace('_', ' ')} {name!r}.",
            "Check the name. No name is '.' or '..', and none contains '/'.",
        )
    return quote(name, safe="")


_NO_SUCH: Final = {"data_set": "unknown-data-set", "user": "unknown-user"}


def _read(came: HttpReply) -> Json:
    body: Json | None = None
    try:
        body = read_json_loosely(came.body)
    except Refused:
        body = None
    if body is None or (came.status >= 400 and read_refusal(body) is None):
        raise _unreachable()
    return body


def read_json_loosely(text: bytes) -> Json:
    """Parse a reply's JSON; its numbers become floats, as in an embedded vault."""
    read = None
    with contextlib.suppress(ValueError):
        read = read_reply(text)
    if read is None:
        raise _unreachable()
    return read


def _unreachable() -> Refused:
    return Refused(
        "service-down",
        "Nothing answers at that address, or it is not a sfumato service.",
        "Check the address, or try again later.",
    )


def _untrusted() -> Refused:
    return Refused(
        "serve-unsafe",
        "This machine does not trust the service's certificate for that address.",
        "If it is the service's own certificate, get its file from the operator by another way, "
        "and set SSL_CERT_FILE to it. Use an address that the certificate names.",
    )


def _resumable(refused: Refused) -> Refused:
    """Return the refusal of an upload that was cut off; the next step says how to resume it."""
    if refused.code != "service-down":
        return refused
    return Refused(
        "service-down",
        "The upload was cut off before its end.",
        "Run the same command again within a day. It sends only the parts that are missing.",
    )


class HttpTransport:
    """The blocking HTTP client of a service."""

    def __init__(self, url: str, token: str, draw: Draw) -> None:
        import httpx

        self._http = httpx.Client(**_settings(url, token))
        self._lost = httpx.TransportError
        self._draw = draw

    def call(self, verb: str, body: Json) -> Json:
        """Call a verb (an API operation); return the JSON of its answer or of its refusal."""
        talk = conversation(verb, body, self._draw)
        step = next(talk)
        while True:
            try:
                step = talk.send(self._done(step))
            except StopIteration as ended:
                made: Json = ended.value
                return made

    def send(self, path: Path) -> Json:
        """Upload a file in chunks; return the JSON of the answer or of the refusal."""
        route = BY_NAME["upload"]
        kind = {"Content-Type": "application/octet-stream"}
        with path.open("rb") as file:
            try:
                with self._http.stream(
                    route.method,
                    route.path,
                    params={"name": path.name},
                    content=iter(lambda: file.read(1 << 20), b""),
                    headers={**kind, "Content-Length": str(path.stat().st_size)},
                ) as reply:
                    return _read(read_whole(reply))
            except self._lost:
                return _read(HttpReply(0, b""))

    def send_part(self, folder: str, name: str, part: bytes) -> Json:
        """Upload a part of a folder, again after a pause while the service is down or busy."""
        route, came = BY_NAME["upload"], HttpReply(0, b"")
        for pause in (*PAUSES_S, None):
            came = self._sent_part(route, {"name": name, "folder": folder}, part)
            if came.is_untrusted:
                raise _untrusted()
            if came.status not in (0, 429, 503) or pause is None:
                break
            time.sleep(max(pause, came.retry_after_s or 0.0))
        return _read(came)

    def _sent_part(self, route: Verb, query: Mapping[str, str], part: bytes) -> HttpReply:
        kind = {"Content-Type": "application/octet-stream"}
        try:
            with self._http.stream(
                route.method, route.path, params=query, content=part, headers=kind
            ) as reply:
                return read_whole(reply)
        except self._lost as error:
            return lost(error)

    def close(self) -> None:
        """Close the HTTP connections."""
        self._http.close()

    def _done(self, step: HttpRequest | Pause) -> HttpReply | None:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        try:
            with self._http.stream(**_arguments(step)) as reply:
                return read_whole(reply)
        except self._lost as error:
            return lost(error)


class AsyncTransport:
    """The asynchronous HTTP client of a service."""

    def __init__(self, url: str, token: str, draw: Draw) -> None:
        import httpx

        self._http = httpx.AsyncClient(**_settings(url, token))
        self._lost = httpx.TransportError
        self._draw = draw

    async def call(self, verb: str, body: Json) -> Json:
        """Call a verb (an API operation); return the JSON of its answer or of its refusal."""
        talk = conversation(verb, body, self._draw)
        step = next(talk)
        while True:
            try:
                step = talk.send(await self._done(step))
            except StopIteration as ended:
                made: Json = ended.value
                return made

    async def close(self) -> None:
        """Close the HTTP connections."""
        await self._http.aclose()

    async def _done(self, step: HttpRequest | Pause) -> HttpReply | None:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        try:
            async with self._http.stream(**_arguments(step)) as reply:
                return await read_whole_later(reply)
        except self._lost as error:
            return lost(error)


class RemoteVault(Vault):
    """A vault behind a service, with the same objects and methods as a vault folder."""

    def __init__(self, transport: HttpTransport) -> None:
        super().__init__(transport)
        self._remote = transport
        # what is being done now, for a progress line
        self.say: Callable[[str], object] = lambda _what: None

    def add(  # noqa: PLR0913  # an owner's words
        self,
        name: str,
        source: Rows,
        card: CardOrFile,
        *,
        inner_table: str | None = None,
        different_people: str | None = None,
        tables: Mapping[str, Rows] | None = None,
        accept_unreadable: Sequence[str] = (),
    ) -> Added:
        """Upload rows and add them as a data set or as a new version of one; for the owner.

        Args:
            name: The name of the data set.
            source: The rows: the path of a file, a BIDS folder or its zip or tar file, a frame of
                pandas, polars, pyarrow or DuckDB, a list of dicts, or a table, file or folder of a
                connection, `connection:NAME/SCHEMA.TABLE` or `connection:NAME/PATH`.
            card: The data card: a mapping, or the path of its TOML file.
            inner_table: The table or sheet to read, if the file has several.
            different_people: The name of the person who confirms that these people differ from
                those of a similar data set.
            tables: The sources of the card's other tables, by name.
            accept_unreadable: Columns in which more than 5 % of the cells may be unreadable; these
                cells count as empty.

        Returns:
            The name, the version, and how the rows were read.

        Raises:
            Refused: `bad-card`, `source-unreadable`, `cells-unreadable`, `same-people`, or
                `data-set-exists` if that version exists already.
        """
        files = {"": source, **(tables or {})}
        where = owner.AddOptions(inner_table, different_people, tuple(accept_unreadable))
        return owner.add(self, name, card_of(card), files, where)

    def append(  # noqa: PLR0913  # an owner's words
        self,
        name: str,
        source: str | os.PathLike[str] | None,
        *,
        version: str,
        inner_table: str | None = None,
        different_people: str | None = None,
        tables: Mapping[str, str | os.PathLike[str]] | None = None,
        accept_unreadable: Sequence[str] = (),
    ) -> Added:
        """Upload rows and append them to your data set, as a new version.

        The version has the rows of all versions so far, and the same people. Answers over all
        versions share the people's privacy budget, so a version adds nothing to it.

        Args:
            name: The name of the data set.
            source: The new rows: the path of a file, or a table of a connection; None if only
                other tables get rows. Save a frame as a Parquet file first.
            version: The name of the new version.
            inner_table: The table or sheet to read, if the file has several.
            different_people: The name of the person who confirms that these people differ from
                those of a similar data set.
            tables: The new rows of the card's other tables, by name.
            accept_unreadable: Columns in which more than 5 % of the cells may be unreadable; these
                cells count as empty.

        Returns:
            The name, the version, and how the new rows were read.

        Raises:
            Refused: `unknown-data-set`, `data-set-exists` if that version exists already,
                `not-allowed` if rows cannot be appended to the data set, or as `add`.
        """
        own = {} if source is None else {"": source}
        files = {name: Path(rows) for name, rows in {**own, **(tables or {})}.items()}
        where = owner.AddOptions(inner_table, different_people, tuple(accept_unreadable))
        return owner.append(self, name, version, files, where)

    def forget_person(self, name: str, person: str, *, version: str) -> owner.Forgotten:
        """Remove one person's rows from your data set, as a new version.

        Earlier versions of the data set are deleted from the service's disk. The ledger records
        that somebody was removed, and not who. Released answers and backups stay: see
        docs/explanation/sharp-edges.md.

        Args:
            name: The name of the data set.
            person: The person's identifier in your files.
            version: The name of the new version.

        Returns:
            The name, the version, the number of deleted earlier tables, and your other data sets
            about the same people.

        Raises:
            Refused: `unknown-data-set`, `data-set-exists` if that version exists already, or
                `not-allowed` if the data set has no such person, or if nobody can be removed.
        """
        return owner.forget_person(self, name, person, version)

    def add_report(self, name: str) -> AddReport:
        """Return how the rows of your data set were read when it was added; for you alone.

        Args:
            name: The name of the data set.

        Returns:
            For each column, the share of cells that differ from the card.

        Raises:
            Refused: `unknown-data-set` if you have added no such data set.
        """
        return AddReport(self.call("add-report", {"data_set": name}))

    def describe(self, source: str | os.PathLike[str]) -> list[tuple[str, str]]:
        """Return the names and likely types of the columns of a file or database table.

        Args:
            source: A file's path, or a table of a database connection of the service.

        Returns:
            A pair (name, type) for each column.

        Raises:
            Refused: `source-unreadable` if it cannot be read.
        """
        return owner.described(self, source)

    def proposed(
        self, name: str, source: str | os.PathLike[str], inner_table: str | None = None
    ) -> Json:
        """Return the columns of a file or database table, and a draft data card to complete.

        Args:
            name: The name of the future data set.
            source: A file's path, or a table of a database connection of the service.
            inner_table: The table or sheet to read, if the file has several.

        Returns:
            A mapping with `columns` and `card`.

        Raises:
            Refused: `source-unreadable` if it cannot be read.
        """
        return owner.proposed(self, source, inner_table)

    def grant(self, data_set: str, user: str, group: str | None = None) -> Json:
        """Allow a user to ask questions of a data set of yours.

        Args:
            data_set: The name of the data set.
            user: The name of the user.
            group: The group that the user joins; by default the card's only group.

        Returns:
            The grant.

        Raises:
            Refused: `unknown-data-set` or `unknown-user`.
        """
        body: Json = {"data_set": data_set, "user": user}
        return self.call("grant", body if group is None else {**body, "group": group})

    @named_terms(unknown_term_refusal("a stream"))
    def open_stream(  # noqa: PLR0913  # an owner's words
        self,
        data_set: str,
        name: str,
        question: str | Builder,
        *,
        start: str,
        periods: int,
        rows: int,
        epsilon: Number,
    ) -> Json:
        """Open a stream: a running count over future periods. You pay for all of it now.

        Args:
            data_set: The name of the data set.
            name: The name of the stream.
            question: A count grouped by a period, as SQL or built by steps.
            start: The first day of the first period: "2026-01-01".
            periods: The number of periods; the price covers all of them.
            rows: The contribution bound: how many rows of a person count over all periods together.
            epsilon: The price of the whole stream.

        Returns:
            The terms of the stream.

        Raises:
            Refused: `stream-not-possible`, `stream-exists` or `budget-exceeded`.
        """
        terms: Json = {"start": start, "periods": periods, "rows": rows, "epsilon": epsilon}
        asked = owner.stream_body(question, terms)
        return self.call("open-stream", {"data_set": data_set, "stream": name, **asked})

    def close_days(self, data_set: str, name: str, *, until: str) -> Json:
        """Close a stream's periods up to a day, in order; a closed period never changes.

        Args:
            data_set: The name of the data set.
            name: The name of the stream.
            until: The last day to close: "2026-01-31".

        Returns:
            The state of the stream.

        Raises:
            Refused: `stream-unknown` or `stream-out-of-order`.
        """
        body: Json = {"data_set": data_set, "stream": name, "until": until}
        return self.call("close-stream", body)

    def send(self, path: str | os.PathLike[str]) -> str:
        """Upload a file to the service.

        Args:
            path: The path of the file.

        Returns:
            The id of the upload.

        Raises:
            Refused: `source-unreadable` if there is no such file, or `too-large`.
        """
        if not os.path.isfile(path) or not os.access(path, os.R_OK):
            raise Refused(
                "source-unreadable",
                f"There is no file {os.fspath(path)!r} that can be read.",
                "Check the path, and give that of a file, not of a folder.",
            )
        answer = self._remote.send(Path(path))
        refused = read_refusal(answer)
        if refused is not None:
            raise refused
        return str(answer["upload"])

    def send_folder(self, path: str | os.PathLike[str], card: Mapping[str, object]) -> str:
        """Upload a folder, or a zip or tar file, in parts; parts that are there are not sent again.

        Args:
            path: The path of the folder or the archive.
            card: The data card; of a folder, only the files that it lists are sent.

        Returns:
            The id of the upload.

        Raises:
            Refused: `source-unreadable` if the folder cannot be read or is unsafe, `too-large`, or
                `service-down`: then the same call goes on where this one stopped.
        """
        try:
            return self._send_parts(folder_stream(Path(path), card))
        except Refused as error:
            refused = error
        raise _resumable(refused)

    def _send_parts(self, stream: FolderStream) -> str:
        self.say("Reading the files")
        names = list(stream.part_names())
        body: Json = {"name": stream.name, "kind": stream.kind, "bytes": stream.size}
        state = self.call("begin-folder", {**body, "parts": names})
        upload, missing = str(state["upload"]), cast("list[int]", state["missing"])
        for count, number in enumerate(missing):
            done = len(names) - len(missing) + count
            self.say(f"Sending the files: {done} of {len(names)} parts are there")
            part = stream.part(number)
            if part_name(part) != names[number]:
                raise changed()
            refused = read_refusal(self._remote.send_part(upload, names[number], part))
            if refused is not None:
                raise refused
        self.say("Unpacking the files")
        while state["state"] != "ready":
            state = self.call("finish-folder", {"upload": upload})
            if state["state"] == "uploading":  # parts that were there are gone
                raise _unreachable()
            time.sleep(0 if state["state"] == "ready" else owner.PAUSE_S)
        return upload

    def enrol(self, user: str, group: str) -> NoReturn:
        """Refuse: users are enrolled in the vault's folder; here, use `grant` for one data set.

        Args:
            user: The name of the user.
            group: The name of the group.

        Raises:
            Refused: `not-allowed`, always.
        """
        raise Refused(
            "not-allowed",
            f"Enrolling {user!r} in {group!r} for every data set is only possible in the vault's "
            "folder.",
            f"Run `sfumato enrol {user} {group} --vault DIR` on the service's machine. For one of "
            "your data sets, open its page Manage in the console and give the user's name under "
            f"Who may ask, or in Python: vault.grant(DATA_SET, {user!r}, {group!r}).",
        )

    def close(self) -> None:
        """Close the HTTP connections."""
        self._remote.close()

    def __enter__(self) -> RemoteVault:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()


def connect(url: str, *, token: str, draw: Draw) -> RemoteVault:
    """Connect to the vault at a URL, as the user of the token; check the wire version."""
    with contextlib.ExitStack() as held:
        vault = held.enter_context(RemoteVault(HttpTransport(url, token, draw)))
        check_wire(vault.call("hello", {}).get("wire"))
        held.pop_all()
    return vault


def check_wire(wire: object) -> None:
    """Refuse a service that speaks an older protocol version; a newer one supports this one too."""
    if not isinstance(wire, int) or wire < WIRE:
        raise Refused(
            "service-down",
            "The service speaks an older protocol than this package.",
            "Install the service's version of sfumato here, or ask the operator to update the "
            "service.",
        )


def _settings(url: str, token: str) -> dict[str, Any]:  # Any: httpx's own arguments
    parts = urlsplit(url)
    is_here = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if parts.scheme not in ("https", "http") or (parts.scheme == "http" and not is_here):
        raise Refused(
            "serve-unsafe",
            "The address is not https://, so your token would be sent unencrypted over the "
            "network.",
            "Give the service's https:// address. http:// is allowed only for localhost.",
        )
    return {
        "base_url": url,
        "headers": PLAIN | ({"Authorization": f"Bearer {_plain(token)}"} if token else {}),
        "timeout": TIMEOUT_S,
        "follow_redirects": False,
        "trust_env": parts.scheme == "https",  # requests to this machine use no proxy
    }


def _plain(token: str) -> str:
    """Strip white space from an access token; refuse letters that no token has."""
    plain = str(token).strip()
    if not all("!" <= letter <= "~" for letter in plain):
        raise Refused(
            "not-signed-in",
            "The given token has characters that no access token has.",
            "Copy the whole token again from where you got it, without quotes or spaces.",
        )
    return plain


def _arguments(sent: HttpRequest) -> dict[str, Any]:  # Any: httpx's own arguments
    made: dict[str, Any] = {"method": sent.method, "url": sent.path, "params": sent.query}
    if sent.body is not None:
        made |= {"content": sent.body, "headers": {"Content-Type": "application/json"}}
    return made
