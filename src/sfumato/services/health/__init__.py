"""Whether the service is ready, and what an operator may measure of it."""

from sfumato.services.health.readiness import Readiness

__all__ = ["Readiness"]
