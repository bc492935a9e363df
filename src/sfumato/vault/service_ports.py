"""Ports of a service: protocols of its stores for users, tokens and passwords."""

from __future__ import annotations

from typing import Protocol

from sfumato.vault.users import Token, User


class AccessStore(Protocol):
    """A store of users and access tokens; every change is durable when its method returns."""

    def user(self, name: str) -> User | None:
        """Return one user, or None."""
        ...

    def users(self) -> tuple[User, ...]:
        """Return every user, sorted by name."""
        ...

    def add_user(self, user: User) -> bool:
        """Add the user; return False if the name was taken."""
        ...

    def set_password(self, name: str, password: str) -> User | None:
        """Change the password hash of a user who isn't blocked; return the user, or None."""
        ...

    def block_user(self, name: str) -> User | None:
        """Block a user, and change nothing else of them; return the changed user, or None."""
        ...

    def change_user(self, name: str, roles: tuple[str, ...], is_blocked: bool) -> User | None:
        """Change a user's roles and whether they are blocked; return the changed user, or None."""
        ...

    def token(self, digest: str) -> Token | None:
        """Return the token with this hash, even if revoked or expired; or None."""
        ...

    def tokens(self, user: str) -> tuple[Token, ...]:
        """Return every token of a user, newest first."""
        ...

    def add_token(self, token: Token) -> None:
        """Store a new token."""
        ...

    def revoke_token(self, token: str, at: str) -> None:
        """Revoke a token by its id."""
        ...

    def take_token(self, token: str, at: str) -> bool:
        """Use up a one-time token by revoking it; return True if this call was the first."""
        ...


class Passwords(Protocol):
    """A password hashing scheme."""

    def hash(self, password: str) -> str:
        """Return the hash to store for a password."""
        ...

    def check(self, hashed: str, password: str) -> bool:
        """Say whether the password is right.

        An empty hash never matches, and the check then takes as long.
        """
        ...
