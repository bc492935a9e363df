"""Ports of a service: protocols of its stores for users, tokens and passwords."""

from __future__ import annotations

from typing import Protocol

from sfumato.vault.users import Token, User


class AccessStore(Protocol):
    """A store of users and access tokens; every change is durable when its method returns."""

    def user(self, name: str) -> User | None:
        """Return the user with that name, or None."""
        ...

    def users(self) -> tuple[User, ...]:
        """Return every user of the service, sorted by name."""
        ...

    def add_user(self, user: User) -> bool:
        """Store a new user; return False if the name was taken."""
        ...

    def set_password(self, name: str, password: str) -> User | None:
        """Change the password hash of a user who isn't blocked; return the user, or None."""
        ...

    def block_user(self, name: str) -> User | None:
        """Block a user from signing in.

        Return the changed user, or None if there is no such user.
        """
        ...

    def change_user(self, name: str, roles: tuple[str, ...], is_blocked: bool) -> User | None:
        """Set a user's roles and whether the user is blocked; return the changed user, or None."""
        ...

    def token(self, digest: str) -> Token | None:
        """Return the token with this hash, even if revoked or expired; or None."""
        ...

    def tokens(self, user: str) -> tuple[Token, ...]:
        """Return every access token of a user, newest first."""
        ...

    def add_token(self, token: Token) -> None:
        """Store a new access token."""
        ...

    def revoke_token(self, token: str, at: str) -> None:
        """Revoke the access token with that id, at that time."""
        ...

    def take_token(self, token: str, at: str) -> bool:
        """Use up a one-time token by revoking it; return True if no earlier call used it."""
        ...


class Passwords(Protocol):
    """A scheme to hash and check passwords."""

    def hash(self, password: str) -> str:
        """Return the hash to store for a password."""
        ...

    def check(self, hashed: str, password: str) -> bool:
        """Say whether the password matches the hash.

        An empty hash never matches, and that check takes as long as any other.
        """
        ...
