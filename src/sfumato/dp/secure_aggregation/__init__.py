"""Secure aggregation: masks, secret sharing, round terms, and both sides of the protocol."""
