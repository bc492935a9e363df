"""Databases that the operator lets owners take rows from, each by a name."""

from sfumato.services.connections.connections import Connections, set_up

__all__ = ["Connections", "set_up"]
