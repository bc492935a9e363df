"""The server in the vault process ("door") that runs the calls of the HTTP process ("edge").

The HTTP process faces the network, so none of its input is trusted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from sfumato.dp.refusal import Refused
from sfumato.features.jobs.service import ADD, ASK, RUN
from sfumato.features.surveys.schema import Submission
from sfumato.release.release_order import PaidOrder
from sfumato.server.dispatch import Dispatcher
from sfumato.server.ipc.call_metrics import CallMetrics
from sfumato.server.ipc.fair_semaphore import FairSemaphore, Limit
from sfumato.server.ipc.file_receiver import Receiver, drained
from sfumato.server.ipc.ipc_frames import MAX_REQUEST, Frame, read_frame
from sfumato.server.ipc.job_runner import Room, Runner, fault
from sfumato.server.ipc.query_batches import ASKED, begun, counted, ended
from sfumato.server.ipc.worker_threads import Threads
from sfumato.vault.users import Caller
from sfumato.wire.json_text import bad_request, cannot_be_kept, json_text, read_json
from sfumato.wire.query_json import Json, refusal_shape
from sfumato.wire.verb import read_request
from sfumato.wire.verb_table import BY_NAME

# --- Outgoing messages: batch what one turn of the event loop sends into one system call


class WriteBatch:
    """Sends the messages that are queued at once on a connection in one system call.

    The questions of one batch end together. One system call for each answer would wake the HTTP
    process and switch threads each time. Use this class on the event loop only.
    """

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._parts: list[bytes] = []

    async def tell(self, frame: Frame) -> None:
        """Queue a message for sending to the HTTP process.

        Wait while the HTTP process does not read its messages (back-pressure).
        """
        if not self._parts:
            asyncio.get_running_loop().call_soon(self._send)
        self._parts.append(frame.as_bytes())
        await self._writer.drain()

    def _send(self) -> None:
        parts, self._parts = self._parts, []
        self._writer.write(b"".join(parts))


# --- Batcher: work that arrives while all threads are busy is done as one batch next
#
# A single item is done at once, alone. The batch size is limited, so that nobody waits long. Each
# item gets its own result or error, whatever happens to the others.


Item = TypeVar("Item")
Gives = TypeVar("Gives")
MOST: Final = 256  # the most items in one batch


@dataclass(frozen=True)
class _Waiting(Generic[Item, Gives]):
    """One queued item of a batcher, and the future of its result."""

    item: Item
    told: asyncio.Future[Gives]


@dataclass(eq=False)
class _Place:
    """The permission to run one batch of a batcher; a limited number of batches run at once.

    The permission is given back once: when the batch ends, or when the batch takes too long.
    """

    free: Callable[[], None]
    is_left: bool = False

    def leave(self) -> None:
        if not self.is_left:
            self.is_left = True
            self.free()


class Batcher(Generic[Item, Gives]):
    """Runs the waiting items of one kind of work in batches; use it on the event loop only."""

    def __init__(
        self,
        work: Callable[[Sequence[Item]], Sequence[Gives | Exception]],
        threads: Threads,
        *,
        most: int = MOST,
        late_s: float | None = None,
    ) -> None:
        """Store the function that processes a batch: it returns a value or an error for each item.

        As many batches run at once as there are threads. With `late_s` only one batch runs at once,
        and one more for each batch that takes longer than that.
        """
        self._work = work
        self._threads = threads
        self._most = most
        self._late_s = late_s
        self._idle = threads.most if late_s is None else 1
        self._queue: list[_Waiting[Item, Gives]] = []
        self._turns: set[asyncio.Task[None]] = set()

    async def done(self, item: Item) -> Gives:
        """Queue an item, wait for its batch, and return the item's result or raise its error."""
        loop = asyncio.get_running_loop()
        mine: _Waiting[Item, Gives] = _Waiting(item, loop.create_future())
        self._queue.append(mine)
        if len(self._queue) == 1:
            # the batch gets all items that arrive in this turn of the loop
            loop.call_soon(self._begin)
        return await mine.told

    def _begin(self) -> None:
        while self._queue and self._idle:
            some, self._queue = self._queue[: self._most], self._queue[self._most :]
            self._idle -= 1
            task = asyncio.create_task(self._go(some))
            self._turns.add(task)
            task.add_done_callback(self._turns.discard)

    async def _go(self, some: list[_Waiting[Item, Gives]]) -> None:
        place = _Place(self._free)
        late = None
        if self._late_s is not None:
            late = asyncio.get_running_loop().call_later(self._late_s, place.leave)
        try:
            await self._do(some)
        finally:
            if late is not None:
                late.cancel()
            place.leave()

    def _free(self) -> None:
        self._idle += 1
        self._begin()

    async def _do(self, some: list[_Waiting[Item, Gives]]) -> None:
        """Run a batch and set each item's result.

        A refusal of the whole batch, such as of a full disk, is given to all items. After any other
        error, each item runs again alone, so that only the faulty one fails.
        """
        work = self._threads.done(self._work, [one.item for one in some])
        (given,) = await asyncio.gather(work, return_exceptions=True)
        if isinstance(given, BaseException) and not isinstance(given, Refused) and len(some) > 1:
            for one in some:
                await self._do([one])
            return
        ends = [given] * len(some) if isinstance(given, BaseException) else given
        for one, ending in zip(some, ends, strict=True):
            _tell(one.told, ending)


