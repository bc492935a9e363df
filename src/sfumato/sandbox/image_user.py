"""Give the user that an image names to the one uid that programs have in a sandbox.

A block's program always has uid and gid 1000, whatever an image says. So the account of the image's
`User` gets these numbers, in the image's own /etc/passwd and /etc/group, before the image is
stored. All files of an image can be read by this uid. The user root is not given: a program has
none of root's rights.
"""

from __future__ import annotations

from typing import Final

from sfumato.sandbox.oci_layers import Layers
from sfumato.sandbox.program_environment import bad_environment

UID: Final = b"1000"  # who a program is in a sandbox (sandbox_process.py, nested.py)
_MAX_TEXT: Final = 1 << 20
_PASSWD, _GROUP = "etc/passwd", "etc/group"
_ACCOUNT_FIELDS, _GROUP_FIELDS = 7, 4
_ROOT: Final = ("", "root", "0")
Line = list[bytes]


def own_uid_settings(user: str, tree: Layers) -> dict[str, str]:
    """Give the image's user the sandbox's uid; return HOME, USER and LOGNAME of that user.

    Args:
        user: The image's `User`: a name or a uid, and after a colon perhaps a group.
        tree: The image's merged layers, of which the files of accounts are changed.

    Raises:
        Refused: `bad-environment` if the image has no such user or group.
    """
    name, _, group = user.partition(":")
    if name in _ROOT:
        return {}
    accounts = _lines(tree, _PASSWD, _ACCOUNT_FIELDS)
    account = _found(accounts, name)
    _check_named(name, account, "user", _PASSWD)
    gid = account[3] if account else b""
    groups = _lines(tree, _GROUP, _GROUP_FIELDS)
    own = _found(groups, group or gid.decode("utf-8", "replace"))
    if group:
        _check_named(group, own, "group", _GROUP)
    if own is not None:
        _put_first(tree, _GROUP, own, [own[0], own[1], UID, own[3]])
    if account is None:
        return {}
    _put_first(tree, _PASSWD, account, [*account[:2], UID, UID, *account[4:]])
    called, home = _text(account[0]), _text(account[5])
    found = {"USER": called, "LOGNAME": called}
    return {**found, "HOME": home} if home.startswith("/") and tree.is_folder(home) else found


def _check_named(said: str, found: Line | None, what: str, file: str) -> None:
    """Refuse a name that the image's own file lacks; a number without a name is no error."""
    if found is None and not said.isdigit():
        raise bad_environment(f"its {what} {said[:40]!r} is not in the image's /{file}")


def _lines(tree: Layers, path: str, fields: int) -> list[Line]:
    text = tree.read(path, _MAX_TEXT) or b""
    return [parts for line in text.splitlines() if len(parts := line.split(b":")) == fields]


def _found(lines: list[Line], said: str) -> Line | None:
    """Return the line of that name, or of that number."""
    text = said.encode("utf-8", "surrogateescape")
    by_name = (one for one in lines if one[0] == text)
    by_number = (one for one in lines if one[2] == text)
    return next(by_name, None) or (next(by_number, None) if said.isdigit() else None)


def _put_first(tree: Layers, path: str, old: Line, new: Line) -> None:
    """Put a line first, where a search by number finds it, and take its old form away."""
    text = tree.read(path, _MAX_TEXT) or b""
    others = [line for line in text.splitlines() if line != b":".join(old)]
    tree.replace(path, b"\n".join([b":".join(new), *others]) + b"\n")


def _text(said: bytes) -> str:
    return said.decode("utf-8", "surrogateescape")
