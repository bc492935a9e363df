"""Streams: running counts that go on while days come in."""

from sfumato.services.streams.streams import Opening, Streams

__all__ = ["Opening", "Streams"]
