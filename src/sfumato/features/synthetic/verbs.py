"""Request parsing for the verbs of twins."""

from __future__ import annotations

from sfumato.features.synthetic.private_service import DpTwinRequest, PrivateTwins
from sfumato.features.synthetic.service import Twins, Wanted
from sfumato.vault.users import Caller
from sfumato.wire.query_json import Json, read_number
from sfumato.wire.request_fields import Body, count_of, optional_texts, text_of, text_or


def schema(twins: Twins, caller: Caller, body: Body) -> Json:
    """Create a schema twin, from the card alone."""
    return twins.schema(
        caller,
        Wanted(
            data_set=text_of(body, "data_set"),
            sql=_optional(body, "sql"),
            question=body.get("question"),
            rows=None if body.get("rows") is None else count_of(body, "rows", 1, 10**6),
            seed=_optional(body, "seed"),
        ),
    )


def private(twins: PrivateTwins, caller: Caller, body: Body) -> Json:
    """Create a DP twin, and pay for it."""
    return twins.make(caller, _bought(body))


def private_price(twins: PrivateTwins, caller: Caller, body: Body) -> Json:
    """Return the price of a DP twin."""
    return twins.price(caller, _bought(body))


def _bought(body: Body) -> DpTwinRequest:
    return DpTwinRequest(
        data_set=text_of(body, "data_set"),
        epsilon=read_number(body.get("epsilon")),
        delta=read_number(body.get("delta")),
        method=text_or(body, "method", "mst"),
        rows=None if body.get("rows") is None else count_of(body, "rows", 1, 10**6),
        seed=_optional(body, "seed"),
        op=_optional(body, "op"),
        private_bins=tuple(optional_texts(body, "private_bins") or ()),
        error_epsilon=read_number(body.get("error_epsilon")),
    )


def _optional(body: Body, key: str) -> str | None:
    return None if body.get(key) is None else text_of(body, key)
