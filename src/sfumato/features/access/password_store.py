"""Hash and check passwords with argon2id; a check takes as long for an unknown user."""

from __future__ import annotations

from functools import cached_property


class Argon2Passwords:
    """Password hashing with the argon2 library's default parameters, which follow RFC 9106."""

    @cached_property
    def _unknown(self) -> str:
        """Return a hash that matches no user's password, to check unknown users against."""
        return self.hash("nobody's password: " + "x" * 32)

    def hash(self, password: str) -> str:
        """Return the hash to store for a password."""
        from argon2 import PasswordHasher

        return PasswordHasher().hash(password)

    def check(self, hashed: str, password: str) -> bool:
        """Say whether the password is right; an empty hash never matches, and takes as long."""
        from argon2 import PasswordHasher
        from argon2.exceptions import InvalidHashError, VerificationError

        unknown = self._unknown  # made at the first check, also for a known user: equal time
        try:
            PasswordHasher().verify(hashed or unknown, password)
        except (VerificationError, InvalidHashError):
            return False
        return bool(hashed)
