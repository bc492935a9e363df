"""Streams: running counts that go on while days come in."""
