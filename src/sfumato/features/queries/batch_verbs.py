"""Questions of many askers in three steps: charged together, read one by one, written together.

Counts of rows are read together too, and written in the same go. What cannot be charged so is
None, and is asked as if nobody had looked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.features.jobs.verbs import asked_of, release_json
from sfumato.features.queries.service import Asked
from sfumato.release.release_order import Begun, Release
from sfumato.server.dispatch import Dispatcher
from sfumato.vault.users import Caller
from sfumato.wire.query_json import Json
from sfumato.wire.request_fields import Body

ASKED: Final = "ask"  # the verb


def begun(
    desk: Dispatcher, several: Sequence[tuple[str, Body]]
) -> list[Begun | Json | Exception | None]:
    """Return what is paid by whoever is let in by their token now; or what stands already."""
    looked = [_looked_at(desk, token, body) for token, body in several]
    found = iter(desk.queries.begin([one for one in looked if one is not None]))
    return [None if one is None else _told(next(found)) for one in looked]


def counted(desk: Dispatcher, paid: Sequence[Begun]) -> list[Json | Exception]:
    """Return the answers of counts, read in one pass and written in one go."""
    return [_answer(one) for one in desk.queries.answer_all(paid)]


def ended(desk: Dispatcher, read: Sequence[tuple[Begun, str]]) -> list[Json | Exception]:
    """Return the answers, written in one go."""
    return [_answer(one) for one in desk.queries.end(read)]


def _answer(one: Release | Exception) -> Json | Exception:
    return one if isinstance(one, Exception) else release_json(one)


def _looked_at(desk: Dispatcher, token: str, body: Body) -> tuple[Caller, Asked] | None:
    with contextlib.suppress(Refused):
        caller = desk.check(ASKED, desk.admitted(ASKED, token), body.get("data_set"))
        return caller, asked_of(body)
    return None


def _told(one: Begun | Release | Exception | None) -> Begun | Json | Exception | None:
    return release_json(one) if isinstance(one, Release) else one
