"""Parse PostgreSQL addresses with libpq: role, and whether the server is another machine; options.

An error text of libpq would quote the address, so it is dropped. This module is imported only where
PostgreSQL is used, because it needs psycopg.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sfumato.dp.refusal import Refused

# These settings detect a dead server within a minute.
CONNECTION_OPTIONS: Final[dict[str, Any]] = {
    "autocommit": True, "connect_timeout": 10, "keepalives_idle": 20, "keepalives_interval": 10,
    "keepalives_count": 3, "tcp_user_timeout": 60_000,
}  # fmt: skip
_OF_THE_OWNER: Final = ("passfile", "password", "sslcert", "sslkey", "sslpassword", "user")


def reader_address(owner: str, role: str, password: str) -> str:
    """Return the owner's address with the reader's role, without the owner's name and password."""
    known = _read(owner)
    kept = {name: value for name, value in known.items() if name not in _OF_THE_OWNER}
    return make_conninfo("", **{**kept, "user": role, "password": password})


def role_of(url: str) -> str:
    """Return the role that an address names, or refuse."""
    role = _read(url).get("user")
    if not role:
        raise Refused(
            "engine-unavailable",
            "The PostgreSQL address of the reader names no role (database user).",
            "Give postgresql://READER@HOST/DATABASE.",
        )
    return role


def check_network(url: str) -> None:
    """Refuse an address of another machine that sets no `sslmode`."""
    known = _read(url)
    hosts = f"{known.get('host') or ''},{known.get('hostaddr') or ''}".split(",")
    is_here = all(_is_here(host) for host in hosts) and not known.get("service")
    if known.get("sslmode") or is_here:
        return
    raise Refused(
        "engine-unsafe",
        "The engine is on another machine, so rows and secrets would cross the network "
        "unencrypted.",
        "Add sslmode=verify-full to the address, or another sslmode at your own risk.",
    )


def _is_here(host: str) -> bool:
    return host in ("", "localhost", "127.0.0.1", "::1") or host.startswith(("/", "@"))


def _read(url: str) -> dict[str, str]:
    try:
        return {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except psycopg.Error:
        pass
    raise Refused(
        "engine-unavailable",
        "The PostgreSQL address is not of the form postgresql://OWNER@HOST/DATABASE.",
        "Give postgresql://OWNER@HOST/DATABASE.",
    )
