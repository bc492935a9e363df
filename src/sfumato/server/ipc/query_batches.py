"""Charge, answer and store the queries of several users in batches.

A batch is charged in one ledger transaction, then read, then stored in one transaction. Counts also
share one scan of the rows. If a query cannot be charged in a batch, its result here is None, and
the caller runs the query alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.features.queries.schema import Ask
from sfumato.release.release_order import PaidOrder, Release
from sfumato.server.dispatch import Dispatcher
from sfumato.vault.users import Caller
from sfumato.wire.query_json import Json
from sfumato.wire.verb import read_request

ASKED: Final = "ask"  # the verb


def begun(
    desk: Dispatcher, several: Sequence[tuple[str, Mapping[str, object]]]
) -> list[PaidOrder | Json | Exception | None]:
    """Authenticate and charge several queries in one batch.

    The result of each query is a paid order to compute, a stored answer, or an error. It is None if
    the query must run alone.
    """
    looked = [_looked_at(desk, token, body) for token, body in several]
    found = iter(desk.queries.begin([one for one in looked if one is not None]))
    return [None if one is None else _told(next(found)) for one in looked]


def counted(desk: Dispatcher, paid: Sequence[PaidOrder]) -> list[Json | Exception]:
    """Answer several paid counts with one scan of the rows and one ledger transaction.

    Return the answer or the error of each count.
    """
    return [_answer(one) for one in desk.queries.answer_all(paid)]


def ended(desk: Dispatcher, read: Sequence[tuple[PaidOrder, str]]) -> list[Json | Exception]:
    """Store several answers in one ledger transaction. Return each answer, or its own error."""
    return [_answer(one) for one in desk.queries.end(read)]


def _answer(one: Release | Exception) -> Json | Exception:
    return one if isinstance(one, Exception) else one.as_json()


def _looked_at(
    desk: Dispatcher, token: str, body: Mapping[str, object]
) -> tuple[Caller, Ask] | None:
    with contextlib.suppress(Refused):
        caller = desk.check(ASKED, desk.admitted(ASKED, token), body.get("data_set"))
        return caller, read_request(Ask, body)
    return None


def _told(one: PaidOrder | Release | Exception | None) -> PaidOrder | Json | Exception | None:
    return one.as_json() if isinstance(one, Release) else one
