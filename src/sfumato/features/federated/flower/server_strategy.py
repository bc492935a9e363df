"""The server side in Flower: a strategy that runs secure-aggregation rounds and sees only the sum.

Each Flower round is one secure sum. Keys and shares are exchanged before the clients train. The
clients reply with masked updates; agreement and secret shares follow. Every stage takes one message
and one new process per client.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from sfumato.dp.refusal import Bug, Refused
from sfumato.dp.secure_aggregation.collector import Collector
from sfumato.dp.secure_aggregation.participant import too_few
from sfumato.features.federated.agreement import Agreement, bad_federation
from sfumato.features.federated.flower.client_mod import KEY_BYTES
from sfumato.features.federated.flower.fleet_schedule import (
    ARRAYS,
    OURS,
    SETTINGS,
    Plan,
    Schedule,
    moved,
    task_digest,
)
from sfumato.system.randomness import SystemRandomSource

POLL_S: Final = 0.5
_LOG: Final = logging.getLogger("flwr")


@dataclass(frozen=True)
class Round:
    """The result of one round at the server: the sites in its sum, or the refusal code."""

    number: int
    sites: tuple[str, ...] = ()
    refused: str | None = None


class SecureAverage(Strategy):
    """A Flower strategy for federated averaging that reveals only the noisy sum of updates.

    The object also holds the state of the current round.
    """

    def __init__(  # noqa: PLR0913  # a training run and its waits
        self,
        agreement: Agreement,
        schedule: Schedule,
        convener: Ed25519PrivateKey,
        *,
        rate: float = 1.0,
        first: int = 1,
        action: str = "train",
        wait_s: float = 600,
    ) -> None:
        """Run the schedule's rounds from number `first` on; each number is used once.

        `wait_s` is how long a stage other than training waits for missing sites.
        """
        self.plan = Plan(agreement, schedule)
        self.rounds: list[Round] = []
        self._convener = convener
        self._rate = rate
        self._first = first
        self._action = action
        self._wait_s = wait_s
        if convener.public_key().public_bytes_raw() != agreement.convener:
            raise bad_federation("the convener's key is not the one in the sites' agreement")
        self._collector: Collector | None = None
        self._nodes: dict[str, int] = {}  # site name -> the node that sent the site's last reply
        self._refusals: list[str] = []

    def card(self) -> dict[str, object]:
        """Return the model's card: guarantee, price, privacy unit and threat model."""
        schedule, agreement = self.plan.schedule, self.plan.agreement
        return {
            "guarantee": schedule.guarantee,
            "epsilon": None if schedule.epsilon is None else str(schedule.epsilon),
            "delta": None if schedule.delta is None else str(schedule.delta),
            "unit": "everything that one site's update says, each person of it too",
            "against": f"the server and any {agreement.colluders} sites together",
            "noise": self.plan.spread,  # least standard deviation per number of the sum
            "clip": str(schedule.clip),
            "rounds": [[one.number, list(one.sites)] for one in self.rounds if one.sites],
            "of rounds": schedule.rounds,
            "agreement": agreement.digest,
        }

    def summary(self) -> None:
        """Log the model's card: guarantee, price, privacy unit and threat model."""
        _LOG.info("\tsfumato: %s", self.card())

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Run the key and share stages; return the messages that ask sites to train and mask."""
        self._grid, self._number = grid, self._first + server_round - 1
        self._arrays = {name: array.numpy() for name, array in arrays.items()}
        settings = ConfigRecord({**config, "server-round": server_round})
        task = task_digest(self._arrays, settings)
        terms = self.plan.terms(SystemRandomSource().draw(KEY_BYTES), self._number, task)
        self._collector, self._refusals = Collector(terms, self._convener), []
        try:
            box = self._stage("share", self._begin())
        except Refused as refusal:
            self._failed(refusal)
            return []
        records = {ARRAYS: arrays, SETTINGS: settings}
        return [self._to(self._nodes[name], "mask", said, records) for name, said in box.items()]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the model updated by the average, or None if the round has no sum."""
        del server_round  # the round is the last one configured
        collector = self._collector
        if collector is None:  # the round has failed already
            return None, None
        try:
            self._stage("reveal", self._stage("agree", self._closed(collector, replies)))
        except Refused as refusal:
            self._failed(refusal)
            return None, None
        sites = collector.survivors
        update = self.plan.grid.numbers(collector.total()) * (self._rate / len(sites))
        self.rounds.append(Round(self._number, sites))
        found = {name: Array(array) for name, array in moved(self._arrays, update).items()}
        return ArrayRecord(found), MetricRecord({"sites": len(sites)})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return no messages: there is no price for metrics on the sites' rows."""
        del server_round, arrays, config, grid
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return None: no site evaluates the model, as metrics on the sites' rows have no price."""
        del server_round, replies
        return None

    def _begin(self) -> Mapping[str, bytes]:
        """Invite all connected nodes to a round; return each joined site's next message.

        A site is identified by the signature on the keys in its reply.
        """
        collector = self._running()
        nodes = self._present(len(collector.terms.members), collector.terms.floor)
        said, lesson = collector.invitation(), self.plan.schedule.spelled().encode()
        sent = [self._to(node, "join", said, schedule=lesson) for node in nodes]
        self._nodes = {}
        return self._closed(collector, self._answers(sent))

    def _present(self, all_sites: int, floor: int) -> list[int]:
        """Wait until all nodes are connected, and return their ids.

        At the timeout, return the connected nodes if there are enough for the floor; else refuse.
        """
        end = time.monotonic() + self._wait_s
        while True:
            nodes = list(self._grid.get_node_ids())
            if len(nodes) >= all_sites:
                return nodes
            if time.monotonic() > end:
                if len(nodes) >= floor:
                    return nodes
                raise too_few(len(nodes), floor, "nodes")
            time.sleep(POLL_S)

    def _stage(self, stage: str, box: Mapping[str, bytes]) -> Mapping[str, bytes]:
        sent = [self._to(self._nodes[name], stage, said) for name, said in box.items()]
        return self._closed(self._running(), self._answers(sent))

    def _to(
        self,
        node: int,
        stage: str,
        message: bytes,
        records: Mapping[str, Any] | None = None,  # Any: Flower's own
        **more: bytes,
    ) -> Message:
        nonce = self._running().terms.nonce
        ours = ConfigRecord({"stage": stage.encode(), "nonce": nonce, "message": message, **more})
        content = RecordDict({OURS: ours, **(records or {})})
        return Message(content, dst_node_id=node, message_type=self._action)

    def _running(self) -> Collector:
        if self._collector is None:
            raise Bug("no round is running")
        return self._collector

    def _answers(self, sent: list[Message]) -> list[Message]:
        """Send messages to nodes, and return the replies that arrive before the timeout."""
        waiting, found = set(self._grid.push_messages(sent)), []
        end = time.monotonic() + self._wait_s
        while waiting and time.monotonic() < end:
            for reply in self._grid.pull_messages(waiting):
                waiting.discard(reply.metadata.reply_to_message_id)
                found.append(reply)
            time.sleep(POLL_S)
        return found

    def _closed(self, collector: Collector, replies: Iterable[Message]) -> Mapping[str, bytes]:
        """Pass the sites' replies to the collector, end the stage, and return the next messages.

        A refused reply is recorded and skipped. Each message is for one site.
        """
        for reply in replies:
            try:
                self._nodes[collector.take(_said(reply))] = reply.metadata.src_node_id
            except Refused as refusal:
                self._refusals.append(str(refusal))
        return collector.close()

    def _failed(self, refusal: Refused) -> None:
        self._collector = None
        self.rounds.append(Round(self._number, refused=refusal.code))
        _LOG.error("sfumato: no sum: %s What was refused before: %s", refusal, self._refusals)


def _said(reply: Message) -> bytes:
    """Return the bytes of a site's reply. Raise a refusal if the site refused or Flower failed."""
    record = reply.content.get(OURS) if reply.has_content() else None
    found = record.get("message") if isinstance(record, ConfigRecord) else None
    if isinstance(found, bytes):
        return found
    code = record.get("refused") if isinstance(record, ConfigRecord) else None
    raise Refused(
        "sum-message-refused",
        "A Flower node did not take part in the round "
        f"({code if isinstance(code, str) else 'it gave no answer'}).",
        "Look for the reason in the log of this node.",
    )
