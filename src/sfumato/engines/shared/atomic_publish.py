"""Putting what was made where it belongs, durably."""

from __future__ import annotations

from pathlib import Path

from sfumato.system.durable_files import sync


def publish(made: Path, target: Path) -> None:
    """Put a finished file in its place, durably; it is there whole or not at all."""
    made.chmod(0o600)
    sync(made)
    made.replace(target)
    sync(target.parent)


def is_whole(made: Path) -> bool:
    """Say whether nothing of the table waits in a log beside it, where a full disk leaves it."""
    return not made.with_name(made.name + ".wal").exists()
