"""Aggregate functions, one per file: the sensitivity, the noise, and the interval of the answer."""
