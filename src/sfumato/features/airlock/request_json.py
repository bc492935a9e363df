"""How requests of the airlock are shown, and what of a call is refused before any is looked at."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.features.airlock.file_types import MOST_BYTES, bad_airlock
from sfumato.features.airlock.model import Request, sum_of
from sfumato.vault.users import Caller

GUARANTEE: Final = "reviewed (not DP)"


def why_of(text: object) -> str:
    """Return what somebody says for others to read, or refuse."""
    if not isinstance(text, str) or len(text) > 2000 or not text.replace("\n", " ").isprintable():
        raise bad_airlock("why is a text of up to 2,000 letters")
    return text


def bytes_of(text: str) -> bytes:
    """Return a file that was sent as base64, or refuse."""
    try:
        file = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        file = b""
    if not 1 <= len(file) <= MOST_BYTES:
        raise bad_airlock(f"a file is base64 of 1 to {MOST_BYTES:,} bytes")
    return file


def check_themselves(caller: Caller) -> None:
    """Refuse a token for programs: people decide here."""
    if not caller.is_themselves:
        raise Refused(
            "not-allowed", "A token for programs decides nothing here.", "Sign in yourself."
        )


def shown_to(one: Request, caller: Caller) -> Json:
    """Return a request as the caller may see it; its author sees no moment of its run."""
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
    """Return who has said what; its author is told when it is over, or by its reviewers."""
    return {
        "draft": one.draft,
        "editors": list(one.editors),
        "votes": [
            {"user": vote.user, "says": vote.says, "at": vote.at, "why": vote.why}
            for vote in one.votes
        ],
    }


def closed() -> Refused:
    """Return the refusal where the card has no airlock."""
    return Refused(
        "airlock-closed",
        "The data set's card lets nothing out without noise.",
        "Ask for numbers with noise, or ask the owner.",
    )


def too_few() -> Refused:
    """Return the refusal where its author leaves too few reviewers."""
    return Refused(
        "airlock-closed",
        "Besides you there are fewer reviewers than the card needs.",
        "Ask the owner to name another.",
    )
