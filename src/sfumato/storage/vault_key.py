"""The key that decrypts a vault encrypted at rest: 64 hex digits, kept outside the vault.

The key comes from a private file outside the vault's folder, or from a command's output. Such a
command may ask a keyring, a password manager or a key service. Passphrases are not supported,
because a passphrase that people can remember can be guessed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import stat
import subprocess
from pathlib import Path
from typing import Final

from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.system.durable_files import sync, write_new
from sfumato.vault.encryption_at_rest import KEY_BYTES

COMMAND: Final = "command:"
_FORM: Final = re.compile(rb"\s*([0-9a-fA-F]{%d})\s*" % (2 * KEY_BYTES))
_MAX_BYTES: Final = 1 << 12  # most bytes that are read from the file or the command
_PATIENCE_S: Final = 120.0  # time limit of the command; a keyring may ask its user first


def outer_key(source: str, root: Path) -> bytes:
    """Return the key that decrypts the vault, from a file or a command; or refuse.

    No message contains any of the key.
    """
    if source.startswith(COMMAND):
        text = _said_by(source.removeprefix(COMMAND))
    else:
        text = _in_file(Path(source), root)
    found = _FORM.fullmatch(text)
    if found is None:
        raise _refused(
            "This is not a key: it is not 64 hexadecimal digits.",
            "Name the file or command that holds the vault's key.",
        )
    return bytes.fromhex(found[1].decode("ascii"))


def make_outer_key(source: str, root: Path, dice: RandomSource) -> bool:
    """Write a new key for the vault to a file; return True.

    Return False if the file exists, or if the key comes from a command.
    """
    path = Path(source)
    if source.startswith(COMMAND) or os.path.lexists(path):
        return False
    _check_outside(path, root)
    is_made = False
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_new(path, dice.draw(KEY_BYTES).hex().encode() + b"\n")
        sync(path.parent)
        is_made = True
    if not is_made:
        raise _refused(
            f"The key's file {path} cannot be created.", "Name a place where you may write."
        )
    return True


def _in_file(path: Path, root: Path) -> bytes:
    _check_outside(path, root)
    text = None
    try:
        with path.open("rb") as file:
            why = _why_not_private(os.fstat(file.fileno()))
            text = file.read(_MAX_BYTES) if why is None else b""
    except OSError:
        text = None
    if text is None:
        raise _refused(
            f"The key's file {path} cannot be read.", "Name the file that holds the key."
        )
    if why is not None:
        raise _refused(f"The key's file {path} {why}.", "Make it private: chmod 600.")
    return text


def _check_outside(path: Path, root: Path) -> None:
    if path.resolve().is_relative_to(root.resolve()):
        raise _refused(
            "The key would be in the vault's own folder, so whoever takes the folder has the key.",
            "Keep the key elsewhere, best not on the same disk.",
        )


def _why_not_private(found: os.stat_result) -> str | None:
    """Return why other users could read or replace the key file; None if they can't.

    Read permission for the group root is allowed: systemd sets it as an ACL mask.
    """
    if not stat.S_ISREG(found.st_mode):
        return "is not a plain file"
    if found.st_uid not in (0, os.geteuid()):
        return "belongs to somebody else"
    if found.st_mode & 0o037 or (found.st_mode & 0o040 and found.st_gid != 0):
        return "can be read by others"
    return None


def _said_by(command: str) -> bytes:
    """Return the output of the command that prints the key; no shell runs the command."""
    said: bytes | None = None
    try:
        ended = subprocess.run(
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=_PATIENCE_S,
            check=False,
        )
        said = ended.stdout[:_MAX_BYTES] if ended.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        said = None
    if said is None:
        raise _refused("The command that prints the key failed.", "Try the command in a shell.")
    return said


def _refused(cause: str, next_step: str) -> Refused:
    return Refused("at-rest-key", cause, next_step)
