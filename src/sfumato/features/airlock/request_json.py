"""Convert airlock requests to JSON for the caller, and validate the fields of a call."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.features.airlock.file_types import MAX_BYTES, bad_airlock
from sfumato.features.airlock.model import Request, sum_of
from sfumato.vault.users import Caller

GUARANTEE: Final = "reviewed (not DP)"


def why_of(text: object) -> str:
    """Return the free-text reason of a request or vote; refuse a long or unprintable text."""
    if not isinstance(text, str) or len(text) > 2000 or not text.replace("\n", " ").isprintable():
        raise bad_airlock("why must be a text of up to 2,000 letters")
    return text


def bytes_of(text: str) -> bytes:
    """Decode a file that was sent as base64; refuse an invalid or oversized one."""
    try:
        file = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        file = b""
    if not 1 <= len(file) <= MAX_BYTES:
        raise bad_airlock(f"a file must be base64 of 1 to {MAX_BYTES:,} bytes")
    return file


def check_themselves(caller: Caller) -> None:
    """Refuse a caller with an access token for programs, because people must decide on files."""
    if not caller.is_themselves:
        raise Refused(
            "not-allowed",
            "People must decide about airlock requests, and this is an access token for programs.",
            "Sign in with your password, and repeat this.",
        )


def shown_to(one: Request, caller: Caller) -> Json:
    """Return an airlock request as JSON for this caller.

    The author sees neither votes nor anything about the run.
    """
    program = json.loads(one.program)
    return {
        "request": one.id,
        "data_set": one.data_set,
        "version": one.version,
        "state": one.state_for(caller.user),
        "guarantee": GUARANTEE,
        "author": one.author,
        "owner": one.owner,
        "why": one.why,
        "at": one.at,
        "expires": one.expires,
        "needed": one.needed,
        "reviewers": sorted(u for u in {one.owner, *one.reviewers} if one.is_reviewer(u)),
        "program": program,
        "digest": sum_of(one.program.encode()),
        **({} if caller.user == one.author else _votes(one)),
        "ended_by": one.ended_by,
        "ended_at": one.ended_at,
    }


def _votes(one: Request) -> Json:
    """Return the votes on a request, the number of its draft, and who edited it.

    Everybody but the author may see them.
    """
    return {
        "draft": one.draft,
        "editors": list(one.editors),
        "votes": [
            {"user": vote.user, "says": vote.says, "at": vote.at, "why": vote.why}
            for vote in one.votes
        ],
    }


def closed() -> Refused:
    """Return the refusal for a data set whose card allows no release without noise."""
    return Refused(
        "airlock-closed",
        "The data card of this data set allows no release without noise.",
        "Ask for results with noise, or ask the owner to add [airlock] to the card.",
    )


def too_few() -> Refused:
    """Return the refusal of a request that too few reviewers could review: its author may not."""
    return Refused(
        "airlock-closed",
        "Without you, there are fewer reviewers than the data card needs.",
        "Ask the owner to name another reviewer.",
    )