# Any: the waiting caller knows the type
def _tell(told: asyncio.Future[Any], ended: object) -> None:
    if told.done():  # the caller was cancelled
        return
    if isinstance(ended, BaseException):
        told.set_exception(ended)
    else:
        told.set_result(ended)


FILE: Final = "upload"  # the verb of an upload
TOGETHER: Final = 8  # the most questions in one batch, because all of them end together
QUICK: Final = 8  # number of threads for verbs that read no rows
# verbs that reveal whether a question has ended; their replies wait for the quantum
TELLING: Final = frozenset({"answer", "history", "pipeline-answer", "pipeline-runs"})
REPORT: Final = "survey-report"  # many reports arrive at once, so they are counted as one batch
SHEET: Final = "survey-sheet"  # many sheets arrive at once, and they wait for one commit
# verbs that read no rows, but may be slow
TENSORS: Final = frozenset({"tensor-call", "tensor-table"})
SHORT: Final = 4096  # the most bytes of a question that is batched
THOUGHT_S: Final = 0.2  # after so many seconds, the next batch starts in parallel
# verbs that read no rows, but are slow
HEAVY: Final = frozenset(
    {"price", "begin", "amend", "verify-ledger", "pipeline", "begin-pipeline-run"}
)


@dataclass(frozen=True)
class Call:
    """A call that the HTTP process forwards: verb, token, client address, and URL parameters."""

    verb: str
    token: str
    place: str
    params: Json

    @staticmethod
    def of(header: Json) -> Call:
        """Parse and check the header of a forwarded call; refuse a malformed one."""
        verb, token, place = (header.get(key) for key in ("verb", "token", "place"))
        params = header.get("params")
        if not (isinstance(verb, str) and isinstance(token, str) and isinstance(place, str)):
            raise bad_request("the header is none")
        if verb not in BY_NAME or not isinstance(params, dict):
            raise bad_request("there is no such verb")
        if not all(value is None or type(value) in (str, int) for value in params.values()):
            raise bad_request("a parameter in the address must be a text or a whole number")
        if cannot_be_kept(params):
            raise bad_request("the address holds half a letter, or the letter 0")
        return Call(verb, token, place, params)


@dataclass
class _Known:
    """The verb and the user of a call, for its log line, as far as they are known so far."""

    verb: str = "?"
    user: str = ""


@dataclass(frozen=True)
class _Said:
    """A reply to the HTTP process: the code of a refusal, or None, and the JSON text."""

    code: str | None
    text: str


