"""Questions: what they would cost, their answers, and what is left."""

from sfumato.core.budget import decimal_of
from sfumato.door import Begun, Release
from sfumato.services.queries.queries import Asked, Queries

__all__ = ["Asked", "Begun", "Queries", "Release", "decimal_of"]
