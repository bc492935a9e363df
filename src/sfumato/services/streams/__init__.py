"""Streams: running counts that go on while days come in."""

from sfumato.services.streams.streams import Opening, Streams, Unstreamed

__all__ = ["Opening", "Streams", "Unstreamed"]
