"""The mutation bench: one small change of the source at a time, and the tests that should fail."""
