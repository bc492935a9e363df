"""Aggregates, one a file: sensitivity, noise, and the interval of the answer."""
