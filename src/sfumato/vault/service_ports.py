"""Protocols only: what a service needs besides what every vault does."""

from __future__ import annotations

from typing import Protocol

from sfumato.vault.users import Token, User


class AccessStore(Protocol):
    """Who may come in, and with what; every change is durable when it returns."""

    def user(self, name: str) -> User | None:
        """Return one user, or None."""
        ...

    def users(self) -> tuple[User, ...]:
        """Return every user, by name."""
        ...

    def add_user(self, user: User) -> bool:
        """Add the user; say whether nobody had the name before."""
        ...

    def set_password(self, name: str, password: str) -> User | None:
        """Change the hash of a password alone, of a user who is let in; return them, or None."""
        ...

    def block_user(self, name: str) -> User | None:
        """Let a user in no more, and change nothing else; return the user as they are."""
        ...

    def change_user(self, name: str, roles: tuple[str, ...], is_blocked: bool) -> User | None:
        """Change a user's roles and whether they are blocked; return the user as they are."""
        ...

    def token(self, digest: str) -> Token | None:
        """Return the token whose hash this is, or None; revoked and old ones too."""
        ...

    def tokens(self, user: str) -> tuple[Token, ...]:
        """Return every token of a user, the newest first."""
        ...

    def add_token(self, token: Token) -> None:
        """Remember a token that was made."""
        ...

    def revoke_token(self, token: str, at: str) -> None:
        """Let a token, by its id, open nothing any more."""
        ...

    def take_token(self, token: str, at: str) -> bool:
        """Revoke a token that opens once; say whether this call was the one."""
        ...


class Passwords(Protocol):
    """How passwords are kept."""

    def hash(self, password: str) -> str:
        """Return what is kept of a password."""
        ...

    def check(self, hashed: str, password: str) -> bool:
        """Say whether it is the password; an empty hash is nobody's, and takes as long."""
        ...
