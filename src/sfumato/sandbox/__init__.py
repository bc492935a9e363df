"""Sandbox for untrusted programs: no network, no secrets, and one size-limited output pipe."""
