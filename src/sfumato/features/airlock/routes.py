"""HTTP routes of the airlock, which releases files after several people have reviewed them."""

from __future__ import annotations

from typing import Final

from sfumato.wire.json_schemas import ANY, COUNT, NUMBER, Schema, listed, opened, shape, text
from sfumato.wire.route import Route

_REQUEST: Final = opened({"request": text(), "state": text(), "guarantee": text()})
_FILES: Final = opened(
    {"request": text(), "state": text(), "guarantee": text(), "files": listed(ANY)}
)
_FILE: Final = shape(
    {"path": text()}, {"by": listed(text(), maxItems=16), "count": text(), "of": text()}
)
_OPEN: Final = ("airlock-unknown", "airlock-waits", "anchor-missing", "ledger-frozen")
_LOOK: Final = (*_OPEN, "airlock-changed", "bad-airlock", "unknown-column")


def _act(  # the route of one act on a request
    verb: str, says: str, body: Schema, refusals: tuple[str, ...], *, is_long: bool = False
) -> Route:
    act = verb.removesuffix("-airlock")
    path = f"/v1/airlock/{{request}}/{act}"
    return Route(
        verb, "POST", path, says, "any", _REQUEST, body, refusals=refusals, is_long=is_long
    )


AIRLOCK_ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "airlock", "GET", "/v1/data-sets/{data_set}/airlock",
        "Requests about a data set that are yours to see.", "any",
        opened({"requests": listed(_REQUEST)}), refusals=("unknown-data-set",),
    ),
    Route(
        "submit-airlock", "POST", "/v1/data-sets/{data_set}/airlock",
        "Hand in a program and the files it is to leave, which people look at first.", "ask",
        _REQUEST,
        shape(
            {"source": text(200_000), "files": listed(_FILE, maxItems=16)},
            {
                "columns": listed(text()), "why": text(2000), "cpu_s": NUMBER,
                "memory_mb": COUNT, "disk_mb": COUNT,
            },
        ),
        refusals=(
            *_OPEN, "airlock-closed", "bad-airlock", "bad-pipeline", "unknown-column",
            "unknown-data-set",
        ),
    ),
    Route(
        "show-airlock", "GET", "/v1/airlock/{request}",
        "A request; to its reviewers with its files, which are real, and what checks found.",
        "any", _REQUEST, refusals=_LOOK,
    ),
    Route(
        "fetch-airlock", "GET", "/v1/airlock/{request}/files",
        "The files of a released request, and the signed receipt.", "any", _FILES, refusals=_LOOK,
    ),
    _act(
        "run-airlock", "Let the program run on the real rows, once: the data set's owner.",
        shape({}), (*_LOOK, "bad-pipeline", "data-set-frozen", "sandbox-missing"), is_long=True,
    ),
    _act("decline-airlock", "Let a request go no further: the owner.", shape({}), _LOOK),
    _act("withdraw-airlock", "Take your request back.", shape({}), _LOOK),
    _act(
        "vote-airlock", "Say whether what you saw may leave; others than its author do.",
        shape({"says": text(10), "seal": text(), "draft": COUNT}, {"why": text(2000)}), _LOOK,
    ),
    _act("trim-airlock", "Take a file out; votes are gone.", shape({"path": text()}), _LOOK),
    _act(
        "replace-airlock", "Put a file of yours in the place of one; votes are gone.",
        shape({"path": text(), "base64": text(2_800_000)}), _LOOK,
    ),
    _act(
        "release-airlock", "Let the files out, if enough reviewers said so of exactly these.",
        shape({}), (*_LOOK, "airlock-unsafe"),
    ),
)  # fmt: skip
