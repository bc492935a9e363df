"""Questions whose answer stands: many are charged in one go, and no row is read for any of them.

What cannot be answered so is None here, and asked as if nobody had looked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from sfumato.faces.body import Body
from sfumato.faces.desk import Desk
from sfumato.faces.job_desk import asked_of
from sfumato.services.access import Caller
from sfumato.services.queries import Asked
from sfumato.wire import Json, Refused

REPEATED: Final = "ask"  # the verb whose answer may stand


def may_stand(desk: Desk, body: Body) -> bool:
    """Say whether the question was read before: by its text alone, whoever asks."""
    with contextlib.suppress(Refused):
        return desk.queries.may_stand(asked_of(body))
    return False


def asked_again(desk: Desk, several: Sequence[tuple[str, Body]]) -> list[Json | None]:
    """Return the answers that stand, each for who is let in by their token now."""
    looked = [_looked_at(desk, token, body) for token, body in several]
    told = iter(desk.queries.ask_again([one for one in looked if one is not None]))
    found = [None if one is None else next(told) for one in looked]
    return [None if one is None else {**one.answer, "receipt": one.receipt} for one in found]


def _looked_at(desk: Desk, token: str, body: Body) -> tuple[Caller, Asked] | None:
    with contextlib.suppress(Refused):
        caller = desk.check(REPEATED, desk.admitted(REPEATED, token), body.get("data_set"))
        return caller, asked_of(body)
    return None
