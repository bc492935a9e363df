"""Files that no noise could make private: looked at by several people, then let out or not."""

from sfumato.services.airlock.airlock import Airlock

__all__ = ["Airlock"]
