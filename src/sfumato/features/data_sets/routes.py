"""HTTP routes of data sets: upload files, propose a card, add a data set as a job, amend a card."""

from __future__ import annotations

from typing import Final

from sfumato.features.jobs.routes import JOB
from sfumato.wire.json_schemas import CARD, OBJECT, listed, opened, pairs, shape, text
from sfumato.wire.route import Route

_CARD_REFUSALS: Final = (
    "bad-card", "bad-budget", "data-set-exists", "not-in-language", "same-people",
    "second-person-needed", "unknown-column", "vault-missing",
)  # fmt: skip
_COLUMN: Final = opened({"name": text(), "type": text()})

UPLOAD_ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "upload", "PUT", "/v1/uploads",
        "Send a CSV, TSV or Parquet file, as it is; it waits for a day.", "own",
        opened({"upload": text(), "name": text(), "bytes": {"type": "integer"}, "until": text()}),
        query={"name": text(200, description="The file's name; how it ends says what it is.")},
        refusals=("source-unreadable", "too-large"), carries="file",
    ),
    Route(
        "proposed", "GET", "/v1/uploads/{upload}",
        "The columns of an upload, their likely types, and a card to be filled in; no value.",
        "own", opened({"upload": text(), "columns": listed(_COLUMN), "card": OBJECT}),
        refusals=("upload-unknown", "no-header", "source-too-large", "source-unreadable"),
        is_long=True,
    ),
    Route(
        "add", "POST", "/v1/data-sets",
        "Add an upload, or a table of a connection, as a data set, or as a new version of one, "
        "with its card; as a job.", "own", JOB,
        shape(
            {"name": text(), "card": OBJECT},
            {
                "upload": text(), "connection": text(), "table": text(),
                "tables": pairs(text()), "different_people": text(100), "op": text(100),
                "accept_unreadable": listed(text()),
            },
        ),
        refusals=(
            *_CARD_REFUSALS, "upload-unknown", "connection-unknown", "op-reused",
            "source-unreadable",
        ),
    ),
    Route(
        "add-report", "GET", "/v1/data-sets/{data_set}/add-report",
        "How the rows of your data set were read when they were added, in coarse bands: for you "
        "alone, as no noise is in it.", "own",
        opened({"data_set": text(), "version": text(), "label": text(), "tables": listed(OBJECT)}),
        refusals=("unknown-data-set",),
    ),
    Route(
        "connections", "GET", "/v1/connections",
        "The databases that you may take rows from, by the names that the operator gave them.",
        "own", opened({"connections": listed(text())}),
    ),
    Route(
        "proposed-table", "GET", "/v1/connections/{connection}",
        "The columns of a table of a connection, and a card to be filled in; no row is read.",
        "own",
        opened(
            {"connection": text(), "table": text(), "columns": listed(_COLUMN), "card": OBJECT}
        ),
        query={"table": text(130, description="SCHEMA.TABLE, or a TABLE of `public`.")},
        refusals=(
            "connection-unknown", "source-unreadable", "engine-unavailable", "engine-unsafe",
            "not-installed",
        ),
        is_long=True,
    ),
    Route(
        "amend", "PUT", "/v1/data-sets/{data_set}/card",
        "A new version of your card on the same rows: who, caps, size and default bounds only.",
        "own", CARD,
        shape(
            {"card": OBJECT},
            {"instead_of": text(description="Refused unless this version is in force.")},
        ),
        refusals=(*_CARD_REFUSALS, "unknown-data-set"),
    ),
)  # fmt: skip
