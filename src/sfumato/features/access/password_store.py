"""Hash and check passwords with argon2id.

A check takes as long for an unknown user as for a known one.
"""

from __future__ import annotations

from functools import cached_property


class Argon2Passwords:
    """Hashes passwords by argon2id with the library's default parameters (RFC 9106)."""

    @cached_property
    def _unknown(self) -> str:
        """Return the hash of a fixed text, for checks of unknown users' passwords.

        `check` verifies against it, so that an unknown user takes as long as a known one.
        """
        return self.hash("nobody's password: " + "x" * 32)

    def hash(self, password: str) -> str:
        """Return the hash to store for a password."""
        from argon2 import PasswordHasher

        return PasswordHasher().hash(password)

    def check(self, hashed: str, password: str) -> bool:
        """Return True if the password matches the hash.

        An empty hash never matches, and its check takes as long as any other.
        """
        from argon2 import PasswordHasher
        from argon2.exceptions import InvalidHashError, VerificationError

        # Compute it at the first check even for a known user, so that all checks take equal time.
        unknown = self._unknown
        try:
            PasswordHasher().verify(hashed or unknown, password)
        except (VerificationError, InvalidHashError):
            return False
        return bool(hashed)
