"""The verbs of a site: agreements, rounds of secure sums, training progress, and tensors."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final, Protocol

from sfumato.features.federated.schema import (
    Agreement,
    Federations,
    JoinedRound,
    JoinFederation,
    JoinSum,
    Lessons,
    NextStage,
    OneFederation,
    PriceSum,
    ShowSum,
    SiteKey,
    SiteMessage,
    SumPrice,
    TensorCall,
    TensorTable,
    bytes_of,
)
from sfumato.wire.query_json import Json
from sfumato.wire.schema import Answer, Empty, OfDataSet
from sfumato.wire.verb import Verbs

if TYPE_CHECKING:
    from sfumato.features.federated.service import SiteService
    from sfumato.vault.users import Caller

SITE_VERBS: Final = Verbs()
_DATA_SET: Final = "/v1/data-sets/{data_set}"
_SUM: Final = (
    "anchor-missing", "average-not-allowed", "bad-budget", "bad-federation", "bad-sql",
    "data-set-frozen", "engine-unavailable", "federation-unknown", "keys-needed", "ledger-frozen",
    "no-aggregate", "no-bounds", "noise-out-of-range", "not-in-language", "numbers-too-large",
    "question-too-large", "type-mismatch", "unknown-column", "unknown-data-set", "update-refused",
)  # fmt: skip
_ROUND: Final = (
    *_SUM, "budget-exceeded", "op-reused", "question-failed", "question-frozen",
    "sum-message-refused", "sum-not-trusted", "sum-too-few",
)  # fmt: skip
_TENSORS: Final = ("remote-private", "remote-refused", "remote-unknown")


class Services(Protocol):
    """The services of the vault that the verbs of a site call."""

    @property
    def sites(self) -> SiteService:
        """Return the service of this site."""
        ...


@SITE_VERBS.verb("site-key", "GET", "/v1/site", "any", Empty, SiteKey)
def site_key(services: Services, _caller: Caller, _asked: Empty) -> Json:
    """Return the public key by which other sites know this site."""
    return services.sites.key()


@SITE_VERBS.verb(
    "federations", "GET", f"{_DATA_SET}/federations", "read", OfDataSet, Federations,
    refusals=("unknown-data-set",),
)  # fmt: skip
def federations(services: Services, caller: Caller, asked: OfDataSet) -> Json:
    """List the federations in which a data set takes part."""
    return services.sites.all(caller, asked.data_set)


@SITE_VERBS.verb(
    "lessons", "GET", f"{_DATA_SET}/lessons", "read", OfDataSet, Lessons,
    refusals=("unknown-data-set",),
)  # fmt: skip
def lessons(services: Services, caller: Caller, asked: OfDataSet) -> Json:
    """Return the progress of training runs: all for the owner, else the caller's own."""
    return services.sites.lessons(caller, asked.data_set)


@SITE_VERBS.verb(
    "join-federation", "POST", f"{_DATA_SET}/federations", "own", JoinFederation, Agreement,
    refusals=(
        "anchor-missing", "bad-federation", "ledger-frozen", "sum-not-trusted", "unknown-data-set",
    ),
)  # fmt: skip
def join_federation(services: Services, caller: Caller, asked: JoinFederation) -> Json:
    """Let a data set take part in the sums of a federation, as its sites have agreed."""
    return services.sites.join(caller, asked.data_set, asked.as_body("data_set"))


@SITE_VERBS.verb(
    "leave-federation", "POST", f"{_DATA_SET}/federations/{{federation}}/leave", "own",
    OneFederation, Agreement,
    refusals=("anchor-missing", "federation-unknown", "ledger-frozen", "unknown-data-set"),
)  # fmt: skip
def leave_federation(services: Services, caller: Caller, asked: OneFederation) -> Json:
    """Leave a federation: the data set takes part in no further sums there."""
    return services.sites.leave(caller, asked.data_set, asked.federation)


@SITE_VERBS.verb(
    "price-sum", "POST", f"{_DATA_SET}/sums/price", "ask", PriceSum, SumPrice,
    refusals=(*_SUM, "sum-not-trusted"),
)  # fmt: skip
def price_sum(services: Services, caller: Caller, asked: PriceSum) -> Json:
    """Return what a sum over the sites costs at this site, and its noise; nothing is spent."""
    return services.sites.price(caller, asked)


@SITE_VERBS.verb(
    "join-sum", "POST", f"{_DATA_SET}/sums", "ask", JoinSum, JoinedRound, refusals=_ROUND
)
def join_sum(services: Services, caller: Caller, asked: JoinSum) -> Json:
    """Take part in a round of a sum and return this site's keys; nothing is charged yet."""
    return _encoded(services.sites.begin(caller, asked, bytes_of(asked.message)))


@SITE_VERBS.verb(
    "go-on-with-sum", "POST", f"{_DATA_SET}/sums/{{round}}/{{stage}}", "ask", NextStage,
    SiteMessage,
    refusals=_ROUND,
    is_long=True,
)  # fmt: skip
def next_stage(services: Services, caller: Caller, asked: NextStage) -> Json:
    """Return this site's message for a stage of a round: share, mask, agree or reveal.

    The stage `mask` charges, then reads rows.
    """
    names = asked.data_set, asked.round
    return _encoded(services.sites.go_on(caller, *names, asked.stage, bytes_of(asked.message)))


@SITE_VERBS.verb(
    "show-sum", "POST", f"{_DATA_SET}/sums/answer", "ask", ShowSum, Answer,
    refusals=(*_SUM, "sum-not-trusted"),
)  # fmt: skip
def show_sum(services: Services, caller: Caller, asked: ShowSum) -> Json:
    """Return a finished sum as a table: post-processing of released numbers, for free."""
    return services.sites.answer(caller, asked, asked.total, asked.sites)


@SITE_VERBS.verb(
    "tensor-call", "POST", "/v1/tensors", "ask", TensorCall, SiteMessage, refusals=_TENSORS
)
def tensor_call(services: Services, caller: Caller, asked: TensorCall) -> Json:
    """Send a message to this token's own process, which computes with the tensors sent to it."""
    return _encoded({"message": services.sites.tensors.call(caller, asked)})


@SITE_VERBS.verb(
    "tensor-table", "POST", f"{_DATA_SET}/tensors", "ask", TensorTable, SiteMessage,
    refusals=(*_TENSORS, "unknown-data-set"),
)  # fmt: skip
def tensor_table(services: Services, caller: Caller, asked: TensorTable) -> Json:
    """Declare the shape of a table, from its card, to the token's own process; no row is read."""
    return _encoded({"message": services.sites.table(caller, asked.data_set, asked)})


def _encoded(reply: Json) -> Json:
    message = reply["message"]
    sent = base64.b64encode(message).decode("ascii") if isinstance(message, bytes) else message
    return {**reply, "message": sent}
