"""The file of access tokens for services, readable by its owner alone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from sfumato.dp.refusal import Refused


def tokens_path() -> Path:
    """Return the path of this user's token file."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "sfumato" / "tokens.json"


def token_for(url: str) -> str:
    """Return the access token for a service: SFUMATO_TOKEN, or the one from `sign-in`.

    Refuse if there is none.
    """
    given = os.environ.get("SFUMATO_TOKEN")
    kept = given or kept_tokens().get(url.rstrip("/"))
    if not kept:
        raise Refused(
            "not-signed-in",
            f"This machine has no token for {url}.",
            f"Run `sfumato sign-in --vault {url}`, or set SFUMATO_TOKEN.",
        )
    return kept


def kept_tokens() -> dict[str, str]:
    """Return the stored access tokens by service; empty if the file is missing or broken."""
    path = tokens_path()
    try:
        found: Any = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    except ValueError:
        found = {}
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def keep_tokens(tokens: dict[str, str]) -> None:
    """Write the token file atomically, with permissions for its owner alone."""
    path = tokens_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = path.with_suffix(".new")
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(tokens, file)
    made.chmod(0o600)
    made.replace(path)
