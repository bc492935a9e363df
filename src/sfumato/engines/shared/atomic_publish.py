"""Publish a finished file atomically and durably."""

from __future__ import annotations

from pathlib import Path

from sfumato.system.durable_files import sync


def publish(made: Path, target: Path) -> None:
    """Move a finished file to its target, atomically and durably (fsync, rename, fsync)."""
    made.chmod(0o600)
    sync(made)
    made.replace(target)
    sync(target.parent)


def is_whole(made: Path) -> bool:
    """Say whether a DuckDB file is complete: it has no write-ahead log next to it.

    A full disk leaves such a `.wal` file.
    """
    return not made.with_name(made.name + ".wal").exists()
