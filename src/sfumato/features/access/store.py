"""The SQL store of users and tokens; passwords and tokens are stored as hashes."""

from __future__ import annotations

import json
from typing import Any, Final

from sfumato.storage.records_database import Records
from sfumato.vault.users import Token, User

_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS users (
        name TEXT NOT NULL PRIMARY KEY, roles TEXT NOT NULL, created TEXT NOT NULL,
        password TEXT NOT NULL, blocked {integer} NOT NULL CHECK (blocked IN (0, 1))
    ){table_end}""",
    """CREATE TABLE IF NOT EXISTS tokens (
        id TEXT NOT NULL PRIMARY KEY, person TEXT NOT NULL, kind TEXT NOT NULL,
        label TEXT NOT NULL, digest TEXT NOT NULL UNIQUE, actions TEXT NOT NULL,
        data_sets TEXT NOT NULL, created TEXT NOT NULL, expires TEXT NOT NULL,
        revoked TEXT NOT NULL
    ){table_end}""",
    "CREATE INDEX IF NOT EXISTS tokens_of ON tokens (person, created)",
)
_USER: Final = "name, roles, created, password, blocked"
_KEPT: Final = "id, person, kind, label, digest, actions, data_sets, created, expires, revoked"


class SqlAccess:
    """Stores users and access tokens in the vault's SQL tables (an AccessStore)."""

    def __init__(self, records: Records) -> None:
        self._records = records
        records.make(_TABLES)

    def user(self, name: str) -> User | None:
        """Return the user with that name, or None."""
        if not name.isprintable():  # a database can't encode a lone surrogate
            return None
        rows = self._records.rows(f"SELECT {_USER} FROM users WHERE name = ?", (name,))
        return _user(rows[0]) if rows else None

    def users(self) -> tuple[User, ...]:
        """Return every user, sorted by name."""
        rows = self._records.rows(f"SELECT {_USER} FROM users")
        return tuple(sorted(map(_user, rows), key=lambda user: user.name))

    def add_user(self, user: User) -> bool:
        """Store a new user; return False if the name was taken."""
        values = (user.name, json.dumps(user.roles), user.created, user.password)
        with self._records.change() as link:
            sql = f"INSERT INTO users ({_USER}) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
            return link.change(sql, (*values, int(user.is_blocked))) == 1

    def set_password(self, name: str, password: str) -> User | None:
        """Change the password hash of a user who isn't blocked; return the user, or None."""
        return self._changed("password = ?", (password, name), "blocked = 0")

    def block_user(self, name: str) -> User | None:
        """Block a user from signing in, and change nothing else.

        Return the changed user, or None.
        """
        return self._changed("blocked = 1", (name,))

    def change_user(self, name: str, roles: tuple[str, ...], is_blocked: bool) -> User | None:
        """Set a user's roles and whether the user is blocked; return the changed user, or None."""
        values = (json.dumps(roles), int(is_blocked), name)
        return self._changed("roles = ?, blocked = ?", values)

    def _changed(self, what: str, values: tuple[object, ...], only: str = "TRUE") -> User | None:
        """Update some columns of one user, and keep concurrent changes of the other columns.

        Return the changed user; None if there is no such user, or if the condition `only` fails.
        """
        with self._records.change() as link:
            sql = f"UPDATE users SET {what} WHERE name = ? AND {only} RETURNING {_USER}"
            rows = link.rows(sql, values)
        return _user(rows[0]) if rows else None

    def token(self, digest: str) -> Token | None:
        """Return the access token with this hash, even if revoked or expired; or None."""
        rows = self._records.rows(f"SELECT {_KEPT} FROM tokens WHERE digest = ?", (digest,))
        return _token(rows[0]) if rows else None

    def tokens(self, user: str) -> tuple[Token, ...]:
        """Return every access token of a user, newest first."""
        sql = f"SELECT {_KEPT} FROM tokens WHERE person = ? ORDER BY created DESC, id"
        return tuple(map(_token, self._records.rows(sql, (user,))))

    def add_token(self, token: Token) -> None:
        """Store a new access token."""
        values = (
            token.id, token.user, token.kind, token.label, token.digest,
            json.dumps(token.actions), json.dumps(token.data_sets), token.created,
            token.expires, token.revoked,
        )  # fmt: skip
        marks = ", ".join("?" * len(values))
        with self._records.change() as link:
            link.change(f"INSERT INTO tokens ({_KEPT}) VALUES ({marks})", values)

    def revoke_token(self, token: str, at: str) -> None:
        """Revoke the access token with that id, at that time."""
        self.take_token(token, at)

    def take_token(self, token: str, at: str) -> bool:
        """Use up a one-time token by revoking it; return whether this call was the first."""
        with self._records.change() as link:
            sql = "UPDATE tokens SET revoked = ? WHERE id = ? AND revoked = ''"
            return link.change(sql, (at, token)) == 1


def _user(row: tuple[Any, ...]) -> User:
    name, roles, created, password, blocked = row
    return User(name, tuple(json.loads(roles)), created, password, bool(blocked))


def _token(row: tuple[Any, ...]) -> Token:
    name, user, kind, label, digest, actions, data_sets, created, expires, revoked = row
    reach = json.loads(data_sets)
    return Token(
        id=name,
        user=user,
        kind=kind,
        label=label,
        digest=digest,
        actions=tuple(json.loads(actions)),
        data_sets=None if reach is None else tuple(reach),
        created=created,
        expires=expires,
        revoked=revoked,
    )
