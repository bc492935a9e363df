"""The mutation bench: one small change of the source at a time, each held against its tests."""
