"""A vault folder's settings: the places of ledger and anchor, and the engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.system.durable_files import sync, write_new

FORMAT: Final = 1
FILE: Final = "vault.json"


def settings_of(root: Path) -> dict[str, object]:
    """Read a vault's settings from `vault.json`; refuse a folder that contains no vault."""
    path = root / FILE
    try:
        settings = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    except ValueError:
        settings = {}
    if not isinstance(settings, dict) or settings.get("format") != FORMAT:
        raise Refused(
            "vault-missing",
            f"The folder {root} contains no vault.",
            "Make a vault with `sfumato init DIR`, or name one with --vault DIR or SFUMATO_VAULT.",
        )
    return dict(settings)


def write_settings(root: Path, settings: Mapping[str, object]) -> None:
    """Write the settings of a new vault to `vault.json`, durably."""
    write_new(root / FILE, (json.dumps({"format": FORMAT, **settings}) + "\n").encode())


def change_settings(root: Path, **changed: object) -> None:
    """Change some settings of a vault, durably; an open vault reads them when it restarts."""
    draft = root / f"{FILE}.new"
    draft.unlink(missing_ok=True)  # left by a process that was killed
    write_new(draft, (json.dumps({**settings_of(root), **changed}) + "\n").encode())
    draft.replace(root / FILE)
    sync(root)