class DoorEnd:
    """The server of the vault process: runs verbs on threads; a slow question blocks no other."""

    def __init__(
        self, desk: Dispatcher, *, quantum_s: float, tally: CallMetrics, most: Limit | None = None
    ) -> None:
        self._desk = desk
        self._tally = tally
        self._quantum_s = quantum_s
        most = most or Limit()
        self._turns = FairSemaphore(most)
        # the engine reads rows for one question at a time
        self._reading = FairSemaphore(Limit(1, 1))
        self._quick = Threads(QUICK, "quick")
        self._long = Threads(most.at_once, "long")
        self._sheets = Threads(64, "sheets")
        # one thread reads, and one waits
        self._reports = Batcher(self._taken, Threads(2, "reports"))
        # One batch plans at a time: two would compete for the interpreter lock at every statement.
        self._begins = Batcher(
            self._begun, Threads(QUICK, "begins"), most=TOGETHER, late_s=THOUGHT_S
        )
        self._ends = Batcher(self._ended, Threads(QUICK, "ends"), most=TOGETHER, late_s=THOUGHT_S)
        self._counts = Batcher(self._counts_of, Threads(QUICK, "counts"), late_s=THOUGHT_S)
        self._heavy_turns = FairSemaphore(Limit(2, 1))
        self._heavy = Threads(2, "heavy")
        self._tensor_turns = FairSemaphore(Limit(4, 1))
        self._tensors = Threads(4, "tensors")
        self._adds = FairSemaphore(Limit(1, 1))
        self._files = Receiver(desk)
        rooms = {
            ASK: Room(self._turns, self._long),
            RUN: Room(self._turns, self._long),
            ADD: Room(self._adds, Threads(1, "adds")),
        }
        self._runner = Runner(desk, rooms, self._wait_for_the_beat)
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, path: Path, ready: Callable[[], None]) -> None:
        """Listen on the Unix socket, and run background jobs, until cancelled.

        `ready` is called once the socket accepts connections.
        """
        server = await asyncio.start_unix_server(self._heard, path)
        besides = [
            asyncio.create_task(self._runner.run()),
            asyncio.create_task(self._files.sweep()),
        ]
        ready()
        try:
            async with server:
                await server.serve_forever()
        finally:
            for task in besides:
                task.cancel()

    async def _heard(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        outgoing = WriteBatch(writer)
        while (frame := await read_frame(reader, MAX_REQUEST)) is not None:
            if frame.header.get("verb") == FILE:  # the rest of this connection is the file
                await self._receive(frame, reader, writer)
                break
            task = asyncio.create_task(self._answer(frame, outgoing))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        writer.close()

    async def _receive(
        self, frame: Frame, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        known = _Known()

        async def received() -> str:
            call = Call.of(frame.header)
            known.verb = call.verb
            caller = await self._quick.done(self._desk.admitted, call.verb, call.token)
            known.user = "" if caller is None else caller.user
            stream = (reader, writer)
            return json_text(await self._files.received(call.token, call.params, stream))

        told = _told(await self._counted(received(), known), known.user, frame)
        with contextlib.suppress(ConnectionError):
            writer.write(told.as_bytes())
            await writer.drain()
        await drained(reader)

    async def _answer(self, frame: Frame, outgoing: WriteBatch) -> None:
        known = _Known()
        told = _told(await self._counted(self._done(frame, known), known), known.user, frame)
        with contextlib.suppress(ConnectionError):
            await outgoing.tell(told)

    async def _counted(self, work: Awaitable[str], known: _Known) -> _Said:
        """Run a call, count and time it for the metrics, and return its result or its refusal."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        said = await _answered(work)
        self._tally.note(known.verb, known.user, said.code, loop.time() - begun)
        return said

    async def _done(self, frame: Frame, known: _Known) -> str:
        call = Call.of(frame.header)
        known.verb = call.verb
        if call.verb == REPORT:
            return await self._reports.done((call, frame.body))
        caller = self._desk.recalled(call.verb, call.token)
        if caller is None and BY_NAME[call.verb].action is not None:
            caller = await self._quick.done(self._desk.admitted, call.verb, call.token)
        known.user = "" if caller is None else caller.user
        if call.verb == "metrics":
            self._desk.check("metrics", caller)
            measures = await self._quick.done(self._desk.health.measures)
            # the lengths of the queues depend on how long it takes to read rows
            await self._wait_for_the_beat()
            return json_text({**self._tally.counts(), **measures, "queues": self._queues()})
        if call.verb in HEAVY and caller is not None:
            async with self._heavy_turns.turn(caller.user):
                return await self._heavy.done(self._still, call, frame.body)
        if call.verb in TENSORS and caller is not None:
            async with self._tensor_turns.turn(caller.user):
                return await self._tensors.done(self._still, call, frame.body)
        if call.verb in TELLING:
            await self._wait_for_the_beat()
        if call.verb == SHEET:
            return await self._sheets.done(self._work, call, caller, frame.body)
        if not BY_NAME[call.verb].is_long or caller is None:
            return await self._quick.done(self._work, call, caller, frame.body)
        try:
            async with self._turns.turn(caller.user):
                if call.verb == ASKED and len(frame.body) <= SHORT:
                    return await self._asked(call, caller.user, frame.body)
                return await self._long.done(self._still, call, frame.body)
        finally:  # a refusal waits for the quantum, too, because it may come after rows were read
            await self._wait_for_the_beat()

    def _queues(self) -> list[Json]:
        """Return the numbers of running, waiting and refused calls for each kind of work."""
        kinds = {
            "questions": self._turns, "readings": self._reading, "prices": self._heavy_turns,
            "tensors": self._tensor_turns, "adds": self._adds,
        }  # fmt: skip
        counted = {kind: turns.counts() for kind, turns in kinds.items()}
        return [
            {"queue": kind, "at_work": at_work, "waiting": waiting, "refused": kinds[kind].refused}
            for kind, (at_work, waiting) in counted.items()
        ]

    async def _asked(self, call: Call, user: str, body: bytes) -> str:
        """Answer a question in SQL.

        Its charge is batched with those of other questions. A count also shares its scan of the
        rows with other counts.
        """
        paid = await self._begins.done((call.token, _read(call, body)))
        if paid is None:
            return await self._long.done(self._still, call, body)
        if isinstance(paid, str):  # a stored answer
            return paid
        if paid.is_batchable:
            return await self._counts.done(paid)
        async with self._reading.turn(user):
            text = await self._long.done(self._desk.queries.read, paid)
        return await self._ends.done((paid, text))

    def _begun(self, asked: Sequence[tuple[str, Json]]) -> list[PaidOrder | str | Exception | None]:
        found = begun(self._desk, asked)
        return [json_text(one) if isinstance(one, dict) else one for one in found]

    def _counts_of(self, paid: Sequence[PaidOrder]) -> list[str | Exception]:
        return _texts(counted(self._desk, paid))

    def _ended(self, read: Sequence[tuple[PaidOrder, str]]) -> list[str | Exception]:
        return _texts(ended(self._desk, read))

    def _still(self, call: Call, body: bytes) -> str:
        """Run a verb that had to wait in a queue, if its caller is still allowed to.

        The token is authenticated again, because it may be revoked by now.
        """
        return self._work(call, self._desk.admitted(call.verb, call.token), body)

    def _work(self, call: Call, caller: Caller | None, body: bytes) -> str:
        return json_text(self._desk.done(call.verb, caller, _read(call, body), call.place))

    def _taken(self, asked: Sequence[tuple[Call, bytes]]) -> list[str | Refused]:
        """Process the survey reports of several calls as one batch.

        A malformed report is refused alone.
        """
        read = [_read_report(call, body) for call, body in asked]
        sent = [one for one in read if isinstance(one, Submission)]
        ended = iter(self._desk.surveys.take(sent))
        told = [next(ended) if isinstance(one, Submission) else one for one in read]
        return [one if isinstance(one, Refused) else json_text(one) for one in told]

    async def _wait_for_the_beat(self) -> None:
        """Wait until the next multiple of the time quantum, so that reply times reveal no rows."""
        if self._quantum_s:
            now = asyncio.get_running_loop().time()
            await asyncio.sleep(self._quantum_s - now % self._quantum_s)


def _read(call: Call, body: bytes) -> Json:
    """Merge a call's JSON body with its URL parameters; refuse a body that contradicts the URL."""
    said = read_json(body) if body else {}
    other = [name for name, value in call.params.items() if said.get(name, value) != value]
    if other:
        raise bad_request(f"the body names another {other[0]} than the address")
    return {**said, **call.params}


def _texts(answers: Sequence[Json | Exception]) -> list[str | Exception]:
    return [one if isinstance(one, Exception) else json_text(one) for one in answers]


def _read_report(call: Call, body: bytes) -> Submission | Refused:
    try:
        return read_request(Submission, _read(call, body))
    except Refused as refused:
        return refused


async def _answered(work: Awaitable[str]) -> _Said:
    """Return the result of a call or its refusal.

    An internal fault becomes a refusal without any detail.
    """
    try:
        return _Said(None, await work)
    except Refused as refused:
        return _refused(refused)
    except Exception:  # noqa: BLE001  # the outermost layer: any other error is an internal fault
        return _refused(fault())


def _refused(refused: Refused) -> _Said:
    return _Said(refused.code, json_text(refusal_shape(refused)))


def _told(said: _Said, user: str, asked: Frame) -> Frame:
    header: Json = {"id": asked.header.get("id"), "code": said.code, "user": user}
    return Frame(header, said.text.encode())
