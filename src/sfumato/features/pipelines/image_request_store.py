"""Store researchers' requests for images, in SQL."""

from __future__ import annotations

from typing import Final

from sfumato.features.pipelines.image_request import ImageRequest
from sfumato.storage.records_database import Records

_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS image_requests (
        id TEXT NOT NULL PRIMARY KEY, person TEXT NOT NULL, image TEXT NOT NULL,
        why TEXT NOT NULL, asked_at TEXT NOT NULL, state TEXT NOT NULL,
        decided_by TEXT NOT NULL, decided_at TEXT NOT NULL, reason TEXT NOT NULL
    ){table_end}""",
)
_KEPT: Final = "id, person, image, why, asked_at, state, decided_by, decided_at, reason"


class SqlImageRequests:
    """An ImageRequestStore in the vault's SQL records."""

    def __init__(self, records: Records) -> None:
        self._records = records
        records.make(_TABLES)

    def add(self, one: ImageRequest) -> None:
        """Store a request."""
        values = (
            one.id, one.by, one.image, one.why, one.at, one.state, one.decided_by,
            one.decided_at, one.reason,
        )  # fmt: skip
        marks = ", ".join("?" * len(values))
        with self._records.change() as link:
            link.change(f"INSERT INTO image_requests ({_KEPT}) VALUES ({marks})", values)

    def all(self) -> tuple[ImageRequest, ...]:
        """Return all requests, the newest first."""
        sql = f"SELECT {_KEPT} FROM image_requests ORDER BY asked_at DESC, id"
        return tuple(ImageRequest(*row) for row in self._records.rows(sql, ()))

    def decide(self, one: ImageRequest) -> None:
        """Store the decision on a request."""
        sql = (
            "UPDATE image_requests SET state = ?, decided_by = ?, decided_at = ?, reason = ?"
            " WHERE id = ?"
        )
        with self._records.change() as link:
            link.change(sql, (one.state, one.decided_by, one.decided_at, one.reason, one.id))
