"""Check an address of a database that SQLAlchemy reads; no driver is imported here.

An error never quotes the address, because the address may contain a password.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from sfumato.dp.refusal import Refused
from sfumato.system.optional_packages import need_package

MYSQL: Final = ("mysql", "mariadb")
_SCHEME: Final = re.compile(r"(?P<kind>[a-z][a-z0-9_]*)(?:\+(?P<driver>[a-z][a-z0-9_]*))?")
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_FILES: Final = ("sqlite", "duckdb")  # databases that are files, so their addresses have no host
_ENCRYPTED: Final = re.compile("ssl|tls|encrypt", re.IGNORECASE)
_OFF: Final = (
    "", "0", "false", "no", "off", "none", "disable", "disabled", "allow", "prefer", "preferred",
    "optional",
)  # fmt: skip


@dataclass(frozen=True)
class DatabaseAddress:
    """What an address says about its database, without the address."""

    kind: str  # such as "mysql"
    driver: str | None  # the Python driver, if the address names one
    is_here: bool  # the database is on this machine
    has_password: bool


def read_database_address(text: str) -> DatabaseAddress:
    """Parse an address such as mariadb://READER@HOST/DATABASE, or refuse it."""
    scheme, _, rest = text.partition("://")
    found = _SCHEME.fullmatch(scheme)
    parts = None
    if found is not None and rest and text.isprintable():
        try:
            parts = urlsplit(f"//{rest}", scheme="none")
            is_here = _is_here(found["kind"], parts.hostname or "", parts.query)
            has_password = parts.password is not None
        except ValueError:
            parts = None
    if found is None or parts is None:
        raise Refused(
            "engine-unavailable",
            "The connection's address has no form that sfumato knows.",
            "Give postgresql://READER@HOST/DATABASE, mariadb://READER@HOST/DATABASE, or another "
            "address of SQLAlchemy.",
        )
    read = DatabaseAddress(found["kind"], found["driver"], is_here, has_password)
    if read.kind in ("postgres", "postgresql"):
        raise Refused(
            "engine-unavailable",
            "The connection's address names a driver of PostgreSQL.",
            "Give postgresql://READER@HOST/DATABASE, without a driver.",
        )
    if not read.is_here and not _says_encrypted(read, parts.query):
        raise Refused(
            "engine-unsafe",
            "The database is on another machine, or its address does not say localhost, so rows "
            "and secrets would cross the network unencrypted.",
            "Write localhost if it is on this machine. Otherwise add ssl_ca=FILE to the address of "
            "a MySQL or MariaDB server, or your driver's own option that insists on TLS.",
        )
    return read


def check_installed(read: DatabaseAddress) -> None:
    """Refuse if SQLAlchemy, or the driver of MySQL and MariaDB, is not installed."""
    need_package("sqlalchemy", "databases")
    if read.kind in MYSQL and read.driver in (None, "pymysql"):
        need_package("pymysql", "databases")


def password_of_environment(read: DatabaseAddress) -> str | None:
    """Return the password of the environment, if a MySQL or MariaDB address has none itself."""
    return os.environ.get("MYSQL_PWD") if read.kind in MYSQL and not read.has_password else None


def _is_here(kind: str, host: str, query: str) -> bool:
    """Return True if a database is surely on this machine: options may name another host."""
    said = query.casefold()
    if kind in _FILES:
        return not host
    if any(word in said for word in ("host", "server", "odbc", "dsn", "account", "default_file")):
        return False
    return host in _LOCAL or (kind in MYSQL and not host and "unix_socket=" in said)


def _says_encrypted(read: DatabaseAddress, query: str) -> bool:
    """Return True if the options of an address turn on encryption.

    PyMySQL insists on it only if a file of certificates is named.
    """
    options = dict(parse_qsl(query, keep_blank_values=True))
    within = (part.partition("=") for part in options.pop("odbc_connect", "").split(";"))
    options |= {name.strip(): value.strip() for name, _, value in within if name.strip()}
    if any("verify" in name and value.casefold() in _OFF for name, value in options.items()):
        return False
    if read.kind in MYSQL and read.driver in (None, "pymysql"):
        return bool(options.get("ssl_ca") or options.get("ssl_capath"))
    return any(
        _ENCRYPTED.search(name) and "disable" not in name and value.casefold() not in _OFF
        for name, value in options.items()
    )
