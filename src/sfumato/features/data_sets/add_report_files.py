"""Store the owner's reports on how `add` read the rows; they are as secret as the rows."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Bug
from sfumato.vault.add_report import TableReport, read_report, report_json
from sfumato.vault.encryption_at_rest import AtRest, DecryptionError


@dataclass(frozen=True)
class AddReports:
    """Stores one report file next to each prepared table; it is encrypted if the tables are."""

    folder: Path
    rest: AtRest | None

    def keep(self, stem: str, tables: tuple[TableReport, ...]) -> None:
        """Write the owner's report on how a table's rows were read."""
        path = self._path(stem)
        content = json.dumps(report_json(tables)).encode()
        path.touch(mode=0o600)
        path.write_bytes(content if self.rest is None else self.rest.encrypt(path.name, content))

    def find(self, stem: str) -> Json | None:
        """Return the report on how a table's rows were read; None if it is missing or damaged."""
        path = self._path(stem)
        found = None
        with contextlib.suppress(OSError, ValueError, DecryptionError, Bug):
            content = path.read_bytes()
            opened = content if self.rest is None else self.rest.decrypt(path.name, content)
            found = report_json(read_report(json.loads(opened)))
        return found

    def drop(self, stem: str) -> None:
        """Delete the report on how a table's rows were read."""
        self._path(stem).unlink(missing_ok=True)

    def _path(self, stem: str) -> Path:
        return self.folder / f"{stem}.report"
