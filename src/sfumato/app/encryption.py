"""Encryption at rest: the keys of a vault, and the memory in which its rows may be in clear text.

Rows and keys are encrypted with the vault's own key. That key is in `keys/at-rest`, encrypted with
the key that the owner keeps elsewhere. So the owner's key can change without rewriting rows.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sfumato.app.settings import settings_of
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.engines.shared.memory_scratch import MemoryScratch
from sfumato.storage.run_folders import FileDrafts
from sfumato.storage.vault_key import make_outer_key, outer_key
from sfumato.system.durable_files import sync, write_new
from sfumato.system.randomness import SystemRandomSource
from sfumato.vault.encryption_at_rest import KEY_BYTES, AtRest, DecryptionError

SETTING: Final = "at_rest"
NAMED_BY: Final = "SFUMATO_AT_REST_KEY"
SCRATCH: Final = "SFUMATO_SCRATCH"
_SHARED: Final = "/dev/shm"  # noqa: S108  # a file system in memory; ours is a private folder of it
_IN_MEMORY: Final = ("tmpfs", "ramfs")
_WRAPPED: Final = "at-rest"


@dataclass(frozen=True)
class Scratch:
    """Temporary folders in memory, where an encrypted vault's rows may be in clear text.

    The parent folder is checked again before each use. A logout or a clean-up job may delete it,
    and another user may then create it.
    """

    root: Path

    @contextmanager
    def draft(self) -> Iterator[str]:
        """Yield a private folder in memory, and delete it when the block ends."""
        with FileDrafts(scratch_of(self.root)).draft() as made:
            yield made


@dataclass(frozen=True)
class VaultEncryption:
    """What an encrypted vault needs to be read: its key, and temporary folders in memory."""

    rest: AtRest = field(repr=False)
    drafts: Scratch

    @property
    def engine_scratch(self) -> MemoryScratch:
        """Return the key and the in-memory folders with which the engine reads encrypted rows."""
        return MemoryScratch(self.rest.key, self.rest.draw, self.drafts)


def check_sealable(engine: str | None, source: str, root: Path, dice: RandomSource) -> None:
    """Refuse a vault that cannot be encrypted, before anything of it is created.

    If the owner's key file does not exist yet, create it.
    """
    if engine is not None:
        raise Refused(
            "at-rest-not-possible",
            "This engine stores its rows itself, and the vault cannot encrypt them there.",
            "Encrypt the disks of the engine's server and leave the key out, or leave "
            "--engine out.",
        )
    scratch_of(root)
    make_outer_key(source, root, dice)
    outer_key(source, root)


def new_rest(root: Path, source: str, dice: RandomSource) -> AtRest:
    """Make the key of a new vault, and store it in `keys/` encrypted with the owner's key."""
    outer = AtRest(outer_key(source, root), dice.draw)
    key = dice.draw(KEY_BYTES)
    write_new(root / "keys" / _WRAPPED, outer.encrypt(_WRAPPED, key))
    return AtRest(key, dice.draw)


def sealing_of(root: Path, source: str | None) -> VaultEncryption | None:
    """Return the key and folders that open an encrypted vault, or None if it is not encrypted.

    A missing or wrong key is refused.
    """
    if not settings_of(root).get(SETTING):
        if source:
            raise Refused(
                "at-rest-key",
                "A key was given, but this vault was made without one, so its rows are "
                "not encrypted.",
                "Leave the key out, or make a new vault with the key and add the rows there.",
            )
        return None
    source = source or os.environ.get(NAMED_BY)
    if not source:
        raise Refused(
            "at-rest-key",
            "This vault is encrypted at rest, and its key was not given.",
            f"Set {NAMED_BY} to the key's file, or to `command:` and a command that "
            "prints the key.",
        )
    dice = SystemRandomSource()
    rest = AtRest(_unwrapped(root, AtRest(outer_key(source, root), dice.draw)), dice.draw)
    FileDrafts(scratch_of(root)).sweep()
    return VaultEncryption(rest, Scratch(root))


def change_key(root: Path, old: str | None, new: str) -> None:
    """Encrypt the vault's key with another key of the owner, which is created if it is absent."""
    sealing, dice = sealing_of(root, old), SystemRandomSource()
    if sealing is None:
        raise Refused(
            "at-rest-key", "This vault is not encrypted at rest.", "Make a new vault with a key."
        )
    make_outer_key(new, root, dice)
    outer = AtRest(outer_key(new, root), dice.draw)
    made = root / "keys" / f".{_WRAPPED}-{dice.draw(8).hex()}"
    write_new(made, outer.encrypt(_WRAPPED, sealing.rest.key))
    made.replace(root / "keys" / _WRAPPED)
    # the file is left over from a change that was killed
    for left in (root / "keys").glob(f".{_WRAPPED}-*"):
        left.unlink(missing_ok=True)
    sync(root / "keys")


def _unwrapped(root: Path, outer: AtRest) -> bytes:
    key = None
    try:
        key = outer.decrypt(_WRAPPED, (root / "keys" / _WRAPPED).read_bytes())
    except (OSError, DecryptionError):
        key = None
    if key is None:
        raise Refused(
            "at-rest-key",
            "The given key does not decrypt this vault.",
            "Give the vault's own key. If you did, restore keys/at-rest from the vault's backup.",
        )
    return key


def scratch_of(root: Path) -> Path:
    """Return the vault's private folder in memory, and create it if it is absent.

    Refuse a folder on a disk, because rows must not be in clear text there.
    """
    base = Path(os.environ.get(SCRATCH) or _SHARED).resolve()
    if _kind_of(base) not in _IN_MEMORY:
        raise Refused(
            "at-rest-not-possible",
            f"{base} is not a file system in memory, and unencrypted rows must not be on a disk.",
            f"Set {SCRATCH} to a folder on a tmpfs.",
        )
    name = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]
    folder = base / f"sfumato-{os.geteuid()}-{name}"
    found = None
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    if found is None:
        raise Refused(
            "at-rest-not-possible",
            f"sfumato cannot make the folder {folder}.",
            f"Make {base} writable, or set {SCRATCH} to a folder on another tmpfs.",
        )
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise Refused(
            "at-rest-not-possible",
            f"The folder {folder} already exists, and other users can access it.",
            f"Remove the folder, or set {SCRATCH} to another folder on a tmpfs.",
        )
    return folder


def _kind_of(base: Path) -> str:
    """Return the type of the file system that holds a folder.

    Of several mounts at the same place, the last counts.
    """
    kind, deepest = "", -1
    for line in Path("/proc/self/mounts").read_text("utf-8", "surrogateescape").splitlines():
        _, place, said, *_ = line.split(" ")
        mounted = Path(place.replace("\\040", " "))
        if base.is_relative_to(mounted) and len(mounted.parts) >= deepest:
            kind, deepest = said, len(mounted.parts)
    return kind
