"""Passwords, as argon2id hashes; checking a name that is not known takes as long."""

from __future__ import annotations

from functools import cached_property


class Argon2Passwords:
    """Hashes with the library's own parameters, which follow RFC 9106."""

    @cached_property
    def _unknown(self) -> str:
        """Return the hash of what nobody's password is."""
        return self.hash("nobody's password: " + "x" * 32)

    def hash(self, password: str) -> str:
        """Return what is kept of a password."""
        from argon2 import PasswordHasher

        return PasswordHasher().hash(password)

    def check(self, hashed: str, password: str) -> bool:
        """Say whether it is the password; an empty hash is nobody's, and takes as long."""
        from argon2 import PasswordHasher
        from argon2.exceptions import InvalidHashError, VerificationError

        unknown = self._unknown  # made at the first check, be it of a known name or not
        try:
            PasswordHasher().verify(hashed or unknown, password)
        except (VerificationError, InvalidHashError):
            return False
        return bool(hashed)
