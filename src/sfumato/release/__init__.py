"""The guarded door: the only way a number leaves."""
