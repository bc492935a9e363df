"""Aggregate functions, one per file: sensitivity, noise, and the interval of the answer."""
